"""The table of methods is complete, consistent with the .proto services, and numbered by place."""

from collections import Counter

import pytest
from google.protobuf.descriptor import FileDescriptor

from kvstore.wire import rpc
from kvstore.wire.gen import election_pb2, health_pb2, lock_pb2, rpc_pb2
from kvstore.wire.rpc import BY_GATEWAY_PATH, BY_PATH, METHODS, Kind

FILES = (rpc_pb2, lock_pb2, election_pb2, health_pb2)


def test_ids_are_indexes_of_the_table() -> None:
    assert [method.id for method in METHODS] == list(range(len(METHODS)))
    assert METHODS[rpc.PUT].path == "/etcdserverpb.KV/Put"
    assert BY_PATH["/etcdserverpb.KV/Put"] is METHODS[rpc.PUT]
    assert len(BY_PATH) == len(METHODS)


def test_every_method_of_every_service_is_there_once() -> None:
    counted = Counter(method.service for method in METHODS)
    assert counted == {
        "etcdserverpb.KV": 6,
        "etcdserverpb.Watch": 1,
        "etcdserverpb.Lease": 5,
        "etcdserverpb.Cluster": 5,
        "etcdserverpb.Maintenance": 8,
        "etcdserverpb.Auth": 17,
        "v3lockpb.Lock": 2,
        "v3electionpb.Election": 5,
        "grpc.health.v1.Health": 3,
    }


@pytest.mark.parametrize("file", [module.DESCRIPTOR for module in FILES], ids=lambda f: f.name)
def test_rows_agree_with_the_proto_text(file: FileDescriptor) -> None:
    for service in file.services_by_name.values():
        for declared in service.methods:
            row = BY_PATH[f"/{service.full_name}/{declared.name}"]
            assert row.request.DESCRIPTOR is declared.input_type
            assert row.response.DESCRIPTOR is declared.output_type
            if declared.client_streaming:
                assert row.kind is Kind.BIDI
            elif declared.server_streaming:
                assert row.kind is Kind.SERVER_STREAM
            else:
                assert row.kind is Kind.UNARY


def test_streams() -> None:
    bidi = {method.id for method in METHODS if method.kind is Kind.BIDI}
    assert bidi == {rpc.WATCH, rpc.LEASE_KEEP_ALIVE}
    served = {method.id for method in METHODS if method.kind is Kind.SERVER_STREAM}
    assert served == {rpc.RANGE_STREAM, rpc.SNAPSHOT, rpc.ELECTION_OBSERVE, rpc.HEALTH_WATCH}


def test_gateway_paths() -> None:
    assert BY_GATEWAY_PATH["/v3/kv/range"] is METHODS[rpc.RANGE]
    assert METHODS[rpc.LEASE_REVOKE].gateway == ("/v3/lease/revoke", "/v3/kv/lease/revoke")
    without = {method.id for method in METHODS if not method.gateway}
    assert without == {rpc.RANGE_STREAM, rpc.HEALTH_CHECK, rpc.HEALTH_LIST, rpc.HEALTH_WATCH}
    assert len(BY_GATEWAY_PATH) == sum(len(method.gateway) for method in METHODS)


@pytest.mark.parametrize(
    ("number", "path"),
    [
        (rpc.COMPACT, "/etcdserverpb.KV/Compact"),
        (rpc.LEASE_TIME_TO_LIVE, "/etcdserverpb.Lease/LeaseTimeToLive"),
        (rpc.MEMBER_LIST, "/etcdserverpb.Cluster/MemberList"),
        (rpc.HASH_KV, "/etcdserverpb.Maintenance/HashKV"),
        (rpc.AUTH_USER_ADD, "/etcdserverpb.Auth/UserAdd"),
        (rpc.UNLOCK, "/v3lockpb.Lock/Unlock"),
        (rpc.ELECTION_LEADER, "/v3electionpb.Election/Leader"),
        (rpc.HEALTH_CHECK, "/grpc.health.v1.Health/Check"),
    ],
)
def test_constants_name_their_methods(number: int, path: str) -> None:
    assert METHODS[number].path == path
