"""Hand-written codecs against the protobuf library, and against bytes torn and flipped.

The rule: what is spliced equals what the library serializes, what the library serializes reads back
as the same values, and damaged bytes give a value or a WireError, never another exception.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.raft import confchange_codec
from kvstore.raft.model import (
    ConfChange,
    ConfChangeSingle,
    ConfChangeV2,
    ConfState,
    Entry,
    HardState,
    Message,
    Snapshot,
    SnapshotMetadata,
)
from kvstore.wire import internal, members, raft_codec, splice
from kvstore.wire.checks import check_txn
from kvstore.wire.gen import kv_pb2, raft_internal_pb2, raft_pb2, rpc_pb2
from kvstore.wire.varint import WireError, int64, read_varint, varint

# The same examples in every run, and no deadline on a busy machine.
QUICK = settings(derandomize=True, deadline=None)

uint64s = st.integers(0, 2**64 - 1) | st.integers(0, 300)
int64s = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300)
counts = st.integers(0, 2**63 - 1) | st.integers(0, 300)
bodies = st.binary(max_size=400)
texts = st.text(max_size=20)
headers = st.builds(
    lambda *numbers: (splice.HeaderMaker(*numbers[:2]), *numbers[2:]),
    uint64s, uint64s, counts, uint64s,
)  # fmt: skip
Header = tuple[splice.HeaderMaker, int, int]

key_values = st.builds(
    kv_pb2.KeyValue,
    key=bodies, create_revision=int64s, mod_revision=int64s, version=int64s, value=bodies,
    lease=int64s,
)  # fmt: skip
events = st.builds(
    kv_pb2.Event,
    type=st.integers(0, 1), kv=key_values, prev_kv=st.none() | key_values,
)  # fmt: skip

entries = st.builds(Entry, st.integers(0, 2), uint64s, uint64s, bodies)
conf_states = st.builds(
    ConfState, *[st.lists(uint64s, max_size=3).map(tuple) for _ in range(4)], st.booleans()
)
snapshots = st.builds(Snapshot, st.builds(SnapshotMetadata, conf_states, uint64s, uint64s), bodies)
conf_changes = st.builds(ConfChange, uint64s, st.integers(0, 3), uint64s, bodies)
conf_changes_v2 = st.builds(
    ConfChangeV2,
    st.integers(0, 2),
    st.lists(st.builds(ConfChangeSingle, st.integers(0, 3), uint64s), max_size=3).map(tuple),
    bodies,
)
messages = st.builds(
    Message,
    type=st.integers(0, 23), to=uint64s, from_=uint64s, term=uint64s, log_term=uint64s,
    index=uint64s, entries=st.lists(entries, max_size=3), commit=uint64s,
    snapshot=st.none() | snapshots, reject=st.booleans(), reject_hint=uint64s, context=bodies,
)  # fmt: skip
member_rows = st.builds(
    members.Member,
    uint64s, texts, st.lists(texts, max_size=3), st.lists(texts, max_size=3), st.booleans(),
)  # fmt: skip


def raw(kv: kv_pb2.KeyValue) -> bytes:
    return kv.SerializeToString(deterministic=True)


def header_pb(header: Header) -> rpc_pb2.ResponseHeader:
    maker, revision, term = header
    return rpc_pb2.ResponseHeader.FromString(maker.message(revision, term))


@QUICK
@given(uint64s, int64s)
def test_varints(unsigned: int, signed: int) -> None:
    data = varint(unsigned) + int64(signed)
    first, at = read_varint(data, 0)
    second, end = read_varint(data, at)
    assert (first, second, end) == (unsigned, signed % (1 << 64), len(data))


@QUICK
@given(key_values)
def test_key_values(kv: kv_pb2.KeyValue) -> None:
    columns = (kv.key, kv.create_revision, kv.mod_revision, kv.version, kv.value, kv.lease)
    assert splice.encode_kv(*columns) == raw(kv)
    assert splice.parse_kv(raw(kv)) == columns
    assert splice.kv_key(raw(kv)) == kv.key
    assert splice.strip_value(raw(kv)) == splice.encode_kv(*columns[:4], b"", kv.lease)


@QUICK
@given(uint64s, uint64s, counts, uint64s)
def test_headers(cluster_id: int, member_id: int, revision: int, term: int) -> None:
    maker = splice.HeaderMaker(cluster_id, member_id)
    header = rpc_pb2.ResponseHeader(
        cluster_id=cluster_id, member_id=member_id, revision=revision, raft_term=term
    )
    assert maker.message(revision, term) == header.SerializeToString()
    assert maker.field(revision, term) == rpc_pb2.PutResponse(header=header).SerializeToString()


@QUICK
@given(header=headers, kvs=st.lists(key_values, max_size=5), more=st.booleans(), count=counts)
def test_ranges(*, header: Header, kvs: list[kv_pb2.KeyValue], more: bool, count: int) -> None:
    spliced = splice.range_response(
        header[0].field(*header[1:]), [raw(kv) for kv in kvs], more, count
    )
    library = rpc_pb2.RangeResponse(header=header_pb(header), kvs=kvs, more=more, count=count)
    assert spliced == library.SerializeToString()


@QUICK
@given(headers, st.none() | key_values)
def test_puts(header: Header, previous: kv_pb2.KeyValue | None) -> None:
    spliced = splice.put_response(
        header[0].field(*header[1:]), None if previous is None else raw(previous)
    )
    library = rpc_pb2.PutResponse(header=header_pb(header), prev_kv=previous)
    assert spliced == library.SerializeToString()


@QUICK
@given(headers, counts, st.lists(key_values, max_size=3))
def test_deletions(header: Header, deleted: int, previous: list[kv_pb2.KeyValue]) -> None:
    spliced = splice.delete_response(
        header[0].field(*header[1:]), deleted, [raw(kv) for kv in previous]
    )
    library = rpc_pb2.DeleteRangeResponse(
        header=header_pb(header), deleted=deleted, prev_kvs=previous
    )
    assert spliced == library.SerializeToString()


@QUICK
@given(
    header=headers,
    watch_id=int64s,
    created=st.booleans(),
    canceled=st.booleans(),
    compact_revision=int64s,
    cancel_reason=texts,
    fragment=st.booleans(),
    happened=st.lists(events, max_size=4),
)
def test_watch_responses(
    *,
    header: Header,
    watch_id: int,
    created: bool,
    canceled: bool,
    compact_revision: int,
    cancel_reason: str,
    fragment: bool,
    happened: list[kv_pb2.Event],
) -> None:
    head = splice.watch_head(
        header[0].field(*header[1:]),
        watch_id,
        created=created,
        canceled=canceled,
        compact_revision=compact_revision,
        cancel_reason=cancel_reason,
        fragment=fragment,
    )
    tail = b"".join(
        splice.encode_event(
            event.type, raw(event.kv), raw(event.prev_kv) if event.HasField("prev_kv") else None
        )
        for event in happened
    )
    library = rpc_pb2.WatchResponse(
        header=header_pb(header),
        watch_id=watch_id,
        created=created,
        canceled=canceled,
        compact_revision=compact_revision,
        cancel_reason=cancel_reason,
        fragment=fragment,
        events=happened,
    )
    assert head + tail == library.SerializeToString()


@QUICK
@given(headers, int64s, int64s)
def test_leases(header: Header, lease_id: int, ttl_s: int) -> None:
    spliced = splice.lease_response(header[0].field(*header[1:]), lease_id, ttl_s)
    for kind in (rpc_pb2.LeaseGrantResponse, rpc_pb2.LeaseKeepAliveResponse):
        library = kind(header=header_pb(header), ID=lease_id, TTL=ttl_s)
        assert spliced == library.SerializeToString()


@QUICK
@given(headers, int64s, st.integers(1, 2**63 - 1), st.sampled_from(["plain", "odd", "more"]))
def test_keep_alives(header: Header, lease_id: int, ttl_s: int, form: str) -> None:
    request = rpc_pb2.LeaseKeepAliveRequest(ID=lease_id).SerializeToString()
    if form == "odd" and 0 < lease_id < 1 << 56:  # a varint longer than it need be
        request = request[:-1] + bytes((request[-1] | 128, 0))
    elif form == "more":  # the field twice, and one that nobody knows
        request = b"\x08\x05" + request + b"\x78\x01"
        if not lease_id:
            request += b"\x08\x00"
    assert lease_id == rpc_pb2.LeaseKeepAliveRequest.FromString(request).ID
    made = splice.keep_alive_response(header[0].field(*header[1:]), request, lease_id, ttl_s)
    library = rpc_pb2.LeaseKeepAliveResponse(header=header_pb(header), ID=lease_id, TTL=ttl_s)
    assert made == library.SerializeToString()


@QUICK
@given(st.sampled_from(internal.Field), uint64s, texts, uint64s, bodies)
def test_log_data(
    field: internal.Field, request_id: int, username: str, revision: int, body: bytes
) -> None:
    data = internal.wrap(field, body, request_id, username, revision)
    assert internal.unwrap(data) == (field, body, request_id)
    assert internal.credentials(data) == (username, revision)


@QUICK
@given(uint64s, texts, bodies, bodies, int64s)
def test_log_data_is_what_the_library_writes(
    request_id: int, username: str, key: bytes, value: bytes, lease: int
) -> None:
    put = rpc_pb2.PutRequest(key=key, value=value, lease=lease)
    library = raft_internal_pb2.InternalRaftRequest(put=put)
    library.header.SetInParent()
    library.header.ID = request_id
    library.header.username = username
    data = internal.wrap(internal.Field.PUT, put.SerializeToString(), request_id, username)
    assert data == library.SerializeToString()


@QUICK
@given(entries)
def test_entries(entry: Entry) -> None:
    data = raft_codec.encode_entry(entry)
    assert raft_codec.decode_entry(data) == entry
    type_ = raft_pb2.EntryType.Name(entry.type)
    old = raft_pb2.Entry(Type=type_, Term=entry.term, Index=entry.index, Data=entry.data)
    assert raft_codec.decode_entry(old.SerializeToString()) == entry


@QUICK
@given(uint64s, uint64s, uint64s, conf_states, snapshots, conf_changes, conf_changes_v2)
def test_states_and_changes(
    term: int,
    vote: int,
    commit: int,
    conf_state: ConfState,
    snapshot: Snapshot,
    change: ConfChange,
    change_v2: ConfChangeV2,
) -> None:
    state = HardState(term, vote, commit)
    assert (
        raft_codec.encode_hard_state(state)
        == raft_pb2.HardState(term=term, vote=vote, commit=commit).SerializeToString()
    )
    assert raft_codec.decode_hard_state(raft_codec.encode_hard_state(state)) == state
    assert raft_codec.decode_conf_state(raft_codec.encode_conf_state(conf_state)) == conf_state
    assert raft_codec.decode_snapshot(raft_codec.encode_snapshot(snapshot)) == snapshot
    assert raft_codec.decode_conf_change(raft_codec.encode_conf_change(change)) == change
    packed = confchange_codec.encode(change_v2)
    assert raft_codec.decode_conf_change_v2(packed) == change_v2


@QUICK
@given(messages)
def test_messages(message: Message) -> None:
    data = raft_codec.encode_message(message)
    assert raft_codec.decode_message(data) == message
    library = raft_pb2.Message.FromString(data)
    assert library.SerializeToString() == data  # ascending, nothing unknown
    assert (library.index, library.commit) == (message.index, message.commit)


@QUICK
@given(member_rows)
def test_members(member: members.Member) -> None:
    assert members.decode_member(members.encode_member(member)) == member


READERS: dict[str, tuple[Callable[[bytes], Any], st.SearchStrategy[bytes]]] = {
    "kv": (splice.parse_kv, key_values.map(raw)),
    "kv key": (splice.kv_key, key_values.map(raw)),
    "kv value": (splice.strip_value, key_values.map(raw)),
    "log data": (
        internal.unwrap,
        st.builds(internal.wrap, st.sampled_from(internal.Field), bodies, uint64s, texts, uint64s),
    ),
    "credentials": (
        internal.credentials,
        st.builds(internal.wrap, st.sampled_from(internal.Field), bodies, uint64s, texts, uint64s),
    ),
    "v2 request": (
        internal.decode_v2_request,
        st.just(bytes.fromhex("0807 1203505554 1a022f30 2201 78 2800 3200 3800 4800")),
    ),
    "entry": (raft_codec.decode_entry, entries.map(raft_codec.encode_entry)),
    "hard state": (
        raft_codec.decode_hard_state,
        st.builds(HardState, uint64s, uint64s, uint64s).map(raft_codec.encode_hard_state),
    ),
    "conf state": (
        raft_codec.decode_conf_state,
        conf_states.map(raft_codec.encode_conf_state),
    ),
    "snapshot": (raft_codec.decode_snapshot, snapshots.map(raft_codec.encode_snapshot)),
    "change": (
        raft_codec.decode_conf_change,
        conf_changes.map(raft_codec.encode_conf_change),
    ),
    "joint change": (
        raft_codec.decode_conf_change_v2,
        conf_changes_v2.map(confchange_codec.encode),
    ),
    "message": (raft_codec.decode_message, messages.map(raft_codec.encode_message)),
    "member": (members.decode_change_context, member_rows.map(members.encode_member)),
}


@pytest.mark.parametrize("name", READERS)
@settings(QUICK, max_examples=60)
@given(st.data())
def test_damaged_bytes_end_in_a_value_or_a_clean_error(name: str, data: st.DataObject) -> None:
    read, sound = READERS[name]
    written = data.draw(sound)
    read(written)
    torn = written[: data.draw(st.integers(0, len(written)))]
    flipped = bytearray(torn)
    for _ in range(data.draw(st.integers(0, 3)) if torn else 0):
        flipped[data.draw(st.integers(0, len(torn) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (torn, bytes(flipped), data.draw(bodies)):
        with suppress(WireError):
            read(damaged)


keys = st.sampled_from([b"a", b"ab", b"b", b"c", b"d"])
puts = st.builds(rpc_pb2.RequestOp, request_put=st.builds(rpc_pb2.PutRequest, key=keys))
deletions = st.builds(
    rpc_pb2.RequestOp,
    request_delete_range=st.builds(
        rpc_pb2.DeleteRangeRequest, key=keys, range_end=st.just(b"") | st.just(b"\0") | keys
    ),
)


@QUICK
@given(st.lists(puts | deletions, max_size=8))
def test_flat_transactions_conflict_as_a_pairwise_look_says(ops: list[rpc_pb2.RequestOp]) -> None:
    written = [op.request_put.key for op in ops if op.HasField("request_put")]
    deleted = [op.request_delete_range for op in ops if op.HasField("request_delete_range")]
    conflict = len(set(written)) < len(written) or any(
        request.key <= key < request.range_end if request.range_end else request.key == key
        for key in written
        for request in deleted
    )
    assert (check_txn(rpc_pb2.TxnRequest(success=ops), 128) is not None) == conflict
