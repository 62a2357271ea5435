"""The default roles and bindings, and the reconciliation of existing ones.

    for resource, expected in default_objects():
        step = reconcile(expected, existing)      None: nothing is to do

Nothing is ever removed: missing rules, subjects and selectors are added, labels and annotations
that exist keep their values. A binding to another role is recreated. An object whose annotation
`rbac.authorization.kubernetes.io/autoupdate` is `false` is left alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.policy.authorization.rbac.coverage import missing
from kvstack.apiserver.policy.authorization.rbac.grants import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    ROLE_BINDINGS,
    ROLES,
)
from kvstack.apiserver.policy.authorization.rbac.rules import Rule, compile_rules

DATA: Final = Path(__file__).resolve().parents[2] / "data" / "rbac.json"

CREATE: Final = "create"
UPDATE: Final = "update"
RECREATE: Final = "recreate"
"""Delete, and create the given object."""

_AUTO_UPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
_LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_SELECTOR: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"
_RESOURCES: Final = {
    "ClusterRole": CLUSTER_ROLES,
    "ClusterRoleBinding": CLUSTER_ROLE_BINDINGS,
    "Role": ROLES,
    "RoleBinding": ROLE_BINDINGS,
}


class Step(NamedTuple):
    """The operation on one object."""

    action: str
    object: Object


def default_objects() -> list[tuple[GroupResource, Object]]:
    """Return the default objects in order of creation, roles before bindings.

    Those of a namespace require it to exist.
    """
    rows = orjson.loads(DATA.read_bytes())
    return [(_RESOURCES[row["kind"]], _object(row)) for row in rows]


def default_rules(cluster_role: str) -> tuple[Rule, ...]:
    """Return the compiled rules of a default ClusterRole; KeyError: there is none."""
    roles = {
        obj["metadata"]["name"]: obj for kind, obj in default_objects() if kind == CLUSTER_ROLES
    }
    return compile_rules(roles[cluster_role])


def reconcile(expected: Object, existing: Object | None) -> Step | None:
    """Return the step that makes an existing object (None: absent) contain what is expected."""
    if existing is None:
        return Step(CREATE, expected)
    metadata = existing.get("metadata") or {}
    if (metadata.get("annotations") or {}).get(_AUTO_UPDATE) == "false":
        return None
    if "roleRef" in expected and expected["roleRef"] != existing.get("roleRef"):
        return Step(RECREATE, expected)
    new = dict(existing)
    new["metadata"] = _merged_metadata(expected["metadata"], metadata)
    if "roleRef" in expected:
        _add_subjects(new, expected)
    else:
        _add_rules(new, expected)
        _add_selectors(new, expected)
    return Step(UPDATE, new) if new != existing else None


def _object(row: Mapping[str, Any]) -> Object:
    metadata: Object = {"name": row["name"]}
    if "namespace" in row:
        metadata["namespace"] = row["namespace"]
    metadata["labels"] = {**_LABELS, **row.get("labels", {})}
    metadata["annotations"] = {_AUTO_UPDATE: "true"}
    obj: Object = {"apiVersion": f"{GROUP}/v1", "kind": row["kind"], "metadata": metadata}
    if "roleRef" in row:
        if "subjects" in row:
            obj["subjects"] = row["subjects"]
        obj["roleRef"] = row["roleRef"]
        return obj
    obj["rules"] = row.get("rules")
    if "aggregationRule" in row:
        obj["aggregationRule"] = row["aggregationRule"]
    return obj


def _merged_metadata(expected: Object, existing: Object) -> Object:
    merged = dict(existing)
    for name in ("labels", "annotations"):
        merged[name] = {**expected[name], **(existing.get(name) or {})}
    return merged


def _add_subjects(new: Object, expected: Object) -> None:
    existing: Sequence[Object] = new.get("subjects") or ()
    added: list[Object] = []
    for subject in expected.get("subjects") or ():
        if subject not in existing and subject not in added:
            added.append(subject)
    if added:
        new["subjects"] = [*existing, *added]


def _add_rules(new: Object, expected: Object) -> None:
    existing: Sequence[Object] = new.get("rules") or ()
    lacking = missing(existing, expected["rules"] or ())
    if lacking:
        new["rules"] = [*existing, *lacking]


def _add_selectors(new: Object, expected: Object) -> None:
    if "aggregationRule" not in expected:
        # If the expected role is not aggregated, the existing one no longer is.
        new.pop("aggregationRule", None)
        return
    existing = (new.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    added = [
        selector
        for selector in expected["aggregationRule"]["clusterRoleSelectors"]
        if not any(same(selector, each, _SELECTOR) for each in existing)
    ]
    if added:
        rule = new.get("aggregationRule") or {}
        new["aggregationRule"] = {**rule, "clusterRoleSelectors": [*existing, *added]}
