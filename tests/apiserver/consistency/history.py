"""What clients of several API servers have seen, and what must hold of it.

Counters are ConfigMaps whose value `n` every write raises by one, guarded by the resourceVersion
that was read. So one history tells everything:

- no update is lost: acknowledged writes of a counter have different values, in the order of their
  revisions, and the last value is the number of acknowledged writes and of those with an unknown
  outcome that took place;
- no read is stale: a list or get without a resourceVersion has every write that was acknowledged
  before it was sent, and for one client its revision never goes back;
- no event is lost or doubled: of each counter a watch sees n, n + 1, n + 2 …, at rising revisions,
  through every reconnection; what it has seen at the end is what a list has.

Times are of one monotonic clock, in seconds.
"""

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

Values = dict[str, int]  # of counters


class Write(NamedTuple):
    """A write of a counter: acknowledged with its revision, or of unknown outcome (revision 0)."""

    counter: str
    value: int
    revision: int
    began_s: float
    ended_s: float


class Read(NamedTuple):
    """A consistent read of all counters by one client."""

    client: str
    revision: int
    values: Values
    began_s: float


class Event(NamedTuple):
    """An event of one counter that one watcher saw."""

    watcher: str
    counter: str
    value: int
    revision: int


@dataclass(slots=True)
class History:
    """Everything that was seen; clients add to it from their threads."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    begins: dict[str, Values] = field(default_factory=dict)  # what a watcher began from
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seen: Write | Read | Event) -> None:
        """Note one thing."""
        kept: list[Write] | list[Read] | list[Event] = (
            self.writes
            if isinstance(seen, Write)
            else self.reads
            if isinstance(seen, Read)
            else self.events
        )
        with self.lock:
            kept.append(seen)  # type: ignore[arg-type]

    def begin(self, watcher: str, values: Values) -> None:
        """Note what a watcher listed before it watched."""
        with self.lock:
            self.begins[watcher] = values


def faults_of(history: History, final: Values) -> list[str]:
    """Return everything that must not be, in words; empty if all is well."""
    return [
        *_lost_updates(history, final),
        *_stale_reads(history),
        *_lost_events(history, final),
    ]


def _lost_updates(history: History, final: Values) -> list[str]:
    faults = []
    acknowledged: defaultdict[str, list[Write]] = defaultdict(list)
    unknown: defaultdict[str, list[Write]] = defaultdict(list)
    for write in history.writes:
        (acknowledged if write.revision else unknown)[write.counter].append(write)
    for counter, last in final.items():
        writes = sorted(acknowledged[counter], key=lambda write: write.revision)
        values = [write.value for write in writes]
        if values != sorted(set(values)):
            faults.append(f"{counter}: values of acknowledged writes by revision are {values}")
        missing = set(range(1, last + 1)) - set(values)
        maybe = {write.value for write in unknown[counter]}
        if not missing <= maybe:
            faults.append(f"{counter} is {last}, but nobody wrote {sorted(missing - maybe)}")
        if values and values[-1] > last:
            faults.append(f"{counter} is {last}, but {values[-1]} was acknowledged")
    return faults


def _stale_reads(history: History) -> list[str]:
    faults = []
    last_revision: dict[str, Read] = {}
    for read in sorted(history.reads, key=lambda read: read.began_s):
        before = last_revision.get(read.client)
        if before is not None and read.revision < before.revision:
            faults.append(f"{read.client}: read {read.revision} after {before.revision}")
        last_revision[read.client] = read
    acknowledged = sorted((w for w in history.writes if w.revision), key=lambda w: w.ended_s)
    floor: Values = {}
    position = 0
    for read in sorted(history.reads, key=lambda read: read.began_s):
        while position < len(acknowledged) and acknowledged[position].ended_s < read.began_s:
            write = acknowledged[position]
            floor[write.counter] = max(floor.get(write.counter, 0), write.value)
            position += 1
        faults += [
            f"{read.client}: read {counter} = {read.values.get(counter, 0)} at {read.revision}, "
            f"but {value} was acknowledged before"
            for counter, value in floor.items()
            if read.values.get(counter, 0) < value
        ]
    return faults


def _lost_events(history: History, final: Values) -> list[str]:
    faults = []
    seen = {watcher: dict(values) for watcher, values in history.begins.items()}
    revisions: dict[str, int] = defaultdict(int)
    for watcher, counter, value, revision in history.events:
        before = seen[watcher].get(counter, 0)
        if value != before + 1:
            faults.append(f"{watcher}: {counter} went from {before} to {value} at {revision}")
        if revision <= revisions[watcher]:
            faults.append(f"{watcher}: revision {revision} after {revisions[watcher]}")
        seen[watcher][counter] = value
        revisions[watcher] = revision
    for watcher, values in seen.items():
        if values != final:
            faults.append(f"{watcher} ended with {values}, a list with {final}")
    return faults
