"""Watches as the proxy's clients see them, and the broadcasts they share.

    client A, id 0 ─┐
    client B, id 7 ─┼─ Broadcast of /a…/b from revision 12 ─► one watch on the cluster
    client C, id 0 ─┘

All watchers of a broadcast have the same range, filters, wish for previous values and the same
token, so that an event's bytes are made once and nobody sees what another may. A watcher "from now"
begins with a watch of its own, whose first answer says what now is; then it joins one that is not
ahead of it. Each watcher drops what it has seen already.

    next_revision   of a watcher: what it still lacks; of a broadcast: what it has yet to deliver

No IO here: whoever owns the broadcasts is told what to open and close.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from kvstore.proxy.counts import Counts
from kvstore.wire.gen import rpc_pb2 as pb

_WATCH_ID_TAG: Final = b"\x10"


class Range(NamedTuple):
    """What a broadcast is of."""

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
        self.next_revision = start_revision  # 0: from now
        self.has_progress = has_progress
        self.send = send
        self.last_header: pb.ResponseHeader | None = None
        self.broadcast: Broadcast | None = None

    def give(self, response: pb.WatchResponse, body: bytes) -> None:
        """Take a response of the cluster; body is its bytes without a watch id."""
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
    """One watch on the cluster and whom it serves."""

    __slots__ = ("id", "last_header", "next_revision", "range", "responses", "watchers")

    def __init__(self, watch_id: int, first: Watcher) -> None:
        self.id = watch_id  # on the stream to the cluster
        self.range = first.range
        self.next_revision = first.next_revision
        self.watchers: dict[Watcher, None] = {first: None}
        self.responses = 0
        self.last_header: pb.ResponseHeader | None = None
        first.broadcast = self

    def fits(self, watcher: Watcher) -> bool:
        """Tell whether nothing the watcher lacks has gone by."""
        if self.next_revision > watcher.next_revision:
            return False
        return bool(self.next_revision) or not watcher.next_revision

    def give(self, response: pb.WatchResponse, counts: Counts) -> None:
        """Pass a response on to every watcher."""
        if response.created and self.responses:
            if not response.canceled:
                return  # opened again after a break: nobody need know
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
            watcher.give(response, body)
        counts.events_coalescing += max(len(watchers) - 1, 0)

    def resume_revision(self) -> int:
        """Return the first revision some watcher still lacks; 0: nobody knows yet what now is."""
        return min((each.next_revision for each in self.watchers), default=0)


class Broadcasts:
    """All broadcasts of one stream to the cluster."""

    def __init__(
        self,
        open_watch: Callable[[Broadcast], None],
        close_watch: Callable[[Broadcast], None],
        counts: Counts,
    ) -> None:
        self._open = open_watch
        self._close = close_watch
        self._counts = counts
        self._by_range: dict[Range, list[Broadcast]] = {}
        self._next_id = 1
        self.by_id: Final[dict[int, Broadcast]] = {}

    def add(self, watcher: Watcher) -> None:
        """Have a watcher served, by a broadcast that is there or by one of its own."""
        mates = self._by_range.setdefault(watcher.range, [])
        for broadcast in mates:
            if broadcast.fits(watcher):
                self._join(watcher, broadcast)
                return
        broadcast = Broadcast(self._next_id, watcher)
        self._next_id += 1
        mates.append(broadcast)
        self.by_id[broadcast.id] = broadcast
        self._open(broadcast)

    def _join(self, watcher: Watcher, broadcast: Broadcast) -> None:
        broadcast.watchers[watcher] = None
        watcher.broadcast = broadcast
        self._counts.watchers_coalescing += 1
        if not broadcast.responses:
            return  # the cluster will say that it is created
        header = pb.ResponseHeader()
        if broadcast.last_header is not None:
            header.CopyFrom(broadcast.last_header)
        header.revision = watcher.next_revision
        created = pb.WatchResponse(header=header, created=True)
        watcher.last_header = header
        watcher.send(with_id(created.SerializeToString(), watcher.id))

    def remove(self, watcher: Watcher) -> None:
        """Serve a watcher no more; a broadcast nobody is left of is closed."""
        broadcast = watcher.broadcast
        if broadcast is None:
            return
        watcher.broadcast = None
        del broadcast.watchers[watcher]
        if broadcast.watchers:
            self._counts.watchers_coalescing -= 1
        else:
            self._forget(broadcast)
            self._close(broadcast)

    def give(self, watch_id: int, response: pb.WatchResponse) -> list[Watcher]:
        """Pass on a response; return the watchers that it ends."""
        broadcast = self.by_id.get(watch_id)
        if broadcast is None:
            return []  # closed in the meantime
        broadcast.give(response, self._counts)
        if not response.canceled:
            self._merge(broadcast)
            return []
        ended = list(broadcast.watchers)
        for watcher in ended:
            watcher.broadcast = None
        self._counts.watchers_coalescing -= max(len(ended) - 1, 0)
        broadcast.watchers.clear()
        self._forget(broadcast)
        return ended

    def _merge(self, broadcast: Broadcast) -> None:
        """Move the watchers of a broadcast to one of the same range that is not ahead."""
        for other in self._by_range[broadcast.range]:
            is_behind = other.responses and other.next_revision <= broadcast.resume_revision()
            if other is broadcast or not is_behind:
                continue
            for watcher in broadcast.watchers:
                other.watchers[watcher] = None
                watcher.broadcast = other
            broadcast.watchers.clear()
            self._counts.watchers_coalescing += 1
            self._forget(broadcast)
            self._close(broadcast)
            return

    def _forget(self, broadcast: Broadcast) -> None:
        del self.by_id[broadcast.id]
        mates = self._by_range[broadcast.range]
        mates.remove(broadcast)
        if not mates:
            del self._by_range[broadcast.range]

    def take_all(self) -> list[Watcher]:
        """Return every watcher and serve none any more."""
        watchers = [each for broadcast in self.by_id.values() for each in broadcast.watchers]
        self._counts.watchers_coalescing -= len(watchers) - len(self.by_id)
        for watcher in watchers:
            watcher.broadcast = None
        self.by_id.clear()
        self._by_range.clear()
        return watchers


def is_progress(response: pb.WatchResponse) -> bool:
    """Tell whether a response says only how far the cluster is."""
    return not (
        response.events or response.created or response.canceled or response.compact_revision
    )


def with_id(body: bytes, watch_id: int) -> bytes:
    """Return a response's bytes with its watch id."""
    if not watch_id:
        return body
    rest = watch_id & (2**64 - 1)
    encoded = bytearray(_WATCH_ID_TAG)
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return body + bytes(encoded)


def _since(response: pb.WatchResponse, revision: int) -> bytes:
    """Return a response's bytes without the events before revision."""
    rest = pb.WatchResponse(header=response.header)
    rest.events.extend(each for each in response.events if each.kv.mod_revision >= revision)
    return rest.SerializeToString()
