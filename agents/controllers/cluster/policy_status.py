"""Type checks of ValidatingAdmissionPolicies: warnings in their status.

The expressions of a policy are checked against the kinds of objects that its rules name, built-in
ones and custom ones. Rules with wildcards name none.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import (
    CUSTOM_RESOURCE_DEFINITIONS,
    VALIDATING_ADMISSION_POLICIES,
)
from kvstack.agents.controllers.ownership import no_keys
from kvstack.agents.reconcile.plan import BaseController, Identity, Patch, Plan, View, Watch, do
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import APPLY_PATCH, Kind
from kvstack.cel.type_checks import Typed, built_in, custom, type_warnings

_NAME: Final = "validatingadmissionpolicy-status"
_USER: Final = "validatingadmissionpolicy-status-controller"
"""The controller's name is its user's, too."""
_KINDS_MAX: Final = 10


class PolicyStatus(BaseController):
    """Keeps the warnings of policies."""

    def __init__(self) -> None:
        """Watch policies; definitions are looked at when a policy is checked."""
        self.identity: Identity = Identity(_USER, _USER, _NAME)
        self.watches: Sequence[Watch] = (
            Watch(VALIDATING_ADMISSION_POLICIES, _itself),
            Watch(CUSTOM_RESOURCE_DEFINITIONS, no_keys),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one policy."""
        policy = view.get(VALIDATING_ADMISSION_POLICIES, key)
        if policy is None:
            return None
        generation = policy["metadata"].get("generation", 0)
        if generation <= (policy.get("status") or {}).get("observedGeneration", 0):
            return None
        checking: Object = {}
        warnings = warnings_of(policy["spec"], view.list(CUSTOM_RESOURCE_DEFINITIONS))
        if warnings:
            checking["expressionWarnings"] = warnings
        applied: Object = {
            "apiVersion": VALIDATING_ADMISSION_POLICIES.api_version,
            "kind": VALIDATING_ADMISSION_POLICIES.kind,
            "metadata": {"name": key},
            "status": {"observedGeneration": generation, "typeChecking": checking},
        }
        yield from do(
            Patch(
                VALIDATING_ADMISSION_POLICIES,
                "",
                key,
                applied,
                APPLY_PATCH,
                "status",
                field_manager=_NAME,
                force=True,
            )
        )
        return None


def _itself(_old: Object | None, new: Object | None, _view: View) -> Iterable[str]:
    if new is not None:
        yield new["metadata"]["name"]


class _ServedResource(NamedTuple):
    """A resource that policies may be about."""

    kind: Kind
    resource: str
    typed: Callable[[], Typed]
    """Returns what its objects are."""


def warnings_of(spec: Object, definitions: Iterable[Object]) -> list[dict[str, str]]:
    """Return what is wrong with the expressions of a policy."""
    served = [
        _ServedResource(each.kind, each.name, partial(built_in, each.type)) for each in load()
    ]
    served += (each for definition in definitions for each in _custom(definition))
    kinds = [
        (f"{each.kind.group}/{each.kind.version}, Kind={each.kind.kind}", each.typed())
        for each in _concerned(spec, served)
    ]
    param_kind = spec.get("paramKind")
    if param_kind is None:
        return type_warnings(spec, kinds)
    wanted = (param_kind.get("apiVersion"), param_kind.get("kind"))
    params = [each for each in served if (each.kind.api_version, each.kind.kind) == wanted]
    return type_warnings(spec, kinds, params[0].typed() if params else Typed())


def _custom(definition: Object) -> Iterable[_ServedResource]:
    spec = definition["spec"]
    names = spec["names"]
    for version in spec.get("versions") or ():
        if version.get("served"):
            kind = Kind(spec["group"], version["name"], names["kind"])
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            yield _ServedResource(kind, names["plural"], partial(custom, schema, kind.kind))


def _concerned(spec: Object, served: Sequence[_ServedResource]) -> list[_ServedResource]:
    """Return the resources whose objects are checked, by group, version and kind."""
    by_kind: dict[Kind, _ServedResource] = {}
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        groups, versions = rule.get("apiGroups") or (), rule.get("apiVersions") or ()
        if "*" in groups or "*" in versions:
            continue
        count = 0
        for group in sorted(groups):
            for version in sorted(versions):
                for resource in sorted(rule.get("resources") or ()):
                    for each in served:
                        # As upstream the core group stands for all.
                        is_group = each.kind.group == group or not group
                        if is_group and (each.kind.version, each.resource) == (version, resource):
                            by_kind[each.kind] = each
                            count += 1
                            if count == _KINDS_MAX:
                                return _sorted(by_kind)
    return _sorted(by_kind)


def _sorted(found: dict[Kind, _ServedResource]) -> list[_ServedResource]:
    return sorted(
        found.values(), key=lambda each: (each.kind.group, each.kind.version, each.kind.kind)
    )
