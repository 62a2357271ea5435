"""Escalation check: users cannot grant permissions by roles and bindings that they lack.

    write of a Role       its rules must be covered by the writer's, or the writer may `escalate` it
    write of a binding    the rules of its role must be, or the writer may `bind` that role

It runs after all mutating plugins, and before validation. Members of system:masters are exempt, as
are updates that change only owner references and finalizers.
"""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, Final

from kvstack.apimachinery.attributes import PRIVILEGED, Attributes
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import aggregate, go_quoted_list, quote
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.authorization.chain import EVERYTHING, decided
from kvstack.apiserver.policy.authorization.rbac.authorizer import RbacAuthorizer
from kvstack.apiserver.policy.authorization.rbac.coverage import merged, missing, rule_text
from kvstack.apiserver.policy.authorization.rbac.grants import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    ROLE_BINDINGS,
    ROLES,
    Grants,
    RoleError,
    RoleReference,
    referenced_role,
)
from kvstack.apiserver.policy.authorization.rbac.rules import Source
from kvstack.apiserver.policy.interfaces import Authorizer, LiveObjects
from kvstack.apiserver.policy.ownership_changes import changes_only_ownership

_TYPES: Final = {
    CLUSTER_ROLES: "io.k8s.api.rbac.v1.ClusterRole",
    ROLES: "io.k8s.api.rbac.v1.Role",
    CLUSTER_ROLE_BINDINGS: "io.k8s.api.rbac.v1.ClusterRoleBinding",
    ROLE_BINDINGS: "io.k8s.api.rbac.v1.RoleBinding",
}
_BOUND_RESOURCES: Final = {"ClusterRole": "clusterroles", "Role": "roles"}


class EscalationCheck:
    """Refuses writes of roles and bindings that would grant more than the writer has."""

    name = "EscalationCheck"
    """Not a plugin that flags name: it is always enabled."""

    def __init__(
        self,
        authorizer: Authorizer,
        rbac: RbacAuthorizer,
        grants: Grants,
        live: LiveObjects,
    ) -> None:
        """authorizer: decides the verbs escalate and bind; rbac: has the writer's permissions."""
        self._authorizer = authorizer
        self._rbac = rbac
        self._grants = grants
        self._live = live

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether a write is of a role or binding."""
        return resource in _TYPES and not subresource and operation in {CREATE, UPDATE}

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Refuse the write with 403, or with 404 if it binds a missing role."""
        if PRIVILEGED in request.user.groups:
            return None
        return self._check(request)

    async def _check(self, request: AdmissionRequest) -> None:
        new = request.object or {}
        old, type_name = request.old, _TYPES[request.resource]
        if old is not None and changes_only_ownership(new, old, type_name):
            return
        # Recently written roles count.
        await self._live.catch_up()
        if request.resource in {ROLES, CLUSTER_ROLES}:
            await self._check_role(request, new)
        else:
            await self._check_binding(request, new)

    async def _check_role(self, request: AdmissionRequest, new: Object) -> None:
        name = request.name if request.operation == UPDATE else ""
        if await self._may(request, "escalate", request.resource.resource, name):
            return
        self._check_held(request, new.get("rules") or ())
        if _aggregates(new) or _aggregates(request.old or {}):
            held, _ = self._rbac.rules_for(request.user, request.namespace)
            if missing((each.source for each in held), EVERYTHING):
                message = "must have cluster-admin privileges to use the aggregationRule"
                raise _forbidden(request, message)

    async def _check_binding(self, request: AdmissionRequest, new: Object) -> None:
        role = referenced_role(new, request.namespace)
        resource = _BOUND_RESOURCES.get(role.kind)
        group = (new.get("roleRef") or {}).get("apiGroup", "")
        if resource and await self._may(request, "bind", resource, role.name, group):
            return
        self._check_held(request, self._rules_of(request, role))

    async def _may(
        self,
        request: AdmissionRequest,
        verb: str,
        resource: str,
        name: str,
        group: str = GROUP,
    ) -> bool:
        attributes = Attributes(
            request.user,
            verb,
            group=group,
            version="*",
            resource=resource,
            namespace=request.namespace,
            name=name,
        )
        return (await decided(self._authorizer, attributes)).allowed

    def _rules_of(self, request: AdmissionRequest, role: RoleReference) -> list[Source]:
        try:
            return [each.source for each in self._grants.rules(role)]
        except RoleError as error:
            if role.kind not in _BOUND_RESOURCES:
                raise status.unknown(str(error)) from None
            # The answer names the resource that is written.
            raise status.not_found(request.resource, role.name) from None

    def _check_held(self, request: AdmissionRequest, rules: Iterable[Source]) -> None:
        user = request.user
        held, errors = self._rbac.rules_for(user, request.namespace)
        lacking = missing((each.source for each in held), rules)
        if not lacking:
            return
        lines = "\n".join(sorted({rule_text(each) for each in merged(lacking)}))
        message = (
            f"user {quote(user.name)} (groups={go_quoted_list(user.groups)}) is attempting to grant"
            f" RBAC permissions not currently held:\n{lines}"
        )
        if errors:
            message = f"{message}; resolution errors: [{aggregate(errors)}]"
        raise _forbidden(request, message)


def _forbidden(request: AdmissionRequest, message: str) -> status.ApiError:
    name = ((request.object or {}).get("metadata") or {}).get("name", "")
    return status.forbidden(request.resource, name, message)


def _aggregates(role: Mapping[str, Any]) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))
