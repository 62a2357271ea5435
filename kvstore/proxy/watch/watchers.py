"""The watches of the proxy's clients, and the broadcasts that they share.

    client A, id 0 ─┐
    client B, id 7 ─┼─ Broadcast of /a…/b from revision 12 ─► one watch on the cluster
    client C, id 0 ─┘

All watchers of a broadcast have the same range, filters, prev_kv setting and token. So an event is
encoded once, and no client gets events that only another may see. A watcher from the current
revision begins with a watch of its own, whose first response has that revision; then it joins a
broadcast that is not ahead of it. Each watcher drops events that it has already seen.

    next_revision   of a watcher: the first revision it has not seen; of a broadcast: the first one
                    it has not delivered

There is no IO here: the owner of the broadcasts opens and closes watches by callbacks.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from kvstore.proxy.counters import ProxyCounters
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import int64

_WATCH_ID_TAG: Final = b"\x10"


class Range(NamedTuple):
    """What a broadcast watches."""

    key: bytes
    end: bytes
    prev_kv: bool
    filters: tuple[int, ...]


class Watcher:
    """One watch of one client."""

    __slots__ = ("broadcast", "has_progress", "id", "last_header", "next_revision", "range", "send")

    def __init__(
        self,
        watch_id: int,
        of: Range,
        start_revision: int,
        send: Callable[[bytes], None],
        *,
        has_progress: bool,
    ) -> None:
        self.id = watch_id
        self.range = of
        self.next_revision = start_revision  # 0: from the current revision, not known yet
        self.has_progress = has_progress
        self.send = send
        self.last_header: pb.ResponseHeader | None = None
        self.broadcast: Broadcast | None = None

    def deliver(self, response: pb.WatchResponse, body: bytes) -> None:
        """Send a response of the cluster to the client; body is its bytes without a watch id."""
        events = response.events
        revision = response.header.revision
        if not events:
            if is_progress(response):
                self.next_revision = max(self.next_revision, revision + 1)
                if not self.has_progress:
                    return
            elif not self.next_revision:
                self.next_revision = revision + 1
        else:
            last = events[-1].kv.mod_revision
            if last < self.next_revision:
                return
            if events[0].kv.mod_revision < self.next_revision:
                body = _since(response, self.next_revision)
            self.next_revision = last + 1
        self.last_header = response.header
        self.send(with_id(body, self.id))


class Broadcast:
    """One watch on the cluster, and its watchers."""

    __slots__ = ("id", "last_header", "next_revision", "range", "responses", "watchers")

    def __init__(self, watch_id: int, first: Watcher) -> None:
        self.id = watch_id  # on the stream to the cluster
        self.range = first.range
        self.next_revision = first.next_revision
        self.watchers: dict[Watcher, None] = {first: None}
        self.responses = 0
        self.last_header: pb.ResponseHeader | None = None
        first.broadcast = self

    def can_serve(self, watcher: Watcher) -> bool:
        """Return whether it has delivered nothing that the watcher has not seen."""
        if self.next_revision > watcher.next_revision:
            return False
        return bool(self.next_revision) or not watcher.next_revision

    def deliver(self, response: pb.WatchResponse, counters: ProxyCounters) -> None:
        """Pass a response to every watcher."""
        if response.created and self.responses:
            if not response.canceled:
                return  # it was opened again after a break, which clients do not see
            response.created = False
        if response.events:
            self.next_revision = response.events[-1].kv.mod_revision + 1
        elif is_progress(response) or not self.next_revision:
            self.next_revision = max(self.next_revision, response.header.revision + 1)
        self.responses += 1
        self.last_header = response.header
        response.watch_id = 0
        body = response.SerializeToString()
        watchers = list(self.watchers)
        for watcher in watchers:
            watcher.deliver(response, body)
        counters.events_coalescing += max(len(watchers) - 1, 0)

    def resume_revision(self) -> int:
        """Return the first revision that some watcher has not seen; 0: not known yet."""
        return min((each.next_revision for each in self.watchers), default=0)


class Broadcasts:
    """All broadcasts of one stream to the cluster."""

    def __init__(
        self,
        open_watch: Callable[[Broadcast], None],
        close_watch: Callable[[Broadcast], None],
        counters: ProxyCounters,
    ) -> None:
        self._open = open_watch
        self._close = close_watch
        self._counters = counters
        self._by_range: dict[Range, list[Broadcast]] = {}
        self._next_id = 1
        self.by_id: Final[dict[int, Broadcast]] = {}

    def add(self, watcher: Watcher) -> None:
        """Serve a watcher, by an existing broadcast or by a new one."""
        broadcasts = self._by_range.setdefault(watcher.range, [])
        for broadcast in broadcasts:
            if broadcast.can_serve(watcher):
                self._join(watcher, broadcast)
                return
        broadcast = Broadcast(self._next_id, watcher)
        self._next_id += 1
        broadcasts.append(broadcast)
        self.by_id[broadcast.id] = broadcast
        self._open(broadcast)

    def _join(self, watcher: Watcher, broadcast: Broadcast) -> None:
        broadcast.watchers[watcher] = None
        watcher.broadcast = broadcast
        self._counters.watchers_coalescing += 1
        if not broadcast.responses:
            return  # the cluster's first response is passed to this watcher, too
        header = pb.ResponseHeader()
        if broadcast.last_header is not None:
            header.CopyFrom(broadcast.last_header)
        header.revision = watcher.next_revision
        created = pb.WatchResponse(header=header, created=True)
        watcher.last_header = header
        watcher.send(with_id(created.SerializeToString(), watcher.id))

    def remove(self, watcher: Watcher) -> None:
        """Stop serving a watcher; a broadcast without watchers is closed."""
        broadcast = watcher.broadcast
        if broadcast is None:
            return
        watcher.broadcast = None
        del broadcast.watchers[watcher]
        if broadcast.watchers:
            self._counters.watchers_coalescing -= 1
        else:
            self._forget(broadcast)
            self._close(broadcast)

    def deliver(self, watch_id: int, response: pb.WatchResponse) -> list[Watcher]:
        """Pass a response to its watchers; return the watchers that it ends."""
        broadcast = self.by_id.get(watch_id)
        if broadcast is None:
            return []  # closed in the meantime
        broadcast.deliver(response, self._counters)
        if not response.canceled:
            self._merge(broadcast)
            return []
        ended = list(broadcast.watchers)
        for watcher in ended:
            watcher.broadcast = None
        self._counters.watchers_coalescing -= max(len(ended) - 1, 0)
        broadcast.watchers.clear()
        self._forget(broadcast)
        return ended

    def _merge(self, broadcast: Broadcast) -> None:
        """Move the watchers of a broadcast to another of the same range that is not ahead of it."""
        for other in self._by_range[broadcast.range]:
            is_not_ahead = other.responses and other.next_revision <= broadcast.resume_revision()
            if other is broadcast or not is_not_ahead:
                continue
            for watcher in broadcast.watchers:
                other.watchers[watcher] = None
                watcher.broadcast = other
            broadcast.watchers.clear()
            self._counters.watchers_coalescing += 1
            self._forget(broadcast)
            self._close(broadcast)
            return

    def _forget(self, broadcast: Broadcast) -> None:
        del self.by_id[broadcast.id]
        broadcasts = self._by_range[broadcast.range]
        broadcasts.remove(broadcast)
        if not broadcasts:
            del self._by_range[broadcast.range]

    def clear(self) -> None:
        """Stop serving all watchers."""
        watchers = [each for broadcast in self.by_id.values() for each in broadcast.watchers]
        self._counters.watchers_coalescing -= len(watchers) - len(self.by_id)
        for watcher in watchers:
            watcher.broadcast = None
        self.by_id.clear()
        self._by_range.clear()


def is_progress(response: pb.WatchResponse) -> bool:
    """Return whether a response is a progress notification."""
    return not (
        response.events or response.created or response.canceled or response.compact_revision
    )


def with_id(body: bytes, watch_id: int) -> bytes:
    """Return a response's bytes with its watch id."""
    return body + _WATCH_ID_TAG + int64(watch_id) if watch_id else body


def _since(response: pb.WatchResponse, revision: int) -> bytes:
    """Return a response's bytes without the events before revision."""
    rest = pb.WatchResponse(header=response.header)
    rest.events.extend(each for each in response.events if each.kv.mod_revision >= revision)
    return rest.SerializeToString()
