"""A range request against the store: fetch, filter, sort, cut, in etcd's order.

A limit is pushed down only if nothing is filtered or sorted afterwards; then one key more than
requested is fetched, which shows whether there are `more`. `count` is the number of keys in range
before filters and limit.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from kvstore.errors import Refusal
from kvstore.mvcc.store import Store
from kvstore.wire import splice
from kvstore.wire.gen import rpc_pb2 as pb

LIMIT_MAX: Final = (1 << 63) - 1

ParsedKv = tuple[bytes, int, int, int, bytes, int]  # key, create, mod, version, value, lease

_SORT_COLUMN: Final = {
    pb.RangeRequest.KEY: 0,
    pb.RangeRequest.VERSION: 3,
    pb.RangeRequest.CREATE: 1,
    pb.RangeRequest.MOD: 2,
    pb.RangeRequest.VALUE: 4,
}


class RangeAnswer(NamedTuple):
    """The result of a range: encoded KeyValues, whether there are more, their count, revision."""

    kvs: list[bytes]
    more: bool
    count: int  # type: ignore[assignment]  # hides tuple.count
    revision: int


def is_store_order(request: pb.RangeRequest) -> bool:
    """Return whether the response is in the store's own order, ascending by key."""
    return request.sort_target == pb.RangeRequest.KEY and is_default_order(request)


def is_default_order(request: pb.RangeRequest) -> bool:
    """Return whether the request names no order, or ascending by key.

    Then etcd applies the limit before it sorts, even if a target other than KEY is named.
    """
    return request.sort_order == pb.RangeRequest.NONE or (
        request.sort_target == pb.RangeRequest.KEY and request.sort_order == pb.RangeRequest.ASCEND
    )


def has_revision_filters(request: pb.RangeRequest) -> bool:
    """Return whether the request filters keys by their create or mod revision."""
    return bool(
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )


def execute_range(store: Store, request: pb.RangeRequest) -> RangeAnswer | Refusal:
    """Answer one range request at once."""
    result = store.range(
        request.key,
        request.range_end,
        revision=request.revision,
        limit=fetch_limit(request),
        count_only=request.count_only,
        keys_only=skips_values(request),
    )
    if isinstance(result, Refusal):
        return result
    kvs, more = shape(request, result.kvs)
    return RangeAnswer(kvs, more, result.count, result.revision)


def is_plain(request: pb.RangeRequest) -> bool:
    """Return whether a request is for KeyValues as they are now, in the store's own order."""
    return not (
        request.revision > 0
        or request.count_only
        or request.keys_only
        or not 0 <= request.limit < LIMIT_MAX
        or not is_store_order(request)
        or has_revision_filters(request)
    )


def fetch_limit(request: pb.RangeRequest) -> int:
    """Return how many keys to fetch: one more than requested, or 0 for all of the range."""
    limit = request.limit
    if 0 < limit < LIMIT_MAX and is_default_order(request) and not has_revision_filters(request):
        return limit + 1
    return 0


def shape(request: pb.RangeRequest, kvs: list[bytes]) -> tuple[list[bytes], bool]:
    """Filter, sort, cut and strip KeyValues; return them, and whether there are more."""
    filters = has_revision_filters(request)
    if filters or not is_store_order(request):
        kvs = _filter_and_sort(request, kvs, filters=filters)
    more = 0 < request.limit < len(kvs)
    if more:
        kvs = kvs[: request.limit]
    if request.keys_only and not skips_values(request):
        kvs = [splice.strip_value(kv) for kv in kvs]
    return kvs, more


def skips_values(request: pb.RangeRequest) -> bool:
    """Return whether the key index can answer alone, which has no values and no leases.

    Sorting by value needs them; etcd 3.7 then shows the lease as well.
    """
    return request.keys_only and request.sort_target != pb.RangeRequest.VALUE


def _filter_and_sort(request: pb.RangeRequest, kvs: list[bytes], *, filters: bool) -> list[bytes]:
    rows = [(splice.parse_kv(kv), kv) for kv in kvs]
    if filters:
        keep = _revision_filter(request)
        rows = [row for row in rows if keep(row[0])]
    order = request.sort_order
    if order == pb.RangeRequest.NONE and request.sort_target != pb.RangeRequest.KEY:
        order = pb.RangeRequest.ASCEND
    if order != pb.RangeRequest.NONE:
        column = _SORT_COLUMN[request.sort_target]
        rows.sort(key=lambda row: row[0][column], reverse=order == pb.RangeRequest.DESCEND)
    return [kv for _, kv in rows]


def _revision_filter(request: pb.RangeRequest) -> Callable[[ParsedKv], bool]:
    mod_min, mod_max = request.min_mod_revision, request.max_mod_revision
    create_min, create_max = request.min_create_revision, request.max_create_revision

    def keep(kv: ParsedKv) -> bool:
        _, create, mod, _, _, _ = kv
        return not (
            (mod_max != 0 and mod > mod_max)
            or (mod_min != 0 and mod < mod_min)
            or (create_max != 0 and create > create_max)
            or (create_min != 0 and create < create_min)
        )

    return keep
