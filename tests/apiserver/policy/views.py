"""The copy of a cluster as tests need it: objects in dicts, changes told at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.interfaces import Change

Callback = Callable[[Sequence[Change]], None]


class FakeView:
    """An ObjectView, and LiveObjects on the same objects."""

    def __init__(self) -> None:
        self.objects: dict[GroupResource, dict[tuple[str, str], Object]] = {}
        self.revision = 0
        self._versions: dict[GroupResource, int] = {}
        self._callbacks: dict[GroupResource, list[Callback]] = {}
        self.before_catching_up: Callable[[], object] = lambda: None
        """What others wrote that the copy does not hold yet."""

    def get(self, resource: GroupResource, namespace: str, name: str) -> Object | None:
        return self.objects.get(resource, {}).get((namespace, name))

    def list(self, resource: GroupResource, namespace: str | None = None) -> Iterable[Object]:
        rows = self.objects.get(resource, {})
        return [rows[key] for key in sorted(rows) if namespace is None or key[0] == namespace]

    def version(self, resource: GroupResource) -> int:
        return self._versions.get(resource, 0)

    def subscribe(self, resource: GroupResource, callback: Callback, *, field: str = "") -> None:
        def tell(changes: Sequence[Change]) -> None:
            seen = [(_with(new, field), _with(old, field)) for new, old in changes]
            callback([Change(*each) for each in seen if each != (None, None)])

        self._callbacks.setdefault(resource, []).append(tell)
        tell([Change(each, None) for each in self.list(resource)])

    def put(self, resource: GroupResource, obj: Object) -> Object:
        """Create or change an object."""
        self.revision += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.revision)}
        obj = {**obj, "metadata": metadata}
        key = metadata.get("namespace", ""), metadata["name"]
        rows = self.objects.setdefault(resource, {})
        old = rows.get(key)
        rows[key] = obj
        self._tell(resource, Change(obj, old))
        return obj

    def remove(self, resource: GroupResource, namespace: str, name: str) -> None:
        """Remove an object."""
        self.revision += 1
        old = self.objects[resource].pop((namespace, name))
        self._tell(resource, Change(None, old))

    def _tell(self, resource: GroupResource, change: Change) -> None:
        self._versions[resource] = self.version(resource) + 1
        for callback in self._callbacks.get(resource, ()):
            callback([change])

    # LiveObjects.

    async def catch_up(self) -> None:
        self.before_catching_up()

    async def create(self, resource: GroupResource, obj: Object) -> Object:
        metadata = obj["metadata"]
        if self.get(resource, metadata.get("namespace", ""), metadata["name"]) is not None:
            raise status.already_exists(resource, metadata["name"])
        return self.put(resource, obj)

    async def replace(self, resource: GroupResource, obj: Object, subresource: str = "") -> Object:
        metadata = obj["metadata"]
        old = self.get(resource, metadata.get("namespace", ""), metadata["name"])
        if old is None:
            raise status.not_found(resource, metadata["name"])
        if old["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise status.conflict(resource, metadata["name"])
        return self.put(resource, obj)


def _with(obj: Object | None, field: str) -> Object | None:
    """Return an object whose field is not empty."""
    value: Any = obj
    for name in field.split(".") if field else ():
        value = (value or {}).get(name)
    return obj if value else None
