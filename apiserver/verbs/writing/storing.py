"""Reads and writes of stored objects for the verbs; errors of the store become ApiErrors.

    record = await read_live(call, collection, key)      as the store has it now
    written = await write_new(call, key, obj)            a Record, or Raced if the key is taken
    written = await replace(call, record, new)           raises RacedError if it changed meanwhile

An object that is too large for the store is written again without its managed fields.
"""

from collections.abc import Awaitable, Callable, Sequence

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.writes import Also, Raced
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.stages import STORE, timed
from kvstack.apiserver.verbs.writing import allocations
from kvstore.client.errors import StoreError, TooLargeError


class RacedError(Exception):
    """The stored object has changed."""

    def __init__(self, current: Record | None) -> None:
        """current: the stored record; None: none."""
        self.current = current


async def read_live(call: Call, collection: Collection, key: str) -> Record | None:
    """Return an object as it is stored now; raises ApiError."""
    try:
        asked = call.env.registry.history.get(collection, key)
        return await timed(call.env.clock, call.spent, STORE, asked)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "get") from error


def parsed(record: Record, prefix: str = "") -> Object:
    """Return the object of a record; raises ApiError if it cannot be read.

    prefix: of its collection, if known.
    """
    if record.error:
        raise errors.unreadable(prefix, record)
    return record.parse()


def write_new(
    call: Call, key: str, obj: Object, also: Sequence[Also] = ()
) -> Awaitable[Record | Raced]:
    """Store a new object; raises ApiError."""
    collection, ttl_s = call.collection, time_to_live(call)
    create = call.env.registry.writes.create
    return _written(
        call,
        "create",
        obj,
        lambda stored, body: create(collection, key, stored, body, ttl_s=ttl_s, also=also),
    )


async def replace(call: Call, record: Record, new: Object, also: Sequence[Also] = ()) -> Record:
    """Replace an object that has not changed since it was read; raises ApiError and RacedError."""
    collection, ttl_s = call.collection, time_to_live(call)
    put = call.env.registry.writes.replace
    written = await _written(
        call,
        "update",
        new,
        lambda stored, body: put(collection, record, stored, body, ttl_s=ttl_s, also=also),
    )
    if isinstance(written, Raced):
        if written.is_other:
            await allocations.begin_again(call)
        raise RacedError(written.current)
    return written


async def _written(
    call: Call, verb: str, obj: Object, write: Callable[[Object, bytes], Awaitable[Record | Raced]]
) -> Record | Raced:
    collection = call.collection
    obj = await call.endpoint.to_stored(obj)
    body = await call.apart(collection.codec.to_body, obj)
    try:
        try:
            return await timed(call.env.clock, call.spent, STORE, write(obj, body))
        except TooLargeError:
            if not obj["metadata"].pop("managedFields", None):
                raise
        body = await call.apart(collection.codec.to_body, obj)
        return await write(obj, body)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, verb) from error


def time_to_live(call: Call) -> int:
    """Return after how many seconds an object expires; 0: never."""
    return call.env.settings.event_ttl_s if call.endpoint.main.expires else 0


def precondition_failed(
    call: Call, resource: GroupResource, key: str, text: str, *, is_dry_run: bool
) -> ApiError:
    """Return the 409 of a failed precondition, with the text of upstream's store."""
    registry = call.env.registry
    root = "" if is_dry_run else registry.watch_cache.prefixes.root.rstrip("/")
    prefix = registry.collection(resource).prefix
    message = storage_error(f"{root}/{prefix}/{key}", f"Precondition failed: {text}")
    return status.conflict(resource, key.rpartition("/")[2], message)


def storage_error(key: str, text: str) -> str:
    """Return the error text of upstream's store for an object that it must not change."""
    return (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0,"
        f" AdditionalErrorMsg: {text}"
    )
