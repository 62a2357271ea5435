"""Invalid, unread and unfinished input of clients: answered as by etcd, and survived."""

import os
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from kvstore.errors import Code
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import varint
from tests.support import pausing, raw_grpc
from tests.support.processors import busy_share
from tests.support.rpc_client import Client
from tests.support.servers import Server, ours, running
from tests.support.waiting import wait_for

REQUEST_BYTES_MAX = 1_572_864
MESSAGE_BYTES_MAX = REQUEST_BYTES_MAX + (512 << 10)
UNLIMITED = [("grpc.max_send_message_length", -1)]
EVENTS_BYTES = 100 << 20
GROWTH_BYTES_MAX = 60 << 20
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty settings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("input")
    with running(ours(directory / "data")) as started:
        yield started


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """Return a client; the server must live on after whatever the test did with it."""
    with Client(server.endpoint) as each:
        yield each
    with Client(server.endpoint) as another:
        assert another.is_alive()


def put_of(size_bytes: int) -> pb.PutRequest:
    """Return a put whose encoding has a size."""
    request = pb.PutRequest(key=b"large", value=bytes(size_bytes - 32))
    while request.ByteSize() < size_bytes:
        request.value += b"v" * (size_bytes - request.ByteSize())
    assert request.ByteSize() == size_bytes
    return request


def test_the_largest_request(client: Client) -> None:
    # Its entry in the log, a few bytes more than the request, may have so many bytes.
    client.call(rpc.PUT, put_of(REQUEST_BYTES_MAX - 64))
    assert client.refused(rpc.PUT, put_of(REQUEST_BYTES_MAX + 1)) == (
        Code.INVALID_ARGUMENT,
        "etcdserver: request is too large",
    )
    assert client.refused(rpc.PUT, put_of(MESSAGE_BYTES_MAX))[0] == Code.INVALID_ARGUMENT


@pytest.mark.parametrize("over_bytes", [1, 1 << 20, 20 << 20])
def test_a_message_above_the_limit(client: Client, over_bytes: int) -> None:
    size = MESSAGE_BYTES_MAX + over_bytes
    code, text = client.refused(rpc.PUT, put_of(size))
    assert code == Code.RESOURCE_EXHAUSTED
    assert "larger than max" in text
    assert str(size) in text


def test_a_stream_message_above_the_limit(client: Client) -> None:
    create = pb.WatchCreateRequest(key=bytes(MESSAGE_BYTES_MAX + 1))
    code, text = client.stream(rpc.WATCH, pb.WatchRequest(create_request=create)).end()
    assert code == Code.RESOURCE_EXHAUSTED
    assert "larger than max" in text


def test_a_key_of_a_mebibyte(client: Client) -> None:
    key = os.urandom(1 << 20)
    client.put(key, b"v")
    assert client.range(key, b"").kvs[0].value == b"v"
    assert client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=key)).deleted == 1


def test_binary_keys_and_values(client: Client) -> None:
    rows = {bytes([number]) * 3: bytes(range(256)) for number in range(256)}
    for key, value in rows.items():
        client.put(key, value)
    found = client.range(b"\0", b"\0")
    assert rows.items() <= {kv.key: kv.value for kv in found.kvs}.items()
    assert [kv.key for kv in found.kvs] == sorted(kv.key for kv in found.kvs)
    assert client.range(b"\xff\xff\xff", b"\0").count == 1
    assert client.call(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"\0", range_end=b"\0")).deleted


@pytest.mark.parametrize(
    ("method", "request_message"),
    [
        (rpc.PUT, pb.PutRequest(value=b"v")),
        (rpc.RANGE, pb.RangeRequest()),
        (rpc.DELETE_RANGE, pb.DeleteRangeRequest()),
        (rpc.TXN, pb.TxnRequest(compare=[pb.Compare()])),
        (rpc.TXN, pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest())])),
    ],
)
def test_an_empty_key(client: Client, method: int, request_message: Any) -> None:
    refusal_found = client.refused(method, request_message)
    assert refusal_found == (Code.INVALID_ARGUMENT, "etcdserver: key is not provided")


