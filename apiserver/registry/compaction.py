"""Compaction of the store, by the protocol that all API servers on it follow.

    compact_rev_key    version: how many rounds there were; value: the revision of the last

Each round is won by the server that finds the key as it last saw it. It compacts to the revision
that was noted a round ago, or, if history is kept, to the state of that long ago. The others adopt
what the winner wrote. Each server notifies its cache, so that a compacted revision is not read from
memory either: continue tokens expire on all servers alike.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kvstack.apiserver.registry.time_index import TimeIndex, TooOldError
from kvstack.component.clock import Clock
from kvstore.client.errors import CompactedError
from kvstore.client.store import Store
from kvstore.client.values import Compare, Put, Range, RangeResult, Target

KEY: Final = b"compact_rev_key"


class _Mark:
    """A revision, and a time at which the store was not beyond it."""

    __slots__ = ("revision", "unix_ms")

    def __init__(self, revision: int, unix_ms: int) -> None:
        self.revision = revision
        self.unix_ms = unix_ms


class Compaction:
    """Compacts a store, a round at a time."""

    def __init__(
        self,
        store: Store,
        times: TimeIndex,
        clock: Clock,
        *,
        history_s: float = 0.0,
        on_compacted: Callable[[int], None] = lambda _revision: None,
    ) -> None:
        """history_s: how long history is kept, 0: one to two rounds.

        on_compacted: called with the revision that was compacted.
        """
        self._on_compacted: Final = on_compacted
        self._store: Final = store
        self._times: Final = times
        self._clock: Final = clock
        self._history_ms: Final = round(history_s * 1000)
        self._rounds = 0
        self._noted = _Mark(0, 0)

    async def round(self) -> None:
        """Run one round; raises StoreError."""
        target = await self._target()
        now_ms = self._clock.unix_ms()
        done = await self._store.txn(
            [Compare(KEY, Target.VERSION, self._rounds)],
            [Put(KEY, str(target.revision).encode())],
            [Range(KEY)],
        )
        self._noted = _Mark(done.revision, now_ms)
        if not done.succeeded:
            found = done.results[0]
            assert isinstance(found, RangeResult), "the failure branch reads one key"
            self._rounds = found.kvs[0].version if found.kvs else 0
            if found.kvs and found.kvs[0].value.isdigit():
                self._on_compacted(int(found.kvs[0].value))
            return
        self._rounds += 1
        if target.revision:
            await self._compact(target)

    async def _compact(self, target: _Mark) -> None:
        with suppress(CompactedError):  # another client compacted further
            await self._store.compact(target.revision)
        self._on_compacted(target.revision)
        await self._times.forget_before(target.unix_ms)

    async def _target(self) -> _Mark:
        """Return the oldest revision that stays readable; 0: the current one."""
        if not self._history_ms:
            return self._noted
        unix_ms = self._clock.unix_ms() - self._history_ms
        try:
            return _Mark(await self._times.revision_at(unix_ms), unix_ms)
        except TooOldError:
            return _Mark(0, 0)
