"""Direct access of policy to the store; see `policy.interfaces.LiveObjects`.

Objects are in the hub version. Writes are recorded in managedFields as made by the API server
itself; there is no admission and no validation.
"""

from collections.abc import Callable
from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.apply import update as managers
from kvstack.apiserver.apply.endpoint import Endpoint
from kvstack.apiserver.kinds.strategy import Strategy
from kvstack.apiserver.kinds.table import strategy_of
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.history import History
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.registry.timing import now_text
from kvstack.apiserver.registry.watch_cache import BehindError, WatchCache
from kvstack.apiserver.registry.writes import Raced, Writes
from kvstack.component.clock import Clock
from kvstore.client.errors import StoreError

MANAGER: Final = "kube-apiserver"
CATCH_UP_S: Final = 10.0
_NO_HOOKS: Final = Strategy()
_ANY: Final = GroupResource("", "")


class Live:
    """Objects as they are in the store now."""

    def __init__(
        self,
        watch_cache: WatchCache,
        history: History,
        writes: Writes,
        collections: Callable[[GroupResource], Collection | None],
        clock: Clock,
    ) -> None:
        self._watch_cache: Final = watch_cache
        self._history: Final = history
        self._writes: Final = writes
        self._find: Final = collections
        self._clock: Final = clock
        self._endpoints: dict[tuple[GroupResource, str], Endpoint] = {}

    def forget(self, resource: GroupResource) -> None:
        """Drop what is cached of a resource whose definition has changed."""
        for key in [each for each in self._endpoints if each[0] == resource]:
            del self._endpoints[key]

    async def catch_up(self) -> None:
        """Wait until the cache has the store's state at the time of the call; raises ApiError."""
        try:
            await self._watch_cache.latest(CATCH_UP_S)
        except BehindError:
            raise status.timeout(errors.TIMED_OUT) from None
        except StoreError as error:
            raise errors.api_error(error, _ANY, "get") from error

    async def replace(
        self, resource: GroupResource, obj: Object, subresource: str = "", *, owns: bool = True
    ) -> Object:
        """Write an object if the stored resourceVersion is that of `obj`; return it as stored.

        The argument is not changed. owns: whether the server then manages what it changed. Raises
        ApiError: 409 if the stored one has changed, 404 if it is gone.
        """
        collection, key, name = self._object_key(resource, obj)
        try:
            stored_record = await self._history.get(collection, key)
            if stored_record is None:
                raise status.not_found(resource, name)
            if str(stored_record.revision) != obj["metadata"].get("resourceVersion"):
                raise status.conflict(resource, name)
            new = {**obj, "metadata": dict(obj["metadata"])}
            endpoint = self._endpoint(collection, subresource)
            if owns:
                managers.on_update(
                    endpoint, stored_record.parse(), new, MANAGER, now_text(self._clock)
                )
            written = await self._writes.replace(collection, stored_record, new)
        except StoreError as error:
            raise errors.api_error(error, resource, "update") from error
        if isinstance(written, Raced):
            raise status.conflict(resource, name)
        return written.parse()

    async def create(self, resource: GroupResource, obj: Object) -> Object:
        """Write a new object; raises ApiError: 409 if it exists."""
        collection, key, name = self._object_key(resource, obj)
        new = {**obj, "metadata": dict(obj["metadata"])}
        managers.on_create(self._endpoint(collection, ""), new, MANAGER, now_text(self._clock))
        try:
            written = await self._writes.create(collection, key, new)
        except StoreError as error:
            raise errors.api_error(error, resource, "create") from error
        if isinstance(written, Raced):
            raise status.already_exists(resource, name)
        return written.parse()

    async def delete(self, resource: GroupResource, obj: Object) -> None:
        """Remove an object regardless of its finalizers.

        Raises ApiError: 409 if its stored resourceVersion is not that of `obj`.
        """
        collection, key, name = self._object_key(resource, obj)
        try:
            seen = await self._history.get(collection, key)
            if seen is None:
                return
            if str(seen.revision) != obj["metadata"].get("resourceVersion"):
                raise status.conflict(resource, name)
            gone = await self._writes.delete(collection, seen)
        except StoreError as error:
            raise errors.api_error(error, resource, "delete") from error
        if isinstance(gone, Raced):
            raise status.conflict(resource, name)

    def _object_key(self, resource: GroupResource, obj: Object) -> tuple[Collection, str, str]:
        metadata = obj["metadata"]
        name: str = metadata["name"]
        collection = self._find(resource)
        if collection is None:
            raise LookupError(f"{resource} is not stored")
        return collection, object_key(metadata.get("namespace", ""), name), name

    def _endpoint(self, collection: Collection, subresource: str) -> Endpoint:
        key = (collection.resource, subresource)
        endpoint = self._endpoints.get(key)
        if endpoint is None:
            strategy = strategy_of(*collection.resource) or _NO_HOOKS
            strategy = strategy.subresources.get(subresource, strategy)
            codec = collection.codec
            endpoint = self._endpoints[key] = Endpoint(
                codec.type,
                codec.api_version,
                codec.kind.kind,
                subresource=subresource,
                reset_fields=strategy.reset_fields,
                owned_fields=strategy.owned_fields,
            )
        return endpoint
