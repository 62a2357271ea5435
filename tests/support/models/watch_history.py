"""A store small enough to be a model: a list of events, and what watches need of it."""

from collections.abc import Iterable, Iterator

from kvstore.batch import AnyDelivery, messages
from kvstore.watch.history import DELETE, PUT, Event
from kvstore.wire.gen.rpc_pb2 import (
    WatchCancelRequest,
    WatchCreateRequest,
    WatchProgressRequest,
    WatchRequest,
    WatchResponse,
)
from kvstore.wire.splice import HeaderMaker, encode_kv, encode_tombstone, int64


class MemoryHistory:
    """Revisions in memory; log keeps every event ever, events those that are not compacted."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self.log: list[Event] = []
        self.events: list[Event] = []
        self.kvs: dict[bytes, bytes] = {}  # revision key → KeyValue
        self._live: dict[bytes, tuple[int, int, bytes]] = {}  # create, version, revision key
        self.reads = 0

    def write(self, *ops: tuple[bytes, bytes | None]) -> list[Event]:
        """Put (key, value) or delete (key, None), all at one new revision; return the events."""
        main = self.revision + 1
        events: list[Event] = []
        for key, value in ops:
            live = self._live.get(key)
            revkey = main.to_bytes(8, "big") + b"_" + len(events).to_bytes(8, "big")
            if value is None:
                if live is None:
                    continue
                del self._live[key]
                kv = encode_tombstone(key) + b"\x18" + int64(main)
                events.append((DELETE, key, kv, main, len(events), live[2]))
                continue
            create, version = (live[0], live[1] + 1) if live else (main, 1)
            kv = encode_kv(key, create, main, version, value, 0)
            self.kvs[revkey] = kv
            self._live[key] = (create, version, revkey)
            events.append((PUT, key, kv, main, len(events), live[2] if live else None))
        if events:
            self.revision = main
            self.log += events
            self.events += events
        return events

    def put(self, key: bytes, value: bytes = b"v") -> list[Event]:
        return self.write((key, value))

    def compact(self, revision: int) -> None:
        self.compacted = revision
        self.events = [event for event in self.events if event[3] >= revision]

    def history(
        self, from_main: int, to_main: int, limit_rows: int, limit_bytes: int
    ) -> tuple[list[Event], int]:
        assert self.compacted <= from_main < to_main <= self.revision + 1
        assert limit_rows > 0
        assert limit_bytes > 0
        self.reads += 1
        taken: list[Event] = []
        size = 0
        for event in self.events:
            main = event[3]
            if not from_main <= main < to_main:
                continue
            if taken and main != taken[-1][3] and (len(taken) >= limit_rows or size >= limit_bytes):
                return taken, main
            taken.append(event)
            size += len(event[2])
        return taken, to_main

    def value_of(self, revkey: bytes) -> bytes | None:
        return self.kvs.get(revkey)


_headers = HeaderMaker(cluster_id=1, member_id=2)


def header_of(revision: int) -> bytes:
    return _headers.field(revision, 3)


def create(**fields: object) -> bytes:
    return WatchRequest(
        create_request=WatchCreateRequest(**fields)  # type: ignore[arg-type]
    ).SerializeToString()


def cancel(watch_id: int) -> bytes:
    return WatchRequest(cancel_request=WatchCancelRequest(watch_id=watch_id)).SerializeToString()


PROGRESS = WatchRequest(progress_request=WatchProgressRequest()).SerializeToString()


def decode(deliveries: Iterable[AnyDelivery]) -> Iterator[tuple[int, WatchResponse]]:
    for stream_id, head, tail in messages(deliveries):
        yield stream_id, WatchResponse.FromString(head + tail)