def test_revisions_that_are_not_there(client: Client) -> None:
    last = client.put(b"revision", b"1")
    client.put(b"revision", b"2")
    future = (Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision")
    compacted = (Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted")
    ahead = pb.RangeRequest(key=b"revision", revision=1 << 62)
    assert client.refused(rpc.RANGE, ahead) == future
    assert client.range(b"revision", b"", revision=-1).kvs[0].value == b"2"
    assert client.refused(rpc.COMPACT, pb.CompactionRequest(revision=1 << 62)) == future
    assert client.refused(rpc.HASH_KV, pb.HashKVRequest(revision=1 << 62)) == future
    client.call(rpc.COMPACT, pb.CompactionRequest(revision=last + 1))
    assert client.refused(rpc.RANGE, pb.RangeRequest(key=b"k", revision=last)) == compacted
    for revision in (last, 0, -5):
        request = pb.CompactionRequest(revision=revision)
        assert client.refused(rpc.COMPACT, request) == compacted
    assert client.refused(rpc.HASH_KV, pb.HashKVRequest(revision=1)) == compacted
    create = pb.WatchCreateRequest(key=b"revision", start_revision=1)
    stream = client.stream(rpc.WATCH, pb.WatchRequest(create_request=create))
    assert stream.receive().created
    canceled = stream.receive()
    assert (canceled.canceled, canceled.compact_revision) == (True, last + 1)
    stream.cancel()


# A length that runs past the end; a field number of zero; a varint without end; a group.
MALFORMED = [b"\x0a\xff\x01x", b"\x00\x01", b"\xff" * 11, b"\x0b\x08\x01"]


def test_invalid_messages(server: Server, client: Client) -> None:
    for method in rpc.METHODS:
        # protobuf lets a field number of zero pass where a message has no fields at all.
        for body in MALFORMED if method.request.DESCRIPTOR.fields else MALFORMED[2:]:
            match method.kind:
                case rpc.Kind.UNARY:
                    code, text = client.refused_path(method.path, body)
                case _:
                    code, text = client.stream(method.id, body).end()
            # Go's gRPC answers INTERNAL; what is not served yet is not parsed either.
            assert code in (Code.INTERNAL, Code.UNIMPLEMENTED), (method.path, body, code, text)
            if code == Code.INTERNAL:
                assert "unmarshal" in text
    assert "Traceback" not in server.log()


def test_random_bytes(server: Server, client: Client) -> None:
    rng = random.Random(1)
    for method in rpc.METHODS:
        if method.kind is not rpc.Kind.UNARY or method.id == rpc.ALARM:
            continue
        for _ in range(6):
            body = rng.randbytes(rng.randrange(1, 60))
            with suppress(grpc.RpcError):  # or it happens to be a message
                client.raw(method.path, body)
    assert "Traceback" not in server.log()


def test_what_is_nested_too_deep(client: Client) -> None:
    body = b""
    while len(body) < 400_000:  # TxnRequest.success → RequestOp.request_txn → TxnRequest ...
        body = b"\x22" + varint(len(body)) + body
        body = b"\x12" + varint(len(body)) + body
        if body.count(b"\x22") % 1000 == 0 and len(body) > 60_000:
            break
    assert client.refused(rpc.TXN, body)[0] in (Code.INTERNAL, Code.INVALID_ARGUMENT)


@pytest.mark.parametrize(
    "path", ["/etcdserverpb.KV/Nothing", "/no.Service/Range", "/", "/etcdserverpb.KV/"]
)
def test_unknown_methods(client: Client, path: str) -> None:
    assert client.refused_path(path, b"")[0] == Code.UNIMPLEMENTED


def test_half_a_connection(server: Server, client: Client) -> None:
    """Silent sockets, half a preface, garbage, an endless header."""
    held = []
    for first in (b"", PREFACE[:10], b"GET / HTTP/1.1\r\n\r\n", os.urandom(500), PREFACE):
        for _ in range(10):
            each = socket.create_connection(("127.0.0.1", server.client_port))
            each.sendall(first)
            held.append(each)
    headers = b"\xff\xff\xff\x01\x04\0\0\0\x01" + bytes(100)  # a frame of 16 MiB begins
    held[-1].sendall(headers)
    assert client.is_alive()
    for each in held:
        each.close()


def test_a_flood_of_resets(server: Server, client: Client) -> None:
    """Streams opened and reset at once, and connections that end with a reset."""
    headers = bytes.fromhex("8386") + b"\x44\x16/etcdserverpb.KV/Range" + b"\x41\x09localhost"
    headers += b"\x40\x0ccontent-type\x10application/grpc" + b"\x40\x02te\x08trailers"
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.client_port)) as each:
            flood = bytearray(PREFACE)
            for stream in range(1, 400, 2):
                frame = struct.pack(">I", len(headers))[1:] + b"\x01\x04"
                flood += frame + struct.pack(">I", stream) + headers
                flood += b"\0\0\x04\x03\0" + struct.pack(">II", stream, 8)
            with suppress(OSError):  # it may hang up on us
                each.sendall(flood)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert client.is_alive()


