"""The revisions of each key: the index in memory, rebuilt from the records at every start.

An entry has one of two forms, both small and not tracked by the garbage collector:

    int      main << 20 | sub     one revision, which created the key (version 1)
    array    create, version, main, mark, main, mark, ...    mark = sub << 1 | is a tombstone

`create` and `version` are those of the newest revision (0, 0 after a tombstone); the pairs ascend.
Example: put at 2 and 3, deleted at 5, put again at 9:

    [9, 1,   2, 0,   3, 0,   5, 1,   9, 0]
     └────┘  └────── generation ─┘  └ generation

A key is *live* if its newest revision is not a tombstone, else *dead* until it is compacted. The
two are kept apart, so reads and counts at the current revision look at live keys only. Dead keys
are many where objects come and go, and seldom read: the pairs of one are bytes, four for each
number, as long as the numbers fit (`frozen`).

The index has no values and does not access rows; revisions must be given in ascending order.
"""

from array import array
from collections.abc import Iterable, Iterator
from heapq import merge
from sys import byteorder
from typing import Final, NamedTuple, TypeAlias

from kvstore.mvcc.key_order import KeyOrder
from kvstore.mvcc.revision import MARK, SEPARATOR, pack

SUB_BITS: Final = 20
SUB_LIMIT: Final = 1 << SUB_BITS  # a greater sub revision does not fit an int entry
SUB_MASK: Final = SUB_LIMIT - 1
_FIRST: Final = 2  # where the pairs begin
_HALVES: Final = slice(2 * _FIRST + (byteorder == "big"), None, 2)  # the low ones of the pairs
_HALF_LIMIT: Final = 1 << 32

History: TypeAlias = "array[int]"
Entry: TypeAlias = "int | array[int]"
DeadEntry: TypeAlias = "bytes | array[int]"


Numbers = tuple[int, int, int]  # create revision, mod revision, version


class Current(NamedTuple):
    """The newest revision of a live key."""

    create: int
    mod: int
    version: int
    revkey: bytes


def newest_at(history: History, main: int) -> int:
    """Return the position of the newest pair whose main is <= main, 0 if there is none."""
    high = len(history) - 2
    if history[high] <= main:
        return high
    low = _FIRST
    if history[low] > main:
        return 0
    while high - low > 2:
        middle = (low + high) // 4 * 2
        if history[middle] <= main:
            low = middle
        else:
            high = middle
    return low


def has_value_at(history: History, main: int) -> bool:
    """Tell whether a key had a value at main."""
    at = newest_at(history, main)
    return at > 0 and not history[at + 1] & 1


def frozen(history: History) -> DeadEntry:
    """Return the history of a dead key as it is kept."""
    if max(history) >= _HALF_LIMIT:
        return history
    return memoryview(history).cast("B").cast("I")[_HALVES].tobytes()


def thawed(entry: DeadEntry) -> History:
    """Return the history of a dead key."""
    return array("q", (0, 0, *memoryview(entry).cast("I"))) if isinstance(entry, bytes) else entry


