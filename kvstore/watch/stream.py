"""Streams and their watchers: data, and their limits.

A watcher is in one of two states; next_revision is the first one whose events it was not sent:

    synced     everything before next_revision is sent, and no event for it has happened since; the
               next event is sent at once
    unsynced   the store has events from next_revision on that it was not sent

A stream is `paused` if its client does not read fast enough: too much is unsent. Its watchers then
become unsynced one by one, as events for them happen, and nothing is sent until the client has
read.
"""

from dataclasses import dataclass

from kvstack.component.units import MIB, SECOND_NS


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """Limits of watches; the defaults are etcd's if etcd has one."""

    max_message_bytes: int = 2 * MIB  # above it a response is split (max-request-bytes + 512 KiB)
    progress_interval_ns: int = 600 * SECOND_NS  # up to a tenth longer for each stream
    backlog_high_bytes: int = 4 * MIB  # unsent on one stream: above it the stream is paused
    backlog_low_bytes: int = 1 * MIB  # at or below it the stream is resumed
    backlog_max_bytes: int = 16 * MIB  # a client that sends requests but never reads is ended above
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
        self.id_field = id_field  # the encoded id of every response
        self.key = key
        self.end = end
        self.flavor = flavor
        self.next_revision = next_revision  # of a synced one: the store's next at most, or future
        self.synced = True
        self.quiet = True  # no events since the last periodic progress notification


class Stream:
    """One client's stream."""

    __slots__ = (
        "budget_bytes",
        "future",
        "id",
        "marked_bytes",
        "next_id",
        "notified",
        "paused",
        "period_ns",
        "sent_bytes",
        "tick_ns",
        "unsynced",
        "watchers",
    )

    def __init__(self, stream_id: int, now_ns: int, period_ns: int, budget_bytes: int) -> None:
        self.id = stream_id
        self.watchers: dict[int, Watcher | None] = {}  # None: ended by a compaction, id still taken
        self.unsynced: dict[Watcher, None] = {}
        self.future: dict[Watcher, None] = {}  # start revision not reached at the last check
        self.notified: dict[Watcher, None] = {}  # watchers with periodic progress notifications
        self.next_id = 0
        self.period_ns = period_ns
        self.tick_ns = now_ns + period_ns  # next periodic progress notification
        self.paused = False
        self.sent_bytes = 0  # sent since the backlog in budget_bytes was measured
        self.marked_bytes = 0  # of those, what the next measurement will include
        self.budget_bytes = budget_bytes  # sent_bytes above this: pause


@dataclass(frozen=True, slots=True)
class HubStats:
    """The counts for metrics; etcd's slow watchers are the unsynced."""

    streams: int
    watchers: int
    synced: int
    unsynced: int
    paused_streams: int
    unsent_bytes: int


@dataclass(frozen=True, slots=True)
class StreamBacklog:
    """The backlog of one stream."""

    stream_id: int
    watchers: int
    unsynced: int
    paused: bool
    behind_revisions: int  # of its slowest watcher
