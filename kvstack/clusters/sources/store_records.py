"""Contents from the records of a store: its live keys, and earlier versions.

    records = StoreRecords(options, progress)
    for kv in …: records.add(kv)          in the order of revisions, or each live key once
    contents = await records.contents(origin, revision, readable_from, leases)

Keys are moved to `/registry/` where the store has another prefix. Values that are encrypted are
decrypted by the rules that the options name, or left out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kvstack.clusters.contents import (
    EVENT_LEASE,
    EVENT_TTL_S,
    EVENTS,
    ROOT,
    Contents,
    History,
    LeftOut,
    Origin,
    ending_events,
    is_left_behind,
)
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.sources.decryption import (
    ENCRYPTED,
    Decryption,
    resource_of,
    without_encrypted,
)
from kvstack.clusters.sources.revision_times import TIMES, RevisionTimes, newest_time_s
from kvstack.clusters.sources.selection import of_namespaces
from kvstack.clusters.sources.source import (
    EVERY_OBJECTS,
    Progress,
    ReadOptions,
    TooManyObjectsError,
)
from kvstore.client.values import KeyValue

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.groups import GroupResource

UNKNOWN: Final = "kept, but not served: the kind is not known here, nor is a definition of it"


class StoreRecords:
    """Takes the records of one store."""

    def __init__(self, options: ReadOptions, progress: Progress) -> None:
        """Raises SourceError for an invalid encryption configuration."""
        self._options: Final = options
        self._progress: Final = progress
        self._decryption: Final = (
            Decryption(options.encryption_config) if options.encryption_config else None
        )
        prefix = options.etcd_prefix.strip("/")
        self._root: Final = f"/{prefix}/".encode() if prefix else b"/"
        self._live: dict[bytes, KeyValue] = {}
        self._replaced: list[tuple[int, KeyValue]] = []
        """Records that are not live, each with the revision that ended it."""
        self._times: Final = RevisionTimes()
        self._unread: set[GroupResource] = set()
        self._count = 0
        self.last_revision = 0
        """The greatest revision of a record so far, whatever its key."""

    def add(self, kv: KeyValue) -> None:
        """Add a record; TooManyObjectsError."""
        self.last_revision = max(self.last_revision, kv.mod_revision)
        self._count += 1
        if not self._count % EVERY_OBJECTS:
            self._progress.say(f"reading: {len(self._live)} objects")
        if kv.key.startswith(TIMES):
            self._times.add_notes(kv.value)
            return
        if not kv.key.startswith(self._root):
            return
        kv = kv._replace(key=ROOT + kv.key[len(self._root) :])
        if is_left_behind(kv.key):
            return
        if kv.key.startswith(EVENTS) and not self._options.has_events:
            return
        before = self._live.pop(kv.key, None)
        if before is not None:
            self._replaced.append((kv.mod_revision, before))
        if not kv.version:
            self._replaced.append((kv.mod_revision, kv))
            return
        self._live[kv.key] = kv
        if len(self._live) > self._options.objects_max:
            at = kv.key.decode("utf-8", "backslashreplace")
            raise TooManyObjectsError(self._options.objects_max, at)

    async def contents(
        self, origin: Origin, revision: int, readable_from: int, leases: Mapping[int, int]
    ) -> Contents:
        """Return what was taken.

        readable_from: the first revision whose state the records show. leases: those of the store
        and their TTLs; empty: they are not known.
        """
        rows = [self._live[key] for key in sorted(self._live)]
        kinds, left_out = Kinds.of(rows), list[LeftOut]()
        time_s = newest_time_s(kinds, rows)
        first = self._first_revision(kinds, rows, revision, readable_from, time_s, left_out)
        old = [kv for ended_at, kv in self._replaced if ended_at > first]
        old.sort(key=attrgetter("mod_revision", "key"))
        rows, old = await self._plain(kinds, rows, old, left_out)
        ttls = {**leases, EVENT_LEASE: EVENT_TTL_S}
        rows, old = (
            _leased(of_namespaces(kinds, each, self._options.namespaces), ttls)
            for each in (rows, old)
        )
        left_out += _unserved(kinds, rows)
        used = {kv.lease for kv in (*rows, *old)}
        return Contents(
            rows,
            revision,
            origin,
            time_s,
            left_out,
            History(first, old) if first < revision else None,
            frozenset(self._unread),
            {lease: ttl_s for lease, ttl_s in ttls.items() if lease in used},
        )

    def _first_revision(
        self,
        kinds: Kinds,
        rows: Iterable[KeyValue],
        revision: int,
        readable_from: int,
        time_s: float,
        left_out: list[LeftOut],
    ) -> int:
        """Return where the history begins that the options ask for, as far as it is there."""
        since_s = self._options.since_s
        if since_s is None:
            return readable_from
        if not since_s:
            return revision
        self._times.add_leases(kinds, (kv for _, kv in self._replaced))
        self._times.add_leases(kinds, rows)
        first = self._times.revision_at(time_s - since_s)
        if first is None or first < readable_from:
            if readable_from == 1:
                return readable_from  # nothing was lost
            why = f"the store is compacted before revision {readable_from}"
            left_out.append(LeftOut("history", why))
            return readable_from
        return first

    async def _plain(
        self, kinds: Kinds, rows: list[KeyValue], old: list[KeyValue], left_out: list[LeftOut]
    ) -> tuple[list[KeyValue], list[KeyValue]]:
        """Return the records with plain values, without those that cannot be decrypted."""
        if not any(kv.value.startswith(ENCRYPTED) for kv in (*rows, *old)):
            return rows, old
        refused: Counter[tuple[str, str]] = Counter()
        unnamed: Counter[tuple[str, str]] = Counter()
        before = {kv.key for kv in rows}
        if self._decryption is None:
            rows = without_encrypted(kinds, rows, refused)
            old = without_encrypted(kinds, old, unnamed)
        else:
            self._progress.say("decrypting")
            async with self._decryption as decryption:
                rows = await decryption.plain(kinds, rows, self._root, refused)
                old = await decryption.plain(kinds, old, self._root, unnamed)
        left_out += [LeftOut(what, why, number) for (what, why), number in sorted(refused.items())]
        for key in before.difference(kv.key for kv in rows):
            key_of = kinds.find(key)
            if key_of is not None:
                self._unread.add(key_of.resource)
        return rows, old


def _unserved(kinds: Kinds, rows: Iterable[KeyValue]) -> list[LeftOut]:
    """Return the unknown kinds of rows."""
    unknown = Counter(resource_of(kinds, kv.key) for kv in rows if kinds.find(kv.key) is None)
    found = [LeftOut(what, UNKNOWN, number) for what, number in sorted(unknown.items())]
    return found + [
        LeftOut(f"the kind of {name}", f"kept, but not served: {why}")
        for name, why in sorted(kinds.unusable.items())
    ]


def _leased(rows: Iterable[KeyValue], leases: Mapping[int, int]) -> list[KeyValue]:
    """Return rows without unknown leases; Events always have one."""
    return ending_events(
        kv if not kv.lease or kv.lease in leases else kv._replace(lease=0) for kv in rows
    )