class KeyIndex:
    """All keys and their revisions; see the module's text."""

    __slots__ = ("_dead_order", "_live_order", "dead", "live")

    def __init__(self) -> None:
        self.live: dict[bytes, Entry] = {}
        self.dead: dict[bytes, DeadEntry] = {}
        self._live_order = KeyOrder()
        self._dead_order = KeyOrder()

    def put(self, key: bytes, main: int, sub: int) -> tuple[int, int, bytes | None]:
        """Add a put; return (create, version, revision key of the value it replaces or None)."""
        entry = self.live.get(key)
        if entry is None:
            self._add_live(key, main, sub)
            return main, 1, None
        if isinstance(entry, int):
            old_main = entry >> SUB_BITS
            old_sub = entry & SUB_MASK
            self.live[key] = array("q", (old_main, 2, old_main, old_sub << 1, main, sub << 1))
            return old_main, 2, pack(old_main, SEPARATOR, old_sub)
        replaced = pack(entry[-2], SEPARATOR, entry[-1] >> 1)
        entry.append(main)
        entry.append(sub << 1)
        entry[1] = version = entry[1] + 1
        return entry[0], version, replaced

    def put_run(
        self, keys: Iterable[bytes], first: int
    ) -> tuple[list[int], list[int], list[bytes | None]]:
        """Add puts at consecutive main revisions from first on; return columns of what put does."""
        creates: list[int] = []
        versions: list[int] = []
        replaced: list[bytes | None] = []
        live = self.live
        for main, key in enumerate(keys, first):  # the hot path of every write
            entry = live.get(key)
            if type(entry) is array:
                replaced.append(pack(entry[-2], SEPARATOR, entry[-1] >> 1))
                entry.append(main)
                entry.append(0)
                entry[1] = version = entry[1] + 1
                creates.append(entry[0])
                versions.append(version)
            else:
                create, version, old = self.put(key, main, 0)
                creates.append(create)
                versions.append(version)
                replaced.append(old)
        return creates, versions, replaced

    def delete(self, key: bytes, main: int, sub: int) -> bytes:
        """Add a tombstone of a live key; return the revision key of the value it removes."""
        entry = self.live.pop(key)
        if isinstance(entry, int):
            history = array("q", (0, 0, entry >> SUB_BITS, (entry & SUB_MASK) << 1))
        else:
            history = entry
            history[0] = history[1] = 0
        removed = pack(history[-2], SEPARATOR, history[-1] >> 1)
        history.append(main)
        history.append(sub << 1 | 1)
        self.dead[key] = frozen(history)
        self._live_order.remove(key)
        self._dead_order.add(key)
        return removed

    def current(self, key: bytes) -> Current | None:
        """Return the newest revision of key if it is live."""
        return self.current_of_live(key) if key in self.live else None

    def current_of_live(self, key: bytes) -> Current:
        """Return the newest revision of a live key."""
        entry = self.live[key]
        if isinstance(entry, int):
            main = entry >> SUB_BITS
            return Current(main, main, 1, pack(main, SEPARATOR, entry & SUB_MASK))
        main = entry[-2]
        return Current(entry[0], main, entry[1], pack(main, SEPARATOR, entry[-1] >> 1))

    def numbers(self, key: bytes) -> Numbers | None:
        """Return (create, mod, version) of a live key, None for any other."""
        entry = self.live.get(key)
        if entry is None:
            return None
        if isinstance(entry, int):
            main = entry >> SUB_BITS
            return main, main, 1
        return entry[0], entry[-2], entry[1]

    def current_revkey(self, key: bytes) -> bytes | None:
        """Return the revision key of the newest revision of key if it is live."""
        entry = self.live.get(key)
        if entry is None:
            return None
        if isinstance(entry, int):
            return pack(entry >> SUB_BITS, SEPARATOR, entry & SUB_MASK)
        return pack(entry[-2], SEPARATOR, entry[-1] >> 1)

    def current_revkeys(self, keys: list[bytes]) -> list[bytes]:
        """Return the revision keys of the newest revisions of live keys."""
        live = self.live
        return [
            pack(entry >> SUB_BITS, SEPARATOR, entry & SUB_MASK)
            if isinstance(entry := live[key], int)
            else pack(entry[-2], SEPARATOR, entry[-1] >> 1)
            for key in keys
        ]

    def revkey_at(self, key: bytes, main: int) -> bytes | None:
        """Return the revision key of the value key had at main, None if it had none."""
        entry = self._entry(key)
        if entry is None:
            return None
        if isinstance(entry, int):
            mod = entry >> SUB_BITS
            return pack(mod, SEPARATOR, entry & SUB_MASK) if mod <= main else None
        at = newest_at(entry, main)
        mark = entry[at + 1]
        return pack(entry[at], SEPARATOR, mark >> 1) if at and not mark & 1 else None

    def record_at(self, key: bytes, main: int) -> bytes | None:
        """Return the revision key of the newest record of key up to main, value or tombstone."""
        history = self._entry(key)
        if history is None or isinstance(history, int):
            return self.revkey_at(key, main)
        at = newest_at(history, main)
        if not at:
            return None
        mark = history[at + 1]
        return pack(history[at], SEPARATOR, mark >> 1) + (MARK if mark & 1 else b"")

    def keys(self, start: bytes, end: bytes | None, limit: int = 0) -> list[bytes]:
        """Return live keys with start <= k < end (None: no bound), ascending (limit 0: all)."""
        return self._live_order.keys(start, end, limit)

    def sample(self, count: int, offset: int) -> list[bytes]:
        """Return up to count live keys, evenly spaced; offset moves them all."""
        return self._live_order.sample(count, offset)

    def count(self, start: bytes, end: bytes | None) -> int:
        """Return the number of live keys with start <= k < end (None: no bound)."""
        return self._live_order.count(start, end)

    def count_with_dead(self, start: bytes, end: bytes | None) -> int:
        """Return the number of keys, live or dead, with start <= k < end (None: no bound)."""
        return self._live_order.count(start, end) + self._dead_order.count(start, end)

    def count_at(self, start: bytes, end: bytes | None, main: int) -> int:
        """Return the number of keys with start <= k < end that had a value at main; O(keys)."""
        count = 0
        newer = main + 1 << SUB_BITS
        for key in self._live_order.walk(start, end):
            entry = self.live[key]
            count += entry < newer if isinstance(entry, int) else has_value_at(entry, main)
        for key in self._dead_order.walk(start, end):
            count += has_value_at(thawed(self.dead[key]), main)
        return count

    def walk_with_dead(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        """Yield live and dead keys with start <= k < end ascending; no change meanwhile."""
        live = self._live_order.walk(start, end)
        if not self.dead:
            return live
        return merge(live, self._dead_order.walk(start, end))

    def compact_key(self, key: bytes, main: int) -> bytes | None:
        """Remove what a compaction at main removes of key; return the record up to main it keeps.

        That is the newest one up to main, except a tombstone before main. None: it keeps no record
        up to main. A second call returns the same.
        """
        history = self._entry(key)
        if history is None:
            return None
        if isinstance(history, int):
            mod = history >> SUB_BITS
            return pack(mod, SEPARATOR, history & SUB_MASK) if mod <= main else None
        at = newest_at(history, main)
        if not at:
            return None
        mod, mark = history[at], history[at + 1]
        if mark & 1 and mod < main:
            del history[_FIRST : at + 2]
            kept = None
        else:
            del history[_FIRST:at]
            kept = pack(mod, SEPARATOR, mark >> 1) + (MARK if mark & 1 else b"")
        self._shrink(key, history)
        return kept

    def _entry(self, key: bytes) -> "Entry | None":
        """Return the entry of a live key, or the history of a dead one."""
        entry = self.live.get(key)
        if entry is None:
            dead = self.dead.get(key)
            return None if dead is None else thawed(dead)
        return entry

    def _shrink(self, key: bytes, history: History) -> None:
        """Give a shortened history its smallest form; remove the key if nothing is left."""
        if len(history) == _FIRST:
            del self.dead[key]
            self._dead_order.remove(key)
        elif key in self.dead:
            self.dead[key] = frozen(history)
        elif len(history) == _FIRST + 2:
            create, version, main, mark = history
            if version == 1 and create == main and mark < SUB_LIMIT << 1:
                self.live[key] = main << SUB_BITS | mark >> 1

    def _add_live(self, key: bytes, main: int, sub: int) -> None:
        self._live_order.add(key)
        dead = self.dead.pop(key, None) if self.dead else None
        if dead is not None:
            self._dead_order.remove(key)
            history = thawed(dead)
            history[0] = main
            history[1] = 1
            history.append(main)
            history.append(sub << 1)
            self.live[key] = history
        elif sub < SUB_LIMIT:
            self.live[key] = main << SUB_BITS | sub
        else:
            self.live[key] = array("q", (main, 1, main, sub << 1))

    def restore(self, key: bytes, create: int, version: int, main: int, mark: int) -> None:
        """Add one record of a rebuild, oldest first; call restored() after the last one.

        create and version are used only of the oldest record of a key.
        """
        entry = self.live.get(key)
        if entry is None:
            dead = self.dead.get(key)
            if dead is None:
                if mark & 1:
                    self.dead[key] = frozen(array("q", (0, 0, main, mark)))
                elif version == 1 and create == main and mark < SUB_LIMIT << 1:
                    self.live[key] = main << SUB_BITS | mark >> 1
                else:
                    self.live[key] = array("q", (create, version, main, mark))
            elif not mark & 1:  # a tombstone of a dead key has no effect
                del self.dead[key]
                history = thawed(dead)
                history[0] = main
                history[1] = 1
                history.extend((main, mark))
                self.live[key] = history
            return
        if isinstance(entry, int):
            old_main = entry >> SUB_BITS
            history = array("q", (old_main, 1, old_main, (entry & SUB_MASK) << 1, main, mark))
            self.live[key] = history
        else:
            history = entry
            history.append(main)
            history.append(mark)
        if mark & 1:
            history[0] = history[1] = 0
            self.dead[key] = frozen(history)
            del self.live[key]
        else:
            history[1] += 1

    def restored(self) -> None:
        """Build the order of all keys; before this only lookups by key are allowed."""
        self._live_order = KeyOrder(self.live)
        self._dead_order = KeyOrder(self.dead)
