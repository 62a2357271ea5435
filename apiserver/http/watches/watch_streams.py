"""Streams of watches: how they begin, continue and end.

    begin     the current objects (in key order, then a bookmark), or the changes since a revision
    catch up  what changed while that was sent; from the store's history what memory has forgotten
    follow    the fan-out sends what changes; bookmarks every minute or so
    end       its time is over, the server stops, the cache is read anew, or its reader is too slow

Until a stream follows, its events are encoded as its client reads them, in pieces of about
PIECE_BYTES, from records that all streams at one revision share. It is settled (its seats are
released) once the client has its initial events. A stream that follows may have its share of
UNSENT_BYTES_ALL unsent, and those of one user that user's share; bytes that several are sent count
once.

Nothing is lost or sent twice: a stream joins the fan-out in the same step in which it is found to
lack nothing. A stream ends cleanly; its client starts a new watch from its last revision.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from kvstack.apimachinery.attributes import PRIVILEGED
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.encoding import Encoder
from kvstack.apiserver.http.limits.unsent import UNSENT_BYTES_ALL, Unsent
from kvstack.apiserver.http.negotiation import STREAM, negotiate
from kvstack.apiserver.http.watches import websocket
from kvstack.apiserver.http.watches.events import ADDED, EventWriter
from kvstack.apiserver.http.watches.fan_out import FanOut, Stream
from kvstack.apiserver.http.watches.watch_stream import WatchStream
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.reads import BEHIND_S
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.replay import ForgottenHistoryError, Replay
from kvstack.apiserver.registry.selection import Selection
from kvstack.apiserver.registry.watch_cache import BehindError
from kvstack.apiserver.registry.window import Change, ForgottenError
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.results import Watching
from kvstack.component.http.serving.answer import PIECE_BYTES, Answer
from kvstack.component.http.serving.request import Request
from kvstack.component.http.websocket import GOODBYE
from kvstore.client.errors import StoreError

if TYPE_CHECKING:
    from kvstack.component.http.serving.transport import HttpTransport

_ANSWER_OF: Final = attrgetter("answer")
_SIZE_OF: Final = itemgetter(0)

WriteAll: TypeAlias = Callable[[Iterable[Answer], bytes, int], list[Answer]]

CHUNK_RECORDS: Final = 200
"""Limit of one piece."""
LOOK_S: Final = 1.0
"""Interval at which unsent bytes are checked."""
CLIENT_CHARACTERS_MAX: Final = 100
"""Limit of a user's and a program's name on the debug page."""
BOOKMARK_S: Final = 60.0
BOOKMARK_BEFORE_END_S: Final = 2.0
UNSENT_BYTES_MIN: Final = 64 << 10
"""Each stream has its share of UNSENT_BYTES_ALL, within these bounds."""
UNSENT_BYTES_MAX: Final = 4 << 20


class Backlog(NamedTuple):
    """A stream whose client has not read everything."""

    user: str
    agent: str
    resource: str
    namespace: str
    unsent_bytes: int


class Watcher(NamedTuple):
    """A watching client, and whether it was sent all changes."""

    user: str
    agent: str
    resource: str
    """The resource with its group."""
    transport: "HttpTransport"
    is_behind: bool


class _Snapshot:
    """All records of a collection at one version, in order."""

    __slots__ = ("__weakref__", "records", "version")

    def __init__(self, collection: Collection) -> None:
        self.version: Final = collection.version
        self.records: Final = list(collection.between())


class WatchStreams:
    """Serves watches."""

    def __init__(self, registry: Registry, unsent: Unsent | None = None) -> None:
        """unsent: counts the unsent bytes of streams."""
        self._registry = registry
        self._unsent = unsent or Unsent()
        self._snapshots: WeakValueDictionary[Collection, _Snapshot] = WeakValueDictionary()
        self._timer: asyncio.TimerHandle | None = None
        self._behind: set[str] = set()
        """Users whose streams had unsent bytes at the last check."""
        # Collections of custom resources go with their definitions.
        self._fans: Final = WeakKeyDictionary[Collection, FanOut]()
        self._streams: dict[Answer, WatchStream] = {}
        self.write_all: WriteAll = _one_by_one
        """Sends the same bytes to many answers, and returns those that are too far behind; the
        socket server's shares the bytes."""

    @property
    def count(self) -> int:
        """Return the number of streams."""
        return len(self._streams)

    def count_of(self, collection: Collection) -> int:
        """Return the number of streams that follow a collection."""
        fan = self._fans.get(collection)
        return 0 if fan is None else fan.stream_count

    def open(self) -> Iterator[tuple[Endpoint, Selection]]:
        """Yield the watched resource of each stream."""
        for each in self._streams.values():
            yield each.writer.endpoint, each.watching.selection

    def event_counts(self) -> dict[GroupResource, int]:
        """Return the number of events sent, by resource."""
        return {each.resource: fan.event_count for each, fan in self._fans.items()}

    def group_counts(self) -> dict[GroupResource, int]:
        """Return the number of groups that share encodings, by resource."""
        return {each.resource: fan.group_count for each, fan in self._fans.items()}

    def backlogs(self) -> list[Backlog]:
        """Return the streams with unsent bytes."""
        return [
            Backlog(
                stream.client[0][:CLIENT_CHARACTERS_MAX],
                stream.client[1][:CLIENT_CHARACTERS_MAX],
                stream.writer.endpoint.row.name,
                stream.watching.selection.prefix.rstrip("/"),
                size,
            )
            for size, stream in self._unsent_sizes(list(self._streams.values()))
        ]

    def watchers(self) -> list[Watcher]:
        """Return the client and resource of each stream."""
        streams = list(self._streams.values())
        behind = {stream for _, stream in self._unsent_sizes(streams)}
        return [
            Watcher(
                stream.client[0][:CLIENT_CHARACTERS_MAX],
                stream.client[1][:CLIENT_CHARACTERS_MAX],
                str(stream.writer.endpoint.resource),
                stream.answer.transport,
                stream in behind or stream.lacks_changes,
            )
            for stream in streams
        ]

    async def serve(
        self, call: Call, watching: Watching, encoder: Encoder, request: Request, reply: Reply
    ) -> None:
        """Send events until the watch ends; raises ApiError before the stream begins."""
        collection = call.endpoint.collection
        assert collection is not None, "only stored resources are watched"
        representation = negotiate(request.header("accept"), STREAM)
        is_socket = websocket.is_asked(request)
        writer = EventWriter(
            call.endpoint,
            representation,
            encoder.include,
            self._registry.clock,
            is_socket=is_socket,
            is_packed=reply.takes_gzip and watching.is_list and not is_socket,
        )
        user = "" if PRIVILEGED in call.user.groups else call.user.name
        client = call.user.name, call.user_agent
        stream = WatchStream(watching, writer, reply.answer, user, client)
        loop = asyncio.get_running_loop()
        stream.deadline = loop.time() + watching.timeout_s
        failure = await self._reach_start(collection, stream)
        if is_socket:
            stream.peer = websocket.accept(request, reply)
            if stream.peer is None:
                return
        else:
            reply.begin_stream(writer.content_type, is_packed=writer.is_packed)
        self._streams[reply.answer] = stream
        self._look_later()
        try:
            if failure is None:
                failure = await self._go_on(collection, stream, reply)
            if failure is not None:
                await self._send(stream, writer.error(failure.status))
        finally:
            self._leave(collection, stream)
        if stream.peer is not None:
            await self._send(stream, GOODBYE)
        reply.answer.finish()

    async def _go_on(
        self, collection: Collection, stream: WatchStream, reply: Reply
    ) -> ApiError | None:
        """Send the initial events and changes until the stream is over; return what ends it."""
        try:
            failure = await self._begin(collection, stream)
            if reply.tracker is not None:
                settle = partial(reply.tracker.settled, reply)
                if not stream.answer.when_written(settle):
                    settle()
            if failure is not None:
                return failure
            if stream.writer.endpoint.converted_version is not None:
                return await self._follow_alone(collection, stream)
        except ApiError as error:
            return error  # a conversion webhook failed
        await self._follow(stream)
        return None

    # Start.

    async def _reach_start(self, collection: Collection, stream: WatchStream) -> ApiError | None:
        """Wait for the revision that a stream begins with; raises ApiError.

        Return the Status of its first event if the revision does not come.
        """
        copy, options = self._registry.watch_cache, stream.watching.options
        revision = options.revision
        try:
            if not options.send_initial_events:
                if not copy.is_loaded:
                    await copy.latest(BEHIND_S)
            elif revision is None:
                await copy.latest(BEHIND_S)
            else:
                await copy.reach(revision, BEHIND_S)
        except BehindError:
            if not copy.is_loaded:
                raise errors.not_loaded() from None
            if revision:
                return status.too_large_resource_version(revision, copy.revision)
            raise status.timeout(errors.TIMED_OUT) from None
        except StoreError as error:
            raise errors.api_error(error, collection.resource, "watch") from error
        stream.position = revision or copy.revision
        return None

    async def _begin(self, collection: Collection, stream: WatchStream) -> ApiError | None:
        """Send the initial events until the stream has caught up; return what ends it."""
        options = stream.watching.options
        if options.send_initial_events:
            await self._send_initial(collection, stream)
            if stream.watching.is_list:
                await self._send(stream, stream.bookmark(stream.position, is_initial_end=True))
        elif stream.position > self._registry.watch_cache.revision:
            try:
                left_s = stream.deadline - asyncio.get_running_loop().time()
                await self._registry.watch_cache.reach(stream.position, max(left_s, 0))
            except BehindError:
                return None
        stream.sent_revision = max(stream.sent_revision, stream.position)
        return await self._catch_up(collection, stream)

    async def _send_initial(self, collection: Collection, stream: WatchStream) -> None:
        """Send the current objects."""
        stream.position = self._registry.watch_cache.revision
        selection = stream.watching.selection
        late = selection.matches if selection.needs_converted else None
        writer = stream.writer
        for part in _in_pieces(self._state(collection, selection)):
            parts = []
            if writer.endpoint.converted_version is not None:
                part = await writer.endpoint.converted_version.records(part)
            for each in part:
                if late is not None and not late(each):
                    continue
                with_columns = writer.is_table and not stream.is_begun
                parts.append(writer.record(ADDED, each, with_columns=with_columns))
                stream.is_begun = True
            await self._send(stream, b"".join(parts))

    def _state(self, collection: Collection, selection: Selection) -> Iterator[Record]:
        """Iterate over the records of a selection at one version, however long that takes.

        For a selection on converted records, all of its range.
        """
        records: Iterable[Record]
        if selection.start or selection.end is not None:
            records = list(collection.between(selection.start, selection.end))
        else:
            snapshot = self._snapshots.get(collection)
            if snapshot is None or snapshot.version != collection.version:
                snapshot = self._snapshots[collection] = _Snapshot(collection)
            records = snapshot.records
        matches = None if selection.needs_converted else selection.matches
        for each in records:
            if not each.error and (matches is None or matches(each)):
                yield each

    async def _catch_up(self, collection: Collection, stream: WatchStream) -> ApiError | None:
        """Send what changed since the stream's position, then let it follow."""
        copy = self._registry.watch_cache
        while True:
            try:
                changes = collection.window.after(stream.position)
            except ForgottenError:
                replay = Replay(
                    self._registry.store, copy.prefixes, collection, self._registry.transformers
                )
                try:
                    await replay.run(stream.position, lambda c, r: self._replayed(stream, c, r))
                except ForgottenHistoryError as forgotten:
                    return errors.watch_expired(stream.position, forgotten.oldest)
                except StoreError as error:
                    return errors.api_error(error, collection.resource, "watch")
                continue
            stream.position = max(stream.position, copy.revision)
            if stream.writer.endpoint.converted_version is not None:
                if not changes:
                    return None
                await self._send_changes(stream, changes)
                continue
            pieces = stream.written(changes)
            first, second = next(pieces, b""), next(pieces, b"")
            if not second and len(first) <= UNSENT_BYTES_MIN:
                self._join(collection, stream)
                if first:
                    stream.answer.write_now(stream.writer.packed(first))
                return None
            for piece in chain((first, second), pieces):
                await self._send(stream, piece)

    async def _replayed(
        self, stream: WatchStream, changes: Sequence[Change], revision: int
    ) -> None:
        stream.position = revision
        await self._send_changes(stream, changes)

    async def _send_changes(self, stream: WatchStream, changes: Sequence[Change]) -> None:
        for at in range(0, len(changes), CHUNK_RECORDS):
            part = changes[at : at + CHUNK_RECORDS]
            # Just before use: conversions are not cached for long.
            await stream.convert(part)
            for piece in stream.written(part):
                await self._send(stream, piece)

    def _join(self, collection: Collection, stream: WatchStream) -> None:
        fan = self._fans.get(collection)
        if fan is None:
            fan = self._fans[collection] = FanOut(collection, self._send_all)
        stream.group = fan.join(
            stream, stream.watching.selection, stream.writer, is_begun=stream.is_begun
        )

    # Following.

    async def _follow(self, stream: WatchStream) -> None:
        """Wait until the stream is over; send bookmarks meanwhile."""
        loop = asyncio.get_running_loop()
        reading = None
        if stream.peer is not None:
            reading = asyncio.create_task(stream.read(stream.peer), name="websocket watch")
        try:
            while not stream.answer.is_ending:
                now = loop.time()
                if now >= stream.deadline:
                    return
                try:
                    async with asyncio.timeout(self._pause(stream, now)):
                        await stream.answer.closing()
                except TimeoutError:
                    self._mark(stream, loop.time())
        finally:
            if reading is not None:
                reading.cancel()

    async def _follow_alone(self, collection: Collection, stream: WatchStream) -> ApiError | None:
        """Send changes, converted by a webhook, until the stream is over.

        Nothing is shared with other streams: each waits for the webhook on its own.
        """
        wake = asyncio.Event()

        def note(_changes: Sequence[Change]) -> None:
            wake.set()

        collection.listeners.append(note)
        collection.on_reset.append(stream.end)
        closing = asyncio.ensure_future(stream.answer.closing())
        loop = asyncio.get_running_loop()
        try:
            while not stream.answer.is_ending and loop.time() < stream.deadline:
                wake.clear()
                failure = await self._catch_up(collection, stream)
                if failure is not None:
                    return failure
                pause_s = self._pause(stream, loop.time())
                waiting = asyncio.ensure_future(wake.wait())
                try:
                    done, _ = await asyncio.wait(
                        (waiting, closing),
                        timeout=max(pause_s, 0),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    waiting.cancel()
                is_asked = stream.watching.options.bookmarks
                if not done and is_asked and stream.position > stream.sent_revision:
                    await self._send(stream, stream.bookmark(stream.position))
        finally:
            closing.cancel()
            collection.listeners.remove(note)
            collection.on_reset.remove(stream.end)
        return None

    @staticmethod
    def _pause(stream: WatchStream, now: float) -> float:
        """Return the number of seconds until there is something to do."""
        left = stream.deadline - now
        if not stream.watching.options.bookmarks or left <= BOOKMARK_BEFORE_END_S:
            return left
        if stream.answer.transport.is_local:
            return left - BOOKMARK_BEFORE_END_S  # it does not end before its last bookmark
        return min(BOOKMARK_S, left - BOOKMARK_BEFORE_END_S)

    def _mark(self, stream: WatchStream, now: float) -> None:
        """Send a bookmark, if its revision is new.

        Near its end a stream gets bookmarks for changes of the collection only. That the store's
        revision moved without any is sent now and then, so that the client's revision is not
        compacted.
        """
        copy = self._registry.watch_cache
        if not stream.watching.options.bookmarks or stream.group is None:
            return
        is_ending = stream.deadline - now <= BOOKMARK_BEFORE_END_S
        revision = copy.revision
        if (copy.changed_at if is_ending else revision) > stream.sent_revision and copy.is_loaded:
            stream.group.first.discard(stream)
            stream.answer.write_now(stream.writer.packed(stream.bookmark(revision)))

    async def _send(self, stream: WatchStream, data: bytes) -> None:
        """Send bytes as fast as the client reads."""
        await stream.answer.write_piece(stream.writer.packed(data))

    def _send_all(self, streams: Iterable[Stream], data: bytes) -> None:
        """Send the same bytes to streams; those that are too far behind are ended."""
        if self._timer is None:
            self._look_later()
        limit = UNSENT_BYTES_ALL // max(len(self._streams), 1)
        limit = min(max(limit, UNSENT_BYTES_MIN), UNSENT_BYTES_MAX)
        # Only streams of this class join; C code iterates over this for every event.
        answers = map(_ANSWER_OF, cast("Iterable[WatchStream]", streams))
        for each in self.write_all(answers, data, limit):
            each.close()

    def _look_later(self) -> None:
        """Schedule a check, unless one is scheduled."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Count unsent bytes of streams, and end those of a user with too many."""
        self._timer = None
        behind = self._unsent_streams()
        if behind:  # otherwise nothing changes before something is sent
            self._look_later()
        for user in self._behind - behind.keys():
            self._unsent.set_live(user, 0)
        self._behind = set(behind)
        for user, streams in behind.items():
            # Bytes that are sent to a group are in memory once.
            held: dict[object, int] = {}
            for size, stream in streams:
                key = stream.group or stream
                held[key] = max(held.get(key, 0), size)
            live = sum(held.values())
            self._unsent.set_live(user, live)
            excess = self._unsent.of(user) - self._unsent.user_bytes_max
            if excess > 0:
                streams.sort(key=_SIZE_OF, reverse=True)
                for size, stream in streams:
                    if excess <= 0:
                        break
                    stream.answer.cut()
                    excess -= size

    def _unsent_streams(self) -> dict[str, list[tuple[int, WatchStream]]]:
        """Return the streams that follow and have unsent bytes, with the bytes, by user."""
        counted = [each for each in self._streams.values() if each.group is not None and each.user]
        found: dict[str, list[tuple[int, WatchStream]]] = {}
        for size, stream in self._unsent_sizes(counted):
            found.setdefault(stream.user, []).append((size, stream))
        return found

    @staticmethod
    def _unsent_sizes(streams: Iterable[WatchStream]) -> Iterator[tuple[int, WatchStream]]:
        """Yield the streams with unsent bytes, and the number of bytes."""
        by_transport: dict[HttpTransport, list[WatchStream]] = {}
        for each in streams:
            by_transport.setdefault(each.answer.transport, []).append(each)
        for transport, together in by_transport.items():
            sizes = transport.unsent([each.answer.call for each in together])
            for size, stream in zip(sizes, together, strict=True):
                if size:
                    yield size, stream

    def _leave(self, collection: Collection, stream: WatchStream) -> None:
        self._streams.pop(stream.answer, None)
        fan = self._fans.get(collection)
        if fan is not None and stream.group is not None:
            fan.leave(stream, stream.group)


def _in_pieces(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Yield records in pieces of about PIECE_BYTES, and CHUNK_RECORDS at most."""
    piece: list[Record] = []
    size = 0
    for each in records:
        piece.append(each)
        size += len(each.body)
        if size >= PIECE_BYTES or len(piece) >= CHUNK_RECORDS:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _one_by_one(answers: Iterable[Answer], data: bytes, unsent_bytes_max: int) -> list[Answer]:
    return [each for each in answers if each.write_now(data) > unsent_bytes_max]
