"""HTTP requests between members, sent to etcd and to this project: bodies and statuses."""

import json
from collections.abc import Iterator

import pytest

from kvstore.peers.http_client import Answer
from kvstore.peers.questions import ask_once, fetch_members, fetch_version
from kvstore.peers.tls import PeerTls
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import varint
from tests.support.rpc_client import Client
from tests.support.servers import Server, etcd, ours, running

LEASE = 0x1234


@pytest.fixture(scope="module", params=["etcd", "ours"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp(request.param)
    made = etcd(directory / "data") if request.param == "etcd" else ours(directory / "data")
    with running(made), Client(made.endpoint) as client:
        client.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=LEASE, TTL=600))
        for number in range(3):
            client.call(rpc.PUT, pb.PutRequest(key=b"k%d" % number, value=b"v", lease=LEASE))
        yield made


def ask(server: Server, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    sent = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return ask_once(server.peer_url, method, path, PeerTls(), 10.0, headers=sent, body=body)


def test_version(server: Server) -> None:
    answer = ask(server, "GET", "/version")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    versions = json.loads(answer.body)
    minor = ".".join(versions["etcdserver"].split(".")[:2])
    assert versions["etcdcluster"] == f"{minor}.0"
    assert b" " not in answer.body


def test_members(server: Server) -> None:
    answer = ask(server, "GET", "/members")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert int(answer.headers["x-etcd-cluster-id"], 16) > 0
    (row,) = json.loads(answer.body)
    text = (
        f'[{{"id":{row["id"]},"peerURLs":["{server.peer_url}"],"name":"default",'
        f'"clientURLs":["{server.client_url}"]}}]\n'
    )
    assert answer.body.decode() == text


def test_impossible_promotions(server: Server) -> None:
    unknown = ask(server, "POST", "/members/promote/12345")
    assert (unknown.status, unknown.body) == (404, b"membership: ID not found\n")
    (member,) = fetch_members([server.peer_url], PeerTls(), 5.0).members
    voter = ask(server, "POST", f"/members/promote/{member.id}")
    if fetch_version([server.peer_url], PeerTls(), 5.0).server.startswith("3.5."):
        # For its first seconds it finds itself not connected to a quorum for long enough.
        assert voter.status in (412, 500)
    else:
        assert (voter.status, voter.body) == (
            412,
            b"membership: can only promote a learner member\n",
        )
    odd = ask(server, "POST", "/members/promote/abc")
    assert (odd.status, odd.body) == (404, b"member abc not found in cluster\n")


def test_downgrade(server: Server) -> None:
    answer = ask(server, "GET", "/downgrade/enabled")
    assert (answer.status, answer.body) == (200, b"false")
    assert answer.headers["content-type"] == "text/plain"


def test_hashes(server: Server) -> None:
    cluster_id = f"{fetch_members([server.peer_url], PeerTls(), 5.0).cluster_id:x}"
    answer = ask(server, "GET", "/members/hashkv", b"{}", X_Etcd_Cluster_ID=cluster_id)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    row = json.loads(answer.body)
    assert row["header"] == {"revision": 4}
    with Client(server.endpoint) as client:
        assert row["hash"] == client.call(rpc.HASH_KV, pb.HashKVRequest()).hash
    earlier = json.loads(ask(server, "GET", "/members/hashkv", b'{"revision":2}').body)
    assert earlier["header"] == {"revision": 4}
    assert earlier["hash"] != row["hash"]
    future = ask(server, "GET", "/members/hashkv", b'{"revision":99}')
    assert (future.status, future.body) == (
        400,
        b"mvcc: required revision is a future revision\n",
    )
    broken = ask(server, "GET", "/members/hashkv", b"{")
    assert (broken.status, broken.body) == (400, b"error unmarshalling request\n")


def test_leases_are_renewed(server: Server) -> None:
    body = pb.LeaseKeepAliveRequest(ID=LEASE).SerializeToString()
    answer = ask(server, "POST", "/leases", body)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/protobuf")
    assert answer.body == pb.LeaseKeepAliveResponse(ID=LEASE, TTL=600).SerializeToString()
    missing = pb.LeaseKeepAliveRequest(ID=99).SerializeToString()
    gone = ask(server, "POST", "/leases", missing)
    assert (gone.status, gone.body) == (404, b"lease not found\n")
    broken = ask(server, "POST", "/leases", b"\xff")
    assert (broken.status, broken.body) == (400, b"error unmarshalling request\n")


def test_leases_are_looked_up(server: Server) -> None:
    inner = pb.LeaseTimeToLiveRequest(ID=LEASE, keys=True).SerializeToString()
    answer = ask(server, "POST", "/leases/internal", b"\x0a" + varint(len(inner)) + inner)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/protobuf")
    assert answer.body[0] == 0x0A
    found = pb.LeaseTimeToLiveResponse.FromString(answer.body[2:])
    assert answer.body[2:4] == b"\x0a\x00"  # a header with nothing in it
    assert (found.ID, found.grantedTTL) == (LEASE, 600)
    assert 590 <= found.TTL <= 600
    assert sorted(found.keys) == [b"k0", b"k1", b"k2"]
    inner = pb.LeaseTimeToLiveRequest(ID=99).SerializeToString()
    gone = ask(server, "POST", "/leases/internal", b"\x0a" + varint(len(inner)) + inner)
    assert (gone.status, gone.body) == (404, b"lease not found\n")
    broken = ask(server, "POST", "/leases/internal", b"\xff")
    assert (broken.status, broken.body) == (400, b"error unmarshalling request\n")
