"""The context of a request.

    context = RequestContext(request, reply, route, began_ns)    the user is not known yet
    context.user = user                                          authenticated, or whom they act as

Pages, aggregated servers, limits, queues, the audit and metrics take it. Verbs get what they need
of it in their `Call`, which is made for resources only.
"""

from typing import TYPE_CHECKING, Final

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.routing import Route
from kvstack.component.http.serving.request import Request

if TYPE_CHECKING:
    from kvstack.apiserver.verbs.stages import Spent

UNKNOWN: Final = User("")
"""The user before authentication: without a name, in no group, allowed nothing."""


class RequestContext:
    """One request, its route, its user and its answer."""

    __slots__ = ("began_ns", "reply", "request", "route", "spent", "user")

    def __init__(self, request: Request, reply: Reply, route: Route, began_ns: int) -> None:
        """began_ns: of the monotonic clock, when the request arrived."""
        self.request: Final = request
        self.reply: Final = reply
        self.route: Final = route
        self.began_ns: Final = began_ns
        self.user: User = UNKNOWN
        self.spent: Spent = {}
        """Time spent waiting, by stage."""
