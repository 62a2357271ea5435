"""Changes of stored objects without their hooks: operations of the server itself for a request.

    await run(call, PODS, "a/web", lambda pod: {**pod, …})   → the record, or None if there is none

The stored object is changed and put back if it has not been written meanwhile, else the change is
repeated. The first attempt uses a guess (`Collection.guess`), which never leads to a refusal or to
leaving the object unchanged. There is no admission, validation or field manager.
"""

from collections.abc import Callable

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.writes import Raced
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.writing import storing
from kvstore.client.errors import StoreError


async def run(
    call: Call,
    resource: GroupResource,
    key: str,
    changed: Callable[[Object], Object],
    *,
    is_dry_run: bool = False,
) -> Record | None:
    """Change a stored object; `changed` may change its argument. Raises ApiError."""
    registry = call.env.registry
    collection = registry.collection(resource)
    record = collection.guess(key)
    is_guess = record is not None
    if record is None:
        record = await storing.read_live(call, collection, key)
    while record is not None:
        new = None
        try:
            new = changed(storing.parsed(record))
        except ApiError:
            if not is_guess:
                raise
        if new is None or is_dry_run or new == record.parse():
            if not is_guess:
                return record
            record, is_guess = await storing.read_live(call, collection, key), False
            continue
        try:
            written = await registry.writes.replace(collection, record, new)
        except StoreError as error:
            raise errors.api_error(error, resource, "update") from error
        if not isinstance(written, Raced):
            return written
        record, is_guess = written.current, False
    return None
