"""What calls to play: Hypothesis strategies that favor meetings over variety.

A few keys, values, leases and revisions, so that calls touch each other's work; now and then
something odd. Everything shrinks towards a single key, an absent option, revision 0.
"""

from typing import Any, Final

from hypothesis import strategies as st

from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.differential.calls import Base, Call, Now, Self

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
LEASES: Final = [1, 2, 3, 7_000_000_007, INT64_MAX, -5]
TTL_MAX_S: Final = 9_000_000_000

Strategy = st.SearchStrategy[Any]


def usually(common: Strategy, odd: Strategy, *, parts: int = 9) -> Strategy:
    """Draw from common parts times out of parts + 1."""
    return st.integers(0, parts).flatmap(lambda n: odd if n == parts else common)


common_keys: Final = st.sampled_from([b"a", b"b", b"c", b"d", b"ab", b"b/1", b"b/2", b"base"])
keys: Final = usually(
    common_keys,
    st.sampled_from([b"\0", b"\xff", b"\xff\xff", b"a\0", b"", b"k" * 300]) | st.binary(max_size=4),
)
values: Final = usually(
    st.sampled_from([b"", b"x", b"y", b"long value " * 5]), st.binary(max_size=20)
)
leases: Final = st.sampled_from(LEASES)
flags: Final = st.just(True)
revisions: Final = usually(
    st.integers(-6, 0).map(lambda back: Now(back)) | st.integers(0, 4).map(lambda on: Base(on)),
    st.sampled_from([0, 1, -1, INT64_MAX, INT64_MIN, Base(-1), Base(-3), Now(1), Now(2)]),
    parts=6,
)


def _prefix_end(key: bytes) -> bytes:
    kept = key.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b"\0"


def _shape(kind: str, key: bytes, other: bytes) -> dict[str, Any]:
    match kind:
        case "single":
            return {"key": key}
        case "interval":
            return {"key": min(key, other), "range_end": max(key, other)}
        case "prefix":
            return {"key": key, "range_end": _prefix_end(key)}
        case "from":
            return {"key": key, "range_end": b"\0"}
        case "whole":
            return {"key": b"\0", "range_end": b"\0"}
        case _:
            return {"key": max(key, other), "range_end": min(key, other)}


ranges: Final = st.builds(
    _shape,
    st.sampled_from(["single", "interval", "prefix", "from", "whole", "inverted"]),
    keys,
    keys,
)


def with_options(required: Strategy, **optional: Strategy) -> Strategy:
    """Return required dicts extended by some of the options."""
    return st.builds(
        lambda a, b: {**a, **b}, required, st.fixed_dictionaries({}, optional=optional)
    )


range_requests: Final = with_options(
    ranges,
    limit=usually(st.integers(0, 4), st.sampled_from([-1, INT64_MAX, INT64_MIN, 1000])),
    revision=revisions,
    sort_order=st.integers(0, 2),
    sort_target=st.integers(0, 4),
    serializable=flags,
    keys_only=flags,
    count_only=flags,
    min_mod_revision=revisions,
    max_mod_revision=revisions,
    min_create_revision=revisions,
    max_create_revision=revisions,
)
simple_range_requests: Final = with_options(
    ranges, limit=st.integers(0, 3), revision=revisions, keys_only=flags, serializable=flags
)
put_requests: Final = st.one_of(
    st.fixed_dictionaries({"key": keys, "value": values}),
    st.fixed_dictionaries({"key": common_keys, "value": values, "lease": leases}),
    st.fixed_dictionaries(
        {"key": keys},
        optional={
            "value": values,
            "lease": leases,
            "prev_kv": flags,
            "ignore_value": flags,
            "ignore_lease": flags,
        },
    ),
)
delete_requests: Final = with_options(ranges, prev_kv=flags)

versions: Final = st.integers(-1, 3)
unions: Final = st.one_of(
    st.fixed_dictionaries({"version": versions}),
    st.fixed_dictionaries({"create_revision": revisions}),
    st.fixed_dictionaries({"mod_revision": revisions}),
    st.fixed_dictionaries({"value": values}),
    st.fixed_dictionaries({"lease": st.sampled_from([0, *LEASES])}),
    st.just({}),
)
_UNION_TARGETS: Final = ["version", "create_revision", "mod_revision", "value", "lease"]


