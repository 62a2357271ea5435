"""API servers with a bug each: every check of this simulation must find the one it is for.

A bug is put between the server and its store: the rest of the server is the real one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar, NamedTuple, cast

from typing_extensions import override

from kvstore.client.store import Store
from kvstore.client.values import Compare, Events, Op, PutResult, TxnResult, WatchValue
from kvstore.client.watch import Watch
from tests.sim.stack.servers import ServerProcess


class BuggyStore:
    """A store as a server sees it; what a bug does not touch is the real one's."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Watch:
    """A watch whose values go through a function."""

    def __init__(self, watch: Watch, change: Callable[[WatchValue], list[WatchValue]]) -> None:
        self._watch = watch
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watch, name)

    async def __aiter__(self) -> AsyncIterator[WatchValue]:
        async for value in self._watch:
            for each in self._change(value):
                yield each


class ReadsStale(BuggyStore):
    """The present is what it was a while ago."""

    _asked: tuple[float, int] = (-1.0, 0)

    async def current_revision(self, **more: Any) -> int:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._asked[0] > 1.0:
            self._asked = (now_s, await self._store.current_revision(**more))
        return self._asked[1]


class LosesEvents(BuggyStore):
    """Now and then a change is not told."""

    _count = 0

    def watch(self, *args: Any, progress_notify: bool = False, **more: Any) -> Any:
        watch = self._store.watch(*args, progress_notify=progress_notify, **more)
        return _Watch(watch, self._some) if progress_notify else watch  # that of the copy

    def _some(self, value: WatchValue) -> list[WatchValue]:
        self._count += isinstance(value, Events)
        return [] if isinstance(value, Events) and self._count % 40 == 0 else [value]


class DoublesEvents(LosesEvents):
    """Now and then a change is told again."""

    @override
    def _some(self, value: WatchValue) -> list[WatchValue]:
        self._count += isinstance(value, Events)
        return [value, value] if isinstance(value, Events) and not self._count % 10 else [value]


class ForgetsConditions(BuggyStore):
    """Transactions compare nothing."""

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        return await self._store.txn([], success, failure)


class RepeatsWrites(BuggyStore):
    """A write is made again, whatever is there now, as if its outcome were unknown."""

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        done = await self._store.txn(compares, success, failure)
        if done.succeeded and b"/configmaps/north/" in compares[0].key:
            await self._store.txn([], success, failure)
        return done


class LosesWrites(BuggyStore):
    """Now and then a write is acknowledged and not made."""

    _count = 0

    async def txn(
        self, compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = ()
    ) -> TxnResult:
        self._count += b"/configmaps/north/" in compares[0].key
        if self._count % 10 == 9:
            self._count += 1
            revision = await self._store.current_revision() + 1
            return TxnResult(revision, True, [PutResult(revision, None)])
        return await self._store.txn(compares, success, failure)


class IgnoresRevisions(BuggyStore):
    """Reads of old states are answered with the present."""

    async def range(self, *args: Any, revision: int = 0, **more: Any) -> Any:
        return await self._store.range(*args, **more)

    def pages(self, *args: Any, revision: int = 0, **more: Any) -> Any:
        return self._store.pages(*args, **more)


class Canary(NamedTuple):
    """A bug, and the checks of which any may find it."""

    store: type[BuggyStore]
    checks: tuple[str, ...]
    fault: str = ""
    """What often happens."""


_WATCH = ("WatchCheck._compare", "WatchCheck.event", "Checks._equal_state", "Checks._was_so")

CANARIES = (
    Canary(ReadsStale, ("Checks.listed", "Checks._was_so"), "slow store link"),
    Canary(LosesEvents, _WATCH),
    Canary(DoublesEvents, _WATCH),
    Canary(ForgetsConditions, ("Checks._counts_on", "Checks.written.<locals>.check")),
    Canary(RepeatsWrites, ("Oracle._take",)),
    Canary(LosesWrites, ("Checks.written.<locals>.check",)),
    Canary(IgnoresRevisions, ("Checks._equal_state",)),
)


def planted(canary: Canary) -> type[ServerProcess]:
    """Return servers with the bug."""

    class Planted(ServerProcess):
        store_type: ClassVar[type[BuggyStore]] = canary.store

        @override
        def store_seen(self, store: Store) -> Store:
            return cast("Store", self.store_type(store))

    return Planted
