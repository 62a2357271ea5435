"""Get and list, with all meanings of resourceVersion.

    get    none: as of now · 0: whatever is there · N: not older than N
    list   none: as of now · 0: whatever is there, all of it · N: not older than N, or with a limit
           exactly N · N with NotOlderThan or Exact: what they say · continue: exactly as the page
           before, or as of now where its token says so

The watch cache serves what it has, including recent revisions; older ones are read from the store's
history. A compacted revision is Expired, even if memory still has it. If the watch cache stays
behind for `behind_s` seconds, the store itself is read.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.registry import continue_token, errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.continue_token import LATEST, TokenError
from kvstack.apiserver.registry.history import PAGE_KEYS_MAX, History
from kvstack.apiserver.registry.list_cache import CachedList, ListCache, ListRange
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.selection import Selection
from kvstack.apiserver.registry.watch_cache import BehindError, WatchCache
from kvstack.apiserver.registry.window import ForgottenError
from kvstore.client.errors import CompactedError, FutureRevisionError, StoreError

BEHIND_S: Final = 3.0
EXACT: Final = "Exact"
NOT_OLDER_THAN: Final = "NotOlderThan"


class ListOptions(NamedTuple):
    """The state and the page of a list."""

    revision: int | None = None
    """None: not given."""
    match: str = ""
    limit: int = 0
    continue_token: str = ""


class Page(NamedTuple):
    """A list, or one page of it."""

    records: list[Record]
    revision: int
    continue_token: str = ""
    """Empty: there are no more."""
    remaining: int | None = None
    """Number of remaining objects, if known."""
    cached: CachedList | None = None
    """The cached list with the same records."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the JSON of all records."""
        return sum([len(each.body) for each in self.records])