def _matching(union: dict[str, Any]) -> dict[str, Any]:
    return {"target": _UNION_TARGETS.index(next(iter(union))) if union else 0, **union}


compares: Final = st.builds(
    lambda shape, result, union: {**shape, "result": result, **union},
    st.fixed_dictionaries({"key": common_keys}) | ranges,
    usually(st.integers(0, 3), st.just(4)),
    usually(
        unions.map(_matching),
        st.builds(
            lambda union, target: {**union, "target": target},
            unions,
            st.sampled_from([0, 1, 2, 3, 4, 5]),
        ),
        parts=4,
    ),
)


def _ops(depth: int) -> Strategy:
    kinds = [
        st.fixed_dictionaries({"request_range": simple_range_requests | range_requests}),
        st.fixed_dictionaries({"request_put": put_requests}),
        st.fixed_dictionaries({"request_delete_range": delete_requests}),
    ]
    if depth > 0:
        kinds.append(st.fixed_dictionaries({"request_txn": txn_requests(depth - 1)}))
    return usually(st.one_of(kinds), st.just({}), parts=40)


def _puts_once(op: dict[str, Any]) -> object:
    """Tell ops apart that may not stand side by side, so that most transactions are legal."""
    return op["request_put"]["key"] if "request_put" in op else repr(op)


def txn_requests(depth: int) -> Strategy:
    """Return transactions nested up to depth further levels."""
    branch = usually(
        st.lists(_ops(depth), max_size=4, unique_by=_puts_once),
        st.lists(_ops(depth), max_size=4),
    )
    return st.fixed_dictionaries(
        {},
        optional={"compare": st.lists(compares, max_size=2), "success": branch, "failure": branch},
    )


alarm_requests: Final = st.fixed_dictionaries(
    {},
    optional={
        "action": st.integers(0, 2),  # etcd survives no other
        "memberID": st.sampled_from([Self(), 0, 12345]),
        "alarm": usually(st.integers(0, 1), st.just(2)),  # nor of an unknown alarm
    },
)
_ttls: Final = usually(
    st.sampled_from([100, 1000, TTL_MAX_S]), st.sampled_from([TTL_MAX_S + 1, INT64_MAX])
)


def _call(name: str, requests: Strategy) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(name), requests)


writes: Final = st.one_of(
    _call("Put", put_requests),
    _call("Put", put_requests),
    _call("DeleteRange", delete_requests),
    _call("Txn", txn_requests(1)),
)
reads: Final = st.one_of(
    _call("Range", range_requests),
    _call("Range", simple_range_requests),
    _call("HashKV", st.fixed_dictionaries({}, optional={"revision": revisions})),
)
compactions: Final = _call(
    "Compact", st.fixed_dictionaries({"revision": revisions}, optional={"physical": flags})
)
lease_calls: Final = st.one_of(
    _call("LeaseGrant", st.fixed_dictionaries({"ID": leases, "TTL": _ttls})),
    _call("LeaseGrant", st.fixed_dictionaries({"ID": leases, "TTL": _ttls})),
    _call("LeaseRevoke", st.fixed_dictionaries({"ID": leases | st.just(0)})),
    _call(
        "LeaseTimeToLive",
        st.fixed_dictionaries({"ID": leases | st.just(0)}, optional={"keys": flags}),
    ),
    _call("LeaseLeases", st.just({})),
    _call(
        "KeepAlive",
        st.fixed_dictionaries({"leases": st.lists(leases | st.just(0), max_size=3)}),
    ),
)
other_calls: Final = st.one_of(
    _call("MemberList", st.fixed_dictionaries({}, optional={"linearizable": flags})),
    _call("Alarm", alarm_requests),
    _call("Status", st.just({})),
)
txns: Final = _call("Txn", txn_requests(2))
any_calls: Final = st.one_of(
    writes, writes, reads, reads, txns, lease_calls, compactions, other_calls
)

assert pb.RangeRequest.VALUE == 4, "sort targets are drawn by number"
