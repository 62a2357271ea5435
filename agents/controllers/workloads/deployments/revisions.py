"""The ReplicaSet with a Deployment's template, and the history of the others.

    new, old = split(deployment, sets)
    annotations = new_set_annotations(deployment, new, revision)   → None: nothing to change

A ReplicaSet is the new one if its template is the Deployment's, but for the label of its hash; the
hash itself never decides.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kvstack.agents.controllers.ownership import controller_reference
from kvstack.agents.controllers.workloads.deployments.counts import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    bounds,
    creation_order,
)
from kvstack.agents.controllers.workloads.hashes import template_hash
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int
from kvstack.apimachinery.well_known import LAST_APPLIED_ANNOTATION

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
REVISION_HISTORY: Final = "deployment.kubernetes.io/revision-history"
ROLLBACK_TO: Final = "deprecated.deployment.rollback.to"

_NOT_COPIED: Final = frozenset(
    (
        LAST_APPLIED_ANNOTATION,
        REVISION,
        REVISION_HISTORY,
        DESIRED_REPLICAS,
        MAX_REPLICAS,
        ROLLBACK_TO,
    )
)
_HISTORY_MAX: Final = 2000
_NAME_MAX: Final = 253


def is_copied(annotation: str) -> bool:
    """Whether an annotation is copied from a Deployment to its new ReplicaSet."""
    return annotation not in _NOT_COPIED


def without_hash(template: Object) -> Object:
    """Return a template without the label of its hash."""
    meta = template.get("metadata") or {}
    labels = meta.get("labels") or {}
    if HASH_LABEL not in labels:
        return template
    rest = {name: value for name, value in labels.items() if name != HASH_LABEL}
    meta = {name: value for name, value in meta.items() if name != "labels"}
    if rest:
        meta["labels"] = rest
    return {**template, "metadata": meta}


def has_template(replica_set: Object, deployment: Object) -> bool:
    """Whether a ReplicaSet has the template of a Deployment."""
    wanted = without_hash(deployment["spec"]["template"])
    return without_hash(replica_set["spec"]["template"]) == wanted


def split(deployment: Object, sets: Iterable[Object]) -> tuple[Object | None, list[Object]]:
    """Return the new ReplicaSet (the oldest that has the template), and all others by age."""
    ordered = sorted(sets, key=creation_order)
    new = next((each for each in ordered if has_template(each, deployment)), None)
    return new, [each for each in ordered if each is not new]


def revision_of(obj: Object) -> int | None:
    """Return the revision of a ReplicaSet; 0: it has none; None: it is not a number."""
    text = (obj["metadata"].get("annotations") or {}).get(REVISION)
    if text is None:
        return 0
    try:
        return parse_int(text)
    except NumberError:
        return None


def max_revision(sets: Iterable[Object]) -> int:
    """Return the highest revision, or 0."""
    return max((revision_of(each) or 0 for each in sets), default=0)


def last_revision(sets: Iterable[Object]) -> int:
    """Return the revision before the highest, or 0."""
    known = sorted(revision for each in sets if (revision := revision_of(each)) is not None)
    return known[-2] if len(known) > 1 else 0


def by_revision(sets: Sequence[Object]) -> list[Object]:
    """Return sets by revision, the lowest first."""
    return sorted(sets, key=lambda each: (revision_of(each) or 0, creation_order(each)))


def scale_annotations(deployment: Object) -> dict[str, str]:
    """Return the annotations of a ReplicaSet about the size of the Deployment."""
    limits = bounds(deployment)
    return {DESIRED_REPLICAS: str(limits.replicas), MAX_REPLICAS: str(limits.most)}


def new_set_annotations(
    deployment: Object, replica_set: Object, revision: int
) -> dict[str, str] | None:
    """Return the annotations of the new ReplicaSet; None: they are as they should be."""
    before: dict[str, str] = replica_set["metadata"].get("annotations") or {}
    copied = deployment["metadata"].get("annotations") or {}
    after = {**before, **{name: text for name, text in copied.items() if is_copied(name)}}
    own = revision_of(replica_set)
    if own is not None and own < revision:
        after[REVISION] = str(revision)
        if REVISION in before:
            history = _longer_history(before.get(REVISION_HISTORY, ""), before[REVISION])
            if history is not None:
                after[REVISION_HISTORY] = history
    return None if after == before else after


def _longer_history(history: str, revision: str) -> str | None:
    """Return a history with one revision more, without the oldest if it grew too long."""
    if not history:
        return revision
    parts = [*history.split(","), revision]
    while parts and len(",".join(parts)) > _HISTORY_MAX:
        parts.pop(0)
    return ",".join(parts) if parts else None


def new_set(deployment: Object, revision: int) -> Object:
    """Return a ReplicaSet of a Deployment's template, without replicas."""
    spec = deployment["spec"]
    meta = deployment["metadata"]
    template = spec["template"]
    hashed = template_hash(template, (deployment.get("status") or {}).get("collisionCount"))
    template_meta = template.get("metadata") or {}
    labels = {**(template_meta.get("labels") or {}), HASH_LABEL: hashed}
    selector = spec["selector"]
    replica_set: Object = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name'][: _NAME_MAX - 1 - len(hashed)]}-{hashed}",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": {
            "replicas": 0,
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: hashed},
            },
            "template": {**template, "metadata": {**template_meta, "labels": labels}},
        },
    }
    if spec.get("minReadySeconds"):
        replica_set["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    replica_set["metadata"]["annotations"] = {
        **(new_set_annotations(deployment, replica_set, revision) or {}),
        **scale_annotations(deployment),
    }
    return replica_set
