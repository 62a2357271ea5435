"""The objects of one resource, in pages at one revision.

    listing = Listing(api, ListOptions(revision=48211), on_page)
    await listing.read(listed, namespace)      → Listed(rows, revision, newer)

The first page asks for exactly the revision, the others go on from it. If the revision is compacted
meanwhile (410), the current one is read instead, and the result says that the kind is newer than
the rest. Rows are objects as a store has them; the source's resourceVersions are their revisions.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import orjson

from kvstack.agents.client.api import Api
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.clusters.contents import ROOT, LeftOut
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.sources.api_kinds import ListedResource
from kvstack.clusters.sources.source import SourceError
from kvstore.client.values import KeyValue

PAGE_OBJECTS: Final = 500
_ATTEMPTS: Final = 3
_TOO_LARGE: Final = "ResourceVersionTooLarge"
"""The cause in a Status: the revision is of another store than this resource's."""
_NEWLINE: Final = b"\n"
"""Ends what others wrote: it is decoded and defaulted when it is read."""


class NotStoredError(ValueError):
    """The objects of a resource have no uid or resourceVersion: they are computed."""


class Encoder:
    """Turns objects of answers into rows."""

    def __init__(self, kinds: Kinds, *, is_own: bool) -> None:
        """is_own: the server is this program in this version, whose objects need no defaults."""
        self._kinds: Final = kinds
        self._is_own: Final = is_own

    def row(self, listed: ListedResource, obj: Object) -> KeyValue:
        """Return the row of an object; raises NotStoredError."""
        meta = obj.get("metadata") or {}
        revision = str(meta.get("resourceVersion") or "")
        if not meta.get("uid") or not (revision.isascii() and revision.isdigit()):
            raise NotStoredError
        namespace, name = meta.get("namespace", ""), meta["name"]
        path = f"{namespace}/{name}" if namespace else name
        key = ROOT + f"{listed.prefix}/{path}".encode()
        at = int(revision)
        return KeyValue(key, self._value(listed, obj, meta), at, at, 1, 0)

    def _value(self, listed: ListedResource, obj: Object, meta: Object) -> bytes:
        obj["apiVersion"], obj["kind"] = listed.resource.api_version, listed.resource.kind
        if self._is_own and self._kinds.is_hub(listed.prefix, listed.resource.version):
            return self._kinds.value_of(listed.prefix, obj)
        meta.pop("resourceVersion", None)
        return orjson.dumps(obj) + _NEWLINE


class Listed(NamedTuple):
    """The objects of a resource."""

    rows: list[KeyValue]
    revision: int
    """The revision at which they were read."""
    newer_because: str = ""
    """Why that is not the requested revision; empty: it is."""


class Listing:
    """Lists resources at one revision."""

    def __init__(
        self,
        api: Api,
        encoder: Encoder,
        *,
        root: str,
        on_rows: Callable[[ListedResource, int], None],
    ) -> None:
        """root: the prefix of paths, `/at/…` or empty. on_rows: gets the number of new rows."""
        self._api: Final = api
        self._encoder: Final = encoder
        self._root: Final = root
        self._on_rows: Final = on_rows

    async def read(
        self, listed: ListedResource, namespace: str, revision: int, *, may_be_newer: bool
    ) -> Listed | LeftOut:
        """Return the objects of a resource; revision 0: now. LeftOut: why they cannot be read.

        may_be_newer: whether to read them as they are now where the revision is given up.
        """
        because = ""
        for _ in range(_ATTEMPTS):
            try:
                rows, read_at = await self._pages(listed, namespace, revision)
            except ApiError as error:
                if error.is_gone and may_be_newer:
                    because, revision = "its revision was given up while it was read", 0
                    continue
                if _has_cause(error, _TOO_LARGE) and revision and may_be_newer:
                    because, revision = "it is in a store of its own", 0
                    continue
                if error.is_gone:
                    raise SourceError(f"{listed.resource}: {error}") from error
                return LeftOut(str(listed.resource), str(error))
            except NotStoredError:
                return LeftOut(str(listed.resource), "its objects are computed, not stored")
            return Listed(rows, read_at, because)
        raise SourceError(
            f"{listed.resource}: the server gave up the revision {_ATTEMPTS} times while its "
            "objects were read"
        )

    async def _pages(
        self, listed: ListedResource, namespace: str, revision: int
    ) -> tuple[list[KeyValue], int]:
        path = self._root + listed.resource.path(namespace)
        query: dict[str, str | int | bool] = {"limit": PAGE_OBJECTS}
        if revision and not self._root:
            query |= {"resourceVersion": str(revision), "resourceVersionMatch": "Exact"}
        rows: list[KeyValue] = []
        read_at = 0
        while True:
            page = await self._api.call("GET", path, query)
            items = page.get("items") or []
            meta = page.get("metadata") or {}
            read_at = read_at or _revision_of(meta)
            rows += [self._encoder.row(listed, item) for item in items]
            self._on_rows(listed, len(items))
            token = meta.get("continue")
            if not token:
                return rows, read_at
            query = {"limit": PAGE_OBJECTS, "continue": token}


def _revision_of(meta: Object) -> int:
    text = str(meta.get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0


def _has_cause(error: ApiError, reason: str) -> bool:
    details = error.status.get("details") or {}
    return any(each.get("reason") == reason for each in details.get("causes") or ())
