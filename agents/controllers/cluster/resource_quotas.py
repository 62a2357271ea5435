"""ResourceQuota: recounts the usage of a namespace.

    quota.status = {hard: spec.hard, used: what the measures of all resources it names add up to}

Admission charges what is made; here is found what went away, and what admission charged in vain.
Everything is counted again every few minutes. Objects without a measure of their own are counted
by their metadata, those of definitions too.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final, TypeAlias

from typing_extensions import override

from kvstack.agents.client.built_in import (
    CUSTOM_RESOURCE_DEFINITIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
)
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Enqueue,
    Follow,
    Identity,
    KeysOf,
    Later,
    Outcome,
    Plan,
    Step,
    Update,
    View,
    Watch,
    discover,
    do,
)
from kvstack.apimachinery.objects import resources
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.quota.scopes import scopes_of
from kvstack.apimachinery.quota.usage import Measure, measure_of

Amounts: TypeAlias = dict[str, str]

_DISCOVERY: Final = "discovery"
_DISCOVERY_S: Final = 30.0
_UNCHANGED_S: Final = 600.0
"""How long what is served is taken as the same if no object has changed: of servers of others."""
_AFTER_DEFINITION_S: Final = 1.0
_IGNORED: Final = frozenset((("", "events"), ("events.k8s.io", "events"), ("", "bindings")))
_DEVICE_CLAIMS: Final = ResourceType("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
_MEASURED: Final = (PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, _DEVICE_CLAIMS)
"""Resources whose objects are measured whole."""


class ResourceQuotaController(BaseController):
    """Keeps the status of quotas."""

    def __init__(self, period_s: float) -> None:
        """period_s: everything is counted again after so long."""
        self.identity: Identity = Identity(
            "resourcequota-controller",
            "resourcequota-controller",
            "resourcequota-controller",
        )
        self.watches: Sequence[Watch] = (
            Watch(RESOURCE_QUOTAS, _keys_of_quota),
            Watch(CUSTOM_RESOURCE_DEFINITIONS, _discovery_keys, metadata_only=True),
            *(Watch(resource, _keys_for(resource)) for resource in _MEASURED),
        )
        self._period_s = period_s
        self._followed: frozenset[ResourceType] = frozenset()

    @override
    def initial_keys(self) -> Iterable[str]:
        """Start with discovery."""
        return (_DISCOVERY,)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one quota."""
        if key == _DISCOVERY:
            return (yield from self._discover(view))
        quota = view.get(RESOURCE_QUOTAS, key)
        if quota is None:
            return None
        hard = (quota.get("spec") or {}).get("hard") or {}
        status = quota.get("status") or {}
        used = {**(status.get("used") or {}), **self._use(quota, list(hard), view, now_s)}
        used = resources.mask(used, hard)
        is_right = (
            "hard" in status
            and "used" in status
            and resources.equal(status["hard"], hard)
            and resources.equal(status["used"], used)
        )
        if not is_right:
            wanted = {**quota, "status": {"hard": hard, "used": used}}
            yield from do(Update(RESOURCE_QUOTAS, wanted, "status"))
        return Again(self._period_s, is_routine=True)

    def _discover(self, view: View) -> Generator[Step, list[Outcome], Again]:
        found = yield from discover()
        wanted = {
            resource
            for resource in found.preferred("create", "delete", "list", "watch")
            if resource.is_namespaced and (resource.group, resource.name) not in _IGNORED
        }
        wanted |= {each for each in self._followed if each.api_version in found.failures}
        followed = frozenset(wanted) - {RESOURCE_QUOTAS, *_MEASURED}
        if followed != self._followed:
            self._followed = followed
            yield [Follow(followed, _keys_of_followed)]
            # What was not known before may be counted now.
            yield [Enqueue(tuple(map(key_of, view.list(RESOURCE_QUOTAS))))]
        return Again(_DISCOVERY_S, is_routine=True, rests_s=_UNCHANGED_S)

    def _use(self, quota: Object, names: Sequence[str], view: View, now_s: float) -> Amounts:
        """Return what is used, of those names that something is known of."""
        used: Amounts = {}
        namespace = quota["metadata"]["namespace"]
        for resource in (RESOURCE_QUOTAS, *_MEASURED, *self._followed):
            measure = _measure(resource)
            found = measure.names(names)
            if not found:
                continue
            total: Amounts = dict.fromkeys(found, "0")
            for obj in view.list(resource, namespace):
                if all(measure.is_in(scope, obj) for scope in scopes_of(quota)):
                    use = resources.mask(measure.usage(obj, now_s), found)
                    total = resources.add(total, use)
            used |= total
        return used


def _measure(resource: ResourceType) -> Measure:
    return measure_of(GroupResource(resource.group, resource.name))


# Which quotas a change concerns.


def _keys_of_quota(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None and (old is None or old.get("spec") != new.get("spec")):
        yield key_of(new)
    elif new is None and old is not None:
        yield from _naming(RESOURCE_QUOTAS, old, view)


def _keys_for(resource: ResourceType) -> KeysOf:
    def keys(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
        if old is not None and (new is None or _uses_other(resource, old, new)):
            yield from _naming(resource, new or old, view)

    return keys


def _keys_of_followed(
    resource: ResourceType, old: Object | None, new: Object | None, view: View
) -> Iterable[str]:
    if new is None and old is not None:
        yield from _naming(resource, old, view)


def _naming(resource: ResourceType, obj: Object, view: View) -> Iterable[str]:
    """Give the quotas of an object's namespace that name its resource."""
    measure = _measure(resource)
    for quota in view.list(RESOURCE_QUOTAS, obj["metadata"]["namespace"]):
        if measure.names(list((quota.get("spec") or {}).get("hard") or ())):
            yield key_of(quota)


def _uses_other(resource: ResourceType, old: Object, new: Object) -> bool:
    """Whether an update may have reduced an object's usage, or moved it to another quota."""
    if resource == PODS and is_ended(old) != is_ended(new):
        return True
    if resource == PERSISTENT_VOLUME_CLAIMS and old.get("status") != new.get("status"):
        return True
    return bool(old.get("spec") != new.get("spec"))


def _discovery_keys(old: Object | None, new: Object | None, view: View) -> Iterable[Later]:
    return (Later(_DISCOVERY, _AFTER_DEFINITION_S),)
