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

from kvstack.agents.standalone.in_memory.cluster_time import (
    MACHINE,
    VIRTUAL,
    ClusterTime,
    ClusterTimeError,
)
from kvstack.apimachinery.objects import durations, status
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.http.pages.debug_pages import send_json

if TYPE_CHECKING:
    from kvstack.agents.standalone.in_memory.settling import Cluster
    from kvstack.apiserver.http.request_context import RequestContext

PATH: Final = "/clock"
BODY_BYTES_MAX: Final = 4096
ADVANCE: Final = "advance"
RATE: Final = "rate"
_NO_CLOCK: Final = (
    "this cluster uses the machine's clock, which cannot be changed; a fork that was created with "
    "--clock virtual has a clock of its own"
)
_EXAMPLE: Final = '{"advance": "24h"} or {"rate": 100}'


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
    name, value = _operation(body)
    try:
        if name == RATE:
            own.set_rate(_number(value))
            return
        seconds = _seconds(value)
        context.reply.may_take_long()
        await own.advance(seconds)
    except ClusterTimeError as error:
        raise status.bad_request(str(error)) from None


def _operation(body: bytes) -> tuple[str, object]:
    """Return the operation and its argument; raises ApiError."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise status.bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(found, dict) or len(found) != 1 or not found.keys() <= {ADVANCE, RATE}:
        raise status.bad_request(f"the body must be {_EXAMPLE}")
    return next(iter(found.items()))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise status.bad_request(f"invalid {RATE}: it is a number")
    return float(value)


def _seconds(value: object) -> float:
    if not isinstance(value, str):
        raise status.bad_request(f'invalid {ADVANCE}: expected a duration such as "24h"')
    try:
        return durations.parse(value) / 1e9
    except durations.DurationError as error:
        raise status.bad_request(f"invalid {ADVANCE} {quote(value)}: {error}") from None
