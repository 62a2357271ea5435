"""The policies that apply to a request, by binding, with their parameters.

    concerned = policies.concerned(request)         at once; none: nothing has to be waited for
    async for each in policies.bound(request, concerned):      in `aclosing`
        each.policy, each.versioned, each.binding, each.params, each.namespace

Selectors of a policy are evaluated at its turn: one before it may have changed the object.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.admission.manifests import Manifests
from kvstack.apiserver.policy.admission.policies.evaluation import Namespaces
from kvstack.apiserver.policy.admission.policies.parameters import (
    FindKind,
    ParameterError,
    Parameters,
)
from kvstack.apiserver.policy.admission.policies.store import (
    Binding,
    Concerned,
    Kinds,
    Policies,
    Policy,
)
from kvstack.apiserver.policy.admission.request import AdmissionRequest, VersionedResource
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView


class Bound(NamedTuple):
    """A policy with one of its bindings."""

    policy: Policy
    versioned: VersionedResource
    """The version in which the policy sees the objects."""
    binding: Binding
    params: Sequence[Object | None]
    """The parameters to run the policy with, None for "without"."""
    error: ParameterError | None = None
    """Why there are no parameters."""


class BoundPolicies:
    """All policies of one kind, their bindings, and what matching needs."""

    def __init__(
        self,
        view: ObjectView,
        live: LiveObjects,
        find: FindKind,
        kinds: Kinds,
        manifests: Manifests | None,
    ) -> None:
        """find: the resources of parameter kinds."""
        self._policies: Final = Policies(view, kinds, manifests)
        self._parameters: Final = Parameters(view, live, find)
        self.namespaces: Final = Namespaces(view, live)

    def concerned(self, request: AdmissionRequest) -> Sequence[Concerned]:
        """Return the policies whose rules match a request."""
        return self._policies.concerned(request)

    async def bound(
        self, request: AdmissionRequest, concerned: Sequence[Concerned]
    ) -> AsyncGenerator[Bound]:
        """Yield those whose selectors match, too, by binding; raises ApiError."""
        for policy, versioned in concerned:
            if not await self.namespaces.selects(policy.match, request):
                continue
            for binding in policy.bindings:
                if not await self._is_bound(binding, request):
                    continue
                try:
                    params = await self._parameters.collect(
                        policy.spec.get("paramKind"),
                        binding.spec.get("paramRef"),
                        request.namespace,
                    )
                except ParameterError as error:
                    yield Bound(policy, versioned, binding, (), error)
                    continue
                yield Bound(policy, versioned, binding, params)

    async def _is_bound(self, binding: Binding, request: AdmissionRequest) -> bool:
        match = binding.match
        if match is None:
            return True
        return match.resource_for(request) is not None and await self.namespaces.selects(
            match, request
        )
