"""Past states: `/at/<resourceVersion or time>` as a prefix of a path.

    /at/4711/api/v1/pods                    as of that revision
    /at/2026-11-22T10:00:00Z/api/v1/pods    as of that time

Objects can only be read: writes and watches are refused. Documents about the API are the current
ones. A compacted revision is answered with 410 and the oldest available time.
"""

from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.times import TimeError, format_time, parse_time
from kvstack.apiserver.http.routing import Route
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.time_index import TooOldError
from kvstore.client.errors import StoreError

_READING: Final = frozenset(("get", "list", "watch"))
_READ_ONLY: Final = "past states are read-only"
_NO_MOMENT: Final = "must be a resourceVersion, or a time as in RFC 3339, e.g. 2006-01-02T15:04:05Z"
_REVISION_DIGITS_MAX: Final = 18


async def revision_of(registry: Registry, route: Route) -> int:
    """Return the revision of a route; raises ApiError."""
    if route.endpoint is not None and route.verb not in _READING:
        raise status.failure(405, "MethodNotAllowed", _READ_ONLY)
    text = route.at
    if text.isascii() and text.isdigit() and len(text) <= _REVISION_DIGITS_MAX and int(text):
        return int(text)
    try:
        moment = parse_time(text)
    except TimeError:
        raise status.bad_request(f"invalid moment {quote(text)}: {_NO_MOMENT}") from None
    unix_ms = moment.seconds * 1000 + moment.nanoseconds // 1_000_000
    if unix_ms > registry.clock.unix_ms():
        raise status.bad_request(f"invalid moment {quote(text)}: it is in the future")
    try:
        return await registry.times.revision_at(unix_ms)
    except TooOldError:
        raise await expired(registry) from None
    except StoreError as error:
        raise errors.api_error(error, GroupResource("", ""), "get") from error


async def expired(registry: Registry) -> ApiError:
    """Return the 410 of a compacted revision."""
    try:
        oldest_ms = await registry.times.oldest_ms()
    except StoreError:
        oldest_ms = None
    if oldest_ms is None:
        return status.expired(errors.LIST_EXPIRED)
    oldest = format_time(-(-oldest_ms // 1000))
    return status.expired(f"{errors.LIST_EXPIRED} The oldest available time is {oldest}.")
