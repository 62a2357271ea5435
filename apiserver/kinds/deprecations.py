"""Warnings about deprecated fields and values.

beta.kubernetes.io/os     deprecated since v1.14; use "kubernetes.io/os" instead
volumes[0].rbd            deprecated in v1.28, non-functional in v1.31+
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kvstack.apimachinery.objects.field_errors import child, index, key
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_value
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import (
    BETA_ARCH_LABEL,
    BETA_INSTANCE_TYPE_LABEL,
    BETA_OS_LABEL,
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
    MASTER_LABEL,
)

NODE_LABELS: Final = {
    BETA_ARCH_LABEL: 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    BETA_OS_LABEL: 'deprecated since v1.14; use "kubernetes.io/os" instead',
    BETA_REGION_LABEL: 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    BETA_ZONE_LABEL: 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    BETA_INSTANCE_TYPE_LABEL: (
        'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead'
    ),
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": (
        "deprecated since v1.22; use Taints and Tolerations instead"
    ),
    MASTER_LABEL: 'use "node-role.kubernetes.io/control-plane" instead',
}
"""Current names of deprecated node labels."""
VOLUME_DEPRECATIONS: Final = {
    "photonPersistentDisk": (
        "photonPersistentDisk",
        "deprecated in v1.11, non-functional in v1.16+",
    ),
    "gitRepo": ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "flocker": ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    "storageos": ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    "quobyte": ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "cephfs": ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    "rbd": ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
}
"""Deprecated volume sources: their names and texts in warnings."""


def deprecated_node_label(name: str) -> str:
    """Return the replacement of a deprecated node label; "" if it is not deprecated."""
    return NODE_LABELS.get(name, "")


def node_selector_term_warnings(
    term: Object, path: str, *, checks_values: bool = False
) -> Iterable[str]:
    """Yield the warnings about a term of a node selector."""
    expressions_path = child(path, "matchExpressions")
    for position, expression in enumerate(term.get("matchExpressions") or ()):
        expression_path = index(expressions_path, position)
        name = expression.get("key", "")
        message = deprecated_node_label(name)
        if message:
            yield f"{child(expression_path, 'key')}: {name} is {message}"
        if checks_values:
            values_path = child(expression_path, "values")
            for number, value in enumerate(expression.get("values") or ()):
                for wrong in check_label_value(value):
                    yield f"{index(values_path, number)}: {value} is invalid, {wrong}"


def claim_warnings(spec: Object, path: str) -> Iterable[str]:
    """Yield the warnings about the spec of a PersistentVolumeClaim."""
    resources = spec.get("resources") or {}
    for list_name in ("requests", "limits"):
        amounts = resources.get(list_name) or {}
        if "storage" in amounts:
            amounts_path = child(path, "resources", list_name)
            yield from fractional_bytes(amounts, amounts_path, ("storage",))


def fractional_bytes(
    amounts: Mapping[str, str] | None,
    path: str,
    names: Iterable[str] = ("memory", "ephemeral-storage"),
) -> Iterable[str]:
    """Yield the warnings about byte quantities that are not whole."""
    for name in names if amounts else ():
        amount = (amounts or {}).get(name)
        if amount is not None and parse(amount).milli_value() % 1000:
            yield (
                f"{key(path, name)}: fractional byte value {quote(amount)} is invalid,"
                " must be an integer"
            )
