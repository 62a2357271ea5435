"""The space quota, and the way back from NOSPACE that etcd's operators know."""

from pathlib import Path
from typing import Any

import grpc
import pytest

from kvstore.errors import Code
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.rpc_client import Client, status
from tests.support.servers import Server, ours, running

NO_SPACE = (Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
PUTS_MAX = 5000


def alarms(client: Client) -> list[Any]:
    return list(client.call(rpc.ALARM, pb.AlarmRequest()).alarms)


def put_until_no_space(client: Client, value: bytes) -> int:
    """Put the same key over and over; return how many were acknowledged."""
    for number in range(PUTS_MAX):
        try:
            client.put(b"k", value)
        except grpc.RpcError as error:
            if status(error) != NO_SPACE:
                raise
            return number
    raise AssertionError(f"{PUTS_MAX} puts fit into the quota")


def refused_everything_that_grows(client: Client) -> None:
    put = pb.PutRequest(key=b"other", value=b"v")
    ops = [pb.RequestOp(request_put=put)]
    assert client.refused(rpc.PUT, put) == NO_SPACE
    assert client.refused(rpc.TXN, pb.TxnRequest(success=ops)) == NO_SPACE
    assert client.refused(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=60)) == NO_SPACE


# 13 pages of 4096 bytes are the smallest quota that etcd's own tests use.
@pytest.mark.parametrize(("quota_bytes", "value_bytes"), [(53_248, 100), (1 << 20, 20_000)])
def test_the_way_out_of_no_space(tmp_path: Path, quota_bytes: int, value_bytes: int) -> None:
    server = ours(tmp_path / "data", extra=[f"--quota-backend-bytes={quota_bytes}"])
    with running(server):
        for _ in range(2):
            with Client(server.endpoint) as client:
                lease = client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=600)).ID
                assert put_until_no_space(client, bytes(value_bytes)) >= 3
                member = client.call(rpc.STATUS, pb.StatusRequest()).header.member_id
                raised = [(each.memberID, each.alarm) for each in alarms(client)]
                assert raised == [(member, pb.AlarmType.NOSPACE)]
                told = client.call(rpc.STATUS, pb.StatusRequest())
                assert any("NOSPACE" in error for error in told.errors)
                assert told.dbSizeQuota == quota_bytes
                refused_everything_that_grows(client)
                _restart(server)
            with Client(server.endpoint) as client:
                refused_everything_that_grows(client)
                assert client.range(b"k", b"").count == 1
                client.call(rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease))
                assert client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"k")).deleted == 1
                last = client.range(b"k", b"").header.revision
                client.call(rpc.COMPACT, pb.CompactionRequest(revision=last, physical=True))
                client.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
                disarm = pb.AlarmRequest(
                    action=pb.AlarmRequest.DEACTIVATE,
                    memberID=member,
                    alarm=pb.AlarmType.NOSPACE,
                )
                client.call(rpc.ALARM, disarm)
                assert alarms(client) == []
                client.put(b"k", bytes(value_bytes))
                assert client.is_alive()


def _restart(server: Server) -> None:
    server.kill()
    server.start()
