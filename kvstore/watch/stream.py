"""Streams and their watchers: data, and the limits they live under.

A watcher is in one of two states, and always knows the first revision it still has to see:

    synced     everything before next_revision is delivered and nothing that matters to it has
               happened since; the next event goes to it at once
    unsynced   the store holds events from next_revision on that it has not seen

`held` says that a client does not read fast enough: too much waits for it unsent. Its watchers
become unsynced one by one, as events pass them by, and nothing is sent until it has read.
"""

from dataclasses import dataclass
from typing import Final

_SECOND_NS: Final = 1_000_000_000
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """How much of everything; the defaults are etcd's where etcd has one."""

    max_message_bytes: int = 2 * _MIB  # above it a response is split (max-request-bytes + 512 KiB)
    progress_interval_ns: int = 600 * _SECOND_NS  # up to a tenth longer for each stream
    backlog_high_bytes: int = 4 * _MIB  # unsent on one stream: above it the stream is held
    backlog_low_bytes: int = 1 * _MIB  # and at or below this let go
    backlog_max_bytes: int = 16 * _MIB  # a client that asks and asks but never reads is cut off
    watchers_per_stream_max: int = 1_000_000


class Watcher:
    """One watcher; a class with slots, as there are a hundred thousand of them."""

    __slots__ = (
        "end",
        "flavor",
        "id",
        "id_field",
        "key",
        "next_revision",
        "quiet",
        "stream",
        "synced",
    )

    def __init__(
        self,
        stream: "Stream",
        watch_id: int,
        id_field: bytes,
        key: bytes,
        end: bytes | None,
        flavor: int,
        next_revision: int,
    ) -> None:
        self.stream = stream
        self.id = watch_id
        self.id_field = id_field  # the id as it stands in every response
        self.key = key
        self.end = end
        self.flavor = flavor
        self.next_revision = next_revision  # of a synced one: at most the store's next, or future
        self.synced = True
        self.quiet = True  # no events since the last periodic progress


class Stream:
    """One client's stream."""

    __slots__ = (
        "future",
        "held",
        "id",
        "marked_bytes",
        "next_id",
        "notified",
        "period_ns",
        "room_bytes",
        "sent_bytes",
        "tick_ns",
        "unsynced",
        "watchers",
    )

    def __init__(self, stream_id: int, now_ns: int, period_ns: int, room_bytes: int) -> None:
        self.id = stream_id
        self.watchers: dict[int, Watcher | None] = {}  # None: ended by a compaction, id still taken
        self.unsynced: dict[Watcher, None] = {}
        self.future: dict[Watcher, None] = {}  # start revision not reached when last looked at
        self.notified: dict[Watcher, None] = {}  # those that want periodic progress
        self.next_id = 0
        self.period_ns = period_ns
        self.tick_ns = now_ns + period_ns  # next periodic progress
        self.held = False
        self.sent_bytes = 0  # handed out since the backlog in room_bytes was measured
        self.marked_bytes = 0  # of those, what the next measurement will include
        self.room_bytes = room_bytes  # sent_bytes above this: hold


@dataclass(frozen=True, slots=True)
class HubStats:
    """How many there are, for metrics; slow ones are the unsynced."""

    streams: int
    watchers: int
    synced: int
    unsynced: int
    held_streams: int
    unsent_bytes: int


@dataclass(frozen=True, slots=True)
class StreamLag:
    """How far one stream is behind."""

    stream_id: int
    watchers: int
    unsynced: int
    held: bool
    behind_revisions: int  # of its slowest watcher
