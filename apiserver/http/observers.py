"""Who is told of each request when it is over: metrics, audit, the list of slow ones."""

from typing import Protocol

from kvstack.apiserver.http.request_context import RequestContext


class RequestObserver(Protocol):
    """Is told of requests."""

    def ended(self, context: RequestContext, took_ns: int) -> None:
        """Take note of a request whose handler is over; it may not fail or wait."""
        ...
