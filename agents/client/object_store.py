"""The objects of one resource as an agent knows them, with indexes.

    store.add_index("node", lambda pod: (pod["spec"].get("nodeName", ""),))
    store.get("default/web")
    store.by_index("node", "n1")        → pods of a node
    store.in_namespace("default")

Objects are shared by all readers, who must not change them: make a copy instead.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kvstack.apimachinery.objects.json_object import Object

ValuesOf: TypeAlias = Callable[[Object], Iterable[str]]

NAMESPACE_INDEX = "namespace"


def key_of(obj: Object) -> str:
    """Return `namespace/name`, or the name alone of what has no namespace."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else meta["name"]


def split_key(key: str) -> tuple[str, str]:
    """Return namespace (empty: none) and name."""
    namespace, slash, name = key.rpartition("/")
    return (namespace, name) if slash else ("", key)


def _namespace_of(obj: Object) -> tuple[str, ...]:
    return (obj["metadata"].get("namespace", ""),)


class ObjectStore:
    """Objects by key, and by values of indexes; in the order in which they came."""

    def __init__(self) -> None:
        """Start with the index of namespaces."""
        self._objects: dict[str, Object] = {}
        self._values_of: dict[str, ValuesOf] = {}
        self._indexes: dict[str, dict[str, dict[str, Object]]] = {}
        self.resource_version = ""
        """That of the newest event or bookmark; all writes up to it are in the store."""
        self.add_index(NAMESPACE_INDEX, _namespace_of)

    def add_index(self, name: str, values_of: ValuesOf) -> None:
        """Find objects by values from now on; the same name must mean the same values."""
        if name in self._indexes:
            return
        index: dict[str, dict[str, Object]] = {}
        for key, obj in self._objects.items():
            for value in values_of(obj):
                index.setdefault(value, {})[key] = obj
        self._values_of[name] = values_of
        self._indexes[name] = index

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._objects)

    def __iter__(self) -> Iterator[Object]:
        """Return all objects."""
        return iter(self._objects.values())

    def all_keys(self) -> Iterable[str]:
        """Return the keys of all objects."""
        return self._objects.keys()

    def get(self, key: str) -> Object | None:
        """Return the object of a key."""
        return self._objects.get(key)

    def in_namespace(self, namespace: str) -> list[Object]:
        """Return the objects of a namespace."""
        return self.by_index(NAMESPACE_INDEX, namespace)

    def by_index(self, name: str, value: str) -> list[Object]:
        """Return the objects that an index has under a value; KeyError: no such index."""
        found = self._indexes[name].get(value)
        return [] if found is None else list(found.values())

    def set(self, obj: Object) -> Object | None:
        """Add or replace an object; return what it replaced."""
        key = key_of(obj)
        old = self._objects.get(key)
        self._objects[key] = obj
        for name, values_of in self._values_of.items():
            index = self._indexes[name]
            if old is not None:
                self._drop(index, values_of(old), key)
            for value in values_of(obj):
                index.setdefault(value, {})[key] = obj
        return old

    def remove(self, key: str) -> Object | None:
        """Remove and return an object; None if there is none."""
        old = self._objects.pop(key, None)
        if old is not None:
            for name, values_of in self._values_of.items():
                self._drop(self._indexes[name], values_of(old), key)
        return old

    @staticmethod
    def _drop(index: dict[str, dict[str, Object]], values: Iterable[str], key: str) -> None:
        for value in values:
            found = index.get(value)
            if found is not None:
                found.pop(key, None)
                if not found:
                    del index[value]
