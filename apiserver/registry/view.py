"""The copy as admission and authorization read it: objects, parsed, by resource.

Objects are parsed when they are first asked for and kept with their record; nobody may change them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kvstack.apiserver.objects.groups import GroupResource
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import end_of, object_key
from kvstack.apiserver.registry.record import Obj, Record
from kvstack.apiserver.registry.window import Change as StoredChange

PARSED_MAX: Final = 4096


class Change(NamedTuple):
    """One object was created, changed or removed."""

    object: Obj | None
    """As it is now; None: removed."""
    previous: Obj | None
    """As it was; None: created."""


_NOTHING: Final = Change(None, None)


class View:
    """Reads the copy; see `policy.ports.ObjectView`."""

    def __init__(self, collections: Callable[[GroupResource], Collection | None]) -> None:
        """Find collections by a function."""
        self._find: Final = collections
        self._parsed: dict[Record, Obj] = {}

    def get(self, resource: GroupResource, namespace: str, name: str) -> Obj | None:
        """Return an object; namespace "": of a resource without namespaces."""
        collection = self._find(resource)
        record = None if collection is None else collection.get(object_key(namespace, name))
        return None if record is None else self._object(record)

    def list(self, resource: GroupResource, namespace: str | None = None) -> Iterable[Obj]:
        """Return the objects of a namespace, or all, in the order of their keys."""
        collection = self._find(resource)
        if collection is None:
            return []
        prefix = f"{namespace}/" if namespace else ""
        records = collection.between(prefix, end_of(prefix))
        found = (self._object(each) for each in records)
        return [each for each in found if each is not None]

    def version(self, resource: GroupResource) -> int:
        """Return a number that is another one after anything of the resource changed."""
        collection = self._find(resource)
        return 0 if collection is None else collection.version

    def subscribe(
        self,
        resource: GroupResource,
        callback: Callable[[Sequence[Change]], None],
        *,
        field: str = "",
    ) -> None:
        """Have a function called after each batch of changes is in the copy.

        field: one that selectors may name; an object whose field is empty counts as absent, and is
        not parsed. It is called at once with all objects that are there. It may not fail or wait.
        """
        collection = self._find(resource)
        if collection is None:
            return
        place = collection.codec.field_names.index(field) if field else -1

        def seen(record: Record | None) -> Obj | None:
            if record is None or (field and record.fields and not record.fields[place]):
                return None
            return self._object(record)

        def tell(changes: Sequence[StoredChange]) -> None:
            told = [Change(seen(each.record), seen(each.previous)) for each in changes]
            if told := [each for each in told if each != _NOTHING]:
                callback(told)

        collection.listeners.append(tell)
        there = [Change(seen(each), None) for each in collection.between()]
        if there := [each for each in there if each != _NOTHING]:
            callback(there)

    def _object(self, record: Record) -> Obj | None:
        """Return the object of a record; None if it cannot be read."""
        found = self._parsed.get(record)
        if found is None:
            if record.error:
                return None
            if len(self._parsed) >= PARSED_MAX:
                del self._parsed[next(iter(self._parsed))]
            found = self._parsed[record] = record.parse()
        return found
