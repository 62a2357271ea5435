"""The watch cache as admission and authorization read it: parsed objects by resource.

Objects are parsed on first use and cached with their record; callers must not change them. Those
that are passed to subscribers are not cached: most are never read again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.unchanged import IS_CHECKED, watched
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import end_of, object_key
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.window import Change as StoredChange

PARSED_MAX: Final = 4096
CHANGES_PER_CALL: Final = 500
"""Limit of changes per call of a subscriber: each is parsed, and the first calls have all
objects."""


class Change:
    """A change of an object (created, updated or removed): `now, before = change`."""

    __slots__ = ("_before", "object")

    def __init__(self, object_: Object | None, before: Record | Object | None) -> None:
        """object_: its new state (None: removed); before: its old one (None: created)."""
        self.object: Final = object_
        self._before = before

    @property
    def previous(self) -> Object | None:
        """The old state; None: created. It is parsed on first use."""
        if isinstance(self._before, Record):
            self._before = self._before.parse()
        return self._before

    def __iter__(self) -> Iterator[Object | None]:
        """Yield the new and the old state."""
        yield self.object
        yield self.previous


class View:
    """Reads the watch cache; see `policy.interfaces.ObjectView`."""

    def __init__(self, collections: Callable[[GroupResource], Collection | None]) -> None:
        self._find: Final = collections
        self._parsed: dict[Record, Object] = {}
        self._checks: dict[Record, Callable[[], None]] = {}
        """Checks that cached objects were not changed; only in tests."""

    def get(self, resource: GroupResource, namespace: str, name: str) -> Object | None:
        """Return an object; namespace "": cluster-scoped."""
        collection = self._find(resource)
        record = None if collection is None else collection.get(object_key(namespace, name))
        return None if record is None else self._object(record)

    def list(self, resource: GroupResource, namespace: str | None = None) -> Iterable[Object]:
        """Return the objects of a namespace, or all, in key order."""
        collection = self._find(resource)
        if collection is None:
            return []
        prefix = f"{namespace}/" if namespace else ""
        records = collection.between(prefix, end_of(prefix))
        found = (self._object(each) for each in records)
        return [each for each in found if each is not None]

    def version(self, resource: GroupResource) -> int:
        """Return a number that differs after anything of the resource changed."""
        collection = self._find(resource)
        return 0 if collection is None else collection.version

    def subscribe(
        self,
        resource: GroupResource,
        callback: Callable[[Sequence[Change]], None],
        *,
        field: str = "",
    ) -> None:
        """Have a function called after each batch of changes is in the watch cache.

        field: a selectable field; an object whose field is empty counts as absent, and is not
        parsed. The function is called immediately with all existing objects, several times for many
        changes, and must not fail or block.
        """
        collection = self._find(resource)
        if collection is None:
            return
        field_index = collection.codec.field_names.index(field) if field else -1

        def is_seen(record: Record | None) -> bool:
            if record is None or record.error:
                return False
            return not (field and record.fields and not record.fields[field_index])

        def change_of(record: Record | None, previous: Record | None) -> Change | None:
            now = record.parse() if record is not None and is_seen(record) else None
            before = previous if is_seen(previous) else None
            return None if now is None and before is None else Change(now, before)

        def notify_part(pairs: Iterable[tuple[Record | None, Record | None]]) -> None:
            found = [change_of(record, previous) for record, previous in pairs]
            if seen := [each for each in found if each is not None]:
                callback(seen)

        def notify(changes: Sequence[StoredChange]) -> None:
            for at in range(0, len(changes), CHANGES_PER_CALL):
                notify_part(
                    (each.record, each.previous) for each in changes[at : at + CHANGES_PER_CALL]
                )

        collection.listeners.append(notify)
        there = collection.between()
        while some := [(each, None) for each in islice(there, CHANGES_PER_CALL)]:
            notify_part(some)

    def _object(self, record: Record) -> Object | None:
        """Return the object of a record; None if it is unreadable."""
        parsed = self._parsed.get(record)
        if parsed is None:
            if record.error:
                return None
            if len(self._parsed) >= PARSED_MAX:
                oldest = next(iter(self._parsed))
                del self._parsed[oldest]
                self._checks.pop(oldest, None)
            parsed = self._parsed[record] = record.parse()
            if IS_CHECKED:
                self._checks[record] = watched(parsed, f"the cached object of {record.key}")
        elif IS_CHECKED:
            self._checks[record]()
        return parsed
