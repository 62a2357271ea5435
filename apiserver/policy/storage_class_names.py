"""Which StorageClass a claim is of."""

from collections.abc import Mapping
from typing import Any

from kvstack.apiserver.kinds.storage.class_annotation import CLASS_ANNOTATION


def class_of_claim(claim: Mapping[str, Any]) -> str:
    """Return the class that a claim names, by annotation or else by field; empty: none."""
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    if CLASS_ANNOTATION in annotations:
        of_annotation: str = annotations[CLASS_ANNOTATION]
        return of_annotation
    return (claim.get("spec") or {}).get("storageClassName") or ""
