"""Selectors of nodes, over all nodes at once.

    selected(cluster, {"nodeSelectorTerms": [...]})   → a bool a slot

A requirement is decided once a value of its label, not once a node; whole selectors are remembered
until a node changes. An empty term selects nothing; what is invalid selects nothing either.
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import orjson

from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import BoolArray
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int
from kvstack.apimachinery.objects.text.json_text import exact

if TYPE_CHECKING:
    from collections.abc import Sequence


_NAME_FIELD: Final = "metadata.name"


def required(cluster: Cluster, spec: Object) -> BoolArray | None:
    """Return which nodes a pod's nodeSelector and required node affinity allow; None: all."""
    plain = spec.get("nodeSelector")
    affinity = required_affinity(spec)
    if not plain and affinity is None:
        return None
    mask = cluster.is_valid
    if plain:
        expressions = [
            {"key": key, "operator": "In", "values": [value]} for key, value in plain.items()
        ]
        mask = mask & term(cluster, {"matchExpressions": expressions})
    if affinity is not None:
        mask = mask & selected(cluster, affinity)
    return mask


def required_affinity(spec: Object) -> Object | None:
    """Return the node selector of a pod's required node affinity."""
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")


def selected(cluster: Cluster, selector: Object) -> BoolArray:
    """Return which nodes one of the terms of a NodeSelector selects."""
    mask: BoolArray = np.zeros(cluster.size, dtype=np.bool_)
    for each in selector.get("nodeSelectorTerms") or ():
        mask = mask | term(cluster, each)
    return mask


def term(cluster: Cluster, one: Object) -> BoolArray:
    """Return which nodes a term selects."""
    key = orjson.dumps(one)
    known = cluster.cached_masks.get(key)
    if known is None:
        known = cluster.cached_masks[exact(key)] = _term(cluster, one)
    return known


def _term(cluster: Cluster, one: Object) -> BoolArray:
    expressions: Sequence[Object] = one.get("matchExpressions") or ()
    fields: Sequence[Object] = one.get("matchFields") or ()
    if not expressions and not fields:
        return np.zeros(cluster.size, dtype=np.bool_)
    mask = cluster.is_valid.copy()
    for each in expressions:
        mask &= _expression(cluster, each)
    for each in fields:
        mask &= _field(cluster, each)
    return mask


def _expression(cluster: Cluster, one: Object) -> BoolArray:
    ids, values = cluster.label(one["key"])
    operator, texts = one["operator"], list(one.get("values") or ())
    if operator == "Exists":
        return ids >= 0
    if operator == "DoesNotExist":
        return ids < 0
    table = np.zeros(len(values.texts) + 1, dtype=np.bool_)  # the last: nodes without the label
    if operator in ("In", "NotIn"):
        for text in texts:
            if text in values.ids:
                table[values.ids[text]] = True
        if operator == "NotIn":
            table = ~table
    elif operator in ("Gt", "Lt") and len(texts) == 1:
        bound = _integer(texts[0])
        for text, position in values.ids.items():
            number = _integer(text)
            if number is not None and bound is not None:
                table[position] = number > bound if operator == "Gt" else number < bound
    found: BoolArray = table[ids]
    return found


def _field(cluster: Cluster, one: Object) -> BoolArray:
    mask: BoolArray = np.zeros(cluster.size, dtype=np.bool_)
    texts = list(one.get("values") or ())
    if one["key"] != _NAME_FIELD or one["operator"] not in ("In", "NotIn") or len(texts) != 1:
        return mask
    slot = cluster.slots.get(texts[0])
    if slot is not None:
        mask[slot] = True
    return mask if one["operator"] == "In" else ~mask


def _integer(text: str) -> int | None:
    try:
        return parse_int(text)
    except NumberError:
        return None
