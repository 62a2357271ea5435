"""Get and list, with every meaning of resourceVersion.

    get    none: as of now · 0: whatever is there · N: not older than N
    list   none: as of now · 0: whatever is there, all of it · N: not older than N, or with a limit
           exactly N · N with NotOlderThan or Exact: what they say · continue: exactly as the page
           before, or as of now where its token says so

What the copy in memory knows comes from there, also of revisions a little in the past; anything
older comes from the history of the store. If the copy stays behind for `behind_s` seconds, the
store itself is read.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from kvstack.apiserver.objects import status
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.registry import continue_token, errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.continue_token import LATEST, TokenError
from kvstack.apiserver.registry.copy import BehindError, Copy
from kvstack.apiserver.registry.history import PAGE_KEYS_MAX, History
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.selection import Selection
from kvstack.apiserver.registry.sheets import Place, Sheet, Sheets
from kvstack.apiserver.registry.window import ForgottenError
from kvstore.client.errors import CompactedError, FutureRevisionError, StoreError

BEHIND_S: Final = 3.0
EXACT: Final = "Exact"
NOT_OLDER_THAN: Final = "NotOlderThan"


class ListOptions(NamedTuple):
    """Of what state a list is to be, and how much of it."""

    revision: int | None = None
    """None: not given."""
    match: str = ""
    limit: int = 0
    continue_token: str = ""


class Page(NamedTuple):
    """A list, or the part of one that was asked for."""

    records: list[Record]
    revision: int
    continue_token: str = ""
    """Empty: there is no more."""
    remaining: int | None = None
    """How many are still to come, where that is known."""
    sheet: Sheet | None = None
    """What holds the same records for others, too."""


class Reads:
    """Reads from the copy, and from the store where that must be."""

    def __init__(self, copy: Copy, history: History, behind_s: float = BEHIND_S) -> None:
        """Read from a copy and from the history of its store."""
        self._copy: Final = copy
        self._history: Final = history
        self._behind_s: Final = behind_s
        self._sheets: Final = Sheets()

    async def get(
        self, collection: Collection, key: str, revision: int | None = None
    ) -> Record | None:
        """Return an object; revision: None as of now, 0 any, else not older. Raises ApiError."""
        try:
            if revision is not None:
                await self._reach(revision)
            else:
                try:
                    await self._copy.latest(self._behind_s)
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
        now = self._copy.revision
        return self._page(collection, selection, selection.start, now, limit)

    async def _next_page(
        self, collection: Collection, selection: Selection, options: ListOptions
    ) -> Page:
        if options.revision:
            raise status.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        try:
            position = continue_token.decode(options.continue_token)
        except TokenError as error:
            raise status.bad_request(f"invalid continue token: {error}") from None
        start = max(selection.prefix + position.start, selection.start)
        if options.revision == 0:
            options = options._replace(limit=0)
        if position.revision <= LATEST:
            if not await self._is_latest():
                return await self._from_store(collection, selection, start, 0, options.limit)
            now = self._copy.revision
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
        """Return a page of the state at a revision; expired: what to say if that is gone."""
        start = selection.start if start is None else start
        if not self._copy.is_loaded or self._copy.revision < revision:
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
            current = self._copy.revision
            raise status.too_large_resource_version(revision, current) from None

    async def _is_latest(self) -> bool:
        """Wait until the copy is as new as the store is now; return whether it got there."""
        try:
            await self._copy.latest(self._behind_s)
        except BehindError:
            self._check_loaded()
            return False
        return True

    def _check_loaded(self) -> None:
        if not self._copy.is_loaded:
            raise errors.not_loaded() from None

    async def _reach(self, revision: int) -> None:
        """Wait until the copy is not older than a revision; raises ApiError."""
        copy = self._copy
        if copy.is_loaded and copy.revision >= revision:
            return
        try:
            await copy.reach(revision, self._behind_s)
        except BehindError:
            if not copy.is_loaded:
                raise errors.not_loaded() from None
            raise status.too_large_resource_version(revision, copy.revision) from None

    def _page(
        self, collection: Collection, selection: Selection, start: str, revision: int, limit: int
    ) -> Page:
        """Return a page from memory; ForgottenError."""
        if collection.broken:
            _check_readable(collection)
        matches, end = selection.matches, selection.end
        if matches is None and revision >= collection.revision:
            return self._whole(Place(collection, start, end, max(limit, 0)), selection, revision)
        records, size = collection.between_at(revision, start, end)
        if limit <= 0:
            found = list(records) if matches is None else list(filter(matches, records))
            return Page(found, revision)
        return _limited(records, size, selection, revision, limit)

    def _whole(self, place: Place, selection: Selection, revision: int) -> Page:
        """Return all objects of a place as it is now."""
        sheet = self._sheets.find(place)
        if sheet is None:
            collection, start, end, limit = place
            records, total = collection.between_at(revision, start, end)
            found = list(islice(records, limit) if limit else records)
            is_cut = len(found) == limit and total > limit > 0
            sheet = self._sheets.keep(place, found, total, is_cut=is_cut)
            if sheet is None:
                return _cut(found, revision, selection, total, more=is_cut)
        page = _cut(sheet.records, revision, selection, sheet.total, more=sheet.is_cut)
        return page._replace(sheet=sheet)

    async def _from_store(
        self, collection: Collection, selection: Selection, start: str, revision: int, limit: int
    ) -> Page:
        """Return a page from the store."""
        page_keys = limit if limit > 0 else PAGE_KEYS_MAX
        matches, found = selection.matches, list[Record]()
        pages = self._history.pages(collection, start, selection.end, revision, page_keys)
        async for page in pages:
            revision = revision or page.revision
            broken = next((each for each in page.records if each.error), None)
            if broken is not None:
                raise _unreadable(collection, broken)
            for position, each in enumerate(page.records):
                if matches is not None and not matches(each):
                    continue
                found.append(each)
                if len(found) == limit:
                    more = page.more or position + 1 < len(page.records)
                    size = page.total if matches is None else None
                    return _cut(found, revision, selection, size, more=more)
        return Page(found, revision)


def _limited(
    records: Iterable[Record], size: int, selection: Selection, revision: int, limit: int
) -> Page:
    matches, found = selection.matches, list[Record]()
    rest = iter(records)
    for each in rest:
        if matches is None or matches(each):
            found.append(each)
            if len(found) == limit:
                more = next(rest, None) is not None
                total = size if matches is None else None
                return _cut(found, revision, selection, total, more=more)
    return Page(found, revision)


def _cut(
    found: list[Record], revision: int, selection: Selection, size: int | None, *, more: bool
) -> Page:
    """Return a page that has reached its limit; size: how many there were to come, if known."""
    if not more:
        return Page(found, revision)
    last = found[-1].key.removeprefix(selection.prefix)
    remaining = None if size is None else size - len(found)
    return Page(found, revision, continue_token.after(revision, last), remaining)


def _check_readable(collection: Collection) -> None:
    raise _unreadable(collection, next(iter(collection.broken.values())))


def _unreadable(collection: Collection, record: Record) -> ApiError:
    return status.unknown(f"unable to decode {collection.prefix}/{record.key}: {record.error}")
