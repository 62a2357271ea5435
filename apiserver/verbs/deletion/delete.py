"""Delete of one object: with a grace period if its kind has one, and after its finalizers.

options → object → preconditions → plan → admission → mark it, or remove it
"""

from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.status import ApiError, deleted_status
from kvstack.apimachinery.schema.load import built_in_type
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.policy.admission.request import DELETE
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.writes import Raced
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.deletion.deletion_plan import Operation, Plan
from kvstack.apiserver.verbs.deletion.deletion_rules import rule_of
from kvstack.apiserver.verbs.forms import bodies
from kvstack.apiserver.verbs.options import DeleteOptions
from kvstack.apiserver.verbs.permission import check_may
from kvstack.apiserver.verbs.results import Computed, Stored
from kvstack.apiserver.verbs.stages import STORE, timed
from kvstack.apiserver.verbs.writing import admission, allocations, storing
from kvstore.client.errors import StoreError

_STATUS: Final = Kind("", "v1", "Status")
_UNSAFE_VERB: Final = "unsafe-delete-ignore-read-errors"
_READABLE: Final = "unsafe deletion is not allowed because the object is decodable from storage"


async def delete(call: Call) -> Stored | Computed:
    """Delete the object of the path; raises ApiError."""
    given, refusal = await call.apart(read_options, call), call.endpoint.main.deletion.refusal
    if refusal is not None and (why := refusal(call.info.name)):
        raise status.forbidden(call.endpoint.resource, call.info.name, why)
    return await delete_object(call, call.info.name, given)


def read_options(call: Call, *, is_collection: bool = False) -> DeleteOptions:
    """Return the delete options of the body or the query; raises ApiError."""
    body = None
    if call.body:
        body = bodies.read_options(call.body, call.media_type, call.endpoint.row.kind)
    delete_options = options.delete_options(call.query, body)
    if is_collection:
        options.check_of_collection(delete_options)
    elif delete_options.ignores_read_errors and not call.endpoint.main.deletion.allows_unread:
        raise status.internal_error(f"no unsafe deleter provided, can not honor {options.UNSAFE}")
    if body is not None:
        # Upstream records these options in the version that it handles them in.
        call.note({**delete_options.to_object(), "apiVersion": "meta.k8s.io/__internal"})
    warning = call.endpoint.main.deletion.orphans_warning
    is_silent = delete_options.policy or delete_options.ignores_read_errors
    if warning and delete_options.orphan_dependents is None and not is_silent:
        call.warnings.append(warning)
    return delete_options


async def delete_object(
    call: Call, name: str, delete_options: DeleteOptions, *, admits: bool = True
) -> Stored | Computed:
    """Delete an object; admits: whether admission is called. Raises ApiError."""
    collection = call.collection
    key = object_key(call.namespace, name)
    record = collection.guess(key)
    is_guess = record is not None
    if record is None:
        record = await storing.read_live(call, collection, key)
    warning_count = len(call.warnings)
    while True:
        if record is None:
            raise status.not_found(call.endpoint.resource, name)
        try:
            done = await _attempt(call, collection, record, delete_options, admits=admits)
        except ApiError as error:
            if not is_guess or errors.is_of_store(error):
                raise
            stored = await storing.read_live(call, collection, key)
            if stored is not None and stored.revision == record.revision:
                raise
            record, is_guess = stored, False
        else:
            if isinstance(done, Stored):
                return done._replace(record=await call.endpoint.read(done.record))
            if not isinstance(done, Raced):
                return done
            record, is_guess = done.current, False
        del call.warnings[warning_count:]


async def _attempt(
    call: Call,
    collection: Collection,
    record: Record,
    delete_options: DeleteOptions,
    *,
    admits: bool,
) -> Stored | Computed | Raced:
    if delete_options.ignores_read_errors:
        return await _remove_unread(call, collection, record)
    call.note_stored(record)
    obj = await call.apart(storing.parsed, record, collection.prefix)
    endpoint = call.endpoint
    rule = rule_of(endpoint.resource)
    rule.check_preconditions(endpoint, obj, delete_options)
    planned = rule.plan(obj, endpoint.main.deletion, delete_options, call.now)
    if planned.operation is Operation.KEEP:
        return Stored(record)
    if admits:
        await _admit(call, record, delete_options)
    if planned.operation is Operation.REMOVE:
        return await _remove(call, collection, record, delete_options)
    return await _mark(call, collection, record, planned, delete_options)


