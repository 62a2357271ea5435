"""Changes of one resource that memory no longer has, from the history of the store.

await Replay(store, prefixes, pods).run(7, take)     take([changes], revision), … until the window
                                                   of the collection reaches back far enough
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import KeyPrefixes
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.transformer import Transformers
from kvstack.apiserver.registry.window import Change
from kvstore.client.store import Store
from kvstore.client.values import (
    Compacted,
    Event,
    EventKind,
    Events,
    KeyValue,
    Progress,
    Restored,
    Started,
    prefix_end,
)

Take = Callable[[Sequence[Change], int], Awaitable[None]]


class ForgottenHistoryError(Exception):
    """The store has compacted the history."""

    def __init__(self, oldest: int) -> None:
        """oldest: the oldest available revision."""
        super().__init__(f"the oldest revision is {oldest}")
        self.oldest = oldest


class Replay:
    """Reads past changes from a store."""

    def __init__(
        self,
        store: Store,
        prefixes: KeyPrefixes,
        collection: Collection,
        transformers: Transformers | None = None,
    ) -> None:
        """transformers: decrypt values."""
        self._transformers: Final = transformers
        self._store: Final = store
        self._collection: Final = collection
        self._first: Final = prefixes.key(collection.prefix, "")

    async def run(self, revision: int, take: Take) -> None:
        """Pass on the changes after a revision, in order, until the window has what follows.

        Raises ForgottenHistoryError, and StoreError.
        """
        window = self._collection.window
        watch = self._store.watch(
            self._first,
            prefix_end(self._first),
            start_revision=revision + 1,
            prev_kv=True,
        )
        async with watch:
            async for value in watch:
                match value:
                    case Started():
                        watch.request_progress()
                    case Events():
                        revision = value.events[-1].kv.mod_revision
                        await self._prepare(value.events)
                        await take([self._change(each) for each in value.events], revision)
                    case Progress():
                        revision = max(revision, value.revision)
                        await take([], revision)
                    case Compacted():
                        raise ForgottenHistoryError(value.oldest)
                    case Restored():
                        raise ForgottenHistoryError(value.revision)
                    case _:
                        continue
                if self._collection.window is not window or revision >= window.since:
                    return

    async def _prepare(self, events: Sequence[Event]) -> None:
        if self._transformers is not None:
            kvs = (kv for each in events for kv in (each.kv, each.prev_kv) if kv is not None)
            await self._transformers.prepare(kv.value for kv in kvs)

    def _change(self, event: Event) -> Change:
        key = event.kv.key[len(self._first) :].decode("utf-8", "replace")
        record = self._record(key, event.kv) if event.kind == EventKind.PUT else None
        previous = None if event.prev_kv is None else self._record(key, event.prev_kv)
        if previous is None and (record is None or event.kv.version > 1):
            # The previous value is compacted, so what the change means is not known.
            raise ForgottenHistoryError(event.kv.mod_revision + 1)
        return Change(event.kv.mod_revision, key, record, previous)

    def _record(self, key: str, kv: KeyValue) -> Record:
        return self._collection.read(key, kv.value, kv.mod_revision, kv.lease)
