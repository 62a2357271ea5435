"""Records and rows as JSON: readable, exact, and without secrets."""

import json
from pathlib import Path

import pytest

from kvstore.raft.model import ConfChange, Entry, EntryType, HardState
from kvstore.storage.wal.wal import Wal
from kvstore.util.messages import HIDDEN, readable, request_json
from kvstore.wire.gen import auth_pb2, metadata_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, wrap
from kvstore.wire.members import Member, encode_member, encode_promotion
from kvstore.wire.raft_codec import encode_conf_change
from kvstore.wire.varint import WireError
from tests.support.disks.etcd_db_files import sample, write
from tests.support.util_command import Tool

BIG = 0x8E9E05C52164694D


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"", ""),
        ("grün".encode(), "grün"),
        (b"a\nb", {"base64": "YQpi"}),
        (b"\xff\x00", {"base64": "/wA="}),
    ],
)
def test_bytes_are_text_where_they_can_be(data: bytes, shown: object) -> None:
    assert readable(data) == shown


def test_passwords_and_their_hashes_are_never_shown(tmp_path: Path) -> None:
    add = pb.AuthUserAddRequest(name="ann", password="open", hashedPassword="JDJh")
    change = pb.AuthUserChangePasswordRequest(name="ann", password="open", hashedPassword="JDJh")
    login = wrap(Field.AUTHENTICATE, b"\x0a\x03ann\x12\x04open", 7)
    for kind, body in ((Field.AUTH_USER_ADD, add), (Field.AUTH_USER_CHANGE_PASSWORD, change)):
        text = json.dumps(request_json(wrap(kind, body.SerializeToString(), 7)))
        assert text.count(HIDDEN) == 2
        assert "open" not in text
        assert "JDJh" not in text
    assert "open" not in json.dumps(request_json(login))


def test_the_state_shows_users_without_their_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    buckets = sample(1)
    user = auth_pb2.User(name=b"ann", password=b"$2a$10$hash", roles=["reader"])
    buckets[b"authUsers"] = [(b"ann", user.SerializeToString())]
    path = write(tmp_path / "db", buckets)
    out = Tool(capsys).done("dump", "state", path, "--bucket=authUsers")
    assert json.loads(out) == {
        "bucket": "authUsers", "name": "ann", "password": HIDDEN, "roles": ["reader"]
    }  # fmt: skip


def test_requests_keep_every_digit_and_name() -> None:
    txn = pb.TxnRequest(
        compare=[pb.Compare(target=pb.Compare.MOD, key=b"k", mod_revision=3)],
        success=[pb.RequestOp(request_put=pb.PutRequest(key=b"k", value=b"\xff"))],
    )
    found = request_json(wrap(Field.TXN, txn.SerializeToString(), BIG, "ann", 4))
    assert found["header"] == {"ID": BIG, "username": "ann", "auth_revision": 4}
    assert found["txn"] == {
        "compare": [{"target": "MOD", "key": "k", "mod_revision": 3}],
        "success": [{"request_put": {"key": "k", "value": {"base64": "/w=="}}}],
    }


def test_a_request_of_the_v2_api_and_one_of_nobody() -> None:
    path = b"/0/version"
    old = b"\x08\x07\x12\x03PUT\x1a" + bytes([len(path)]) + path + b"\x22\x053.5.0"
    assert request_json(old) == {
        "v2": {"id": 7, "method": "PUT", "path": "/0/version", "val": "3.5.0"}
    }
    with pytest.raises(WireError):
        request_json(b"\xa2\x06\x02\x08\x01")


def test_changes_of_members_and_limits_of_a_dump(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = metadata_pb2.Metadata(NodeID=BIG, ClusterID=2).SerializeToString()
    wal = Wal.create(tmp_path / "wal", metadata)
    learner = Member(BIG, "n2", ["http://a:1"], [], is_learner=True)
    changes = [
        ConfChange(9, 3, BIG, encode_member(learner)),
        ConfChange(10, 0, BIG, encode_promotion(BIG)),
        ConfChange(11, 1, BIG),
    ]
    entries = [
        Entry(EntryType.CONF_CHANGE, 2, index, encode_conf_change(change))
        for index, change in enumerate(changes, 1)
    ]
    wal.save(HardState(2, BIG, 3), [*entries, Entry(EntryType.NORMAL, 2, 4, b"")], sync=True)
    wal.close()
    tool = Tool(capsys)
    lines = [json.loads(line) for line in tool.done("dump", "wal", tmp_path / "wal").splitlines()]
    node = f"{BIG:x}"
    assert [line["change"] for line in lines if line.get("type") == "conf_change"] == [
        {
            "type": "add_learner_node", "node_id": node, "id": 9, "peer_urls": ["http://a:1"],
            "name": "n2", "is_learner": True,
        },
        {"type": "add_node", "node_id": node, "id": 10, "peer_urls": [], "is_promotion": True},
        {"type": "remove_node", "node_id": node, "id": 11},
    ]  # fmt: skip
    assert lines[1]["member_id"] == node
    assert lines[-2] | {"type": "normal", "index": 4} == lines[-2]
    assert "request" not in lines[-2]
    assert [line["record"] for line in lines[-1:]] == ["state"]
    limited = tool.done("dump", "wal", tmp_path / "wal", "--start-index=4", "--limit=4")
    assert [json.loads(line)["record"] for line in limited.splitlines()] == [
        "crc", "metadata", "snapshot", "entry"
    ]  # fmt: skip
