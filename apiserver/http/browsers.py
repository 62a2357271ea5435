"""What browsers are told: which other sites may read answers, and that only TLS is to be spoken.

    rules = BrowserRules(patterns, ["max-age=31536000"])
    if rules.answers(request, reply): return        a question before a request is answered at once

Without patterns nothing is said of other sites, so that no browser lets them read anything.
"""

from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects.text.go_patterns import Pattern
from kvstack.apiserver.http.answers import Headers, Reply
from kvstack.component.http.serving.request import Request

_SHARED: Final[Headers] = [
    ("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        "Access-Control-Allow-Headers",
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization,"
        " X-Requested-With, If-Modified-Since",
    ),
    ("Access-Control-Expose-Headers", "Date"),
    ("Access-Control-Allow-Credentials", "true"),
]


class BrowserRules:
    """The rules of one server."""

    def __init__(self, origins: Sequence[Pattern], transport_security: Sequence[str]) -> None:
        """Let sites whose origin matches a pattern read answers.

        transport_security: the directives of Strict-Transport-Security; none: it is not sent.
        """
        self._origins: Final = tuple(origins)
        self._always: Final[Headers] = []
        if transport_security:
            self._always.append(("Strict-Transport-Security", "; ".join(transport_security)))

    def answers(self, request: Request, reply: Reply) -> bool:
        """Add headers to an answer; return whether it was sent."""
        reply.extra += self._always
        origin = request.header("origin")
        if not origin or not any(each.search(origin) for each in self._origins):
            return False
        reply.extra += [("Access-Control-Allow-Origin", origin), *_SHARED]
        if request.method != "OPTIONS":
            return False
        reply.send_nothing(204)
        return True
