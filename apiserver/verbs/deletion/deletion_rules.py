"""Rules of deletion by resource; `DEFAULT` is for resources without a rule of their own."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.core.namespaces import NAMESPACE_RESOURCE
from kvstack.apiserver.kinds.strategy import Deletion
from kvstack.apiserver.verbs.deletion import deletion_plan, namespaces
from kvstack.apiserver.verbs.deletion.deletion_plan import Plan
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.options import DeleteOptions

_UID: Final = (
    "the UID in the precondition ({}) does not match the UID in record ({})."
    " The object might have been deleted and then recreated"
)
_VERSION: Final = (
    "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record"
    " ({}). The object might have been modified"
)


class DeletionRule(NamedTuple):
    """How objects of a resource are deleted."""

    check_preconditions: Callable[[Endpoint, Object, DeleteOptions], None]
    """Raises ApiError 409 if a precondition does not hold."""
    plan: Callable[[Object, Deletion, DeleteOptions, str], Plan]
    """(object, hooks, options, now): return the plan of a delete; the object may be changed."""
    is_held: Callable[[Object], bool]
    """(object): whether a terminating object stays although its metadata has no finalizers."""


def rule_of(resource: GroupResource) -> DeletionRule:
    """Return the rule of a resource."""
    return _RULES.get(resource, DEFAULT)


def _check_preconditions(endpoint: Endpoint, obj: Object, given: DeleteOptions) -> None:
    meta = obj["metadata"]
    kind = GroupResource(endpoint.hub_kind.group, endpoint.hub_kind.kind)
    for wanted, name, text in (
        (given.uid, "uid", _UID),
        (given.resource_version, "resourceVersion", _VERSION),
    ):
        if wanted is not None and wanted != meta.get(name, ""):
            message = text.format(wanted, meta.get(name, ""))
            raise status.conflict(kind, meta["name"], message)


def _is_not_held(_obj: Object) -> bool:
    return False


DEFAULT: Final = DeletionRule(_check_preconditions, deletion_plan.plan, _is_not_held)
_RULES: Final[Mapping[GroupResource, DeletionRule]] = {
    NAMESPACE_RESOURCE: DeletionRule(
        namespaces.check_preconditions, namespaces.plan, namespaces.is_held
    ),
}