async def _remove_unread(call: Call, collection: Collection, record: Record) -> Computed | Raced:
    """Remove an unreadable object: admission cannot see it, and its finalizers are unknown."""
    await check_may(call, _UNSAFE_VERB)
    if not record.error:
        root = call.env.registry.watch_cache.prefixes.root.rstrip("/")
        key = f"{root}/{collection.prefix}/{record.key}"
        text = storing.storage_error(key, _READABLE)
        raise status.conflict(call.endpoint.resource, record.name, text)
    try:
        removing = call.env.registry.writes.delete(collection, record)
        gone = await timed(call.env.clock, call.spent, STORE, removing)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "delete") from error
    return gone if isinstance(gone, Raced) else _success(call, record.name, "")


async def _admit(call: Call, record: Record, given: DeleteOptions) -> None:
    admission_request = admission.admission_of(
        call, DELETE, given.to_object(), is_dry_run=given.dry_run, subresource=""
    )
    if admission_request is not None:
        old = await call.apart(record.parse)
        await admission.mutate(call, admission_request, None, old)
        await admission.validate(call, admission_request, None, old)


async def _mark(
    call: Call, collection: Collection, record: Record, planned: Plan, delete_options: DeleteOptions
) -> Stored | Computed | Raced:
    """Store the terminating object, and remove it if nothing holds it."""
    endpoint, obj = call.endpoint, planned.obj
    is_end = planned.operation is Operation.END
    if delete_options.dry_run:
        if is_end and not _returns_object(call):
            return _success(call, record.name, obj["metadata"].get("uid", ""))
        shown = endpoint.from_hub(obj)
        if endpoint.converted_version is not None:
            shown = await endpoint.converted_version.object(shown)
        return Computed(shown, endpoint.kind, call.object_type)
    if obj == await call.apart(record.parse):
        return Stored(record)
    try:
        marking = call.env.registry.writes.replace(collection, record, obj)
        written = await timed(call.env.clock, call.spent, STORE, marking)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "delete") from error
    if isinstance(written, Raced):
        return written
    if is_end:
        gone = await _remove(call, collection, written, delete_options)
        # Another client deleted it first: the marked object is its last known state.
        return Stored(written) if isinstance(gone, Raced) and gone.current is None else gone
    is_accepted = delete_options.orphan_dependents is False
    return Stored(written, 202 if is_accepted else 200)


async def _remove(
    call: Call, collection: Collection, record: Record, given: DeleteOptions
) -> Stored | Computed | Raced:
    if not given.dry_run:
        try:
            also = await allocations.for_gone(call, await call.apart(record.parse))
            removing = call.env.registry.writes.delete(collection, record, also=also)
            gone = await timed(call.env.clock, call.spent, STORE, removing)
        except StoreError as error:
            raise errors.api_error(error, collection.resource, "delete") from error
        if isinstance(gone, Raced):
            if gone.is_other:
                await allocations.begin_again(call)
            return gone
        record = gone
    elif (await call.apart(record.parse))["metadata"].get("finalizers"):
        # Upstream shows what it has not filled in.
        kind = call.endpoint.kind
        zero = {"kind": kind.kind, "apiVersion": kind.api_version, **call.endpoint.fields.zero}
        return Computed(zero, kind, call.object_type)
    if _returns_object(call):
        return Stored(record)
    obj = await call.apart(record.parse)
    return _success(call, record.name, obj["metadata"].get("uid", ""))


def _returns_object(call: Call) -> bool:
    return call.endpoint.row.returns_deleted or call.endpoint.main.deletion.returns_object


def _success(call: Call, name: str, uid: str) -> Computed:
    answer = deleted_status(call.endpoint.resource, name, uid)
    return Computed(answer, _STATUS, built_in_type(_STATUS))
