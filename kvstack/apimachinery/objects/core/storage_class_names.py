"""The StorageClass of a claim, by its field or by the older annotation."""

from collections.abc import Mapping
from typing import Any

from kvstack.apimachinery.well_known import STORAGE_CLASS_ANNOTATION


def class_of_claim(claim: Mapping[str, Any]) -> str:
    """Return the class that a claim names, by annotation or else by field; empty: none."""
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    if STORAGE_CLASS_ANNOTATION in annotations:
        of_annotation: str = annotations[STORAGE_CLASS_ANNOTATION]
        return of_annotation
    return (claim.get("spec") or {}).get("storageClassName") or ""
