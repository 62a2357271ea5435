"""/debug/requests: open calls and slow requests, as one plain page of HTML.

etcd serves Go's traces of its gRPC calls at this path when it logs at debug level. Calls are not
traced here; the page shows the open calls and streams by method, and the slow requests with their
causes, as on the status page.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

from kvstack.component.units import MILLISECOND_NS
from kvstore.server.metrics.calls import OpenCalls
from kvstore.server.metrics.slow_requests import SlowRequest
from kvstore.wire.rpc import METHODS

PATH: Final = "/debug/requests"
_ACTIVE: Final = ("Method", "Open", "Oldest, ms")
_SLOW: Final = ("At, Unix ms", "Method", "Code", "Calls", "Took, ms", "Cause", "Request")


def render(active: Sequence[OpenCalls], slow: Sequence[SlowRequest]) -> bytes:
    """Return the page; the newest slow request is the first."""
    open_rows = [
        (METHODS[each.method].path, each.count, f"{each.oldest_ns / MILLISECOND_NS:.1f}")
        for each in active
    ]
    slow_rows = [
        (each.at_ms, each.method, each.code, each.count, f"{each.took_ms:.1f}", each.cause,
         each.request)
        for each in reversed(slow)
    ]  # fmt: skip
    return (
        "<!DOCTYPE html>\n<title>/debug/requests</title>\n<h1>/debug/requests</h1>\n"
        f"<h2>Open</h2>\n{_table(_ACTIVE, open_rows)}<h2>Slow</h2>\n{_table(_SLOW, slow_rows)}"
    ).encode()


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["<table>", _row("th", heads), *[_row("td", row) for row in rows], "</table>\n"]
    return "\n".join(lines)


def _row(tag: str, cells: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
