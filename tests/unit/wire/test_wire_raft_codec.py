"""Raft's data types in etcd's encoding; the hex is from a running etcd 3.7.1 unless noted."""

import pytest

from kvstore.raft import confchange_codec
from kvstore.raft.model import (
    ConfChange,
    ConfChangeSingle,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    Snapshot,
    SnapshotMetadata,
)
from kvstore.wire import raft_codec as codec
from kvstore.wire.gen import raft_pb2
from kvstore.wire.varint import WireError

MEMBER = 0x628ED94AD692E8A1
MEMBER_JSON = b'{"id":7101852577860610209,"peerURLs":["http://127.0.0.1:23800"],"name":"n1"}'
BOOTSTRAP = bytes.fromhex("1000 18a1d1cbb4ada9b6c762 224c") + MEMBER_JSON
META = SnapshotMetadata(ConfState(voters=(1, 300)), 7, 2)


@pytest.mark.parametrize(
    ("entry", "seen"),
    [
        (Entry(EntryType.NORMAL, 2, 2, b""), "1002 1802"),
        (Entry(EntryType.NORMAL, 2, 5, b"ab"), "1002 1805 22026162"),
        (Entry(EntryType.CONF_CHANGE, 1, 1, b"x"), "0801 1001 1801 220178"),
        (Entry(EntryType.CONF_CHANGE_V2, 1, 1, b""), "0802 1001 1801"),
        (Entry(EntryType.NORMAL, 300, 2**64 - 1, b"x"), "10ac02 18ffffffffffffffffff01 220178"),
        (Entry(EntryType.NORMAL, 0, 0, b"forwarded"), "2209" + b"forwarded".hex()),
        (Entry(EntryType.NORMAL, 0, 0, b""), ""),
    ],
)
def test_entries(entry: Entry, seen: str) -> None:
    assert codec.encode_entry(entry).hex() == seen.replace(" ", "")
    assert codec.decode_entry(bytes.fromhex(seen)) == entry


@pytest.mark.parametrize("size", [1, 127, 128, 20_000, 300_000])
def test_entries_of_all_sizes(size: int) -> None:
    entry = Entry(0, 130, 1 << 40, b"d" * size)
    data = codec.encode_entry(entry)
    assert raft_pb2.Entry.FromString(data).Data == entry.data
    assert codec.decode_entry(data) == entry


def test_older_releases_wrote_the_zeros_of_an_entry() -> None:
    assert codec.decode_entry(bytes.fromhex("0800 1002 1805 2200")) == Entry(0, 2, 5, b"")
    assert codec.decode_entry(bytes.fromhex("0800 1002 1805 220178")) == Entry(0, 2, 5, b"x")
    assert codec.decode_entry(bytes.fromhex("220178 1805 1002")) == Entry(0, 2, 5, b"x")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("0803 1001 1801", "entry 1 of type 3"),
        ("1001 1801 0807", "entry 1 of type 7"),
        ("1002 1805 220261", "ends after"),
        ("1002 1805 22", "cut off"),
        ("1002 18", "cut off"),
        ("10", "cut off"),
        ("13", "wire type 3"),
    ],
)
def test_bytes_that_are_no_entry(data: str, text: str) -> None:
    with pytest.raises(WireError, match=text):
        codec.decode_entry(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("state", "seen"),
    [
        (HardState(1, 0, 1), "0801 1000 1801"),
        (HardState(2, MEMBER, 5), "0802 10a1d1cbb4ada9b6c762 1805"),
        (HardState(), "0800 1000 1800"),
    ],
)
def test_hard_state_writes_all_three(state: HardState, seen: str) -> None:
    assert codec.encode_hard_state(state) == bytes.fromhex(seen)
    assert codec.decode_hard_state(bytes.fromhex(seen)) == state


def test_absent_is_zero() -> None:
    assert codec.decode_hard_state(b"\x08\x01") == HardState(1)
    assert codec.decode_conf_state(b"\x08\x07") == ConfState((7,))
    assert codec.decode_snapshot(b"") == Snapshot()
    assert codec.decode_message(b"") == Message(0)


def test_conf_state() -> None:
    state = ConfState((1, 300), (5,), (6,), (7,), auto_leave=False)
    seen = bytes.fromhex("0801 08ac02 1005 1806 2007 2800")
    assert codec.encode_conf_state(state) == seen
    assert codec.decode_conf_state(seen) == state
    assert codec.encode_conf_state(state._replace(auto_leave=True))[-2:] == b"\x28\x01"


def test_snapshot() -> None:
    snapshot = Snapshot(META, b"{}")
    seen = bytes.fromhex("0a027b7d 120d 0a07 0801 08ac02 2800 1007 1802")
    assert codec.encode_snapshot(snapshot) == seen
    assert codec.decode_snapshot(seen) == snapshot
    assert codec.encode_snapshot(Snapshot(META)) == seen[4:]


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (ConfChange(0, ConfChangeType.ADD_NODE, MEMBER, MEMBER_JSON), BOOTSTRAP),
        (
            ConfChange(7, ConfChangeType.REMOVE_NODE, 5),
            bytes.fromhex("0807 1001 1805"),
        ),
        (
            ConfChange(7, ConfChangeType.ADD_LEARNER_NODE, 5, b"{}"),
            bytes.fromhex("0807 1003 1805 22027b7d"),
        ),
    ],
)
def test_configuration_changes(change: ConfChange, seen: bytes) -> None:
    assert codec.encode_conf_change(change) == seen
    assert codec.decode_conf_change(seen) == change