class Reads:
    """Reads from the watch cache, and from the store where necessary."""

    def __init__(
        self, watch_cache: WatchCache, history: History, behind_s: float = BEHIND_S
    ) -> None:
        self._watch_cache: Final = watch_cache
        self._history: Final = history
        self._behind_s: Final = behind_s
        self._list_cache: Final = ListCache()

    def forget_changed_lists(self) -> None:
        """Drop cached lists that are outdated."""
        self._list_cache.forget_changed()

    async def get(
        self, collection: Collection, key: str, revision: int | None = None
    ) -> Record | None:
        """Return an object; revision: None current, 0 any, else not older. Raises ApiError."""
        try:
            if revision is not None:
                await self._reach(revision)
            else:
                try:
                    await self._watch_cache.latest(self._behind_s)
                except BehindError:
                    self._check_loaded()
                    return await self._history.get(collection, key)
        except StoreError as error:
            raise errors.api_error(error, collection.resource, "get") from error
        return collection.get(key)

    async def get_at(self, collection: Collection, key: str, revision: int) -> Record | None:
        """Return an object as it was at a revision; raises ApiError."""
        options = ListOptions(revision, EXACT)
        records = (await self.list(collection, Selection(key=key), options)).records
        return records[0] if records else None

    async def list(
        self, collection: Collection, selection: Selection, options: ListOptions
    ) -> Page:
        """Return objects in order; raises ApiError."""
        try:
            return await self._list(collection, selection, options)
        except StoreError as error:
            raise errors.api_error(error, collection.resource, "list") from error

    async def _list(
        self, collection: Collection, selection: Selection, options: ListOptions
    ) -> Page:
        revision, match, limit, token = options
        if token:
            return await self._next_page(collection, selection, options)
        if match == EXACT or (revision and limit and not match):
            assert revision is not None, "options were checked"
            return await self._exact(collection, selection, revision, limit, errors.LIST_EXPIRED)
        if revision is None:
            if not await self._is_latest():
                return await self._from_store(collection, selection, selection.start, 0, limit)
        else:
            await self._reach(revision)
            if not revision:
                limit = 0
        now = self._watch_cache.revision
        return self._page(collection, selection, selection.start, now, limit)

    async def _next_page(
        self, collection: Collection, selection: Selection, options: ListOptions
    ) -> Page:
        try:
            position = continue_token.decode(options.continue_token)
        except TokenError as error:
            raise status.bad_request(f"invalid continue token: {error}") from None
        if options.revision:
            raise status.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        start = max(selection.prefix + position.start, selection.start)
        if options.revision == 0:
            options = options._replace(limit=0)
        if position.revision <= LATEST:
            if not await self._is_latest():
                return await self._from_store(collection, selection, start, 0, options.limit)
            now = self._watch_cache.revision
            return self._page(collection, selection, start, now, options.limit)
        try:
            return await self._exact(
                collection, selection, position.revision, options.limit, errors.PAGE_EXPIRED, start
            )
        except ApiError as error:
            if error.reason != "Expired":
                raise
            token = continue_token.encode(LATEST, position.start)
            raise status.expired(errors.PAGE_EXPIRED, token) from None

    async def _exact(
        self,
        collection: Collection,
        selection: Selection,
        revision: int,
        limit: int,
        expired: str,
        start: str | None = None,
    ) -> Page:
        """Return a page of the state at a revision; expired: the error if it was compacted."""
        start = selection.start if start is None else start
        if revision < self._watch_cache.compacted:
            raise status.expired(expired)
        if not self._watch_cache.is_loaded or self._watch_cache.revision < revision:
            await self._reach(revision)
        try:
            return self._page(collection, selection, start, revision, limit)
        except ForgottenError:
            pass
        try:
            return await self._from_store(collection, selection, start, revision, limit)
        except CompactedError:
            raise status.expired(expired) from None
        except FutureRevisionError:
            current = self._watch_cache.revision
            raise status.too_large_resource_version(revision, current) from None

    async def _is_latest(self) -> bool:
        """Wait for the store's current revision in the watch cache; return whether it came."""
        try:
            await self._watch_cache.latest(self._behind_s)
        except BehindError:
            self._check_loaded()
            return False
        return True

    def _check_loaded(self) -> None:
        if not self._watch_cache.is_loaded:
            raise errors.not_loaded() from None

    async def _reach(self, revision: int) -> None:
        """Wait until the watch cache is not older than a revision; raises ApiError."""
        cache = self._watch_cache
        if cache.is_loaded and cache.revision >= revision:
            return
        try:
            await cache.reach(revision, self._behind_s)
        except BehindError:
            if not cache.is_loaded:
                raise errors.not_loaded() from None
            raise status.too_large_resource_version(revision, cache.revision) from None

    def _page(
        self, collection: Collection, selection: Selection, start: str, revision: int, limit: int
    ) -> Page:
        """Return a page from memory; raises ForgottenError."""
        matches, end = selection.matches, selection.end
        if collection.broken:
            self._check_readable(
                collection,
                [
                    collection.broken[key]
                    for key in sorted(collection.broken)
                    if start <= key and (end is None or key < end)
                ],
            )
        if matches is None and revision >= collection.revision:
            return self._whole(
                ListRange(collection, start, end, max(limit, 0)), selection, revision
            )
        records, size = collection.between_at(revision, start, end)
        if limit <= 0:
            found = list(records) if matches is None else list(filter(matches, records))
            return Page(found, revision)
        return _limited(records, size, selection, revision, limit)

    def _check_readable(self, collection: Collection, broken: Sequence[Record]) -> None:
        """Refuse a list with unreadable objects; raises ApiError."""
        if broken:
            key_of = self._watch_cache.prefixes.key
            named = [(key_of(collection.prefix, each.key).decode(), each) for each in broken]
            raise errors.unreadable_list(collection.resource, named)

    def _whole(self, range_: ListRange, selection: Selection, revision: int) -> Page:
        """Return all objects of a range in its current state."""
        cached = self._list_cache.find(range_)
        if cached is None:
            collection, start, end, limit = range_
            records, total = collection.between_at(revision, start, end)
            found = list(islice(records, limit) if limit else records)
            is_cut = len(found) == limit and total > limit > 0
            cached = self._list_cache.keep(range_, found, total, is_cut=is_cut)
            if cached is None:
                return _cut(found, revision, selection, total, more=is_cut)
        page = _cut(cached.records, revision, selection, cached.total, more=cached.is_cut)
        return page._replace(cached=cached)

    async def _from_store(
        self, collection: Collection, selection: Selection, start: str, revision: int, limit: int
    ) -> Page:
        """Return a page from the store."""
        page_keys = limit if limit > 0 else PAGE_KEYS_MAX
        matches, records = selection.matches, list[Record]()
        pages = self._history.pages(collection, start, selection.end, revision, page_keys)
        async for page in pages:
            revision = revision or page.revision
            self._check_readable(collection, [each for each in page.records if each.error])
            for position, each in enumerate(page.records):
                if matches is not None and not matches(each):
                    continue
                records.append(each)
                if len(records) == limit:
                    more = page.more or position + 1 < len(page.records)
                    size = page.total if matches is None else None
                    return _cut(records, revision, selection, size, more=more)
        return Page(records, revision)


def _limited(
    records: Iterable[Record], size: int, selection: Selection, revision: int, limit: int
) -> Page:
    matches, limited = selection.matches, list[Record]()
    rest = iter(records)
    for each in rest:
        if matches is None or matches(each):
            limited.append(each)
            if len(limited) == limit:
                more = next(rest, None) is not None
                total = size if matches is None else None
                return _cut(limited, revision, selection, total, more=more)
    return Page(limited, revision)


def _cut(
    records: list[Record], revision: int, selection: Selection, size: int | None, *, more: bool
) -> Page:
    """Return a page that has reached its limit; size: the number of remaining objects, if known."""
    if not more:
        return Page(records, revision)
    last = records[-1].key.removeprefix(selection.prefix)
    remaining = None if size is None else size - len(records)
    return Page(records, revision, continue_token.after(revision, last), remaining)
