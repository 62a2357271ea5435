"""Thousands of well-formed but unusual messages to a real Node.

Each is answered once; the node never raises; what the log kept of them makes the same state again.
"""

import os
import random
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kvstore.batch import Inbox
from kvstore.server.auth.password_tasks import PasswordTasks
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import Disk, Harness

SEED = int(os.environ.get("KVSTORE_TEST_SEED", "1"))
BATCHES = int(os.environ.get("KVSTORE_TEST_BATCHES", "800"))
BATCH = 12
NUMBERS = [0, 0, 0, 1, 2, 3, 5, 7, 40, 1000, -1, -2, 1 << 31, (1 << 63) - 1, -(1 << 63)]
KEYS = [b"", b"\0", b"\0\0", b"a", b"b", b"c", b"a\xff", b"\xff", b"\xff\xff", b"k" * 600]
DEPTH_MAX = 4


def odd(kind: type[Message], rng: random.Random, depth: int = 0) -> Message:
    """Return a message with some of its fields set, to anything."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if rng.random() < 0.45:
            continue
        if field.message_type is not None and depth >= DEPTH_MAX:
            continue
        values = [_value(field, rng, depth) for _ in range(rng.choice([1, 1, 1, 2, 4]))]
        if field.is_repeated:
            holder = getattr(message, field.name)
            holder.extend(values)
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(values[0])
        else:
            setattr(message, field.name, values[0])
    return message


def _value(field: Any, rng: random.Random, depth: int) -> Any:
    if field.message_type is not None:
        return odd(GetMessageClass(field.message_type), rng, depth + 1)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.3
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice([0, 0, 1, 1, 2, 3, 4, 17, -1])
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.choice(KEYS)
        case FieldDescriptor.CPPTYPE_STRING:
            return rng.choice(["", "x", "ä" * 20])
        case FieldDescriptor.CPPTYPE_UINT64:
            return rng.choice(NUMBERS) & ((1 << 64) - 1)
        case FieldDescriptor.CPPTYPE_INT32 | FieldDescriptor.CPPTYPE_UINT32:
            return abs(rng.choice(NUMBERS)) & 0xFFFF
        case _:
            return rng.choice(NUMBERS)


def view(harness: Harness) -> tuple[object, ...]:
    """Return what must be the same after a restart."""
    everything = pb.RangeRequest(key=b"\0", range_end=b"\0", serializable=True)
    found: Any = harness.call(rpc.RANGE, everything)
    hashed: Any = harness.call(rpc.HASH_KV, pb.HashKVRequest(revision=found.header.revision))
    leases: Any = harness.call(rpc.LEASE_LEASES, pb.LeaseLeasesRequest())
    alarms: Any = harness.call(rpc.STATUS, pb.StatusRequest())
    return (
        found.header.revision,
        [kv.SerializeToString() for kv in found.kvs],
        (hashed.hash, hashed.compact_revision, hashed.hash_revision),
        sorted(each.ID for each in leases.leases),
        list(alarms.errors),
    )


def test_odd_requests(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    disk = Disk(in_memory=True)
    harness = Harness(tmp_path / "data", disk, ["--bcrypt-cost=4"])
    tasks = PasswordTasks(lambda: None, None)
    served = sorted(harness.node.methods - rpc.COMPOSED) + [rpc.PUT, rpc.TXN, rpc.DELETE_RANGE] * 8
    streams: list[int] = []
    for _ in range(BATCHES):
        inbox = Inbox()
        for _ in range(BATCH):
            method = rpc.METHODS[rng.choice(served)]
            body = odd(method.request, rng).SerializeToString()
            if method.kind is not rpc.Kind.BIDI:
                inbox.calls.append((harness.take_id(), method.id, body))
            elif len(streams) < 20:
                stream = harness.take_id()
                inbox.opened.append((stream, method.id))
                inbox.frames.append((stream, body))
                streams.append(stream)
            else:
                inbox.frames.append((rng.choice(streams), body))
        if rng.random() < 0.2:
            inbox.gone = [streams.pop(rng.randrange(len(streams)))] if streams else []
            inbox.frames = [each for each in inbox.frames if each[0] not in inbox.gone]
        turn(harness, tasks, inbox)
        unary = [
            call_id
            for call_id, method_id, _ in inbox.calls
            if rpc.METHODS[method_id].kind is rpc.Kind.UNARY
        ]
        for call_id in unary:
            while call_id not in harness.answers:
                turn(harness, tasks, Inbox())
        _disarm(harness)
    # One revision of its own: the hash of a finished compaction is remembered until a restart.
    harness.call(rpc.PUT, pb.PutRequest(key=b"last", value=b"v"))
    before = view(harness)
    harness.crash()
    disk.restart()
    again = Harness(tmp_path / "data", disk)
    assert view(again) == before
    assert before[0] > 100, "nothing was ever written"  # type: ignore[operator]
    again.close()


def turn(harness: Harness, tasks: PasswordTasks, inbox: Inbox) -> None:
    """Take a turn; what is done beside it is done when the next begins."""
    tasks.fill(inbox)
    for task in harness.turn(inbox).tasks:
        tasks._run(task)


def _disarm(harness: Harness) -> None:
    """Clear what alarms were raised: with them, all the rest would only be refused."""
    response: Any = harness.call(rpc.ALARM, pb.AlarmRequest())
    for alarm in response.alarms:
        request = pb.AlarmRequest(
            action=pb.AlarmRequest.DEACTIVATE, memberID=alarm.memberID, alarm=alarm.alarm
        )
        harness.call(rpc.ALARM, request)
