"""PodTolerationRestriction: default and allowed tolerations of a namespace's pods.

    scheduler.alpha.kubernetes.io/defaultTolerations     [{"key": "a", "operator": "Exists"}]
    scheduler.alpha.kubernetes.io/tolerationsWhitelist   the same form; empty: anything

Pods that are not BestEffort also tolerate nodes under memory pressure.
"""

from collections.abc import Awaitable, Sequence
from typing import Final

import orjson

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.objects.core.quality_of_service import BEST_EFFORT, computed_quality
from kvstack.apimachinery.objects.core.tolerations import NO_SCHEDULE
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import MEMORY_PRESSURE_TAINT
from kvstack.apiserver.policy.admission.namespaces import NamespaceReader
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.plugins.runtime_class import includes, merge_tolerations
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView

_DEFAULTS: Final = "scheduler.alpha.kubernetes.io/defaultTolerations"
_ALLOWED: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
_MEMORY_PRESSURE: Final = {
    "key": MEMORY_PRESSURE_TAINT,
    "operator": "Exists",
    "effect": NO_SCHEDULE,
}


class PodTolerationRestriction(Listed):
    """Adds default tolerations, and refuses others."""

    name = "PodTolerationRestriction"
    calls = calls((CREATE, UPDATE), PODS)

    def __init__(
        self,
        view: ObjectView,
        live: LiveObjects,
        defaults: Sequence[Object] = (),
        allowed: Sequence[Object] = (),
    ) -> None:
        """defaults, allowed: for namespaces without annotations."""
        self._namespaces: Final = NamespaceReader(view, live)
        self._defaults: Final = tuple(defaults)
        self._allowed: Final = tuple(allowed)

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Add tolerations, and check all."""
        return self._namespaces.use(request, self._add)

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Check the tolerations."""
        return self._namespaces.use(request, self._check)

    def _add(self, request: AdmissionRequest, namespace: Object) -> None:
        spec = request.new.get("spec") or {}
        more: list[Object] = []
        if request.operation == CREATE:
            given = _tolerations(namespace, _DEFAULTS)
            more += self._defaults if given is None else given
        if computed_quality(spec) != BEST_EFFORT:
            more.append(dict(_MEMORY_PRESSURE))
        if more:
            merged = merge_tolerations([*(spec.get("tolerations") or ()), *more])
            request.own("spec")["tolerations"] = merged
        self._check(request, namespace)

    def _check(self, request: AdmissionRequest, namespace: Object) -> None:
        tolerations = (request.new.get("spec") or {}).get("tolerations") or ()
        if not tolerations:
            return
        found = _tolerations(namespace, _ALLOWED)
        allowed = self._allowed if found is None else found
        if allowed and not all(any(includes(w, each) for w in allowed) for each in tolerations):
            scope = "cluster" if found is None else "namespace"
            raise status.unknown(
                "pod tolerations (possibly merged with namespace default tolerations) conflict with"
                f" its {scope} whitelist"
            )


def _tolerations(namespace: Object, annotation: str) -> list[Object] | None:
    """Return the tolerations of an annotation; None: absent. Raises ApiError 500 if invalid."""
    text = (namespace["metadata"].get("annotations") or {}).get(annotation)
    if text is None:
        return None
    try:
        found = orjson.loads(text) if text else []
    except ValueError as error:
        raise status.unknown(str(error)) from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise status.unknown(f"annotation {annotation} is not a list of tolerations")
    return found
