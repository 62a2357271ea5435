"""The view of controllers: the stores of shared informers."""

from collections.abc import Mapping, Sequence

from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.client.resource_type import ResourceType
from kvstack.apimachinery.objects.json_object import Object


class StoreView:
    """Reads stores by resource."""

    def __init__(self, stores: Mapping[ResourceType, ObjectStore]) -> None:
        """Read these stores; KeyError for any other resource."""
        self._stores = stores

    def get(self, resource: ResourceType, key: str) -> Object | None:
        """Return an object by key."""
        return self._stores[resource].get(key)

    def list(self, resource: ResourceType, namespace: str = "") -> Sequence[Object]:
        """Return the objects of a namespace, or all."""
        store = self._stores[resource]
        return store.in_namespace(namespace) if namespace else list(store)

    def by_index(self, resource: ResourceType, index: str, value: str) -> Sequence[Object]:
        """Return the objects that an index has under a value."""
        return self._stores[resource].by_index(index, value)