def test_calls_that_are_cancelled(server: Server, client: Client) -> None:
    method = rpc.METHODS[rpc.PUT].path
    body = pb.PutRequest(key=b"cancelled", value=b"v").SerializeToString()
    calls = [raw_grpc.unary(client.channel, method).future(body, timeout=20) for _ in range(300)]
    for call in calls[::2]:
        call.cancel()
    for call in calls[1::2]:
        call.result()
    assert "Traceback" not in server.log()


WATCHES = """
import sys
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.rpc_client import Client
client = Client(sys.argv[1])
create = pb.WatchCreateRequest(key=b"vanish", range_end=b"\\0")
stream = client.stream(rpc.WATCH, *[pb.WatchRequest(create_request=create)] * 1000)
for _ in range(1000):
    assert stream.receive().created
keep = client.stream(rpc.LEASE_KEEP_ALIVE)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_client_that_is_killed(server: Server, client: Client) -> None:
    command = [sys.executable, "-c", WATCHES, server.endpoint]
    root = Path(__file__).parents[2]
    for _ in range(2):
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, text=True
        )
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "ready\n"
        client.put(b"vanish", b"1")
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
        for _ in range(20):
            client.put(b"vanish", b"2")
    assert "Traceback" not in server.log()


def test_a_stopped_client(server: Server, client: Client) -> None:
    """A watcher's process is stopped in mid-stream: its connection stays, nothing is read."""
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-c", WATCHES, server.endpoint],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=root,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        assert child.stdout.readline() == "ready\n"
        pausing.pause(child.pid)
        for _ in range(60):
            client.put(b"vanish", bytes(1000))  # 1000 events each
        assert client.is_alive()
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def memory_bytes(server: Server) -> int:
    """Return the resident memory that is not file pages (the database is mapped)."""
    fields = Path(f"/proc/{server.pid}/status").read_text().split("RssAnon:")[1].split()
    return int(fields[0]) << 10


@pytest.mark.slow
def test_a_watcher_that_does_not_read(tmp_path: Path) -> None:
    value = bytes(1 << 20)
    count = EVENTS_BYTES // len(value)
    create = pb.WatchCreateRequest(key=b"flood")
    watch = pb.WatchRequest(create_request=create)
    # The log's last entries are in memory too, and nobody's fault.
    flags = ["--unsafe-no-fsync", "--snapshot-count=10", "--snapshot-catchup-entries=5"]
    with (
        running(ours(tmp_path / "data", extra=flags)) as server,
        Client(server.endpoint) as writer,
        Client(server.endpoint) as quick_client,
        Client(server.endpoint) as slow_client,
    ):
        slow, quick = slow_client.stream(rpc.WATCH, watch), quick_client.stream(rpc.WATCH, watch)
        assert slow.receive().created
        assert quick.receive().created
        before_bytes = memory_bytes(server)
        quick_revisions: list[int] = []

        def read_quickly() -> None:
            for response in quick:
                quick_revisions.extend(event.kv.mod_revision for event in response.events)
                if len(quick_revisions) == count:
                    return

        reader = threading.Thread(target=read_quickly)
        reader.start()
        revisions = [writer.put(b"flood", value) for _ in range(count)]
        reader.join(90)
        assert quick_revisions == revisions
        grown_bytes = memory_bytes(server) - before_bytes
        assert grown_bytes < GROWTH_BYTES_MAX, f"{grown_bytes >> 20} MiB more"
        # Nobody spins while it waits for the slow one; what the flood left to do may take a while.
        pid = server.pid
        wait_for(lambda: busy_share(pid, 1.0) < 0.2, "rest")
        got: list[int] = []
        for response in slow:
            assert not response.canceled, response.cancel_reason
            got += [event.kv.mod_revision for event in response.events]
            if len(got) >= count:
                break
        assert got == revisions
        for each in (slow, quick):
            each.cancel()
        assert writer.is_alive()
