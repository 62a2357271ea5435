"""OwnerReferencesPermissionEnforcement: permissions for changes of ownerReferences.

a change of ownerReferences       needs `delete` of the object
blockOwnerDeletion newly true     needs `update` of `finalizers` of the owner
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.attributes import Attributes
from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import Authorizer, Decision


class MappedResource(NamedTuple):
    """A resource of a kind."""

    resource: GroupResource
    version: str
    is_namespaced: bool


KindMapping: TypeAlias = Callable[[str, str, str], Sequence[MappedResource]]
"""(group, version, kind): returns the served resources of a kind."""


class OwnerReferencesPermissionEnforcement:
    """Checks changes of ownerReferences."""

    name = "OwnerReferencesPermissionEnforcement"

    def __init__(self, authorizer: Authorizer, mapping: KindMapping) -> None:
        """mapping: finds the resources of owners."""
        self._authorizer: Final = authorizer
        self._mapping: Final = mapping

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether metadata may change; writes of a pod's status keep it."""
        return operation in {CREATE, UPDATE} and (resource, subresource) != (PODS, "status")

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Check a write."""
        new, old = _owners(request.new), _owners(request.old)
        return None if new == old else self._check(request, new, old)

    async def _check(
        self, request: AdmissionRequest, new: Sequence[Object], old: Sequence[Object]
    ) -> None:
        if request.operation != CREATE:
            decision = await self._ask(_delete_of(request))
            if not decision.allowed:
                raise request.forbidden(
                    f"cannot set an ownerRef on a resource you can't delete: {_verdict(decision)}"
                )
        blocking = list(_newly_blocking(new, old))
        if not blocking or (await self._ask(_finalizers_of(request, "*", "*", "*", "*"))).allowed:
            return
        for owner in blocking:
            await self._check_owner(request, owner)

    async def _check_owner(self, request: AdmissionRequest, owner: Object) -> None:
        api_version, kind = owner.get("apiVersion", ""), owner.get("kind", "")
        group, slash, version = api_version.rpartition("/")
        resources = self._mapping(group if slash else "", version, kind)
        if not resources:
            raise request.forbidden(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for"
                f" APIVersion {api_version} Kind {kind}: no matches for kind {quote(kind)} in"
                f" version {quote(api_version)}"
            )
        for each in resources:
            namespace = request.namespace if each.is_namespaced else ""
            decision = await self._ask(
                _finalizers_of(
                    request,
                    each.resource.group,
                    each.version,
                    each.resource.resource,
                    owner.get("name", ""),
                    namespace,
                )
            )
            if not decision.allowed:
                raise request.forbidden(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you"
                    f" can't set finalizers on: {_verdict(decision)}"
                )

    async def _ask(self, attributes: Attributes) -> Decision:
        found = self._authorizer.authorize(attributes)
        return found if isinstance(found, Decision) else await found


def _owners(obj: Object | None) -> Sequence[Object]:
    owners: Sequence[Object] = ((obj or {}).get("metadata") or {}).get("ownerReferences") or []
    return owners


def _newly_blocking(new: Iterable[Object], old: Iterable[Object]) -> Iterable[Object]:
    blocked = {each.get("uid") for each in old if each.get("blockOwnerDeletion")}
    return (e for e in new if e.get("blockOwnerDeletion") and e.get("uid") not in blocked)


def _delete_of(request: AdmissionRequest) -> Attributes:
    return Attributes(
        request.user,
        "delete",
        request.resource.group,
        request.version,
        request.resource.resource,
        request.subresource,
        request.namespace,
        request.name,
    )


def _finalizers_of(
    request: AdmissionRequest, group: str, version: str, resource: str, name: str, ns: str = ""
) -> Attributes:
    return Attributes(request.user, "update", group, version, resource, "finalizers", ns, name)


def _verdict(decision: Decision) -> str:
    return f"{decision.reason}, {decision.error or '<nil>'}"
