"""The requests of this process to API servers, by client-go's names.

    REQUESTS.count("127.0.0.1:6443", "GET", 200, seconds)      each try, once its head is there
    render(REQUESTS.samples())

All clients of a process share the counts, as in client-go: several agents in one process show the
same ones. A watch counts when it begins.
"""

from collections.abc import Iterator
from typing import Final

from kvstack.component.metrics.exposition import FamilySamples
from kvstack.component.metrics.labelled import LabelledCounter, LabelledHistogram

HOSTS_MAX: Final = 64
"""Servers with series of their own: a process may outlive many."""
OTHERS: Final = "other"
IN_PROCESS: Final = "in-process"
"""The host of an API server in the same process."""
ERROR: Final = "<error>"
_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class RequestCounts:
    """Counts requests by server, method and code."""

    def __init__(self) -> None:
        self._hosts: set[str] = set()
        self._requests = LabelledCounter(
            "rest_client_requests_total",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            *("code", "host", "method"),
        )
        self._seconds = LabelledHistogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            _SECONDS,
            *("host", "verb"),
        )

    def count(self, host: str, method: str, code: int, seconds: float) -> None:
        """Count a request; code: 0 if there was no answer."""
        if host not in self._hosts:
            if len(self._hosts) >= HOSTS_MAX:
                host = OTHERS
            else:
                self._hosts.add(host)
        self._requests.add(str(code) if code else ERROR, host, method)
        self._seconds.add(seconds, host, method)

    def samples(self) -> Iterator[FamilySamples]:
        """Give the metrics."""
        yield self._requests.samples()
        yield self._seconds.samples()


REQUESTS: Final = RequestCounts()
"""Those of this process."""
