"""The cluster's clock: `/clock` at the API server's port, for authorized users.

    GET /clock                             {"clock": "virtual", "time": TIME, "rate": 1.0,
                                            "isAdvancing": false}
    POST /clock  {"advance": "24h"}        lets so much time go by at once; answers when it has
    POST /clock  {"rate": 100}             so many times as fast as the machine's; 0: paused

Both answer what GET does. A cluster that uses the machine's clock is `real`, and refuses to
change it (409). If a client goes away, its `advance` ends where it is.
"""

from typing import TYPE_CHECKING, Any, Final

import orjson

from kvstack.agents.standalone.in_memory.clock_change import clock_change
from kvstack.agents.standalone.in_memory.cluster_time import (
    MACHINE,
    VIRTUAL,
    ClusterTime,
    ClusterTimeError,
)
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.http.pages.debug_pages import send_json

if TYPE_CHECKING:
    from kvstack.agents.standalone.in_memory.settling import Cluster
    from kvstack.apiserver.http.request_context import RequestContext

PATH: Final = "/clock"
BODY_BYTES_MAX: Final = 4096
_NO_CLOCK: Final = (
    "this cluster uses the machine's clock, which cannot be changed; a fork that was created with "
    "--clock virtual has a clock of its own"
)


def add_clock_page(cluster: "Cluster") -> None:
    """Serve the page at a cluster's API server."""
    server, own = cluster.server, cluster.time

    def state() -> dict[str, Any]:
        return {
            "clock": MACHINE if own is None else VIRTUAL,
            "time": format_time(server.env.clock.unix_ms() / 1000),
            "rate": 1.0 if own is None else own.rate,
            "isAdvancing": own is not None and own.is_advancing,
        }

    async def page(context: "RequestContext") -> None:
        if context.request.method == "POST":
            await _change(context, own)
        elif context.request.method != "GET":
            raise status.generic(405)
        send_json(context, state())

    server.site.pages.add(PATH, page, is_listed=False)
    server.site.router.add_long(PATH)


async def _change(context: "RequestContext", own: ClusterTime | None) -> None:
    """Apply a request to the clock; raises ApiError."""
    body = await context.request.read(BODY_BYTES_MAX)
    if own is None:
        raise status.failure(409, "Conflict", _NO_CLOCK, {})
    try:
        change = clock_change(orjson.loads(body))
        if change.rate is not None:
            own.set_rate(change.rate)
        if change.advance_s is not None:
            context.reply.may_take_long()
            await own.advance(change.advance_s)
    except orjson.JSONDecodeError as error:
        raise status.bad_request(f"the body is not JSON: {error}") from None
    except ClusterTimeError as error:
        raise status.bad_request(str(error)) from None
