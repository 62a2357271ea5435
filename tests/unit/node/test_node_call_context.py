"""Calls of one batch: none is checked with another's credential, token or permission.

Every call is made alone first, then after each of the others in one batch: the answer is the same,
and what it puts into the log carries its own user's name.
"""

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from google.protobuf.message import Message

from kvstore.apply.entry_context import EntryContext
from kvstore.auth.store import ROOT
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.batch import AS_ROOT, Inbox, Metadata
from kvstore.errors import INVALID_AUTH_TOKEN, PERMISSION_DENIED, USER_EMPTY
from kvstore.node.call_context import UNRESTRICTED, CallContext
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from tests.support.node.auth_member import BOTH, AuthMember

LEASE = 77
Call = tuple[str, int, Message]  # (caller, method, request)

READ_A = pb.RangeRequest(key=b"a")
READ_Z = pb.RangeRequest(key=b"z", serializable=True)
PUT_A = pb.PutRequest(key=b"a", value=b"v")
PUT_Z = pb.PutRequest(key=b"z", value=b"v")
TXN_Z = pb.TxnRequest(success=[pb.RequestOp(request_put=PUT_Z)])
READS_Z = pb.TxnRequest(success=[pb.RequestOp(request_range=READ_Z)])
KINDS: list[tuple[int, Message]] = [
    (rpc.RANGE, READ_A),
    (rpc.RANGE, READ_Z),
    (rpc.RANGE_STREAM, pb.RangeRequest(key=b"z")),
    (rpc.PUT, PUT_A),
    (rpc.PUT, PUT_Z),
    (rpc.TXN, TXN_Z),
    (rpc.TXN, READS_Z),
    (rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"z")),
    (rpc.LEASE_TIME_TO_LIVE, pb.LeaseTimeToLiveRequest(ID=LEASE, keys=True)),
    (rpc.AUTH_USER_GET, pb.AuthUserGetRequest(name="alice")),
    (rpc.AUTH_ROLE_ADD, pb.AuthRoleAddRequest(name="r")),  # exists
    (rpc.HASH_KV, pb.HashKVRequest()),
    (rpc.HEALTH_CHECK, rpc.METHODS[rpc.HEALTH_CHECK].request()),
]
CALLERS = ["root", "alice", "nobody", "stranger", "itself"]
CALLS: list[Call] = [(who, *kind) for who in CALLERS for kind in KINDS]


