"""The loop of every change: what is stored is changed, checked and put back if it is still that.

    guess what is stored (the copy, or what this server stored last)
    loop: change → admission → completion, validation → admission → put where nothing came between
          something came between   → again, with what is stored now
          refused, but only by a guess   → again, if the store knows better
          the store failed               → that is the answer: what was written may be there

So a client is never refused for what the copy does not know yet. A resourceVersion in the new
object must be that of the stored one; then there is nothing to try again.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kvstack.apiserver.apply.managed_fields import keep_times
from kvstack.apiserver.objects import status
from kvstack.apiserver.objects.field_errors import invalid
from kvstack.apiserver.objects.groups import GroupKind
from kvstack.apiserver.objects.metadata import drop_duplicate_owners
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.objects.text.go_numbers import NumberError, parse_uint
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE
from kvstack.apiserver.policy.permission import attributes_of, denied
from kvstack.apiserver.policy.ports import Decision
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import Obj, Record
from kvstack.apiserver.registry.writes import Also, Raced
from kvstack.apiserver.verbs import admitting, allocations, create, options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.checking import complete_changed, to_stored_form
from kvstack.apiserver.verbs.create import NameTakenError, collection_of, type_of
from kvstack.apiserver.verbs.forms.converting import NeedsConversionError
from kvstack.apiserver.verbs.options import WriteOptions
from kvstack.apiserver.verbs.results import Made, Stored
from kvstore.client.errors import StoreError, TooLargeError

Changed = Callable[[Obj | None], Obj | Awaitable[Obj]]
"""Returns the new object in the endpoint's version, given the stored one in the same version, or
None where there is none. The stored one may not be changed."""

_NO_VERSION: Final = "must be specified for an update"


@dataclass(slots=True)
class Update:
    """One change."""

    name: str
    key: str
    changed: Changed
    given: WriteOptions
    uid: str = ""
    """That the stored object must have; empty: any."""
    creates: bool = False
    """Whether an object that is not there is made, whatever the kind says."""
    as_seen: Callable[[Obj], Obj] | None = None
    """How validating admission sees objects, where it is not as they are stored; `changed` has
    then asked mutating admission itself."""


class _RacedError(Exception):
    """Something else is stored by now."""

    def __init__(self, current: Record | None) -> None:
        self.current = current


async def run(call: Call, update: Update) -> Stored | Made:
    """Make a change; raises ApiError."""
    collection = collection_of(call)
    record = collection.guess(update.key)
    is_guess = record is not None
    if record is None:
        record = await read_live(call, collection, update.key)
    told = len(call.warnings)
    while True:
        try:
            return await _attempt(call, collection, update, record)
        except _RacedError as raced:
            record, is_guess = raced.current, False
        except ApiError as error:
            if not is_guess or errors.is_of_store(error):
                raise  # after a write of unknown outcome nothing is done a second time
            stored = await read_live(call, collection, update.key)
            if stored is not None and record is not None and stored.revision == record.revision:
                raise
            record, is_guess = stored, False
        del call.warnings[told:]


async def read_live(call: Call, collection: Collection, key: str) -> Record | None:
    """Return an object as the store has it now; raises ApiError."""
    try:
        return await call.env.registry.history.get(collection, key)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "get") from error


def parsed(record: Record, prefix: str = "") -> Obj:
    """Return the object of a record; raises ApiError if it cannot be read.

    prefix: of its collection, where that is known.
    """
    if record.error:
        raise errors.unreadable(prefix, record)
    return record.parse()


async def _attempt(
    call: Call, collection: Collection, update: Update, record: Record | None
) -> Stored | Made:
    endpoint = call.endpoint
    live = None
    if record is not None:
        live = parsed(await endpoint.read(record), collection.prefix)
    if update.uid and (live is not None or endpoint.main.allows_create_on_update):
        _check_uid(call, collection, update, live)
    before = None if live is None else endpoint.from_hub(live)
    changed = await _changed(update, before)
    asks = endpoint.strategy.asks_for_more
    is_more = asks is not None and before is not None and asks(changed, before)
    new = endpoint.to_hub(changed)
    if record is None or live is None:
        return await _create(call, update, new)
    is_dry_run = update.given.dry_run
    asked = admitting.admission_of(
        call,
        UPDATE,
        update.given.to_object(options.UPDATE),
        is_dry_run=is_dry_run,
        kind=endpoint.hub_kind if update.as_seen is None else endpoint.kind,
    )
    if update.as_seen is None:
        await admitting.mutate(call, asked, new, live)
    if asked is None:
        call.warnings += drop_duplicate_owners(new["metadata"], is_after_admission=True)
    _check_version(call, update, new["metadata"], record)
    also = await allocations.for_changed(call, new, live, is_dry_run=is_dry_run)
    complete_changed(call, new, live, call.context(is_dry_run=is_dry_run))
    if is_more:
        new["metadata"]["generation"] = live["metadata"].get("generation", 0) + 1
    entries = keep_times(live, new)
    if entries is not None:
        new["metadata"]["managedFields"] = entries
    seen = update.as_seen
    if seen is None:
        await admitting.validate(call, asked, new, live)
    elif asked is not None:
        await admitting.validate(call, asked, seen(new), seen(live))
    to_stored_form(call, new)
    if _is_to_go(endpoint.resource.resource, new, live):
        return await _remove(call, collection, update, record, new)
    is_same = new == live and not endpoint.is_outdated(record)
    if is_same and not await _is_stale(call, collection, update.key):
        return Stored(await endpoint.read(record))
    if is_dry_run:
        return Made(endpoint.from_hub(new), endpoint.kind, type_of(call))
    written = await replace(call, collection, record, new, also)
    return Stored(await endpoint.read(written))


async def _changed(update: Update, live: Obj | None) -> Obj:
    """Return the new object, once all conversions are made that it takes."""
    while True:
        try:
            given = update.changed(live)
            return given if isinstance(given, dict) else await given
        except NeedsConversionError as needed:
            await needed.made()


async def _is_stale(call: Call, collection: Collection, key: str) -> bool:
    """Return whether an object is written although nothing changes: otherwise than it is stored."""
    history = call.env.registry.history
    try:
        if call.endpoint.main.is_completed_when_read and await history.is_new(collection, key):
            return True
        return await history.is_stale(collection, key)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "update") from error


async def replace(
    call: Call, collection: Collection, record: Record, new: Obj, also: Sequence[Also] = ()
) -> Record:
    """Put an object in the place of the one that was seen; raises ApiError and _RacedError."""
    writes = call.env.registry.writes
    ttl_s = create.time_to_live(call, collection)
    new = await call.endpoint.to_stored(new)
    try:
        try:
            written = await writes.replace(collection, record, new, ttl_s=ttl_s, also=also)
        except TooLargeError:
            if not new["metadata"].pop("managedFields", None):
                raise
            written = await writes.replace(collection, record, new, ttl_s=ttl_s, also=also)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "update") from error
    if isinstance(written, Raced):
        if written.is_other:
            await allocations.begin_again(call)
        raise _RacedError(written.current)
    return written


async def _create(call: Call, update: Update, new: Obj) -> Stored | Made:
    """Make an object that was to be changed and is not there, where that is allowed."""
    endpoint = call.endpoint
    is_allowed = endpoint.strategy.allows_create_on_update and not endpoint.subresource
    if not (update.creates or is_allowed):
        raise status.not_found(endpoint.resource, update.name)
    asked = admitting.admission_of(
        call, CREATE, update.given.to_object(options.CREATE), is_dry_run=update.given.dry_run
    )
    await admitting.mutate(call, asked, new, None)
    await check_may(call, "create")
    new["metadata"].pop("resourceVersion", None)
    try:
        return await create.store_new(call, new, update.given, asked)
    except NameTakenError as taken:
        raise _RacedError(taken.current) from None


async def check_may(call: Call, verb: str) -> None:
    """Check that the user may do something else with the object of the path; raises ApiError."""
    info, user = call.info, call.user
    found = call.env.authorizer.authorize(attributes_of(info, user, verb))
    decision = found if isinstance(found, Decision) else await found
    if not decision.allowed:
        raise denied(info, user, decision, verb)


def _check_uid(call: Call, collection: Collection, update: Update, live: Obj | None) -> None:
    """Check the UID that the new object names; raises ApiError in the words of upstream's store."""
    uid = "" if live is None else live["metadata"].get("uid", "")
    if uid != update.uid:
        raise precondition_failed(
            call,
            collection,
            update,
            f"UID in precondition: {update.uid}, UID in object meta: {uid}",
        )


