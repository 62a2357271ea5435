"""The subresource `scale`: the replicas of a workload as an object of their own.

    get      the Scale of the workload
    update   the Scale is changed as any object, then the workload with it, in the same write
    patch    likewise

Managers own the replicas of the workload; a Scale shows them as managers of its own field.
"""

from typing import TYPE_CHECKING, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apiserver.apply import scale as scale_managers
from kvstack.apiserver.apply.managed_fields import ManagedFieldsError
from kvstack.apiserver.kinds.strategy import Scaling
from kvstack.apiserver.kinds.workloads.scales import WORKLOADS
from kvstack.apiserver.policy.admission.request import UPDATE
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.options import WriteOptions
from kvstack.apiserver.verbs.reading import get_and_list
from kvstack.apiserver.verbs.results import Computed, Stored
from kvstack.apiserver.verbs.writing import admission, storing, update_loop
from kvstack.apiserver.verbs.writing.update_loop import Changed, Update

if TYPE_CHECKING:
    from kvstack.apiserver.apply.scale import ReplicasPaths

_MISMATCH: Final = "UID in precondition: {}, UID in object meta: {}"


async def get(call: Call) -> Computed:
    """Return the Scale of a workload; raises ApiError."""
    stored = await get_and_list.get(call)
    scaling = _scaling(call)
    scale = (scaling.read or scaling.scale_of)(stored.record.parse())
    return Computed(scale, call.endpoint.kind, call.object_type)


async def change(call: Call, update: Update) -> Computed:
    """Change a Scale and its workload; raises ApiError."""
    update.as_seen = _scaling(call).scale_of
    update.uid = ""
    update.creates = False
    update.changed = _of_parent(call, update, update.changed)
    result = await update_loop.run(call, update)
    if isinstance(result, Stored):
        return _answer(call, result.record.parse())
    return _answer(call, result.obj)


def _scaling(call: Call) -> Scaling:
    return call.endpoint.main.scaling or WORKLOADS


def _answer(call: Call, parent: Object) -> Computed:
    return Computed(_scaling(call).scale_of(parent), call.endpoint.kind, call.object_type)


def _of_parent(call: Call, update: Update, changed: Changed) -> Changed:
    """Return a change of a Scale as a change of its workload."""
    paths: ReplicasPaths = {call.endpoint.api_version: _scaling(call).path}

    async def changed_parent(live: Object | None) -> Object:
        if live is None:
            raise status.not_found(call.endpoint.resource, call.info.name)
        entries = live["metadata"].get("managedFields") or []
        scaling = _scaling(call)
        old = (scaling.before or scaling.scale_of)(live)
        try:
            owned = scale_managers.scale_entries(entries, paths)
        except ManagedFieldsError as error:
            raise status.unknown(f"failed to decode managed fields: {error}") from error
        if owned:
            old["metadata"]["managedFields"] = owned
        found = changed(old)
        new = found if isinstance(found, dict) else await found
        await _admit(call, new, old, update.given)
        meta = new["metadata"]
        uid = live["metadata"].get("uid", "")
        if meta.get("uid", uid) not in ("", uid):
            text = _MISMATCH.format(meta["uid"], uid)
            raise storing.precondition_failed(
                call, call.collection.resource, update.key, text, is_dry_run=update.given.dry_run
            )
        parent: Object = json_text.copied(live)
        scaling.set_replicas(parent, new)
        after = scale_managers.parent_entries(
            entries, meta.get("managedFields") or [], call.endpoint.api_version, paths
        )
        _set(parent["metadata"], "managedFields", after)
        if meta.get("resourceVersion"):
            parent["metadata"]["resourceVersion"] = meta["resourceVersion"]
        return parent

    return changed_parent


async def _admit(call: Call, new: Object, old: Object, given: WriteOptions) -> None:
    admission_request = admission.admission_of(
        call,
        UPDATE,
        given.to_object(options.UPDATE),
        is_dry_run=given.dry_run,
        kind=call.endpoint.kind,
    )
    await admission.mutate(call, admission_request, new, old)


def _set(meta: Object, name: str, value: object) -> None:
    if value:
        meta[name] = value
    else:
        meta.pop(name, None)