def test_joint_changes_as_the_generated_classes_write_them() -> None:
    change = ConfChangeV2(1, (ConfChangeSingle(0, 5), ConfChangeSingle(3, MEMBER)), b"c")
    message = raft_pb2.ConfChangeV2(
        transition=raft_pb2.ConfChangeTransitionJointImplicit, context=b"c"
    )
    message.changes.add(type=0, node_id=5)
    message.changes.add(type=3, node_id=MEMBER)
    assert confchange_codec.encode(change) == message.SerializeToString()
    assert codec.decode_conf_change_v2(message.SerializeToString()) == change
    assert confchange_codec.encode(ConfChangeV2()) == b""
    assert codec.decode_conf_change_v2(b"") == ConfChangeV2()


def test_unknown_changes_are_not_taken_for_additions() -> None:
    with pytest.raises(WireError, match="type 4"):
        codec.decode_conf_change(bytes.fromhex("1004 1805"))
    with pytest.raises(WireError, match="type 9"):
        codec.decode_conf_change_v2(bytes.fromhex("1204 0809 1005"))
    with pytest.raises(WireError, match="transition 3"):
        codec.decode_conf_change_v2(bytes.fromhex("0803"))


def message(kind: MessageType, **numbers: object) -> Message:
    made = Message(kind, to=1, from_=2)
    for name, value in numbers.items():
        setattr(made, name, value)
    return made


ENTRIES = [Entry(0, 2, 4, b"")]
HEAD = "1001 1802"


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (message(MessageType.APP), "2000 2800 3000 4000"),
        (
            message(MessageType.APP, term=2, log_term=1, index=3, commit=3, entries=ENTRIES),
            "2002 2801 3003 3a0410021804 4003",
        ),
        (message(MessageType.APP_RESP, term=2, index=9), "2002 3009"),
        (message(MessageType.APP_RESP, term=2), "2002"),
        (message(MessageType.APP_RESP, term=2, reject=True), "2002 2800 3000 5001 5800"),
        (
            message(MessageType.APP_RESP, term=2, index=9, log_term=1, reject=True, reject_hint=4),
            "2002 2801 3009 5001 5804",
        ),
        (message(MessageType.VOTE, term=3), "2003 2800 3000"),
        (
            message(MessageType.VOTE, term=3, log_term=2, index=7, context=b"CampaignTransfer"),
            "2003 2802 3007 6210" + b"CampaignTransfer".hex(),
        ),
        (message(MessageType.PRE_VOTE, term=3, log_term=2, index=7), "2003 2802 3007"),
        (message(MessageType.VOTE_RESP, term=3), "2003"),
        (message(MessageType.PRE_VOTE_RESP, term=3, reject=True), "2003 5001"),
        (message(MessageType.HEARTBEAT, term=3), "2003 4000"),
        (message(MessageType.HEARTBEAT, term=3, commit=5, context=b"c"), "2003 4005 620163"),
        (message(MessageType.HEARTBEAT_RESP, term=3, context=b"c"), "2003 620163"),
        (
            message(MessageType.SNAP, term=3, snapshot=Snapshot(META)),
            "2003 4a0f 120d 0a07 0801 08ac02 2800 1007 1802",
        ),
        (message(MessageType.TIMEOUT_NOW, term=3), "2003"),
        (message(MessageType.PROP, entries=[Entry(0, 0, 0, b"p")]), "3a03220170"),
        (message(MessageType.READ_INDEX, entries=[Entry(0, 0, 0, b"r")]), "3a03220172"),
        (
            message(MessageType.READ_INDEX_RESP, term=3, entries=[Entry(0, 0, 0, b"r")]),
            "2003 3000 3a03220172",
        ),
        (message(MessageType.TRANSFER_LEADER, term=3), "2003"),
    ],
)
def test_messages(sent: Message, seen: str) -> None:
    data = bytes.fromhex(f"08{sent.type:02x} {HEAD} {seen}")
    assert codec.encode_message(sent) == data
    assert codec.decode_message(data) == sent


def test_an_append_seen_between_members() -> None:
    seen = bytes.fromhex(
        "0803 10e6c898a49de4aaed8001 18ffb0d2d58fcddcaa5f 2002 2801 3003 3a0410021804 4003"
    )
    decoded = codec.decode_message(seen)
    assert (decoded.type, decoded.term, decoded.log_term, decoded.index) == (3, 2, 1, 3)
    assert decoded.entries == ENTRIES
    assert codec.encode_message(decoded) == seen


def test_messages_of_older_releases_with_every_zero_and_a_vote() -> None:
    seen = bytes.fromhex("0809 1001 1802 2003 2800 3000 4000 5000 5800 6800")
    assert codec.decode_message(seen) == message(MessageType.HEARTBEAT_RESP, term=3)


def test_link_heartbeat() -> None:
    assert codec.decode_message(codec.LINK_HEARTBEAT) == Message(MessageType.HEARTBEAT)


def test_unknown_message_types_are_kept() -> None:
    assert codec.decode_message(bytes.fromhex("0863")).type == 99


@pytest.mark.parametrize("data", ["0803 3a05", "3a02 0809", "4a02 0aff", "08", "ff"])
def test_bytes_that_are_no_message(data: str) -> None:
    with pytest.raises(WireError):
        codec.decode_message(bytes.fromhex(data))
