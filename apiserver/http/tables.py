"""Objects as rows of a Table, as kubectl shows them.

    {"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{…},
     "columnDefinitions":[{"name":"Name", …}],"rows":[{"cells":["web", …],"object":{…}}]}

Cells come from the hooks of the kind; kinds without hooks have name and creation time. The client
chooses the `object` of a row: nothing, the metadata, or the object.
"""

from collections.abc import Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError, bad_request
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.unchanged import keeps
from kvstack.apimachinery.schema.decode import decode
from kvstack.apimachinery.schema.resource import Column
from kvstack.apiserver.verbs.endpoint import Endpoint

NONE, METADATA, OBJECT = "None", "Metadata", "Object"
INCLUDES: Final = frozenset((NONE, METADATA, OBJECT))


def include_of(text: str) -> str:
    """Return what rows contain, from the parameter `includeObject`; raises ApiError."""
    if not text:
        return METADATA
    if text not in INCLUDES:
        raise _bad_include(text)
    return text


def _bad_include(text: str) -> ApiError:
    return bad_request(
        f'Unable to convert to Table as requested: includeObject: Invalid value: "{text}": must be'
        " 'Metadata', 'Object', 'None', or empty"
    )


@keeps(1)
def table(
    endpoint: Endpoint,
    objects: Sequence[Object],
    metadata: Object,
    *,
    version: str,
    include: str,
    now: float,
    with_columns: bool = True,
    is_list: bool = False,
    cells: list[list[Any]] | None = None,
) -> Object:
    """Return a Table of objects in an endpoint's version; now: seconds since 1970.

    cells: of the rows, if they do not come from the objects.
    """
    if cells is None:
        cells = [_cells(endpoint, each, now) for each in objects]
    adjust = endpoint.strategy.table.adjust_list
    order = endpoint.strategy.table.order
    if is_list and adjust is not None:
        adjust(objects, cells)
    rows = list(zip(cells, objects, strict=True))
    if is_list and order is not None:
        rows.sort(key=lambda each: order(each[1]))
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
        "columnDefinitions": columns(endpoint.columns) if with_columns else None,
        "rows": [_row(endpoint, row, each, include, version) for row, each in rows],
    }


def _row(endpoint: Endpoint, cells: list[Any], obj: Object, include: str, version: str) -> Object:
    row: Object = {"cells": cells}
    conditions = endpoint.strategy.table.conditions
    if conditions is not None and (found := conditions(obj)):
        row["conditions"] = found
    row["object"] = _included(endpoint, obj, include, version)
    return row


def blank_cells(endpoint: Endpoint, now: float) -> list[list[Any]]:
    """Return the row of an empty object."""
    blank = decode({"metadata": {}}, endpoint.row.type).obj
    endpoint.default(blank)
    blank.setdefault("metadata", {}).setdefault("name", "")
    return [_cells(endpoint, blank, now)]


def columns(declared: Sequence[Column]) -> list[Object]:
    """Return columns as a Table has them."""
    return [
        {
            "name": each.name,
            "type": each.type,
            "format": each.format,
            "description": each.description,
            "priority": each.priority,
        }
        for each in declared
    ]


def partial(endpoint: Endpoint, obj: Object, version: str) -> Object:
    """Return the metadata of an object of an endpoint."""
    metadata = obj.get("metadata") or {}
    hidden = endpoint.main.table.hidden_annotations
    if hidden and not hidden.isdisjoint(metadata.get("annotations") or ()):
        annotations = {n: each for n, each in metadata["annotations"].items() if n not in hidden}
        metadata = {**metadata, "annotations": annotations}
        if not annotations:
            del metadata["annotations"]
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": metadata,
    }


def _cells(endpoint: Endpoint, obj: Object, now: float) -> list[Any]:
    cells = endpoint.cells
    if cells is not None:
        is_own = endpoint.is_hub or endpoint.row.is_custom
        if not is_own and endpoint.kind == endpoint.row.kind:
            obj = endpoint.to_hub(json_text.copied(obj))  # the row contains the given one
        return cells(obj, now)
    metadata = obj.get("metadata") or {}
    return [metadata.get("name", ""), metadata.get("creationTimestamp")]


def _included(endpoint: Endpoint, obj: Object, include: str, version: str) -> Object | None:
    if include == NONE:
        return None
    return obj if include == OBJECT else partial(endpoint, obj, version)
