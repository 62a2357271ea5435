"""How far back the history goes, and the revisions by time: `/at`.

    GET /at                       {"oldest": TIME, "now": TIME, "revision": 4711, "notes": []}
    GET /at?from=TIME&to=TIME     "notes": [[unix_ms, first, last], …]

A note says that the revisions from first to last existed at a time; one is taken every second in
which something changed. The newest NOTES_MAX of the interval are returned. Times are as in RFC
3339, and `/at/TIME/…` takes them (`http.past`). The page contains no objects.
"""

from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.request_info import Query
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.times import TimeError, format_time, parse_time
from kvstack.apiserver.http.pages.debug_pages import send_json
from kvstack.apiserver.http.pages.page_set import PageSet, check_get
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.registry import Registry
from kvstore.client.errors import StoreError

PATH: Final = "/at"
NOTES_MAX: Final = 2000


def add_times_page(pages: PageSet, registry: Registry) -> None:
    """Serve the page, which `/` does not list."""

    async def page(context: RequestContext) -> None:
        check_get(context.request)
        now_ms = registry.clock.unix_ms()
        query = context.route.query
        from_ms, to_ms = _moment(query, "from", 0), _moment(query, "to", now_ms)
        try:
            oldest_ms = await registry.times.oldest_ms()
            notes = []
            if "from" in query:
                notes = await registry.times.notes_between(from_ms, to_ms, NOTES_MAX)
        except StoreError as error:
            raise errors.api_error(error, GroupResource("", ""), "get") from error
        send_json(
            context,
            {
                # Rounded up: a returned time can be used in a request.
                "oldest": None if oldest_ms is None else format_time(-(-oldest_ms // 1000)),
                "now": format_time(now_ms / 1000),
                "revision": registry.watch_cache.revision,
                "notes": [list(each) for each in notes],
            },
        )

    pages.add(PATH, page, is_listed=False)


def _moment(query: Query, name: str, otherwise_ms: int) -> int:
    """Return a time of the query; raises ApiError."""
    values = query.get(name)
    if not values:
        return otherwise_ms
    try:
        moment = parse_time(values[0])
    except TimeError:
        raise status.bad_request(
            f"invalid {name} {quote(values[0])}: must be a time as in RFC 3339"
        ) from None
    return moment.seconds * 1000 + moment.nanoseconds // 1_000_000
