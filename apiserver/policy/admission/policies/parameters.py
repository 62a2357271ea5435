"""The parameter objects of a policy.

params = await Parameters(view, live, find).collect(param_kind, param_ref, namespace)
    → [None] if there are none, else the objects; raises ParameterError
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import SelectorError, from_object
from kvstack.apiserver.policy.admission.matching import labels_of
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView

_NOT_FOUND: Final = "no params found for policy binding with `Deny` parameterNotFoundAction"


class ParameterError(Exception):
    """Parameters cannot be resolved; the text says why."""


class ParameterKind(NamedTuple):
    """The resource of a parameter kind."""

    resource: GroupResource
    is_namespaced: bool
    show: Callable[[Object], Object]
    """Returns a stored object in the version of the kind."""


FindKind = Callable[[str, str], ParameterKind | None]
"""(apiVersion, kind) → the resource; None: there is none."""


class Parameters:
    """Finds parameters."""

    def __init__(self, view: ObjectView, live: LiveObjects, find: FindKind) -> None:
        self._view: Final = view
        self._live: Final = live
        self._find: Final = find

    async def collect(
        self, kind: Object | None, reference: Object | None, namespace: str
    ) -> list[Object | None]:
        """Return the parameters, None for "without"; an empty list: the policy does not apply.

        namespace: of the request. Raises ParameterError.
        """
        if kind is None or reference is None:
            return [None]
        resource = self._find(kind.get("apiVersion", ""), kind.get("kind", ""))
        if resource is None:
            version, name = kind.get("apiVersion", ""), kind.get("kind", "")
            shown = f"&ParamKind{{APIVersion:{version},Kind:{name},}}"
            raise ParameterError(f"paramKind kind `{shown}` not known")
        objects = await self._objects(
            resource, reference, self._namespace(resource, reference, namespace)
        )
        if not objects and reference.get("parameterNotFoundAction") == "Deny":
            raise ParameterError(_NOT_FOUND)
        return [
            {**resource.show(each), "apiVersion": kind.get("apiVersion"), "kind": kind.get("kind")}
            for each in objects
        ]

    def _namespace(self, found: ParameterKind, reference: Object, namespace: str) -> str:
        namespace_name: str = reference.get("namespace") or ""
        if not found.is_namespaced:
            if namespace_name:
                raise ParameterError(
                    "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
                )
            return ""
        if not namespace_name and not namespace:
            raise ParameterError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped"
                " resources"
            )
        return namespace_name or namespace

    async def _objects(
        self, kind: ParameterKind, reference: Object, namespace: str
    ) -> list[Object]:
        name = reference.get("name") or ""
        if name:
            obj = self._view.get(kind.resource, namespace, name)
            if obj is None:
                await self._live.catch_up()
                obj = self._view.get(kind.resource, namespace, name)
            return [] if obj is None else [obj]
        try:
            selector = from_object(reference.get("selector"))
        except SelectorError as error:
            raise ParameterError(str(error)) from error
        everything = self._view.list(kind.resource, namespace or None)
        return [each for each in everything if selector.matches(labels_of(each))]
