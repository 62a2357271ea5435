"""The update loop: the stored object is changed, checked and put back if it has not changed.

    guess what is stored (the watch cache, or what this server stored last)
    loop: change → admission → completion, validation → admission → put where nothing came between
          something came between   → again, with what is stored now
          refused, but only by a guess   → again, if the store knows better
          the store failed               → that is the answer: what was written may be there

So a client is never refused because of a stale cache. If the new object has a resourceVersion, it
must be that of the stored one, and there is no second attempt.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from kvstack.apimachinery.objects import status, unchanged
from kvstack.apimachinery.objects.field_errors import invalid
from kvstack.apimachinery.objects.groups import GroupKind, GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.metadata import drop_duplicate_owners
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_uint
from kvstack.apiserver.apply.managed_fields import keep_times
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.writes import Raced
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.deletion.deletion_rules import rule_of
from kvstack.apiserver.verbs.forms.converting import settled
from kvstack.apiserver.verbs.options import WriteOptions
from kvstack.apiserver.verbs.permission import check_may
from kvstack.apiserver.verbs.results import Computed, Stored
from kvstack.apiserver.verbs.stages import STORE, timed
from kvstack.apiserver.verbs.writing import admission, allocations, create, storing
from kvstack.apiserver.verbs.writing.completion import complete_changed, to_stored_form
from kvstack.apiserver.verbs.writing.create import NameTakenError
from kvstack.apiserver.verbs.writing.storing import RacedError
from kvstore.client.errors import StoreError

Changed = Callable[[Object | None], Object | Awaitable[Object]]
"""Returns the new object in the endpoint's version, given the stored one in the same version, or
None if there is none. The stored one must not be changed."""

_NO_VERSION: Final = "must be specified for an update"


@dataclass(slots=True)
class Update:
    """One change."""

    name: str
    key: str
    changed: Changed
    given: WriteOptions
    uid: str = ""
    """UID that the stored object must have; empty: any."""
    creates: bool = False
    """Whether a missing object is created, whatever the kind says."""
    as_seen: Callable[[Object], Object] | None = None
    """Objects as validating admission sees them, if not as they are stored; `changed` has then
    called mutating admission itself."""


async def run(call: Call, update: Update) -> Stored | Computed:
    """Make a change; raises ApiError."""
    collection = call.collection
    record = collection.guess(update.key)
    is_guess = record is not None
    if record is None:
        record = await storing.read_live(call, collection, update.key)
    warning_count = len(call.warnings)
    while True:
        try:
            return await _attempt(call, collection, update, record)
        except RacedError as raced:
            record, is_guess = raced.current, False
        except ApiError as error:
            if not is_guess or errors.is_of_store(error):
                raise  # after a write of unknown outcome nothing is retried
            stored = await storing.read_live(call, collection, update.key)
            if stored is not None and record is not None and stored.revision == record.revision:
                raise
            record, is_guess = stored, False
        del call.warnings[warning_count:]


async def _attempt(
    call: Call, collection: Collection, update: Update, record: Record | None
) -> Stored | Computed:
    endpoint = call.endpoint
    live = None
    if record is not None:
        call.note_stored(record)
        live = await call.apart(storing.parsed, await endpoint.read(record), collection.prefix)
    if update.uid and (live is not None or endpoint.main.allows_create_on_update):
        _check_uid(call, update, live)
    check = unchanged.watched(live, "the stored object of a change")
    before = None if live is None else await call.apart(endpoint.from_hub, live)
    changed = await settled(lambda: _changed(call, update, before))
    asks = endpoint.strategy.asks_for_more
    is_more = asks is not None and before is not None and asks(changed, before)
    new = await call.apart(endpoint.to_hub, changed)
    if record is None or live is None:
        return await _create(call, update, new)
    is_dry_run = update.given.dry_run
    admission_request = admission.admission_of(
        call,
        UPDATE,
        update.given.to_object(options.UPDATE),
        is_dry_run=is_dry_run,
        kind=endpoint.hub_kind if update.as_seen is None else endpoint.kind,
    )
    if update.as_seen is None:
        await admission.mutate(call, admission_request, new, live)
    if admission_request is None:
        call.warnings += drop_duplicate_owners(new["metadata"], is_after_admission=True)
    _check_version(call, update, new["metadata"], record)
    also = await allocations.for_changed(call, new, live, is_dry_run=is_dry_run)
    await call.apart(complete_changed, call, new, live, call.context(is_dry_run=is_dry_run))
    if is_more:
        new["metadata"]["generation"] = live["metadata"].get("generation", 0) + 1
    entries = await call.apart(keep_times, live, new)
    if entries is not None:
        new["metadata"]["managedFields"] = entries
    seen = update.as_seen
    if seen is None:
        await admission.validate(call, admission_request, new, live)
    elif admission_request is not None:
        await admission.validate(call, admission_request, seen(new), seen(live))
    await call.apart(to_stored_form, call, new)
    if _is_to_go(endpoint.resource, new, live):
        return await _remove(call, collection, update, record, new)
    check()
    is_same = new == live and not await call.apart(endpoint.is_outdated, record)
    if is_same and not await _is_stale(call, collection, update.key):
        return Stored(await endpoint.read(record))
    if is_dry_run:
        return Computed(endpoint.from_hub(new), endpoint.kind, call.object_type)
    written = await storing.replace(call, record, new, also)
    return Stored(await endpoint.read(written))


async def _changed(call: Call, update: Update, live: Object | None) -> Object:
    given = await call.apart(update.changed, live)
    return given if isinstance(given, dict) else await given


async def _is_stale(call: Call, collection: Collection, key: str) -> bool:
    """Return whether an unchanged object is written because its stored form is outdated."""
    history = call.env.registry.history
    try:
        if call.endpoint.main.peculiarities.is_completed_when_read and await history.is_new(
            collection, key
        ):
            return True
        return await history.is_stale(collection, key)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "update") from error


async def _create(call: Call, update: Update, new: Object) -> Stored | Computed:
    """Create the missing object of an update or apply, where that is allowed."""
    endpoint = call.endpoint
    is_allowed = endpoint.strategy.allows_create_on_update and not endpoint.subresource
    if not (update.creates or is_allowed):
        raise status.not_found(endpoint.resource, update.name)
    admission_request = admission.admission_of(
        call, CREATE, update.given.to_object(options.CREATE), is_dry_run=update.given.dry_run
    )
    await admission.mutate(call, admission_request, new, None)
    await check_may(call, "create")
    new["metadata"].pop("resourceVersion", None)
    try:
        return await create.store_new(call, new, update.given, admission_request)
    except NameTakenError as taken:
        raise RacedError(taken.current) from None


def _check_uid(call: Call, update: Update, live: Object | None) -> None:
    """Check the UID of the new object; raises ApiError with the text of upstream's store."""
    uid = "" if live is None else live["metadata"].get("uid", "")
    if uid != update.uid:
        text = f"UID in precondition: {update.uid}, UID in object meta: {uid}"
        raise storing.precondition_failed(
            call, call.collection.resource, update.key, text, is_dry_run=update.given.dry_run
        )


def _check_version(call: Call, update: Update, meta: Object, record: Record) -> None:
    """Check the resourceVersion of the new object; the default is that of the stored object."""
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


def _is_to_go(resource: GroupResource, new: Object, live: Object) -> bool:
    """Return whether nothing holds a terminating object any longer."""
    meta, before = new["metadata"], live["metadata"]
    if not before.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    return not (before.get("deletionGracePeriodSeconds") or rule_of(resource).is_held(new))


async def _remove(
    call: Call, collection: Collection, update: Update, record: Record, new: Object
) -> Stored | Computed:
    """Delete an object whose last finalizer was removed; the answer is the changed object."""
    result = Computed(call.endpoint.from_hub(new), call.endpoint.kind, call.object_type)
    if update.given.dry_run:
        return result
    try:
        also = await allocations.for_gone(call, new)
        removing = call.env.registry.writes.delete(collection, record, also=also)
        gone = await timed(call.env.clock, call.spent, STORE, removing)
    except StoreError as error:
        raise errors.api_error(error, collection.resource, "delete") from error
    if isinstance(gone, Raced):
        raise RacedError(gone.current)
    return result
