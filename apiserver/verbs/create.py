"""Create: POST of a new object.

    body → defaults → metadata → managed fields → admission
    → name, completion, validation → admission → one transaction → 201

With generateName and no name, the second line is walked anew for each name that is taken, eight
times at most.
"""

from collections.abc import Sequence

import orjson

from kvstack.apiserver.apply import update as managers
from kvstack.apiserver.apply.managed_fields import name_from_user_agent
from kvstack.apiserver.objects import metadata, status
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.objects.text import json_text
from kvstack.apiserver.objects.text.go_numbers import NumberError, parse_uint
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.registry.record import Obj, Record
from kvstack.apiserver.registry.writes import Also, Raced
from kvstack.apiserver.schema.decode import DecodeError
from kvstack.apiserver.schema.stored_form import without_empty
from kvstack.apiserver.schema.types import Type
from kvstack.apiserver.verbs import admitting, allocations, options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.checking import complete_new, to_stored_form
from kvstack.apiserver.verbs.forms import bodies
from kvstack.apiserver.verbs.forms.converting import settled
from kvstack.apiserver.verbs.options import WriteOptions
from kvstack.apiserver.verbs.results import Made, Stored
from kvstore.client.errors import StoreError, TooLargeError


class NameTakenError(Exception):
    """An object of that name is there."""

    def __init__(self, name: str, current: Record | None) -> None:
        """Keep the name, and what has it."""
        self.name = name
        self.current = current


async def create(call: Call) -> Stored | Made:
    """Store the object of the body; raises ApiError."""
    given = options.write_options(options.CREATE, call.query)
    obj = read_new(call, given)
    manager = given.manager or name_from_user_agent(call.user_agent)
    obj = await settled(lambda: _owned(call, obj, manager))
    obj = call.endpoint.to_hub(obj)
    asked = admitting.admission_of(
        call,
        CREATE,
        given.to_object(options.CREATE),
        name=obj["metadata"].get("name", ""),
        is_dry_run=given.dry_run,
    )
    await admitting.mutate(call, asked, obj, None)
    try:
        return await store_new(call, obj, given, asked)
    except NameTakenError as taken:
        raise _exists(call, taken) from None


def _owned(call: Call, obj: Obj, manager: str) -> Obj:
    """Return a new object with its managers."""
    if call.endpoint.converted_version is not None:
        obj = json_text.copied(obj)  # it may have to be made once more
    own_new(call, obj, manager)
    return obj


def own_new(call: Call, obj: Obj, manager: str) -> None:
    """Set managedFields of an object that is to be created."""
    written = as_written(call, obj)
    managers.on_create(call.endpoint.fields, written, manager, call.now)
    take_entries(obj, written)


def own_changed(call: Call, live: Obj, obj: Obj, manager: str) -> None:
    """Set managedFields of an object that is to replace a live one."""
    written = as_written(call, obj)
    managers.on_update(call.endpoint.fields, live, written, manager, call.now)
    take_entries(obj, written)


def as_written(call: Call, obj: Obj) -> Obj:
    """Return an object of the endpoint's type as it is written; itself, where that is the same."""
    if not call.has_empty:
        return obj
    written: Obj = without_empty(obj, type_of(call))
    meta = {**(written.get("metadata") or {})}
    if "managedFields" in (obj.get("metadata") or {}):
        meta["managedFields"] = obj["metadata"]["managedFields"]  # empty: all is to be forgotten
    return {**written, "metadata": meta}


def take_entries(obj: Obj, written: Obj) -> None:
    """Give an object the managedFields that were found for what is written of it."""
    if written is obj:
        return
    obj["metadata"].pop("managedFields", None)
    if "managedFields" in written["metadata"]:
        obj["metadata"]["managedFields"] = written["metadata"]["managedFields"]


def read_new(call: Call, given: WriteOptions) -> Obj:
    """Return the object of the body with defaults, its metadata checked; raises ApiError."""
    endpoint = call.endpoint
    obj = read_body(call, given)
    meta = obj.setdefault("metadata", {})
    metadata.match_namespace(meta, call.namespace)
    if endpoint.row.is_namespaced and not call.namespace:
        raise status.bad_request("Namespace parameter required.")
    metadata.wipe_system_fields(meta)
    call.warnings += metadata.drop_duplicate_owners(meta)
    return obj


def read_body(call: Call, given: WriteOptions) -> Obj:
    """Return the object of the body, decoded and with defaults; raises ApiError."""
    kind = call.endpoint.kind
    is_custom = call.endpoint.row.is_custom
    body = bodies.read_object(call.body, call.media_type, kind, type_of(call), is_custom=is_custom)
    bodies.tell(body, kind, given.validation, call.warnings)
    call.has_empty = body.has_empty
    obj = {"kind": kind.kind, "apiVersion": kind.api_version, **body.obj}
    if call.endpoint.kind == call.endpoint.row.kind:
        try:
            call.endpoint.default(obj, call.now)
        except DecodeError as error:
            raise bodies.cannot_be_handled(kind, kind, str(error)) from None
    call.note(obj)
    return obj


