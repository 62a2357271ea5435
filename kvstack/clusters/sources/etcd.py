"""Contents of a store over the network: etcd from 3.5 on, or ours.

    EtcdSource(["https://10.0.0.1:2379"], ClientTls(…)).read(options, progress)

Everything is read at one revision. The history comes by a watch that starts at the requested
time, or at the oldest revision that the store still has.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kvstack.clusters.contents import Contents, Origin
from kvstack.clusters.sources.source import Progress, ReadOptions, Source, SourceError
from kvstack.clusters.sources.store_records import StoreRecords
from kvstore.client import ClientOptions, connect
from kvstore.client.errors import CompactedError, StoreError
from kvstore.client.options import ClientTls
from kvstore.client.values import Compacted, EventKind, Events, KeyValue

if TYPE_CHECKING:
    from kvstore.client.store import Store

KIND: Final = "etcd"
_FIRST: Final = b"\0"
_ALL: Final = b"\0"
_ATTEMPTS: Final = 3
HISTORY_S: Final = 600.0
REACH_S: Final = 5.0
"""The timeout of the first connection, so that forks of a store that is down fail soon."""


class EtcdSource(Source):
    """A store that is reached at its client URLs."""

    def __init__(
        self,
        endpoints: Sequence[str],
        tls: ClientTls | None = None,
        user: str = "",
        reach_s: float = REACH_S,
    ) -> None:
        """user: `name:password`, or empty."""
        name, _, password = user.partition(":")
        self._endpoints: Final = tuple(endpoints)
        self._options: Final = ClientOptions(
            tls=tls or ClientTls(), user=name, password=password, reach_s=reach_s
        )

    @property
    @override
    def name(self) -> str:
        return "etcd"

    @override
    async def read(self, options: ReadOptions, progress: Progress) -> Contents:
        endpoints = ",".join(self._endpoints)
        revision = _revision(options.at)
        progress.say(f"connecting to {endpoints}")
        try:
            async with connect(self._endpoints, self._options) as store:
                for attempt in range(1, _ATTEMPTS + 1):
                    try:
                        return await self._read(store, options, progress, revision)
                    except CompactedError as error:
                        if revision or attempt == _ATTEMPTS:
                            raise SourceError(f"{endpoints}: {error}") from error
                raise AssertionError("the last attempt returns or raises")
        except StoreError as error:
            raise SourceError(f"{endpoints}: {error}") from error

    async def _read(
        self, store: "Store", options: ReadOptions, progress: Progress, revision: int
    ) -> Contents:
        records = StoreRecords(options, progress)
        origin = Origin(KIND, ",".join(self._endpoints), (await store.status()).version)
        if options.since_s:
            revision = revision or await store.current_revision()
            try:
                async with asyncio.timeout(HISTORY_S):
                    first = await _oldest(store) if revision > 1 else revision
                    await _add_state(store, records, first)
                    if first < revision:
                        await _add_changes(store, records, first + 1, revision)
            except TimeoutError:
                raise SourceError(
                    f"{origin.name}: its history was not read within {HISTORY_S:g} s"
                ) from None
            return await records.contents(origin, revision, first, {})
        read_at = await _add_state(store, records, revision)
        return await records.contents(origin, read_at, read_at, {})


async def _add_state(store: "Store", records: StoreRecords, revision: int) -> int:
    """Add what there was at a revision (0: now); return the revision that was read."""
    read_at = revision
    async for page in store.pages(_FIRST, _ALL, revision=revision):
        read_at = read_at or page.revision
        for kv in page.kvs:
            records.add(kv)
    return read_at or await store.current_revision()


async def _oldest(store: "Store") -> int:
    """Return the first revision whose state can be read."""
    watch = store.watch(_FIRST, _ALL, start_revision=1)
    try:
        async for value in watch:
            if isinstance(value, Compacted):
                return value.oldest
            if isinstance(value, Events):
                break
    finally:
        watch.cancel()
    return 1


async def _add_changes(store: "Store", records: StoreRecords, first: int, last: int) -> None:
    """Add the changes from one revision to another."""
    watch = store.watch(_FIRST, _ALL, start_revision=first)
    try:
        async for value in watch:
            if isinstance(value, Compacted):
                raise CompactedError(f"revision {first} was compacted while it was read")
            if not isinstance(value, Events):
                continue
            for kind, kv, _ in value.events:
                if kv.mod_revision > last:
                    return
                is_put = kind == EventKind.PUT
                records.add(kv if is_put else KeyValue(kv.key, b"", 0, kv.mod_revision, 0, 0))
            if value.events and value.events[-1].kv.mod_revision >= last:
                return
    finally:
        watch.cancel()


def _revision(at: str) -> int:
    if not at:
        return 0
    if at.isascii() and at.isdigit() and int(at):
        return int(at)
    raise SourceError(f"--at {at}: a store is read at a revision, which is a number")
