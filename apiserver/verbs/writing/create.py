"""Create: POST of a new object.

    body → defaults → metadata → managed fields → admission
    → name, completion, validation → admission → one transaction → 201

With generateName and no name, the second line is repeated for each name that is taken, at most
eight times.
"""

import orjson

from kvstack.apimachinery.objects import metadata, status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_uint
from kvstack.apiserver.apply.managed_fields import name_from_user_agent
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.writes import Raced
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.forms.converting import settled
from kvstack.apiserver.verbs.options import WriteOptions
from kvstack.apiserver.verbs.results import Computed, Stored
from kvstack.apiserver.verbs.writing import admission, allocations, storing
from kvstack.apiserver.verbs.writing.completion import complete_new, to_stored_form
from kvstack.apiserver.verbs.writing.ownership import own_new
from kvstack.apiserver.verbs.writing.request_body import read_new


class NameTakenError(Exception):
    """An object of that name exists."""

    def __init__(self, name: str, current: Record | None) -> None:
        """current: the existing object."""
        self.name = name
        self.current = current


async def create(call: Call) -> Stored | Computed:
    """Store the object of the body; raises ApiError."""
    write_options = options.write_options(options.CREATE, call.query)
    obj = await call.apart(read_new, call, write_options)
    manager = write_options.manager or name_from_user_agent(call.user_agent)
    obj = await settled(lambda: call.apart(_owned, call, obj, manager))
    obj = await call.apart(call.endpoint.to_hub, obj)
    admission_request = admission.admission_of(
        call,
        CREATE,
        write_options.to_object(options.CREATE),
        name=obj["metadata"].get("name", ""),
        is_dry_run=write_options.dry_run,
    )
    await admission.mutate(call, admission_request, obj, None)
    try:
        return await store_new(call, obj, write_options, admission_request)
    except NameTakenError as taken:
        raise _exists(call, taken) from None


def _owned(call: Call, obj: Object, manager: str) -> Object:
    """Return a new object with its managed fields."""
    if call.endpoint.converted_version is not None:
        obj = json_text.copied(obj)  # a second attempt may need the original
    own_new(call, obj, manager)
    return obj


async def store_new(
    call: Call, obj: Object, write_options: WriteOptions, admission_request: AdmissionRequest | None
) -> Stored | Computed:
    """Store an object in the hub version that mutating admission has seen.

    Raises ApiError, and NameTakenError if the name was not generated.
    """
    meta = obj["metadata"]
    if meta.get("name") or not meta.get("generateName"):
        return await _attempt(call, obj, write_options, admission_request)
    warning_count = len(call.warnings)
    encoded = await call.apart(orjson.dumps, obj)  # for a second attempt, which is rare
    name = ""
    for _ in range(metadata.GENERATE_ATTEMPTS):
        name = call.env.identifiers.new_name(meta["generateName"])
        obj["metadata"]["name"] = name
        try:
            return await _attempt(call, obj, write_options, admission_request)
        except NameTakenError:
            del call.warnings[warning_count:]
            obj = orjson.loads(encoded)
    raise status.generated_name_exists(call.endpoint.resource, name)


class _ClaimedError(Exception):
    """Another client claimed the same address or port."""


async def _attempt(
    call: Call, obj: Object, write_options: WriteOptions, admission_request: AdmissionRequest | None
) -> Stored | Computed:
    if not allocations.concerns(call):
        return await _store(call, obj, write_options, admission_request)
    warning_count = len(call.warnings)
    for _ in range(allocations.ATTEMPTS_MAX):
        del call.warnings[warning_count:]
        try:
            return await _store(
                call, await call.apart(json_text.copied, obj), write_options, admission_request
            )
        except _ClaimedError:
            await allocations.begin_again(call)
    raise status.server_timeout(call.endpoint.resource, "create")


async def _store(
    call: Call, obj: Object, write_options: WriteOptions, admission_request: AdmissionRequest | None
) -> Stored | Computed:
    endpoint = call.endpoint
    metadata.fill_system_fields(obj["metadata"], call.env.identifiers.new_uid(), call.now)
    also = await allocations.for_new(call, obj, is_dry_run=write_options.dry_run)
    await call.apart(complete_new, call, obj, call.context(is_dry_run=write_options.dry_run))
    await admission.validate(call, admission_request, obj, None)
    await call.apart(to_stored_form, call, obj)
    meta = obj["metadata"]
    key = object_key(meta.get("namespace", ""), meta["name"])
    if write_options.dry_run:
        current = await storing.read_live(call, call.collection, key)
        if current is not None:
            raise NameTakenError(meta["name"], current)
        return Computed(endpoint.from_hub(obj), endpoint.kind, call.object_type, 201)
    _check_no_version(meta)
    written = await storing.write_new(call, key, obj, also)
    if isinstance(written, Raced):
        if written.is_other:
            raise _ClaimedError
        raise NameTakenError(meta["name"], written.current)
    return Stored(await endpoint.read(written), 201)


def _check_no_version(meta: Object) -> None:
    given = meta.pop("resourceVersion", "")
    try:
        is_set = bool(given) and parse_uint(given) != 0
    except NumberError:
        is_set = False
    if is_set:
        raise status.unknown("resourceVersion should not be set on objects to be created")


def _exists(call: Call, taken: NameTakenError) -> ApiError:
    current = taken.current
    is_going = current is not None and not current.error and _is_going(current)
    return status.already_exists(call.endpoint.resource, taken.name, is_being_deleted=is_going)


def _is_going(record: Record) -> bool:
    return b'"deletionTimestamp":"' in record.body and bool(
        record.parse()["metadata"].get("deletionTimestamp")
    )
