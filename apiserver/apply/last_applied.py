"""The last-applied annotation, and the migration of `kubectl` to server-side apply.

Client-side `kubectl apply` keeps the applied configuration in an annotation. When the manager
`kubectl` applies server-side, a field whose live value equals that of the annotation was its own:
that is no conflict. Afterwards an existing annotation is updated, so that client-side apply works
later. Other managers leave the annotation unchanged.
"""

from typing import Final

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import go_json
from kvstack.apimachinery.well_known import LAST_APPLIED_ANNOTATION
from kvstack.apiserver.apply.comparison import compare
from kvstack.apiserver.apply.endpoint import Endpoint
from kvstack.apiserver.apply.field_set import FieldSet, difference
from kvstack.apiserver.apply.ownership import fields_of
from kvstack.apiserver.apply.structure import Json
from kvstack.apiserver.apply.validation import mismatches

MANAGER: Final = "kubectl"
ANNOTATIONS_BYTES_MAX: Final = 262144


def owned_by_client(endpoint: Endpoint, live: Object) -> FieldSet | None:
    """Return the fields whose live values equal those of the annotation; None: it is unusable."""
    config = _config(_annotations(live).get(LAST_APPLIED_ANNOTATION))
    if config is None or (config.get("apiVersion"), config.get("kind")) != (
        endpoint.api_version,
        endpoint.kind,
    ):
        return None
    if mismatches(live, endpoint.type) or mismatches(config, endpoint.type):
        return None
    fields = fields_of(config, endpoint.type)
    for part in compare(config, live, endpoint.type, is_strict=endpoint.is_strict):
        fields = difference(fields, part)
    return fields


def has_annotation(obj: Object) -> bool:
    """Return whether the object has a non-empty annotation."""
    return bool(_annotations(obj).get(LAST_APPLIED_ANNOTATION))


def with_annotation(obj: Object, config: Object) -> Object:
    """Return the object with the configuration in its annotation.

    Without the annotation if that would be too long.
    """
    annotations = dict(_annotations(obj))
    annotations[LAST_APPLIED_ANNOTATION] = _text(config)
    if _size(annotations) > ANNOTATIONS_BYTES_MAX:
        del annotations[LAST_APPLIED_ANNOTATION]
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def _annotations(obj: Object) -> dict[str, str]:
    """Return the annotations; a null one as the empty text."""
    meta: Object = obj.get("metadata") or {}
    annotations: dict[str, str | None] = meta.get("annotations") or {}
    return {name: value or "" for name, value in annotations.items()}


def _config(text: str | None) -> Object | None:
    """Return the object in the annotation's text, if it is one."""
    if not text:
        return None
    try:
        config = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return config if isinstance(config, dict) else None


def _text(config: Object) -> str:
    """Return the configuration without the annotation itself, as JSON and a newline."""
    meta: Object = config.get("metadata") or {}
    annotations: Object = meta.get("annotations") or {}
    if annotations:
        # An applied null makes all of them unreadable.
        meta = {name: value for name, value in meta.items() if name != "annotations"}
        if None not in annotations.values():
            meta["annotations"] = {
                n: v for n, v in annotations.items() if n != LAST_APPLIED_ANNOTATION
            }
        config = {**config, "metadata": meta}
    return go_json(_sorted(config)) + "\n"


def _sorted(value: Json) -> Json:
    match value:
        case dict():
            return {name: _sorted(value[name]) for name in sorted(value)}
        case list():
            return [_sorted(each) for each in value]
        case _:
            return value


def _size(annotations: dict[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
