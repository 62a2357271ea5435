"""Observers of completed requests: metrics, audit, the list of slow requests."""

from typing import Protocol

from kvstack.apiserver.http.request_context import RequestContext


class RequestObserver(Protocol):
    """Is notified of completed requests."""

    def ended(self, context: RequestContext, took_ns: int) -> None:
        """Record a request whose handler has returned; must not fail or block."""
        ...
