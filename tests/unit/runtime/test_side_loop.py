"""The loop beside the turn and the process's own client, on a real node."""

import asyncio
import queue
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.batch import Inbox, Outbox, PortRequest, ServiceCall
from kvstore.errors import Code
from kvstore.runtime.local_client import WAITING_MAX, CallRefusedError
from kvstore.runtime.side_loop import SideLoop
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import Disk, Harness

WAIT_S = 60.0
T = TypeVar("T")


class Pair:
    """A node and a side loop; this thread is the driver."""

    def __init__(self, data_dir: Path) -> None:
        self.harness = Harness(data_dir, Disk(in_memory=True))
        self.bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.side = SideLoop(lambda: self.bell.put(None), LineLogger([], "info"))
        self.side.start()
        self.gone: list[int] = []  # what the node was told
        self.left = Outbox()  # what was for the client port

    def turn(self, inbox: Inbox | None = None) -> None:
        inbox = inbox or Inbox()
        self.side.fill(inbox)
        self.gone += inbox.gone
        out = self.harness.turn(inbox)
        self.drain(out)

    def drain(self, out: Outbox) -> None:
        self.side.drain(out)
        self.left.replies += out.replies
        self.left.responses += out.responses

    def finish(self, coroutine: Coroutine[None, None, T]) -> T:
        """Take turns when woken until the coroutine on the side loop is done."""
        future = self.side.submit(coroutine)
        future.add_done_callback(lambda _: self.bell.put(None))
        while not future.done():
            self.bell.get(timeout=WAIT_S)
            self.turn()
        return future.result()

    def until(self, expected: str) -> list[Any]:
        """Take turns when woken until something for the client port is in a column."""
        while not (found := getattr(self.left, expected)):
            self.bell.get(timeout=WAIT_S)
            self.turn()
        return list(found)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.side.stop()
    made.harness.close()


def test_calls_of_the_process_itself(pair: Pair) -> None:
    async def work() -> bytes:
        client = pair.side.client
        await client.call(rpc.PUT, pb.PutRequest(key=b"k", value=b"v").SerializeToString())
        return await client.call(rpc.RANGE, pb.RangeRequest(key=b"k").SerializeToString())

    assert pb.RangeResponse.FromString(pair.finish(work())).kvs[0].value == b"v"


def test_a_refusal_is_raised_with_code_and_text(pair: Pair) -> None:
    with pytest.raises(CallRefusedError) as refused:
        pair.finish(pair.side.client.call(rpc.PUT, b""))
    assert refused.value.code == Code.INVALID_ARGUMENT
    assert refused.value.text == "etcdserver: key is not provided"


def test_an_unanswered_call_ends_at_its_deadline(pair: Pair) -> None:
    call = pair.side.client.call(rpc.PUT, b"", timeout_s=0.01)
    with pytest.raises(CallRefusedError, match="DEADLINE_EXCEEDED"):
        pair.side.submit(call).result(WAIT_S)  # no turn is taken meanwhile
    inbox = Inbox()
    pair.side.fill(inbox)
    assert [call[0] for call in inbox.calls] == inbox.gone == [-1]


def test_a_late_answer_to_a_call_that_was_given_up_does_not_leave(pair: Pair) -> None:
    call = pair.side.client.call(rpc.RANGE, b"", timeout_s=0.01)
    with pytest.raises(CallRefusedError):
        pair.side.submit(call).result(WAIT_S)  # no turn is taken meanwhile
    out = Outbox(replies=[(1, 0, b""), (-1, 0, b"")], ends=[(-1, 0, b"")])
    pair.side.drain(out)
    assert out == Outbox(replies=[(1, 0, b"")])


def test_a_watch_of_the_process_itself(pair: Pair) -> None:
    async def work() -> list[bytes]:
        client = pair.side.client
        async with client.open(rpc.WATCH) as watch:
            create = pb.WatchCreateRequest(key=b"k")
            await watch.send(pb.WatchRequest(create_request=create).SerializeToString())
            created = pb.WatchResponse.FromString(await anext(watch))
            assert created.created
            await client.call(rpc.PUT, pb.PutRequest(key=b"k", value=b"v").SerializeToString())
            events = pb.WatchResponse.FromString(await anext(watch)).events
        return [event.kv.value for event in events]

    assert pair.finish(work()) == [b"v"]
    pair.turn()
    assert pair.gone == [-1]  # leaving the block gave the stream up


def test_a_stream_of_the_server_ends(pair: Pair) -> None:
    async def work() -> int:
        request = pb.RangeRequest(key=b"\0", range_end=b"\0").SerializeToString()
        async with pair.side.client.open(rpc.RANGE_STREAM, request=request) as stream:
            return len([message async for message in stream])

    assert pair.finish(work()) == 1


