"""Evaluation of a policy's expressions on a request.

shown = Shown(request)
await shown.turn_to(versioned)
scene = scene_of(policy, shown, param, namespace, answers, budget)
scene.evaluate("object.a > 1", BOOLEANS)   → Result(value, error)
"""

from typing import TYPE_CHECKING, Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import NAMESPACES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.types import Type as SchemaType
from kvstack.apiserver.policy.admission.matching import (
    is_of_object,
    labels_of,
    needs_namespace,
    own_labels,
)
from kvstack.apiserver.policy.admission.policies.store import (
    CompiledVariable,
    MatchResources,
    Policy,
)
from kvstack.apiserver.policy.admission.request import AdmissionRequest, VersionedResource
from kvstack.apiserver.policy.expressions.answers import Answers
from kvstack.apiserver.policy.expressions.bindings import namespace_value, request_bindings
from kvstack.apiserver.policy.expressions.evaluation import Budget, Result
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView
from kvstack.cel.admission import VARIABLES, compile_admission
from kvstack.cel.checker.types import Type
from kvstack.cel.errors import CelError, CostError, EvaluationError
from kvstack.cel.values import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Mapping


class RequestObjects:
    """The objects of a request in one version at a time."""

    def __init__(self, request: AdmissionRequest) -> None:
        assert request.versions is not None, "policies are only evaluated for requests"
        self.request: Final = request
        self._versions: Final = request.versions
        self._found: dict[VersionedResource, tuple[Object | None, Object | None]] = {}

    async def objects(self, versioned: VersionedResource) -> tuple[Object | None, Object | None]:
        """Return the new and the old object in a version."""
        found = self._found.get(versioned)
        if found is None:
            request = self.request
            new = await self._at(request.object, versioned)
            found = self._found[versioned] = (new, await self._at(request.old, versioned))
        return found

    async def _at(self, obj: Object | None, versioned: VersionedResource) -> Object | None:
        return None if obj is None else await self._versions.show(obj, versioned)

    def type_of(self, versioned: VersionedResource) -> SchemaType:
        """Return the type of the objects in a version."""
        return self._versions.type_of(versioned)

    async def change(self, changed: Object, versioned: VersionedResource) -> bool:
        """Adopt a changed object; return whether anything differs. Raises ApiError."""
        obj = self.request.new
        taken = await self._versions.take(changed, versioned)
        if taken == obj:
            return False
        obj.clear()
        obj.update(taken)
        self._found.clear()
        return True


class Namespaces:
    """Finds the namespaces of requests."""

    def __init__(self, view: ObjectView, live: LiveObjects) -> None:
        self._view: Final = view
        self._live: Final = live

    async def selects(self, match: MatchResources, request: AdmissionRequest) -> bool:
        """Return whether the selectors match; raises ApiError."""
        if needs_namespace(match.namespaces, request):
            labels = own_labels(request)
            if labels is None:
                labels = labels_of(await self._get(request.namespace or request.name))
            if not match.namespaces.matches(labels):
                return False
        return is_of_object(match.objects, request)

    async def of(self, request: AdmissionRequest) -> Object | None:
        """Return the namespace of a request; None: it has none. Raises ApiError."""
        if not request.namespace or request.resource == NAMESPACES:
            return None
        return await self._get(request.namespace)

    async def _get(self, name: str) -> Object:
        namespace_object = self._view.get(NAMESPACES, "", name)
        if namespace_object is None:
            await self._live.catch_up()
            namespace_object = self._view.get(NAMESPACES, "", name)
        if namespace_object is None:
            raise status.not_found(NAMESPACES, name)
        return namespace_object


class _Variables:
    """The variables of a policy, evaluated on first use; see `values.Shape`."""

    def __init__(self, variables: tuple[CompiledVariable, ...]) -> None:
        self._compiled = {each.name: each.compiled for each in variables}
        self._errors: dict[str, CelError] = {}
        self.bindings: Mapping[str, Any] = {}
        self.cost = 0

    def member(self, _raw: dict[str, Any], name: str) -> Any:  # noqa: ANN401
        if name in self._errors:
            raise self._errors[name]
        compiled = self._compiled[name]
        if compiled.program is None:
            message = f'composited variable "{name}" fails to compile: {compiled.problem}'
            raise self._failed(name, message)
        try:
            outcome = compiled.program.evaluate(self.bindings)
        except CostError:
            raise
        except EvaluationError as error:
            message = f'composited variable "{name}" fails to evaluate: {error}'
            raise self._failed(name, message) from None
        self.cost += outcome.cost
        return outcome.value

    def _failed(self, name: str, text: str) -> CelError:
        error = self._errors[name] = CelError(text)
        return error

    def has(self, _raw: dict[str, Any], name: object) -> bool:
        return name in self._compiled

    def names(self, _raw: dict[str, Any]) -> list[str]:
        return list(self._compiled)


class Scene:
    """One policy, one parameter, one request."""

    def __init__(self, policy: Policy, bindings: dict[str, Any], budget: Budget) -> None:
        """bindings: the variables that expressions see; budget: their cost limit."""
        self.bindings: Final = bindings
        self._declared: Final = policy.declared
        self._budget: Final = budget
        self._variables: Final = _Variables(policy.variables)
        if policy.variables:
            bindings[VARIABLES] = ObjectValue({}, self._variables)
            self._variables.bindings = bindings

    def evaluate(
        self,
        text: str,
        returns: tuple[Type, ...] | None,
        *,
        has_authorizer: bool = True,
        has_patches: bool = False,
    ) -> Result:
        """Return the value of an expression; raises OutOfBudgetError, PendingCheckError."""
        declared = self._declared._replace(has_authorizer=has_authorizer, has_patches=has_patches)
        compiled = compile_admission(declared, text, returns)
        self._variables.cost = 0
        found = self._budget.evaluate(compiled, text, self.bindings)
        self._budget.spend(self._variables.cost)
        return found


def scene_bindings(
    request: AdmissionRequest,
    versioned: VersionedResource,
    objects: tuple[Object | None, Object | None],
    param: Object | None,
    namespace: Object | None,
    answers: Answers,
) -> dict[str, Any]:
    """Return the variables of a policy's expressions, except its own."""
    bindings = request_bindings(request, versioned, *objects, answers)
    bindings["params"] = param
    bindings["namespaceObject"] = namespace_value(namespace)
    return bindings
