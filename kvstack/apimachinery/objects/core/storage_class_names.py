"""The StorageClass of a claim, by its field or by the older annotation."""

from collections.abc import Mapping
from typing import Any, Final

CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"


def class_of_claim(claim: Mapping[str, Any]) -> str:
    """Return the class that a claim names, by annotation or else by field; empty: none."""
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    if CLASS_ANNOTATION in annotations:
        of_annotation: str = annotations[CLASS_ANNOTATION]
        return of_annotation
    return (claim.get("spec") or {}).get("storageClassName") or ""