class Batches(AuthMember):
    """A member that is called in batches by several callers."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.set_up((BOTH, b"a", b""))
        self.carried: dict[str, Metadata | None] = {
            "root": {"token": self.login("root")},
            "alice": {"token": self.login("alice")},
            "nobody": None,
            "stranger": {"token": "no.1"},
            "itself": AS_ROOT,
        }
        root = self.carried["root"]
        assert root is not None
        self.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=LEASE, TTL=10_000), root)
        self.call(rpc.PUT, pb.PutRequest(key=b"y", lease=LEASE), root)

    def outcomes(self, *calls: Call) -> list[tuple[int, str]]:
        """Make calls in one batch; return the code and error text of each."""
        inbox, ids = Inbox(), []
        for who, method, request in calls:
            call_id = self.take_id()
            ids.append(call_id)
            inbox.calls.append((call_id, method, request.SerializeToString()))
            carried = self.carried[who]
            if carried is not None:
                inbox.metadata[call_id] = carried
        self.turn(inbox)
        return [self._outcome(call_id) for call_id in ids]

    def _outcome(self, call_id: int) -> tuple[int, str]:
        for _ in range(100):
            if call_id in self.ended:
                return self.ended[call_id]
            if call_id in self.answers:
                code, body = self.answers[call_id]
                return code, body.decode() if code else ""
            self.turn()
        raise AssertionError(f"call {call_id} is never answered")


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batches]:
    member = Batches(tmp_path_factory.mktemp("member"))
    yield member
    member.close()


@pytest.fixture(scope="module")
def alone(member: Batches) -> dict[int, tuple[int, str]]:
    return {at: member.outcomes(call)[0] for at, call in enumerate(CALLS)}


def test_callers_differ(alone: dict[int, tuple[int, str]]) -> None:
    """Else the rest would prove nothing."""
    answers = {
        who: [alone[at] for at, call in enumerate(CALLS) if call[0] == who] for who in CALLERS
    }
    assert answers["root"] == answers["itself"]
    assert {code for code, _ in answers["root"]} == {0, 9}  # 9: the role is there already
    served = {who: [code == 0 for code, _ in each] for who, each in answers.items()}
    #   range a, z, stream z, put a, z, txn, reads, delete, lease, user, role, hash, health
    yes, no = True, False
    assert served["alice"] == [yes, no, no, yes, no, no, no, no, no, yes, no, no, yes]
    assert served["nobody"] == served["stranger"] == [*[no] * 12, yes]
    assert answers["alice"][1] == (PERMISSION_DENIED.code, PERMISSION_DENIED.text)
    assert answers["nobody"][0] == (USER_EMPTY.code, USER_EMPTY.text)
    assert answers["stranger"][0] == (INVALID_AUTH_TOKEN.code, INVALID_AUTH_TOKEN.text)


@pytest.mark.parametrize("first", CALLERS)
def test_a_call_is_answered_as_if_alone(
    member: Batches, alone: dict[int, tuple[int, str]], first: str
) -> None:
    before = [at for at, call in enumerate(CALLS) if call[0] == first]
    for at in before:
        batch = [at, *(other for other in range(len(CALLS)) if CALLS[other][0] != first)]
        found = member.outcomes(*(CALLS[each] for each in batch))
        for each, outcome in zip(batch, found, strict=True):
            assert outcome == alone[each], (CALLS[at], CALLS[each])


def test_every_order_of_callers(member: Batches, alone: dict[int, tuple[int, str]]) -> None:
    for kind in range(len(KINDS)):
        of_kind = [kind + caller * len(KINDS) for caller in range(len(CALLERS))]
        for batch in permutations(of_kind):
            found = member.outcomes(*(CALLS[each] for each in batch))
            assert found == [alone[each] for each in batch], [CALLS[each] for each in batch]


def test_an_entry_carries_its_own_callers_name(member: Batches) -> None:
    names = {"root": "root", "alice": "alice", "nobody": "", "itself": "root"}
    for order in permutations(names):
        start = len(member.log.requests(Field.PUT))
        member.outcomes(*((who, rpc.PUT, pb.PutRequest(key=b"a")) for who in order))
        entries = member.log.requests(Field.PUT)[start:]
        assert [each.header.username for each in entries] == [names[who] for who in order]


def test_an_entry_is_applied_with_its_own_credential(member: Batches) -> None:
    """As on a member that did not propose them: a replay, or a follower."""
    applier, revision = member.parts.state.applier, member.parts.state.auth.revision
    root, alice = (ROOT, revision), ("alice", revision)
    requests = [
        (Field.PUT, PUT_Z),
        (Field.TXN, TXN_Z),
        (Field.DELETE_RANGE, pb.DeleteRangeRequest(key=b"z1")),
        (Field.AUTH_ROLE_GET, pb.AuthRoleGetRequest(role="root")),
    ]
    for before, after, refusal in (
        (root, alice, PERMISSION_DENIED),
        (root, NO_CREDENTIAL, USER_EMPTY),
        (alice, NO_CREDENTIAL, USER_EMPTY),
    ):
        for field, request in requests:
            body = request.SerializeToString()
            applier.apply(field, body, EntryContext(before, 0, 0))
            assert applier.apply(field, body, EntryContext(after, 0, 0)) == refusal
    applier.take_events()


def test_a_context_cannot_be_changed() -> None:
    assert CallContext({}, NO_CREDENTIAL, None) == UNRESTRICTED
    with pytest.raises(AttributeError):
        UNRESTRICTED.credential = (ROOT, 1)  # type: ignore[misc]
    with pytest.raises(TypeError):
        UNRESTRICTED.metadata["token"] = "x"  # type: ignore[index]