def test_an_unread_stream_shows_as_backlog(pair: Pair) -> None:
    stream = pair.side.submit(_open_range_stream(pair)).result(WAIT_S)
    pair.turn()
    inbox = Inbox()
    pair.side.submit(asyncio.sleep(0)).result(WAIT_S)  # what the turn gave is delivered
    pair.side.fill(inbox)
    assert inbox.backlog == {-1: stream.unread_bytes}
    assert stream.unread_bytes > 0


async def _open_range_stream(pair: Pair) -> Any:
    return pair.side.client.open(
        rpc.RANGE_STREAM, request=pb.RangeRequest(key=b"k").SerializeToString()
    )


def test_callers_wait_while_the_driver_has_too_much(pair: Pair) -> None:
    async def flood() -> list[bytes]:
        body = pb.RangeRequest(key=b"k").SerializeToString()
        client = pair.side.client
        return await asyncio.gather(
            *[client.call(rpc.RANGE, body) for _ in range(WAITING_MAX + 10)]
        )

    future = pair.side.submit(flood())
    future.add_done_callback(lambda _: pair.bell.put(None))
    most = 0
    while not future.done():
        pair.bell.get(timeout=WAIT_S)
        inbox = Inbox()
        pair.side.fill(inbox)
        most = max(most, len(inbox.calls))
        out = pair.harness.turn(inbox)
        pair.side.drain(out)
    assert len(future.result()) == WAITING_MAX + 10
    assert most <= WAITING_MAX


def _request(call_id: int) -> PortRequest:
    return (call_id, "GET", "/x", [], b"")


def test_requests_are_served_and_kept_from_the_node(pair: Pair) -> None:
    async def serve(request: PortRequest) -> None:
        pair.side.respond((request[0], 200, [], request[2].encode()))

    pair.side.on_request = serve
    inbox = Inbox(requests=[_request(7)])
    pair.turn(inbox)
    assert inbox.requests == []
    assert pair.until("responses") == [(7, 200, [], b"/x")]


def test_a_client_that_goes_away_cancels_its_handler(pair: Pair) -> None:
    cancelled: queue.SimpleQueue[int] = queue.SimpleQueue()

    async def serve(request: PortRequest) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.put(request[0])
            raise

    pair.side.on_request = serve
    pair.turn(Inbox(requests=[_request(7)]))
    pair.side.submit(asyncio.sleep(0)).result(WAIT_S)
    pair.turn(Inbox(gone=[7]))
    assert cancelled.get(timeout=WAIT_S) == 7


def test_frames_of_a_handled_call_are_the_loops(pair: Pair) -> None:
    frames: queue.SimpleQueue[Any] = queue.SimpleQueue()

    async def serve(_: PortRequest) -> None:
        await asyncio.Event().wait()

    pair.side.on_request = serve
    pair.side.on_frames = lambda *columns: frames.put(columns)
    inbox = Inbox(requests=[_request(7)], frames=[(7, b"a"), (9, b"b")], half_closed=[9, 7])
    pair.side.fill(inbox)
    assert (inbox.frames, inbox.half_closed) == ([(9, b"b")], [9])
    assert frames.get(timeout=WAIT_S) == ([(7, b"a")], [7], [])


def test_a_failing_handler_answers_and_is_logged(pair: Pair) -> None:
    async def serve(_: ServiceCall) -> None:
        raise ValueError("broken")

    pair.side.on_service = serve
    pair.drain(Outbox(services=[(7, rpc.PUT, b"", {})]))
    assert pair.until("replies") == [(7, Code.INTERNAL, b"internal error")]


def test_without_a_handler_requests_and_services_are_refused(pair: Pair) -> None:
    pair.drain(Outbox(services=[(7, rpc.PUT, b"", {})]))
    assert pair.until("replies") == [(7, Code.UNIMPLEMENTED, b"unknown service")]
    pair.turn(Inbox(requests=[_request(8)]))
    assert pair.until("responses")[0][:2] == (8, 404)


def test_stopping_cancels_what_runs(pair: Pair) -> None:
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.put("ended")

    pair.side.run(forever(), "forever")
    pair.side.submit(asyncio.sleep(0)).result(WAIT_S)
    pair.side.stop()
    assert ended.get(timeout=WAIT_S) == "ended"
    assert pair.side.submit(asyncio.sleep(0)).cancelled()  # nobody is left to answer


def test_what_was_submitted_is_cancelled_by_the_end(pair: Pair) -> None:
    asked = pair.side.submit(pair.side.client.call(rpc.PUT, b""))  # nobody takes a turn for it
    pair.side.submit(asyncio.sleep(0)).result(WAIT_S)
    pair.side.stop()
    assert asked.cancelled()


def test_what_is_submitted_while_the_loop_ends_is_cancelled(pair: Pair) -> None:
    late: list[bool] = []

    async def until_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            late.append(pair.side.submit(asyncio.sleep(0)).cancelled())

    asked = pair.side.submit(until_the_end())
    pair.side.submit(asyncio.sleep(0)).result(WAIT_S)
    pair.side.stop()
    assert asked.cancelled()
    assert late == [True]