def type_of(call: Call) -> Type:
    """Return the type of the objects of an endpoint; raises ApiError if it has none."""
    found = call.endpoint.type
    if found is None:
        raise status.generic(405)
    return found


def collection_of(call: Call) -> Collection:
    """Return where the objects of an endpoint are; raises ApiError if they are not stored."""
    found = call.endpoint.collection
    if found is None:
        raise status.generic(405)
    return found


async def store_new(
    call: Call, obj: Obj, given: WriteOptions, asked: AdmissionRequest | None
) -> Stored | Made:
    """Store an object in the hub version that admission has seen.

    Raises ApiError, and NameTakenError if the name was not generated.
    """
    meta = obj["metadata"]
    if meta.get("name") or not meta.get("generateName"):
        return await _attempt(call, obj, given, asked)
    told = len(call.warnings)
    kept = orjson.dumps(obj)  # for a second attempt, which is rare
    name = ""
    for _ in range(metadata.GENERATE_ATTEMPTS):
        name = metadata.generated_name(meta["generateName"], call.env.name_suffix())
        obj["metadata"]["name"] = name
        try:
            return await _attempt(call, obj, given, asked)
        except NameTakenError:
            del call.warnings[told:]
            obj = orjson.loads(kept)
    raise status.generated_name_exists(call.endpoint.resource, name)


class _ClaimedError(Exception):
    """Somebody else claimed what the object was to have."""


async def _attempt(
    call: Call, obj: Obj, given: WriteOptions, asked: AdmissionRequest | None
) -> Stored | Made:
    if not allocations.concerns(call):
        return await _store(call, obj, given, asked)
    told = len(call.warnings)
    for _ in range(allocations.ATTEMPTS_MAX):
        del call.warnings[told:]
        try:
            return await _store(call, json_text.copied(obj), given, asked)
        except _ClaimedError:
            await allocations.begin_again(call)
    raise status.server_timeout(call.endpoint.resource, "create")


async def _store(
    call: Call, obj: Obj, given: WriteOptions, asked: AdmissionRequest | None
) -> Stored | Made:
    endpoint, collection = call.endpoint, collection_of(call)
    metadata.fill_system_fields(obj["metadata"], call.env.new_uid(), call.now)
    also = await allocations.for_new(call, obj, is_dry_run=given.dry_run)
    complete_new(call, obj, call.context(is_dry_run=given.dry_run))
    await admitting.validate(call, asked, obj, None)
    to_stored_form(call, obj)
    meta = obj["metadata"]
    key = object_key(meta.get("namespace", ""), meta["name"])
    if given.dry_run:
        current = await _live(call, collection, key)
        if current is not None:
            raise NameTakenError(meta["name"], current)
        return Made(endpoint.from_hub(obj), endpoint.kind, type_of(call), 201)
    _check_no_version(meta)
    written = await write_new(call, collection, key, obj, also)
    if isinstance(written, Raced):
        if written.is_other:
            raise _ClaimedError
        raise NameTakenError(meta["name"], written.current)
    return Stored(await endpoint.read(written), 201)


def _check_no_version(meta: Obj) -> None:
    given = meta.pop("resourceVersion", "")
    try:
        is_set = bool(given) and parse_uint(given) != 0
    except NumberError:
        is_set = False
    if is_set:
        raise status.unknown("resourceVersion should not be set on objects to be created")


async def write_new(
    call: Call, collection: Collection, key: str, obj: Obj, also: Sequence[Also] = ()
) -> Record | Raced:
    """Store an object; one that is too large once more without managed fields."""
    writes = call.env.registry.writes
    ttl_s = time_to_live(call, collection)
    obj = await call.endpoint.to_stored(obj)
    try:
        return await writes.create(collection, key, obj, ttl_s=ttl_s, also=also)
    except TooLargeError as error:
        if not obj["metadata"].pop("managedFields", None):
            raise errors.api_error(error, collection.resource, "create") from error
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "create") from error
    try:
        return await writes.create(collection, key, obj, ttl_s=ttl_s, also=also)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "create") from error


def time_to_live(call: Call, collection: Collection) -> int:
    """Return after how many seconds an object goes by itself; 0: never."""
    is_event = collection.prefix == "events"
    return call.env.settings.event_ttl_s if is_event else 0


async def _live(call: Call, collection: Collection, key: str) -> Record | None:
    try:
        return await call.env.registry.history.get(collection, key)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "get") from error


def _exists(call: Call, taken: NameTakenError) -> ApiError:
    current = taken.current
    is_going = current is not None and not current.error and _is_going(current)
    return status.already_exists(call.endpoint.resource, taken.name, is_being_deleted=is_going)


def _is_going(record: Record) -> bool:
    return b'"deletionTimestamp":"' in record.body and bool(
        record.parse()["metadata"].get("deletionTimestamp")
    )
