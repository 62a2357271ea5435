"""Whether the cluster is settled: `/settled` at the API server's port, for authorized users.

    GET /settled                          how it is now
    GET /settled?timeout=10s              once it is settled, or after so long
    GET /settled?timeout=10s&quiet=1s     and clients over the network have been quiet for so long

    {"settled": true, "exact": false, "revision": 812, "time": TIME, "waitedSeconds": 0.31,
     "moving": [{"who": "deployment-controller", "what": "shop/web", "why": "is worked on"}],
     "due":    [{"who": "cronjob-controller", "what": "shop/nightly", "inSeconds": 41.2}],
     "others": [{"user": "alice", "agent": "operator/1.2", "watches": ["pods"],
                 "askedSecondsAgo": 0.4}]}

The answer is 200 also if it is not settled: `moving` says why. It is not exact if others may still
act, who are named. Requests that wait share what is looked at (`settled.waiters`), take no seat of
priority and fairness, and end with their clients.
"""

import math
from typing import TYPE_CHECKING, Any, Final

from kvstack.agents.standalone.in_memory.settling import SHOWN_MAX, Cluster
from kvstack.agents.standalone.settled.others import Client, Others
from kvstack.agents.standalone.settled.waiters import Outcome, TooManyWaitersError, Waiters
from kvstack.apimachinery.objects import durations, status
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.http.pages.debug_pages import send_json
from kvstack.apiserver.http.pages.page_set import check_get

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.request_info import Query
    from kvstack.apiserver.http.request_context import RequestContext

PATH: Final = "/settled"
QUIET_S: Final = 0.2
QUIET_S_MAX: Final = 60.0
TIMEOUT_S_MAX: Final = 600.0


def add_settled_page(cluster: Cluster) -> None:
    """Serve the page at a cluster's API server."""
    server = cluster.server
    waiters = Waiters(cluster, Others(server))
    clock = server.env.clock

    async def page(context: "RequestContext") -> None:
        check_get(context.request)
        query = context.route.query
        timeout_s = _seconds(query, "timeout", 0.0, TIMEOUT_S_MAX)
        quiet_s = _seconds(query, "quiet", QUIET_S, QUIET_S_MAX)
        context.reply.may_take_long()
        try:
            outcome = await waiters.wait(timeout_s, quiet_s)
        except TooManyWaitersError:
            raise status.too_many_requests("too many requests wait for it already", 1) from None
        send_json(context, _json(outcome, clock.unix_ms() / 1000))

    server.site.pages.add(PATH, page, is_listed=False)
    server.site.router.add_long(PATH)


def _json(outcome: Outcome, now_s: float) -> dict[str, Any]:
    moving = outcome.moving
    return {
        "settled": not moving,
        "exact": not outcome.others.clients,
        "revision": outcome.state.revision,
        "time": format_time(now_s),
        "waitedSeconds": round(outcome.waited_s, 3),
        "moving": [each._asdict() for each in moving[:SHOWN_MAX]],
        "due": [
            {"who": each.who, "what": each.what, "inSeconds": round(each.in_s, 3)}
            for each in outcome.state.due
        ],
        "others": [_client(each) for each in outcome.others.clients],
    }


def _client(client: Client) -> dict[str, Any]:
    asked_s = None if math.isinf(client.asked_s) else round(client.asked_s, 3)
    return {
        "user": client.user,
        "agent": client.agent,
        "watches": list(client.watches),
        "askedSecondsAgo": asked_s,
    }


def _seconds(query: "Query", name: str, otherwise_s: float, max_s: float) -> float:
    """Return a length of time of the query; raises ApiError."""
    values = query.get(name)
    if not values:
        return otherwise_s
    try:
        found = durations.parse(values[0]) / 1e9
    except durations.DurationError as error:
        raise status.bad_request(f"invalid {name} {quote(values[0])}: {error}") from None
    if not 0 <= found <= max_s:
        raise status.bad_request(f"invalid {name} {quote(values[0])}: 0s to {max_s:g}s")
    return found
