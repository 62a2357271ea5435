"""etcd's security advisories about permissions, each played through.

Each test opens with the advisory, in our own words. The user mallory may read and write a..m, and
nothing else; the request is denied, and the response reveals nothing that was to be hidden.
"""

from pathlib import Path

import pytest

from kvstore.errors import PERMISSION_DENIED, USER_EMPTY
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.auth_member import BOTH, AuthMember

SECRET = b"secret"


@pytest.fixture
def member(tmp_path: Path) -> AuthMember:
    member = AuthMember(tmp_path)
    root = member.set_up((BOTH, b"a", b"m"))
    member.put(SECRET, b"treasure", root)
    return member


def put(key: bytes, **fields: object) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, **fields))  # type: ignore[arg-type]


def get(key: bytes, end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end))


def delete(key: bytes, **fields: object) -> pb.RequestOp:
    request = pb.DeleteRangeRequest(key=key, **fields)  # type: ignore[arg-type]
    return pb.RequestOp(request_delete_range=request)


def nested(depth: int, *ops: pb.RequestOp, in_failure: bool = False) -> pb.TxnRequest:
    """Put ops into transactions, one inside the other."""
    txn = pb.TxnRequest(failure=ops) if in_failure else pb.TxnRequest(success=ops)
    for _ in range(depth):
        txn = pb.TxnRequest(success=[pb.RequestOp(request_txn=txn)])
    return txn


def denied(member: AuthMember, request: pb.TxnRequest) -> bool:
    return member.refused(rpc.TXN, request, member.login("alice")) == PERMISSION_DENIED


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("in_failure", [False, True])
def test_cve_2026_33343_nested_transactions(
    member: AuthMember, depth: int, *, in_failure: bool
) -> None:
    """Operations inside a nested transaction went unchecked."""
    for op in (get(SECRET), put(SECRET), delete(SECRET), get(b"a", b"\0")):
        assert denied(member, nested(depth, op, in_failure=in_failure))
    compare = pb.Compare(key=SECRET, target=pb.Compare.VALUE, result=pb.Compare.GREATER, value=b"t")
    inner = pb.TxnRequest(compare=[compare])
    for _ in range(depth):
        inner = pb.TxnRequest(success=[pb.RequestOp(request_txn=inner)])
    assert denied(member, inner)
    fine = nested(depth, put(b"b"), get(b"c"), in_failure=in_failure)
    member.call(rpc.TXN, fine, member.login("alice"))


def test_both_branches_count_whichever_runs(member: AuthMember) -> None:
    """Whether a branch runs must reveal nothing about keys that may not be read."""
    for request in (
        pb.TxnRequest(success=[get(b"a")], failure=[get(SECRET)]),
        pb.TxnRequest(success=[put(b"a")], failure=[put(SECRET)]),
        pb.TxnRequest(compare=[pb.Compare(key=b"a", range_end=b"\0")], success=[put(b"a")]),
        pb.TxnRequest(compare=[pb.Compare(key=SECRET)]),
    ):
        assert denied(member, request)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_pr_21681_prev_kv_in_nested_transactions(member: AuthMember, depth: int) -> None:
    """prev_kv shows a value, which takes read and not only write."""
    root = member.login("root")
    member.permit("r", 1, SECRET, b"", root)  # write only
    alice = member.login("alice")
    assert denied(member, nested(depth, put(SECRET, prev_kv=True)))
    assert denied(member, nested(depth, delete(SECRET, prev_kv=True)))
    member.call(rpc.TXN, nested(depth, put(SECRET)), alice)
    member.call(rpc.TXN, nested(depth, delete(SECRET)), alice)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_pr_21685_leases_in_nested_transactions(member: AuthMember, depth: int) -> None:
    """Hanging a key on a lease takes write on all its other keys, also inside transactions."""
    root = member.login("root")
    member.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=100, ID=7), root)
    member.put(SECRET, token=root, lease=7)
    assert denied(member, nested(depth, put(b"b", lease=7)))
    member.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=100, ID=8), root)
    member.call(rpc.TXN, nested(depth, put(b"b", lease=8)), member.login("alice"))


@pytest.mark.parametrize("key", [b"a", b"", b"\0", b"l"])
def test_ghsa_xg4h_6gfc_h4m8_watches_without_an_end(member: AuthMember, key: bytes) -> None:
    """A watch on every key from one on was checked as if it had an end."""
    alice, root = member.login("alice"), member.login("root")
    stream = member.watch(alice, key, b"\0")
    member.put(SECRET, b"more", root)
    [answer] = member.watched(stream)
    assert (answer.created, answer.canceled, answer.watch_id) == (True, True, -1)
    assert answer.cancel_reason.endswith(PERMISSION_DENIED.text)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        (rpc.COMPACT, pb.CompactionRequest(revision=1)),
        (rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=10)),
        (rpc.MEMBER_LIST, pb.MemberListRequest()),
        (rpc.STATUS, pb.StatusRequest()),
        (rpc.ALARM, pb.AlarmRequest()),
        (rpc.ALARM, pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, alarm=pb.NOSPACE)),
    ],
)
def test_cve_2026_33413_calls_of_nobody(
    member: AuthMember, method: int, request_: pb.CompactionRequest
) -> None:
    """Compaction and others were open to every client."""
    before = member.parts.raft.applied
    assert member.refused(method, request_) == USER_EMPTY
    assert member.parts.raft.applied == before
    assert not member.parts.state.alarms.no_space


def test_cve_2026_33413_compaction_of_a_user(member: AuthMember) -> None:
    """Compaction takes history from everybody: it is root's."""
    compact = pb.CompactionRequest(revision=2)
    assert member.refused(rpc.COMPACT, compact, member.login("alice")) == PERMISSION_DENIED
    assert member.parts.state.store.compacted <= 1


def test_cve_2021_28235_passwords_in_memory_dumps_and_logs(
    member: AuthMember, capfd: pytest.CaptureFixture[str]
) -> None:
    """The password of an Authenticate stayed in what was written and printed."""
    alice = member.login("alice")
    wrong = pb.AuthenticateRequest(name="alice", password="Trustno1")
    member.refused(rpc.AUTHENTICATE, wrong)
    member.refused(rpc.RANGE, pb.RangeRequest(key=SECRET), "Trustno1.77777")
    assert not any(b"Trustno1" in each.data for each in member.log.entries)
    assert all(not each.authenticate.password for each in member.log.requests())
    out, err = capfd.readouterr()
    assert "Trustno1" not in out + err
    assert alice not in out + err
