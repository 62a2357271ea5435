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
        self, resource: GroupResource, callback: Callable[[Sequence[Change]], None]
    ) -> None:
        """Have a function called after each batch of changes is in the copy.

        It is called at once with all objects that are there. It may not fail or wait.
        """
        collection = self._find(resource)
        if collection is None:
            return

        def tell(changes: Sequence[StoredChange]) -> None:
            callback([Change(self._of(e.record), self._of(e.previous)) for e in changes])

        collection.listeners.append(tell)
        there = [Change(self._object(each), None) for each in collection.between()]
        if there:
            callback(there)

    def _of(self, record: Record | None) -> Obj | None:
        return None if record is None else self._object(record)

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
