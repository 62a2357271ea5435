"""Without space, requests that grow the store are refused before they are written to the log."""

from pathlib import Path

import pytest
from google.protobuf.message import Message

from kvstore.errors import NO_SPACE
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import CallError, Disk, Harness

PUT = pb.PutRequest(key=b"k", value=bytes(1000))
GROWING = [
    (rpc.PUT, PUT),
    (rpc.TXN, pb.TxnRequest(success=[pb.RequestOp(request_put=PUT)])),
    (rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=60)),
]
OTHERS = [
    (rpc.RANGE, pb.RangeRequest(key=b"k")),
    (rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"k")),
    (
        rpc.TXN,
        pb.TxnRequest(success=[pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=b"k"))]),
    ),
    (rpc.COMPACT, pb.CompactionRequest(revision=1)),
]


class Room:
    """A disk that is short."""

    is_short = True
    shortage = "no space"
    has_raised = False
    log_bytes = rows_bytes = 64 << 20

    def note_raised(self, has_raised: bool) -> None:  # noqa: FBT001 - a setter
        self.has_raised = has_raised

    def check(self) -> bool:
        return self.is_short


@pytest.fixture(params=["alarm", "disk"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Harness:
    member = Harness(tmp_path / "data", Disk(in_memory=True))
    if request.param == "alarm":
        alarm = pb.AlarmRequest(
            action=pb.AlarmRequest.ACTIVATE,
            memberID=member.parts.member_id + 1,  # of another member
            alarm=pb.AlarmType.NOSPACE,
        )
        member.call(rpc.ALARM, alarm)
    else:
        member.parts.host.room = Room()
    return member


@pytest.mark.parametrize(("method", "request_"), GROWING)
def test_what_grows_the_store_is_not_in_the_log(
    harness: Harness, method: int, request_: Message
) -> None:
    last_index = harness.parts.raft.last_index
    with pytest.raises(CallError) as caught:
        harness.call(method, request_)
    assert (caught.value.code, caught.value.text) == (NO_SPACE.code, NO_SPACE.text)
    assert harness.parts.raft.last_index == last_index
    harness.close()


@pytest.mark.parametrize(("method", "request_"), OTHERS)
def test_everything_else_is_served(harness: Harness, method: int, request_: Message) -> None:
    harness.call(method, request_)
    harness.close()
