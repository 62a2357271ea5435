"""Pods and claims of an ordinal.

new_pod(stateful_set, template, "web-7d9c", 0)   → the pod web-0
new_claims(stateful_set, 0)                      → {"data": the claim data-web-0}
"""

from typing import Final

from kvstack.agents.controllers.workloads.history import REVISION_LABEL
from kvstack.agents.controllers.workloads.pod_rules import from_template
from kvstack.apimachinery.objects.json_object import Object

_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_INT_MAX: Final = 2**31 - 1


def parent_and_ordinal(pod: Object) -> tuple[str, int]:
    """Return the name of the set and the ordinal that a pod's name has; -1: it has none."""
    parent, _, digits = pod["metadata"]["name"].rpartition("-")
    if not (digits.isascii() and digits.isdecimal()):
        return "", -1
    number = int(digits)
    return parent, number if number <= _INT_MAX else -1


def ordinal_of(pod: Object) -> int:
    """Return a pod's ordinal."""
    return parent_and_ordinal(pod)[1]


def start_of(stateful_set: Object) -> int:
    """Return the first ordinal."""
    start: int = (stateful_set["spec"].get("ordinals") or {}).get("start", 0)
    return start


def replicas_of(stateful_set: Object) -> int:
    """Return how many pods there are to be."""
    replicas: int = stateful_set["spec"].get("replicas", 1)
    return replicas


def is_in_range(stateful_set: Object, ordinal: int) -> bool:
    """Whether an ordinal is in the set's range."""
    return 0 <= ordinal - start_of(stateful_set) < replicas_of(stateful_set)


def revision_of(pod: Object) -> str:
    """Return the name of the revision that a pod was made from."""
    revision: str = (pod["metadata"].get("labels") or {}).get(REVISION_LABEL, "")
    return revision


def is_created(pod: Object) -> bool:
    """Whether a pod exists in the API."""
    return bool((pod.get("status") or {}).get("phase"))


def claim_name(stateful_set: Object, template: Object, ordinal: int) -> str:
    """Return the name of a claim."""
    return f"{template['metadata']['name']}-{stateful_set['metadata']['name']}-{ordinal}"


def claim_names(stateful_set: Object, ordinal: int) -> list[str]:
    """Return the names of all claims of an ordinal."""
    templates = stateful_set["spec"].get("volumeClaimTemplates") or ()
    return [claim_name(stateful_set, template, ordinal) for template in templates]


def new_claims(stateful_set: Object, ordinal: int) -> dict[str, Object]:
    """Return new claims of an ordinal by the names of their templates."""
    spec = stateful_set["spec"]
    claims: dict[str, Object] = {}
    for template in spec.get("volumeClaimTemplates") or ():
        meta = dict(template["metadata"])
        meta["name"] = claim_name(stateful_set, template, ordinal)
        meta["namespace"] = stateful_set["metadata"]["namespace"]
        labels = {
            **(meta.get("labels") or {}),
            **((spec.get("selector") or {}).get("matchLabels") or {}),
        }
        if labels:
            meta["labels"] = labels
        claims[template["metadata"]["name"]] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": meta,
            "spec": template["spec"],
        }
    return claims


def new_pod(stateful_set: Object, template: Object, revision: str, ordinal: int) -> Object:
    """Return a new pod of an ordinal; revision: the name of the template's revision."""
    pod = with_identity(_named(stateful_set, template, ordinal))
    pod["metadata"]["labels"][REVISION_LABEL] = revision
    pod["spec"]["hostname"] = pod["metadata"]["name"]
    if stateful_set["spec"].get("serviceName"):
        pod["spec"]["subdomain"] = stateful_set["spec"]["serviceName"]
    return with_storage(stateful_set, pod)


def _named(stateful_set: Object, template: Object, ordinal: int) -> Object:
    pod = from_template(template, stateful_set)
    meta = stateful_set["metadata"]
    pod["metadata"]["name"] = f"{meta['name']}-{ordinal}"
    pod["metadata"]["namespace"] = meta["namespace"]
    pod["spec"] = dict(pod["spec"])
    return pod


def has_identity(pod: Object) -> bool:
    """Whether a pod has the labels of its ordinal."""
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get(_NAME_LABEL) == pod["metadata"]["name"])


def with_identity(pod: Object) -> Object:
    """Return a pod with the labels of its ordinal."""
    meta = pod["metadata"]
    labels = {
        **(meta.get("labels") or {}),
        _NAME_LABEL: meta["name"],
        _INDEX_LABEL: str(ordinal_of(pod)),
    }
    return {**pod, "metadata": {**meta, "labels": labels}}


def has_storage(stateful_set: Object, pod: Object) -> bool:
    """Whether a pod's volumes are the claims of its ordinal."""
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    ordinal = ordinal_of(pod)
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        volume = volumes.get(template["metadata"]["name"]) or {}
        claim = volume.get("persistentVolumeClaim") or {}
        if claim.get("claimName") != claim_name(stateful_set, template, ordinal):
            return False
    return True


def with_storage(stateful_set: Object, pod: Object) -> Object:
    """Return a pod with the claims of its ordinal as volumes."""
    ordinal = ordinal_of(pod)
    claims = {
        template["metadata"]["name"]: claim_name(stateful_set, template, ordinal)
        for template in stateful_set["spec"].get("volumeClaimTemplates") or ()
    }
    volumes = [
        {"name": name, "persistentVolumeClaim": {"claimName": claim}}
        for name, claim in claims.items()
    ]
    volumes += [each for each in pod["spec"].get("volumes") or () if each["name"] not in claims]
    if not volumes:
        return pod
    return {**pod, "spec": {**pod["spec"], "volumes": volumes}}
