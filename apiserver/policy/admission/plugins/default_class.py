"""DefaultStorageClass and DefaultIngressClass: claims and Ingresses get the default class.

Of several default classes the newest counts, and of equally old ones the first by name. An object
that names a class, even the empty one (""), keeps it.
"""

from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.objects.core.group_resources import (
    CLAIMS,
    INGRESS_CLASSES,
    INGRESSES,
    STORAGE_CLASSES,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    BETA_DEFAULT_STORAGE_CLASS_ANNOTATION,
    DEFAULT_INGRESS_CLASS_ANNOTATION,
    DEFAULT_STORAGE_CLASS_ANNOTATION,
    INGRESS_CLASS_ANNOTATION,
    STORAGE_CLASS_ANNOTATION,
)
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import ObjectView

_STORAGE_DEFAULTS: Final = (
    DEFAULT_STORAGE_CLASS_ANNOTATION,
    BETA_DEFAULT_STORAGE_CLASS_ANNOTATION,
)
_INGRESS_DEFAULTS: Final = (DEFAULT_INGRESS_CLASS_ANNOTATION,)


class DefaultStorageClass(Listed):
    """Gives new claims the default class."""

    name = "DefaultStorageClass"
    calls = calls((CREATE,), CLAIMS)

    def __init__(self, view: ObjectView) -> None:
        self._view: Final = view

    def mutate(self, request: AdmissionRequest) -> None:
        """Set the class of a claim that names none."""
        classes = self._view.list(STORAGE_CLASSES)
        _set_class(
            request, "storageClassName", STORAGE_CLASS_ANNOTATION, classes, _STORAGE_DEFAULTS
        )


class DefaultIngressClass(Listed):
    """Gives new Ingresses the default class."""

    name = "DefaultIngressClass"
    calls = calls((CREATE,), INGRESSES)

    def __init__(self, view: ObjectView) -> None:
        self._view: Final = view

    def mutate(self, request: AdmissionRequest) -> None:
        """Set the class of an Ingress that names none."""
        classes = self._view.list(INGRESS_CLASSES)
        _set_class(
            request, "ingressClassName", INGRESS_CLASS_ANNOTATION, classes, _INGRESS_DEFAULTS
        )


def _set_class(
    request: AdmissionRequest,
    member: str,
    annotation: str,
    classes: Iterable[Object],
    marks: Iterable[str],
) -> None:
    if (request.new.get("spec") or {}).get(member) is not None:
        return
    if annotation in (request.new["metadata"].get("annotations") or {}):
        return
    default = _default(classes, marks)
    if default:
        request.own("spec")[member] = default


def _default(classes: Iterable[Object], marks: Iterable[str]) -> str:
    newest, name = "", ""
    # The view lists by name, so the first of equal age stays.
    for each in classes:
        metadata = each["metadata"]
        annotations = metadata.get("annotations") or {}
        if not any(annotations.get(mark) == "true" for mark in marks):
            continue
        created = metadata.get("creationTimestamp") or ""
        if not name or created > newest:
            newest, name = created, metadata["name"]
    return name
