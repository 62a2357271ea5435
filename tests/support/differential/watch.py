"""Watch streams on both servers: the same requests, the same writes, the same story per watcher.

A step is a pair, as calls are:

    ("Watch", {create request})   ("Cancel", id)   ("Progress", None)   or any call of the store

Servers may put events into responses as they like, so what is compared is, for every watch id, its
events one after the other and its control responses one after the other; on each side, that a
revision is in one response, that revisions rise and that nothing comes twice. Before a cancel, a
progress request, a compaction and the end, every watcher has seen everything: a sentinel is put and
deleted at each watcher's own key and waited for. Nothing here sleeps.
"""

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import grpc

from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.differential.calls import Moment
from tests.support.differential.pair import Pair, Side

WATCH: Final = "/etcdserverpb.Watch/Watch"
WAIT_S: Final = 15.0
REFUSED: Final = -1  # the id of refused creates and of progress
SEES_NOTHING: Final = {pb.WatchCreateRequest.NOPUT, pb.WatchCreateRequest.NODELETE}
FENCE_ID: Final = 1 << 40  # fences have this and the following ids
FENCE_KEY: Final = b"zz/fence"  # beyond all keys of examples but those that end nowhere

Step = tuple[str, Any]


class Stream:
    """One watch stream, and all that came on it."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.responses: list[pb.WatchResponse] = []
        self.ended: grpc.RpcError | None = None
        self._changed = threading.Condition()
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._call = raw_grpc.stream(side.channel, WATCH)(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for body in self._call:
                with self._changed:
                    self.responses.append(pb.WatchResponse.FromString(body))
                    self._changed.notify_all()
        except grpc.RpcError as error:
            with self._changed:
                self.ended = error
                self._changed.notify_all()

    def send(self, **request: Any) -> None:
        self._requests.put(pb.WatchRequest(**request).SerializeToString())

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition on what has come holds."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition() or self.ended is not None, WAIT_S):
                raise AssertionError(f"{self.side.name}: {what} did not come\n{self.responses}")
        assert condition(), f"{self.side.name}: the stream ended before {what}: {self.ended}"

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._reader.join(WAIT_S)

    # What has come.

    def control(self) -> dict[int, list[pb.WatchResponse]]:
        """Return the responses without events, by watch id."""
        found: dict[int, list[pb.WatchResponse]] = defaultdict(list)
        for response in self.responses:
            if not response.events:
                found[response.watch_id].append(response)
        return found

    def events(self) -> dict[int, list[kv_pb2.Event]]:
        """Return the events by watch id, those of fences left out."""
        found: dict[int, list[kv_pb2.Event]] = defaultdict(list)
        for response in self.responses:
            found[response.watch_id] += [
                each for each in response.events if each.kv.key != FENCE_KEY
            ]
        return found

    def wait_created(self, count: int, what: str) -> None:
        """Wait until so many watchers were created or refused."""
        self.wait(lambda: self.created() == count, what)

    def created(self) -> int:
        return sum(response.created for response in self.responses)

    def progressed(self) -> int:
        return sum(
            response.watch_id == REFUSED and not response.created and not response.events
            for response in self.responses
        )

    def drop_progress(self) -> None:
        """Forget the newest answer to a progress request."""
        del self.responses[
            max(
                at
                for at, each in enumerate(self.responses)
                if each.watch_id == REFUSED and not each.created
            )
        ]

    def has_ended(self, watch_id: int) -> bool:
        return any(each.canceled for each in self.control()[watch_id])

    def has_seen(self, watch_id: int, revision: int) -> bool:
        return any(
            event.kv.mod_revision == revision
            for response in self.responses
            if response.watch_id == watch_id
            for event in response.events
        )


@dataclass
class Watcher:
    """A watcher that should be alive, as its creator knows it."""

    key: bytes
    range_end: bytes
    filters: tuple[int, ...]
    start: int  # the first revision it may see

    def sees(self, put_at: int, deleted_at: int) -> int | None:
        """Return the newest sentinel it must see, or None."""
        if pb.WatchCreateRequest.NODELETE not in self.filters and deleted_at >= self.start:
            return deleted_at
        if pb.WatchCreateRequest.NOPUT not in self.filters and put_at >= self.start:
            return put_at
        return None


@dataclass
class Player:
    """An example under way: a stream on each side, and which watchers they should have."""

    pair: Pair
    streams: list[Stream]
    watchers: dict[int, Watcher] = field(default_factory=dict)
    compacted: set[int] = field(default_factory=set)  # ids of watchers ended by a compaction
    creates: int = 0
    fences: int = 0

    def play(self, steps: Sequence[Step]) -> None:
        self.fence()  # also: from here on the stream has a watcher
        for name, request in steps:
            match name:
                case "Watch":
                    self.create(Moment(self.pair.base, self.pair.now, 0).put_in(request))
                case "Cancel":
                    self.cancel(request)
                case "Progress":
                    self.progress()
                case "Compact":
                    self.settle()
                    self.pair.play(name, request)
                case _:
                    self.pair.play(name, request)
        self.settle()
        self.fence()
        self.compare()

    # Steps.

    def create(self, request: dict[str, Any]) -> None:
        start = request.get("start_revision", 0)
        if start < 0 and self.pair.peer.has("negative watch revision"):
            return  # shown in test_differential_known.py
        sees_tombstone = start == self.pair.compacted and start in self.pair.deletions
        if sees_tombstone and self.pair.peer.has("tombstone at the compacted revision"):
            return
        if set(request.get("filters", ())) >= SEES_NOTHING:
            request = {**request, "start_revision": 0}  # nothing would tell when it has caught up
            start = 0
        self.settle()
        for stream in self.streams:
            stream.send(create_request=pb.WatchCreateRequest(**request))
        self.creates += 1
        for stream in self.streams:
            stream.wait_created(self.creates, f"created {request}")
        self._note(request, start)

    def _note(self, request: dict[str, Any], start: int) -> None:
        answers = [
            next(each for each in reversed(stream.responses) if each.created)
            for stream in self.streams
        ]
        ids = [each.watch_id for each in answers]
        assert ids[0] == ids[1], f"created {request}: watch ids {ids}"
        watch_id = ids[0]
        if watch_id == REFUSED:
            return
        if 0 < start < self.pair.compacted:
            for stream in self.streams:
                stream.wait(partial(stream.has_ended, watch_id), f"end of {request}")
            self.compacted.add(watch_id)
            return
        key = request.get("key") or b"\0"
        filters = tuple(request.get("filters", ()))
        first = start or self.pair.now + 1
        self.watchers[watch_id] = Watcher(key, request.get("range_end", b""), filters, first)

    def cancel(self, watch_id: int) -> None:
        self.settle()
        for stream in self.streams:
            stream.send(cancel_request=pb.WatchCancelRequest(watch_id=watch_id))
        self.fence()
        self.watchers.pop(watch_id, None)
        self.compacted.discard(watch_id)

    def progress(self) -> None:
        self.settle()
        before = [stream.progressed() for stream in self.streams]
        for stream in self.streams:
            stream.send(progress_request=pb.WatchProgressRequest())
        self.fence()
        if self._waits_for_future() and self.pair.peer.has("progress of future watchers"):
            assert self.streams[0].progressed() == before[0], "progress despite a future watcher"
            self.streams[1].drop_progress()
        elif self.compacted and self.pair.meets_defect("progress beside a compacted watcher"):
            for stream, count in zip(self.streams, before, strict=True):
                if stream.progressed() > count:
                    stream.drop_progress()

    def _waits_for_future(self) -> bool:
        return any(each.start > self.pair.now for each in self.watchers.values())

    # Order.

    def settle(self) -> None:
        """Let every watcher see everything that was written."""
        sentinels: dict[bytes, tuple[int, int]] = {}
        for watcher in self.watchers.values():
            if watcher.key not in sentinels and self._is_seen_alive(watcher):
                self.pair.play("Put", {"key": watcher.key, "value": b"sentinel"})
                put_at = self.pair.now
                self.pair.play("DeleteRange", {"key": watcher.key})
                sentinels[watcher.key] = (put_at, self.pair.now)
        for watch_id, watcher in self.watchers.items():
            if watcher.key in sentinels:
                revision = watcher.sees(*sentinels[watcher.key])
                if revision is not None:
                    self._wait_seen(watch_id, revision)

    def _is_seen_alive(self, watcher: Watcher) -> bool:
        return not set(watcher.filters) >= SEES_NOTHING

    def _wait_seen(self, watch_id: int, revision: int) -> None:
        for stream in self.streams:
            stream.wait(
                partial(stream.has_seen, watch_id, revision),
                f"revision {revision} for watch {watch_id}",
            )

    def fence(self) -> None:
        """Wait until all control responses before now have come, and all events."""
        fence_id = FENCE_ID + self.fences
        self.fences += 1
        for stream in self.streams:
            create = pb.WatchCreateRequest(key=FENCE_KEY, watch_id=fence_id)
            stream.send(create_request=create)
        self.creates += 1
        for stream in self.streams:
            stream.wait_created(self.creates, "the fence")
        self.pair.play("Put", {"key": FENCE_KEY})
        self._wait_seen(fence_id, self.pair.now)

    # Comparison.

    def compare(self) -> None:
        for stream in self.streams:
            check_story(stream)
        ours, etcd = self.streams
        for watch_id in sorted({*ours.events(), *etcd.events(), *ours.control(), *etcd.control()}):
            assert ours.events()[watch_id] == etcd.events()[watch_id], (
                f"events of watch {watch_id}\nours: {ours.events()[watch_id]}\n"
                f"etcd: {etcd.events()[watch_id]}"
            )
            controls = [
                [_comparable(each) for each in stream.control()[watch_id]]
                for stream in self.streams
            ]
            assert controls[0] == controls[1], (
                f"control responses of watch {watch_id}\nours: {controls[0]}\netcd: {controls[1]}"
            )


def _comparable(response: pb.WatchResponse) -> pb.WatchResponse:
    copy = pb.WatchResponse()
    copy.CopyFrom(response)
    copy.header.CopyFrom(pb.ResponseHeader(revision=response.header.revision))
    return copy


def check_story(stream: Stream) -> None:
    """Check what each server promises by itself about the order and packing of events."""
    last: dict[int, int] = defaultdict(int)
    open_fragment: set[int] = set()
    for response in stream.responses:
        if not response.events:
            continue
        revisions = [event.kv.mod_revision for event in response.events]
        assert revisions == sorted(revisions), f"{stream.side.name}: {revisions}"
        assert response.header.revision >= revisions[-1], response
        floor = last[response.watch_id]
        if response.watch_id not in open_fragment:
            assert revisions[0] > floor, f"{stream.side.name}: revision {floor} in two responses"
        last[response.watch_id] = revisions[-1]
        (open_fragment.add if response.fragment else open_fragment.discard)(response.watch_id)


def streams_of(pair: Pair) -> Iterator[list[Stream]]:
    """Open a stream on each side, and close both in the end."""
    streams = [Stream(side) for side in pair.sides]
    try:
        yield streams
    finally:
        for stream in streams:
            stream.close()


def run(pair: Pair, before: Sequence[Step], steps: Sequence[Step]) -> None:
    """Play an example: calls before the streams are opened, then steps."""
    pair.reset()
    for name, request in before:
        pair.play(name, request)
    for streams in streams_of(pair):
        Player(pair, streams).play(steps)
    pair.broken = False
