"""Policies, and requests that they look at."""

from collections.abc import Sequence
from typing import Any

from kvstack.apimachinery.attributes import Attributes
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.policy.admission.policies.parameters import ParameterKind
from kvstack.apiserver.policy.admission.policies.store import MUTATING, Kinds
from kvstack.apiserver.policy.admission.request import AdmissionRequest, VersionedResource
from kvstack.apiserver.policy.interfaces import Decision
from tests.apiserver.policy.admission.requests import admission_request
from tests.apiserver.policy.views import FakeView

CONFIG_MAPS = GroupResource("", "configmaps")
SERVED_CONFIG_MAPS = VersionedResource("", "v1", "configmaps", Kind("", "v1", "ConfigMap"))
MATCH = {
    "resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"], "operations": ["*"]}
    ]
}


class OneVersion:
    """Objects that are served in one version."""

    served: Sequence[VersionedResource] = (SERVED_CONFIG_MAPS,)

    def __init__(self, type_: Type) -> None:
        """Take the type of the objects."""
        self._type = type_

    def type_of(self, versioned: VersionedResource) -> Type:
        assert versioned == SERVED_CONFIG_MAPS
        return self._type

    async def show(self, obj: Object, versioned: VersionedResource) -> Object:
        assert versioned == SERVED_CONFIG_MAPS
        return obj

    async def take(self, obj: Object, versioned: VersionedResource) -> Object:
        assert versioned == SERVED_CONFIG_MAPS
        return obj


class OnlyReaders:
    """An authorizer that allows `get`, and takes its time for everything but pods."""

    def authorize(self, attributes: Attributes) -> Any:
        decision = Decision(attributes.verb == "get", "so it is")
        if attributes.resource == "pods":
            return decision

        async def later() -> Decision:
            return decision

        return later()


def config_map(**data: str) -> Object:
    """Return the ConfigMap `a/c`."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "a"},
        "data": data,
    }


def request_of(
    new: Object | None, type_: Type, old: Object | None = None, **more: Any
) -> AdmissionRequest:
    """Return a write of a ConfigMap."""
    request = admission_request(new, old, resource=CONFIG_MAPS, **more)
    request.kind, request.versions = SERVED_CONFIG_MAPS.kind, OneVersion(type_)
    return request


def view_with(kinds: Kinds, *policies: Object, params: Sequence[Object] = ()) -> FakeView:
    """Return a view with policies, each with one binding."""
    view = FakeView()
    view.put(GroupResource("", "namespaces"), {"metadata": {"name": "a", "labels": {"x": "y"}}})
    for each in policies:
        name = each["name"]
        spec = {"matchConstraints": MATCH, "failurePolicy": "Fail", **each["spec"]}
        view.put(kinds.policies, {"metadata": {"name": name}, "spec": spec})
        binding = {"policyName": name, "validationActions": ["Deny"], **each.get("binding", {})}
        if kinds is MUTATING:
            binding.pop("validationActions")
        view.put(kinds.bindings, {"metadata": {"name": f"{name}-b"}, "spec": binding})
    for each in params:
        view.put(CONFIG_MAPS, each)
    return view


def find_kind(api_version: str, kind: str) -> ParameterKind | None:
    """Return where parameters are: ConfigMaps only."""
    if (api_version, kind) != ("v1", "ConfigMap"):
        return None
    return ParameterKind(CONFIG_MAPS, is_namespaced=True, show=lambda obj: obj)
