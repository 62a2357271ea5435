"""The times of revisions: from the notes of our API servers, and from times in objects.

    times = RevisionTimes()
    times.add_notes(value)        of a key below TIMES
    times.add(revision, time_s)   of an object that has the time of its write
    times.revision_at(time_s)     the last revision at a time; None: the times known are all later

Nodes renew their leases every ten seconds, so that any cluster shows the times of its revisions.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import TimeError, parse_time
from kvstack.apiserver.registry.time_index import PREFIX as PREFIX
from kvstack.clusters.kinds import Kinds, UnreadableError
from kvstore.client.values import KeyValue

TIMES: Final = PREFIX
LEASES: Final = b"/registry/leases/"
_NEWEST_ROWS: Final = 200
"""The number of recently changed objects whose times are read."""
_TIMES_OF_CONDITIONS: Final = ("lastTransitionTime", "lastHeartbeatTime", "lastUpdateTime")


class RevisionTimes:
    """Pairs of times and revisions."""

    def __init__(self) -> None:
        self._known: list[tuple[float, int]] = []

    def add(self, revision: int, time_s: float) -> None:
        """Note the time of a revision."""
        insort(self._known, (time_s, revision))

    def add_notes(self, value: bytes) -> None:
        """Add the notes of an API server; invalid ones are skipped."""
        try:
            for unix_ms, _, last in orjson.loads(value):
                self.add(int(last), int(unix_ms) / 1000)
        except (ValueError, TypeError):
            pass  # the notes only help: foreign values are skipped

    def add_leases(self, kinds: Kinds, rows: Iterable[KeyValue]) -> None:
        """Add the times of the leases among some rows."""
        for kv in rows:
            if kv.key.startswith(LEASES) and kv.version:
                for time_s in _times_of_row(kinds, kv):
                    self.add(kv.mod_revision, time_s)

    def revision_at(self, time_s: float) -> int | None:
        """Return the last known revision at or before a time."""
        at = bisect_right(self._known, time_s, key=lambda each: each[0])
        return max((revision for _, revision in self._known[:at]), default=None)


def newest_time_s(kinds: Kinds, rows: Iterable[KeyValue]) -> float:
    """Return the latest time that the last changed objects say they were written at; 0: none."""
    newest = sorted(rows, key=attrgetter("mod_revision"))[-_NEWEST_ROWS:]
    return max((time_s for kv in newest for time_s in _times_of_row(kinds, kv)), default=0.0)


def _times_of_row(kinds: Kinds, kv: KeyValue) -> list[float]:
    try:
        return list(_times(kinds.read(kv)))
    except (UnreadableError, AttributeError, TypeError):
        return []


def _times(obj: Object) -> Iterator[float]:
    meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    texts: list[Any] = [meta.get("creationTimestamp"), spec.get("renewTime")]
    texts += [obj.get("lastTimestamp"), obj.get("eventTime")]
    texts += [each.get("time") for each in meta.get("managedFields") or ()]
    for each in status.get("conditions") or ():
        texts += [each.get(name) for name in _TIMES_OF_CONDITIONS]
    for text in texts:
        if isinstance(text, str):
            try:
                moment = parse_time(text)
            except TimeError:
                continue
            yield moment.seconds + moment.nanoseconds / 1e9
