"""Revisions by time, so that past states can be read by time.

    await times.revision_at(1795355947000)   → 4502: what changed after it changed after that time
    TooOldError                              no notes were taken then

While objects change, a note is written every second: (time, first, last), the revisions since the
note before. The state at a time is that before the first change of the next note, and the present
where there is none; so an answer is at most a second older than requested. The notes of ten seconds
are one key of the store, which every API server reads:

    /kvstack/times/000179535594   [[1795355947003, 4503, 4503], …]

All servers take notes, and the first to write a key wins. A note with first = 0 says that a server
started: the changes between it and the note before are unknown, so the time between them has the
state of the note before.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from typing import Final, NamedTuple

import orjson

from kvstack.apiserver.registry.watch_cache import WatchCache
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstore.client.errors import StoreError
from kvstore.client.store import Store
from kvstore.client.values import Compare, KeyValue, Put, SortOrder, prefix_end

PREFIX: Final = b"/kvstack/times/"
NOTE_S: Final = 1.0
SLOT_MS: Final = 10_000
KEPT_NOTES: Final = 600
"""Limit of the notes that a server caches, besides those it has not written yet."""
SLOTS_ALONE: Final = 30
"""Number of slots that are written together where no other server takes notes; fewer than
KEPT_NOTES are in them."""
_RETRY_S: Final = 5.0


class TooOldError(LookupError):
    """The time is before all notes."""


class Note(NamedTuple):
    """The revisions from first to last existed at a time."""

    unix_ms: int
    first: int
    """0: a server started; `last` is the revision at its start."""
    last: int


class TimeIndex:
    """Records times of revisions, and looks them up."""

    def __init__(
        self,
        store: Store,
        watch_cache: WatchCache,
        clock: Clock,
        logger: Logger,
        *,
        is_alone: bool = False,
    ) -> None:
        """Nothing is written before `run`.

        is_alone: no other server takes notes, and none is lost before the store is: then the notes
        of several minutes are written together.
        """
        self._slots: Final = SLOTS_ALONE if is_alone else 1
        """Number of slots that are collected before they are written."""
        self._store: Final = store
        self._watch_cache: Final = watch_cache
        self._clock: Final = clock
        self._logger: Final = logger
        self._notes: deque[Note] = deque()
        """Without a gap since this server started."""
        self._unwritten: list[Note] = []
        self._coming = 0
        """The first revision without a note; 0: there is none."""
        self._is_new = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        watch_cache.on_load.append(self._loaded)
        watch_cache.on_change.append(self._changed)

    # Queries.

    async def revision_at(self, unix_ms: int) -> int:
        """Return the revision of the state at a time; raises TooOldError and StoreError.

        The time must not be in the future.
        """
        notes = self._notes
        if notes and notes[0].unix_ms <= unix_ms:
            found = next((each for each in notes if each.unix_ms > unix_ms), None)
            if found is None:
                return self._coming - 1 if self._coming else self._watch_cache.revision
            if found.first:
                return found.first - 1
        return await self._stored_revision_at(unix_ms)

    async def oldest_ms(self) -> int | None:
        """Return the time of the first note; None: there is none. Raises StoreError."""
        found = await self._store.range(PREFIX, prefix_end(PREFIX), limit=1)
        if found.kvs:
            return _read(found.kvs[0])[0].unix_ms
        return self._notes[0].unix_ms if self._notes else None

    async def notes_between(self, from_ms: int, to_ms: int, limit: int) -> list[Note]:
        """Return the newest `limit` notes of an interval, oldest first; raises StoreError.

        Those of up to NOTE_S before its start may be among them.
        """
        first, last = _key(from_ms // SLOT_MS), _key(to_ms // SLOT_MS + 1)
        found = await self._store.range(first, last, limit=limit, sort_order=SortOrder.DESCENDING)
        notes = [each for kv in reversed(found.kvs) for each in _read(kv)]
        newest_ms = notes[-1].unix_ms if notes else 0
        notes += [each for each in self._notes if each.unix_ms > newest_ms]
        return [each for each in notes if from_ms <= each.unix_ms <= to_ms][-limit:]

    async def forget_before(self, unix_ms: int) -> None:
        """Delete the notes that are not needed for this time and later; raises StoreError."""
        end = _key(unix_ms // SLOT_MS)
        before = await self._store.range(
            PREFIX, end, limit=1, keys_only=True, sort_order=SortOrder.DESCENDING
        )
        if before.kvs and before.total > 1:
            await self._store.delete(PREFIX, before.kvs[0].key)

    async def _stored_revision_at(self, unix_ms: int) -> int:
        slot = _key(unix_ms // SLOT_MS)
        after = await self._store.range(slot, prefix_end(PREFIX), limit=2)
        later = [each for kv in after.kvs for each in _read(kv)]
        later += [each for each in self._notes if not later or each.unix_ms > later[-1].unix_ms]
        index = bisect_right(later, unix_ms, key=lambda each: each.unix_ms)
        before = later[index - 1] if index else await self._last_before(slot)
        if before is None:
            raise TooOldError
        if index < len(later) and later[index].first:
            return later[index].first - 1
        return before.last

    async def _last_before(self, key: bytes) -> Note | None:
        found = await self._store.range(PREFIX, key, limit=1, sort_order=SortOrder.DESCENDING)
        return _read(found.kvs[0])[-1] if found.kvs else None

    # Taking notes.

    def _loaded(self, revision: int) -> None:
        """Note that everything is reloaded: the changes since the note before are unknown."""
        self._coming = 0
        self._add(Note(self._now_ms(), 0, revision))

    def _changed(self, first: int) -> None:
        if not self._coming:
            self._coming = first
            self._is_new.set()

    def _add(self, note: Note) -> None:
        if not note.first:
            self._notes.clear()
        self._notes.append(note)
        self._unwritten.append(note)
        if len(self._notes) > KEPT_NOTES:
            self._notes.popleft()
        self._is_new.set()

    async def run(self) -> None:
        """Take and write notes until cancelled."""
        try:
            await self._run()
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    async def _run(self) -> None:
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            await asyncio.sleep(NOTE_S)
            if self._coming:
                self._add(Note(self._now_ms(), self._coming, self._watch_cache.revision))
                self._coming = 0
                self._is_new.clear()
            await self._write()

    def _now_ms(self) -> int:
        """Return the time of a note: clocks may go back, notes do not."""
        now_ms = self._clock.unix_ms()
        return max(now_ms, self._notes[-1].unix_ms) if self._notes else now_ms

    async def _write(self) -> None:
        """Write the notes of complete slots."""
        while self._unwritten:
            slot = self._unwritten[0].unix_ms // SLOT_MS
            end = slot + self._slots
            left_ms = end * SLOT_MS - self._clock.unix_ms()
            if left_ms > 0:
                self._wake_in(left_ms / 1000)
                return
            slots: dict[int, list[Note]] = {}
            for each in self._unwritten:
                if each.unix_ms < end * SLOT_MS:
                    slots.setdefault(each.unix_ms // SLOT_MS, []).append(each)
            puts = [
                Put(_key(at), orjson.dumps(list(map(tuple, notes)))) for at, notes in slots.items()
            ]
            try:
                await self._store.txn([Compare.absent(each.key) for each in puts], puts)
            except StoreError as error:
                self._logger.warning("failed to record times of revisions", error=str(error))
                self._wake_in(_RETRY_S)
                return
            del self._unwritten[: sum(map(len, slots.values()))]

    def _wake_in(self, seconds: float) -> None:
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        self._is_new.set()


def _key(slot: int) -> bytes:
    return PREFIX + f"{slot:012d}".encode()


def _read(kv: KeyValue) -> list[Note]:
    return [Note(*each) for each in orjson.loads(kv.value)]
