"""What rides along a request from its first byte to its last.

    context = RequestContext(request, reply, route, began_ns)    the user is nobody yet
    context.user = user                                          authenticated, or whom they act as

Pages, servers behind this one, limits, queues, the audit and metrics all take it. A verb knows what
it needs of it by its `Call`, which is made for resources alone.
"""

from typing import TYPE_CHECKING, Final

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.routing import Route
from kvstack.component.http.serving.request import Request

if TYPE_CHECKING:
    from kvstack.apiserver.verbs.stages import Spent

UNKNOWN: Final = User("")
"""Whoever asks, before that is known: without a name, in no group, allowed nothing."""


class RequestContext:
    """One request, where it goes, who asks, and its answer."""

    __slots__ = ("began_ns", "reply", "request", "route", "spent", "user")

    def __init__(self, request: Request, reply: Reply, route: Route, began_ns: int) -> None:
        """Begin with a request; began_ns: of the monotonic clock, when it came."""
        self.request: Final = request
        self.reply: Final = reply
        self.route: Final = route
        self.began_ns: Final = began_ns
        self.user: User = UNKNOWN
        self.spent: Spent = {}
        """How long it has waited in each stage."""
