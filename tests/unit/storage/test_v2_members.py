"""The version 2 store tells who the members are where etcd 3.5's own rows are wrong."""

from pathlib import Path

import pytest

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.apply.membership import Membership
from kvstore.backend import Table
from kvstore.meta_rows import CONSISTENT_INDEX_KEY
from kvstore.raft.model import (
    ConfChange,
    ConfChangeType,
    Entry,
    EntryType,
    Snapshot,
    SnapshotMetadata,
)
from kvstore.server.boot.legacy_members import correct_members
from kvstore.storage.files import OsFiles
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.storage.snapshots.file import write_snapshot_file
from kvstore.storage.v2_store import encode_v2_store
from kvstore.wire.gen import membership_pb2
from kvstore.wire.internal import Field, wrap
from kvstore.wire.members import Member, encode_member, encode_promotion
from kvstore.wire.raft_codec import encode_conf_change
from kvstore.wire.v2_members import Attributes, V2Members, decode_attributes, decode_v2_members
from kvstore.wire.varint import WireError

ONE = Member(1, "one", ["http://1:2380"], ["http://1:2379"])
TWO = Member(2, "two", ["http://2:2380"], ["http://2:2379"])
LEARNER = Member(2, "", ["http://2:2380"], is_learner=True)
SNAPSHOT_INDEX = 10


def rows(*members: Member, applied: int = 0) -> MemoryBackend:
    backend = MemoryBackend()
    for member in members:
        backend.put(Table.MEMBERS, f"{member.id:x}".encode(), encode_member(member))
    backend.put(Table.META, CONSISTENT_INDEX_KEY, applied.to_bytes(8, "big"))
    return backend


def listed(backend: MemoryBackend) -> Membership:
    membership = Membership(backend, learners_max=1)
    membership.restore()
    return membership


def test_what_is_written_is_read() -> None:
    told = decode_v2_members(encode_v2_store([ONE, LEARNER], [7, 8], "3.5.0"))
    assert told == V2Members({1: ONE, 2: LEARNER}, {7, 8})
    assert decode_v2_members(encode_v2_store([], [], None)) == V2Members({}, set())


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"Root":null}', b"\xff", b"[" * 5000])
def test_what_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(WireError, match="not a version 2 store"):
        decode_v2_members(text)


def test_what_a_request_publishes() -> None:
    value = '{"name":"one","clientURLs":["http://1:2379"]}'
    told = decode_attributes("/0/members/1f/attributes", value)
    assert told == Attributes(0x1F, "one", ["http://1:2379"])
    assert decode_attributes("/0/version", "3.5.0") is None
    with pytest.raises(WireError, match="/0/members/x/attributes"):
        decode_attributes("/0/members/x/attributes", value)


def test_rows_are_corrected() -> None:
    backend = rows(ONE, LEARNER, Member(3, "three", ["http://3:2380"]))
    membership = listed(backend)
    assert sorted(membership.correct(V2Members({1: ONE, 2: TWO}, {3}))) == [2, 3]
    for each in (membership, listed(backend)):
        assert (each.members, each.removed) == ({1: ONE, 2: TWO}, {3})
    assert membership.correct(V2Members({1: ONE, 2: TWO}, {3})) == []


def test_who_has_published_nothing_keeps_its_name() -> None:
    founder = Member(1, "one", ["http://1:2380"])
    membership = listed(rows(founder))
    assert membership.correct(decode_v2_members(encode_v2_store([founder], [], None))) == []
    assert membership.members == {1: founder}


def change(index: int, kind: int, member_id: int, context: bytes) -> Entry:
    data = encode_conf_change(ConfChange(index, kind, member_id, context))
    return Entry(EntryType.CONF_CHANGE, 1, index, data)


def entries() -> list[Entry]:
    attributes = membership_pb2.Attributes(name="two", client_urls=TWO.client_urls)
    told = membership_pb2.ClusterMemberAttrSetRequest(member_ID=2, member_attributes=attributes)
    publish = wrap(Field.CLUSTER_MEMBER_ATTR_SET, told.SerializeToString(), 5)
    learner = encode_member(Member(2, "", ["http://2:2380"], is_learner=True))
    return [
        change(11, ConfChangeType.ADD_LEARNER_NODE, 2, learner),
        Entry(EntryType.NORMAL, 1, 12, publish),
        change(13, ConfChangeType.ADD_NODE, 2, encode_promotion(2)),
        change(14, ConfChangeType.REMOVE_NODE, 1, b""),
    ]


@pytest.mark.parametrize(
    ("applied", "expected"),
    [
        (10, {1: ONE}),
        (11, {1: ONE, 2: LEARNER}),
        (12, {1: ONE, 2: Member(2, "two", TWO.peer_urls, TWO.client_urls, is_learner=True)}),
        (13, {1: ONE, 2: TWO}),
        (14, {2: TWO}),
    ],
)
def test_the_log_is_followed_to_what_is_applied(
    tmp_path: Path, applied: int, expected: dict[int, Member]
) -> None:
    data = encode_v2_store([ONE], [], "3.5.0")
    write_snapshot_file(tmp_path, Snapshot(SnapshotMetadata(index=SNAPSHOT_INDEX, term=1), data))
    backend = rows(ONE, LEARNER, applied=applied)
    log = LineLogger([], "info")
    correct_members(backend, tmp_path, SNAPSHOT_INDEX, entries(), 1, log, OsFiles())
    assert listed(backend).members == expected


def test_without_the_snapshot_file_rows_stay(tmp_path: Path) -> None:
    backend = rows(ONE, LEARNER, applied=10)
    correct_members(backend, tmp_path, SNAPSHOT_INDEX, [], 1, LineLogger([], "info"), OsFiles())
    assert listed(backend).members == {1: ONE, 2: LEARNER}