def precondition_failed(call: Call, collection: Collection, update: Update, text: str) -> ApiError:
    """Return the 409 of a precondition that does not hold."""
    root = "" if update.given.dry_run else call.env.registry.copy.places.root.rstrip("/")
    message = (
        f"StorageError: invalid object, Code: 4, Key: {root}/{collection.prefix}/{update.key},"
        f" ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {text}"
    )
    return status.conflict(call.endpoint.resource, update.name, message)


def _check_version(call: Call, update: Update, meta: Obj, record: Record) -> None:
    """Check the resourceVersion of the new object; without one it gets that of the stored."""
    try:
        revision = parse_uint(meta.get("resourceVersion") or "0")
    except NumberError as error:
        raise status.unknown(str(error)) from None
    if not revision:
        if not call.endpoint.main.allows_unconditional_update:
            kind = GroupKind(call.endpoint.resource.group, call.endpoint.resource.resource)
            found = invalid("metadata.resourceVersion", 0, _NO_VERSION)
            raise status.invalid(kind, update.name, [found])
        meta["resourceVersion"] = str(record.revision)
    elif revision != record.revision:
        raise status.conflict(call.endpoint.resource, update.name)


def _is_to_go(resource: str, new: Obj, live: Obj) -> bool:
    """Tell whether nothing holds an object any more that is being deleted."""
    meta, before = new["metadata"], live["metadata"]
    if not before.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    if before.get("deletionGracePeriodSeconds"):
        return False
    return resource != "namespaces" or not (new.get("spec") or {}).get("finalizers")


async def _remove(
    call: Call, collection: Collection, update: Update, record: Record, new: Obj
) -> Stored | Made:
    """Delete an object whose last finalizer this change takes away; the answer is the change."""
    made = Made(call.endpoint.from_hub(new), call.endpoint.kind, type_of(call))
    if update.given.dry_run:
        return made
    try:
        also = await allocations.for_gone(call, new)
        gone = await call.env.registry.writes.delete(collection, record, also=also)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "delete") from error
    if isinstance(gone, Raced):
        raise _RacedError(gone.current)
    return made
