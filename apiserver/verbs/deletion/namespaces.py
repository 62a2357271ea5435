"""Deletion of namespaces, which are removed when both lists of finalizers are empty.

The first delete sets the deletionTimestamp and the phase `Terminating`. While `spec.finalizers`
holds `kubernetes`, further deletes change nothing; the namespace controller removes it through the
subresource `finalize`, which removes the namespace.
"""

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from kvstack.apiserver.kinds.core.namespaces import TERMINATING
from kvstack.apiserver.kinds.strategy import Deletion
from kvstack.apiserver.verbs.deletion import deletion_plan
from kvstack.apiserver.verbs.deletion.deletion_plan import Operation, Plan
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.options import DeleteOptions


def check_preconditions(endpoint: Endpoint, obj: Object, options: DeleteOptions) -> None:
    """Check the preconditions of a delete; raises ApiError."""
    meta = obj["metadata"]
    for expected, name, label in (
        (options.uid, "uid", "UID"),
        (options.resource_version, "resourceVersion", "ResourceVersion"),
    ):
        if expected is not None and expected != meta.get(name, ""):
            text = (
                f"Precondition failed: {label} in precondition: {expected}, {label} in object meta:"
                f" {meta.get(name, '')}"
            )
            raise status.conflict(endpoint.resource, meta["name"], text)


def plan(obj: Object, deletion: Deletion, options: DeleteOptions, now: str) -> Plan:
    """Return the plan of a delete; the object is changed."""
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = now
        obj.setdefault("status", {})["phase"] = TERMINATING
        _set_finalizers(meta, options)
        return Plan(Operation.UPDATE, obj)
    if is_held(obj):
        return Plan(Operation.KEEP, obj)
    return deletion_plan.plan(obj, deletion, options, now)


def is_held(obj: Object) -> bool:
    """Return whether a terminating namespace has finalizers in its spec."""
    return bool((obj.get("spec") or {}).get("finalizers"))


def _set_finalizers(meta: Object, options: DeleteOptions) -> None:
    before = meta.get("finalizers") or []
    finalizers = {
        ORPHAN_FINALIZER: _wants(
            options, "Orphan", is_orphan=True, is_there=ORPHAN_FINALIZER in before
        ),
        FOREGROUND_FINALIZER: _wants(
            options, "Foreground", is_orphan=False, is_there=FOREGROUND_FINALIZER in before
        ),
    }
    after = [each for each in before if finalizers.get(each, True)]
    after += [each for each, is_wanted in finalizers.items() if is_wanted and each not in before]
    if after:
        meta["finalizers"] = after
    else:
        meta.pop("finalizers", None)


def _wants(options: DeleteOptions, policy: str, *, is_orphan: bool, is_there: bool) -> bool:
    if options.orphan_dependents is not None:
        return options.orphan_dependents is is_orphan
    return options.policy == policy if options.policy else is_there
