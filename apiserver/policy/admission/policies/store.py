"""All policies of one kind with their bindings, compiled when they change.

    policies = Policies(view, VALIDATING)
    for policy, versioned in policies.concerned(request): …     those whose rules match

Policies and the bindings of each are ordered by name. A policy without a binding has no effect.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import NOTHING, Selector, SelectorError, from_object
from kvstack.apiserver.policy.admission.exemption import GROUP, POLICIES
from kvstack.apiserver.policy.admission.manifests import Manifests
from kvstack.apiserver.policy.admission.matching import EQUIVALENT, Rules, is_namespaced
from kvstack.apiserver.policy.admission.request import AdmissionRequest, VersionedResource
from kvstack.apiserver.policy.expressions.bindings import requested_resource
from kvstack.apiserver.policy.interfaces import Change, ObjectView
from kvstack.cel.admission import (
    Compiled,
    Declared,
    compile_admission,
    stored_type,
)

if TYPE_CHECKING:
    from kvstack.cel.checker.types import Type


class Kinds(NamedTuple):
    """The resources of one kind of policy."""

    policies: GroupResource
    bindings: GroupResource


VALIDATING: Final = Kinds(
    GroupResource(GROUP, "validatingadmissionpolicies"),
    GroupResource(GROUP, "validatingadmissionpolicybindings"),
)
MUTATING: Final = Kinds(
    GroupResource(GROUP, "mutatingadmissionpolicies"),
    GroupResource(GROUP, "mutatingadmissionpolicybindings"),
)


class _NamedRules:
    """Rules, each of which may be restricted to object names."""

    __slots__ = ("_rules",)

    def __init__(self, rules: Sequence[Object], match_policy: str) -> None:
        names = [frozenset(each.get("resourceNames") or ()) for each in rules]
        exact = [(Rules([each], "Exact"), of) for each, of in zip(rules, names, strict=True)]
        self._rules = exact
        if match_policy == EQUIVALENT:
            # All rules are compared with the request's resource before any other version.
            self._rules = exact + [
                (Rules([each], EQUIVALENT), of) for each, of in zip(rules, names, strict=True)
            ]

    def resource_for(self, request: AdmissionRequest) -> VersionedResource | None:
        """Return the version that a rule names; None: none matches."""
        assert request.versions is not None
        has_namespace = is_namespaced(request)
        for rules, names in self._rules:
            if names and request.name not in names:
                continue
            versioned = rules.resource_for(
                request.operation,
                request.versions.served,
                request.subresource,
                is_namespaced=has_namespace,
            )
            if versioned is not None:
                return versioned
        return None


class MatchResources:
    """The match resources of a policy or a binding."""

    __slots__ = ("_excluded", "_has_rules", "_rules", "namespaces", "objects")

    def __init__(self, match: Object | None) -> None:
        """None: all resources."""
        match = match or {}
        policy = match.get("matchPolicy") or ""
        self._has_rules: Final = bool(match.get("resourceRules"))
        self._rules: Final = _NamedRules(match.get("resourceRules") or (), policy)
        self._excluded: Final = _NamedRules(match.get("excludeResourceRules") or (), policy)
        self.namespaces: Final = _selector(match.get("namespaceSelector"))
        self.objects: Final = _selector(match.get("objectSelector"))

    def resource_for(self, request: AdmissionRequest) -> VersionedResource | None:
        """Return the version in which the object is evaluated; None: the rules do not match."""
        if self._excluded.resource_for(request) is not None:
            return None
        return self._rules.resource_for(request) if self._has_rules else requested_resource(request)


def _selector(given: Object | None) -> Selector:
    try:
        return from_object(given or {})
    except SelectorError:
        return NOTHING  # validation admits none; one that was stored otherwise selects nothing


class Binding(NamedTuple):
    """A binding of a policy."""

    name: str
    match: MatchResources | None
    spec: Object


class CompiledVariable(NamedTuple):
    """A named expression that later ones may use."""

    name: str
    compiled: Compiled


class Policy(NamedTuple):
    """One policy."""

    name: str
    match: MatchResources
    spec: Object
    ignores_failure: bool
    variables: tuple["CompiledVariable", ...]
    declared: Declared
    """Names that its expressions may use."""
    bindings: tuple[Binding, ...]
    is_static: bool = False
    """Whether it is from a manifest file."""


class Concerned(NamedTuple):
    """A policy whose rules match, and the version in which it sees the object."""

    policy: Policy
    versioned: VersionedResource


class Policies:
    """All policies of one kind."""

    def __init__(self, view: ObjectView, kinds: Kinds, manifests: Manifests | None = None) -> None:
        self._view: Final = view
        self._manifests: Final = manifests or Manifests()
        self._kinds: Final = kinds
        self._policies: list[Policy] | None = None
        self._follows = False

    def concerned(self, request: AdmissionRequest) -> Sequence[Concerned]:
        """Return the policies whose rules match a request, in order."""
        policies = self._policies
        if policies is None:
            policies = self._compile()
        if not policies or request.versions is None:
            return ()
        matches: list[Concerned] = []
        is_own = request.resource in POLICIES
        for each in policies:
            if is_own and not each.is_static:
                continue
            versioned = each.match.resource_for(request)
            if versioned is not None:
                matches.append(Concerned(each, versioned))
        return matches

    def _compile(self) -> list[Policy]:
        if not self._follows:
            self._follows = True
            self._view.subscribe(self._kinds.policies, self._changed)
            self._view.subscribe(self._kinds.bindings, self._changed)
            self._manifests.subscribe(self._kinds.policies, self._changed)
            self._manifests.subscribe(self._kinds.bindings, self._changed)
        kinds = self._kinds
        self._policies = [
            *_bound(
                self._manifests.list(kinds.policies), self._manifests.list(kinds.bindings), True
            ),
            *_bound(self._view.list(kinds.policies), self._view.list(kinds.bindings), False),
        ]
        return self._policies

    def _changed(self, _changes: Sequence[Change] = ()) -> None:
        self._policies = None


def _bound(
    policies: Iterable[Object],
    given: Iterable[Object],
    is_static: bool,  # noqa: FBT001
) -> Iterator[Policy]:
    """Yield the policies that have bindings."""
    bindings: dict[str, list[Binding]] = {}
    for each in given:
        spec = each.get("spec") or {}
        match = spec.get("matchResources")
        binding = Binding(
            each["metadata"]["name"], None if match is None else MatchResources(match), spec
        )
        bindings.setdefault(spec.get("policyName", ""), []).append(binding)
    for each in policies:
        if (name := each["metadata"]["name"]) in bindings:
            yield _policy(each, bindings[name])._replace(is_static=is_static)


def _policy(obj: Object, bindings: Sequence[Binding]) -> Policy:
    spec = obj.get("spec") or {}
    declared = Declared(has_params=spec.get("paramKind") is not None, is_stored=True)
    variables: list[CompiledVariable] = []
    types: dict[str, Type] = {}
    for each in spec.get("variables") or ():
        declared = declared._replace(variables=tuple(types.items()))
        compiled = compile_admission(declared, each.get("expression", "").strip())
        variables.append(CompiledVariable(each.get("name", ""), compiled))
        types[each.get("name", "")] = stored_type(compiled.type)
    if variables:
        declared = declared._replace(variables=tuple(types.items()))
    return Policy(
        obj["metadata"]["name"],
        MatchResources(spec.get("matchConstraints")),
        spec,
        spec.get("failurePolicy") == "Ignore",
        tuple(variables),
        declared,
        tuple(bindings),
    )
