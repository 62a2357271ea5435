"""PodNodeSelector: pods of a namespace are restricted to nodes with certain labels.

    namespace annotation scheduler.alpha.kubernetes.io/node-selector: env=test
    → spec.nodeSelector: {env: test, …what the pod says}

The configuration has a default selector for namespaces without the annotation, and per namespace
the labels that its pods may select.
"""

from collections.abc import Awaitable, Mapping
from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key, check_label_value
from kvstack.apiserver.policy.admission.namespaces import NamespaceReader
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView

DEFAULT_NAME: Final = "clusterDefaultNodeSelector"
"""The key of the default selector in the configuration."""
_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/node-selector"
_CONFLICT: Final = "pod node label selector conflicts with its namespace node label selector"
_NOT_LISTED: Final = "pod node label selector labels conflict with its namespace whitelist"


class PodNodeSelector(Listed):
    """Merges the selector of the namespace into pods."""

    name = "PodNodeSelector"
    calls = calls((CREATE,), PODS)

    def __init__(
        self, view: ObjectView, live: LiveObjects, selectors: Mapping[str, str] | None = None
    ) -> None:
        """selectors: by namespace, and the default."""
        self._namespaces: Final = NamespaceReader(view, live)
        self._selectors: Final = dict(selectors or {})

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Merge the selector, and check the result."""
        return self._namespaces.use(request, self._merge)

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Check that the pod's selector is allowed."""
        return self._namespaces.use(request, self._check)

    def _merge(self, request: AdmissionRequest, namespace: Object) -> None:
        wanted = self._selector_of(namespace)
        given = (request.new.get("spec") or {}).get("nodeSelector") or {}
        if _conflicts(wanted, given):
            raise _forbidden(request, _CONFLICT)
        if wanted:
            request.own("spec")["nodeSelector"] = {**wanted, **given}
        self._check(request, namespace)

    def _check(self, request: AdmissionRequest, namespace: Object) -> None:
        given = (request.new.get("spec") or {}).get("nodeSelector") or {}
        if _conflicts(self._selector_of(namespace), given):
            raise _forbidden(request, _CONFLICT)
        allowed = labels_of(self._selectors.get(request.namespace, ""))
        if allowed and not given.items() <= allowed.items():
            raise _forbidden(request, _NOT_LISTED)

    def _selector_of(self, namespace: Object) -> dict[str, str]:
        annotations = namespace["metadata"].get("annotations") or {}
        return labels_of(annotations.get(_ANNOTATION, self._selectors.get(DEFAULT_NAME, "")))


def labels_of(text: str) -> dict[str, str]:
    """Return the labels of `a=b, c=d`; raises ApiError 500, as upstream."""
    labels: dict[str, str] = {}
    for each in text.split(",") if text else ():
        parts = each.split("=")
        if len(parts) != 2:
            raise status.unknown(f"invalid selector: [{' '.join(parts)}]")
        name, value = parts[0].strip(), parts[1].strip()
        wrong = check_label_key(name) + check_label_value(value)
        if wrong:
            raise status.unknown(f"invalid selector: {each}: {'; '.join(wrong)}")
        labels[name] = value
    return labels


def _conflicts(left: Mapping[str, str], right: Mapping[str, str]) -> bool:
    return any(name in right and right[name] != value for name, value in left.items())


def _forbidden(request: AdmissionRequest, message: str) -> status.ApiError:
    return status.forbidden(PODS, request.new["metadata"].get("name", ""), message)
