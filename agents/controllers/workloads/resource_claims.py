"""Resource claims: created for pods from templates, reserved for running pods, freed when unused.

    pod names a template ─► ResourceClaim p-dev-x7k2q, recorded in the pod's status
    pod is bound, claim allocated ─► reservedFor the pod
    pod has ended or is gone ─► no longer reserved ─► not allocated, deleted if made for the pod

Keys: `pod/<namespace>/<name>`, `claim/<namespace>/<name>`.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.ownership import controller_of, is_deleting
from kvstack.agents.reconcile.plan import (
    BaseController,
    Create,
    Delete,
    Get,
    Identity,
    Index,
    Outcome,
    Patch,
    Plan,
    Record,
    Step,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import APPLY_PATCH
from kvstack.apimachinery.well_known import DEVICE_CLAIM_FINALIZER

_MANAGER: Final = "ResourceClaimController"
_POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
_BY_CLAIM: Final = "resource claim of pod"
_BY_TEMPLATE: Final = "resource claim template of pod"
_BY_OWNER: Final = "pod of resource claim"
_BASE_LENGTH_MAX: Final = 57
"""The maximum base of a generated name, which has five characters more."""
_CONSUMERS_MAX: Final = 256


class NoClaimError(Exception):
    """A claim of a pod cannot be made now."""


class ClaimReference(NamedTuple):
    """A pod's reference to one of its claims."""

    name: str
    """Empty: none is needed."""
    is_generated: bool
    is_known: bool = True
    """Whether the claim of the reference was determined."""


class ResourceClaimController(BaseController):
    """Keeps claims of pods."""

    workers = 50

    def __init__(self) -> None:
        """Look at claims, templates and the pods that use them."""
        self.identity: Identity = Identity(
            "resourceclaim-controller",
            "resource-claim-controller",
            "resource_claim",
        )
        self.watches: Sequence[Watch] = (
            Watch(PODS, _keys_of_pod),
            Watch(RESOURCE_CLAIMS, _keys_of_claim),
            Watch(RESOURCE_CLAIM_TEMPLATES, _keys_of_template),
        )
        self.indexes = (
            Index(PODS, _BY_CLAIM, _claims_of),
            Index(PODS, _BY_TEMPLATE, _templates_of),
            Index(RESOURCE_CLAIMS, _BY_OWNER, _owners_of),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for a pod or a claim."""
        what, _, name = key.partition("/")
        if what == "claim":
            claim = view.get(RESOURCE_CLAIMS, name)
            if claim is not None:
                yield from _release(claim, view)
            return None
        pod = view.get(PODS, name)
        if pod is not None and not is_deleting(pod):
            is_changed = yield from _make_claims(pod, view)
            if pod["spec"].get("nodeName") and not is_changed:
                yield from _reserve(pod, view)
        return None


# Claims of a pod.


def _make_claims(pod: Object, view: View) -> Generator[Step, list[Outcome], bool]:
    """Create missing claims, and record them in the pod's status; return whether there were any."""
    new: dict[str, str] = {}
    for reference in pod["spec"].get("resourceClaims") or ():
        try:
            name = yield from _made_for(pod, reference, view)
        except Exception as error:
            message = f"PodResourceClaim {reference['name']}: {error}"
            yield [Record(pod, "Warning", "FailedResourceClaimCreation", message)]
            raise
        if name:
            new[reference["name"]] = name
    if not new:
        return False
    known = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    name_by_reference = {
        each["name"]: each["resourceClaimName"] for each in known if _name_in(each)
    } | new
    rows = [
        {"name": name, "resourceClaimName": name_by_reference[name]}
        for name in sorted(name_by_reference)
    ]
    meta = pod["metadata"]
    body = {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
        "status": {"resourceClaimStatuses": rows},
    }
    patch = Patch(
        PODS, meta["namespace"], meta["name"], body, APPLY_PATCH, "status", _MANAGER, force=True
    )
    yield from do(patch)
    return True


def _made_for(pod: Object, reference: Object, view: View) -> Generator[Step, list[Outcome], str]:
    """Return the name of a claim that is new to the pod's status; empty: there is none."""
    named = _named(pod, reference)
    namespace = pod["metadata"]["namespace"]
    if named.is_known and not named.name:
        return ""
    if named.name:
        claim = view.get(RESOURCE_CLAIMS, f"{namespace}/{named.name}")
        if claim is None:
            [found] = yield [Get(RESOURCE_CLAIMS, namespace, named.name)]
            claim = None if found.is_not_found else found.result()
        if claim is not None and (not named.is_generated or _is_for(claim, pod)):
            return ""
    template_name = reference.get("resourceClaimTemplateName")
    if not template_name:
        return ""
    # It may exist although the pod's status does not name it: that update failed.
    owner = f"{namespace}/{pod['metadata']['uid']}"
    for claim in view.by_index(RESOURCE_CLAIMS, _BY_OWNER, owner):
        if (claim["metadata"].get("annotations") or {}).get(_POD_CLAIM) == reference["name"]:
            return str(claim["metadata"]["name"])
    template = view.get(RESOURCE_CLAIM_TEMPLATES, f"{namespace}/{template_name}")
    if template is None:
        raise NoClaimError(
            f'resource claim template "{template_name}":'
            f' resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
        )
    made = yield from do(Create(RESOURCE_CLAIMS, namespace, _new_claim(pod, reference, template)))
    return str(made["metadata"]["name"])


def _new_claim(pod: Object, reference: Object, template: Object) -> Object:
    meta = pod["metadata"]
    wished = template["spec"].get("metadata") or {}
    metadata: Object = {
        "generateName": _generate_name(meta["name"], reference["name"]),
        "annotations": {**(wished.get("annotations") or {}), _POD_CLAIM: reference["name"]},
        "ownerReferences": [
            {
                "apiVersion": PODS.api_version,
                "kind": PODS.kind,
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
            }
        ],
    }
    if wished.get("labels"):
        metadata["labels"] = wished["labels"]
    return {
        "apiVersion": RESOURCE_CLAIMS.api_version,
        "kind": RESOURCE_CLAIMS.kind,
        "metadata": metadata,
        "spec": template["spec"].get("spec") or {},
    }


def _generate_name(pod: str, claim: str) -> str:
    """Return what a name begins with; of long names both parts are cut in proportion."""
    whole = f"{pod}-{claim}-"
    if len(whole) <= _BASE_LENGTH_MAX:
        return whole
    first, second = (each[: len(each) * _BASE_LENGTH_MAX // len(whole)] for each in (pod, claim))
    return f"{first}-{second}"


def _reserve(pod: Object, view: View) -> Generator[Step, list[Outcome], None]:
    """Reserve allocated claims for a pod that was bound without a reservation."""
    meta = pod["metadata"]
    for reference in pod["spec"].get("resourceClaims") or ():
        named = _named(pod, reference)
        if not named.name:
            continue
        claim = view.get(RESOURCE_CLAIMS, f"{meta['namespace']}/{named.name}")
        if claim is None:
            return
        status = claim.get("status") or {}
        consumers = status.get("reservedFor") or []
        if not status.get("allocation") or len(consumers) >= _CONSUMERS_MAX:
            continue
        if any(each.get("uid") == meta["uid"] for each in consumers):
            continue
        new = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
        status = {**status, "reservedFor": [*consumers, new]}
        yield from do(Update(RESOURCE_CLAIMS, {**claim, "status": status}, "status"))


# Unused claims.


def _release(claim: Object, view: View) -> Generator[Step, list[Outcome], None]:
    """Remove reservations of pods that will not run, and unused allocations."""
    status = claim.get("status") or {}
    consumers = status.get("reservedFor") or []
    rest = yield from _remaining(consumers, claim, view)
    is_held = DEVICE_CLAIM_FINALIZER in (claim["metadata"].get("finalizers") or ())
    if len(rest) < len(consumers):
        changed = {name: value for name, value in status.items() if name != "reservedFor"}
        if rest:
            changed["reservedFor"] = rest
        elif is_held:
            changed.pop("allocation", None)
        claim = yield from do(Update(RESOURCE_CLAIMS, {**claim, "status": changed}, "status"))
        if is_held and not changed.get("allocation"):
            yield from _let_go(claim)
    elif is_held and is_deleting(claim) and not rest:
        if status.get("allocation"):
            changed = {name: value for name, value in status.items() if name != "allocation"}
            claim = yield from do(Update(RESOURCE_CLAIMS, {**claim, "status": changed}, "status"))
        yield from _let_go(claim)
    if not rest:
        yield from _delete_generated(claim, view)


def _remaining(
    consumers: Iterable[Object], claim: Object, view: View
) -> Generator[Step, list[Outcome], list[Object]]:
    """Return the consumers that are still there."""
    found: list[Object] = []
    for each in consumers:
        is_there = yield from _needs(each, claim, view)
        found += [each] if is_there else []
    return found


def _needs(consumer: Object, claim: Object, view: View) -> Generator[Step, list[Outcome], bool]:
    """Whether a consumer still exists; one that is not a pod always does."""
    if consumer.get("apiGroup") or consumer.get("resource") != "pods":
        return True
    namespace = claim["metadata"]["namespace"]
    pod = view.get(PODS, f"{namespace}/{consumer['name']}")
    if pod is None:
        [found] = yield [Get(PODS, namespace, consumer["name"])]
        if found.is_not_found:
            return False
        pod = found.result()
        return bool(pod["metadata"]["uid"] == consumer.get("uid"))
    return pod["metadata"]["uid"] == consumer.get("uid") and not _is_done(pod)


def _let_go(claim: Object) -> Generator[Step, list[Outcome], None]:
    meta = claim["metadata"]
    finalizers = [each for each in meta.get("finalizers") or () if each != DEVICE_CLAIM_FINALIZER]
    changed = {**claim, "metadata": {**meta, "finalizers": finalizers}}
    [outcome] = yield [Update(RESOURCE_CLAIMS, changed)]
    if not outcome.is_not_found:
        outcome.result()


def _delete_generated(claim: Object, view: View) -> Generator[Step, list[Outcome], None]:
    """Delete a claim that was made for a pod that will not run."""
    owner = controller_of(claim)
    if owner is None or owner.get("kind") != PODS.kind:
        return
    meta = claim["metadata"]
    pod = view.get(PODS, f"{meta['namespace']}/{owner['name']}")
    if pod is None or (pod["metadata"]["uid"] == owner["uid"] and not _is_done(pod)):
        return
    [outcome] = yield [Delete(RESOURCE_CLAIMS, meta["namespace"], meta["name"], meta["uid"])]
    if not outcome.is_not_found:
        outcome.result()


# What pods say.


def _named(pod: Object, reference: Object) -> ClaimReference:
    if reference.get("resourceClaimName"):
        return ClaimReference(reference["resourceClaimName"], is_generated=False)
    for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if each["name"] == reference["name"]:
            return ClaimReference(each.get("resourceClaimName") or "", is_generated=True)
    return ClaimReference("", is_generated=True, is_known=False)


def _name_in(status: Object) -> str:
    name: str = status.get("resourceClaimName") or ""
    return name


def _is_for(claim: Object, pod: Object) -> bool:
    owner = controller_of(claim)
    return owner is not None and owner["uid"] == pod["metadata"]["uid"]


def _is_done(pod: Object) -> bool:
    """Whether a pod no longer needs its claims."""
    return is_ended(pod) or (is_deleting(pod) and not pod["spec"].get("nodeName"))


def _needs_work(pod: Object, view: View) -> bool:
    if is_deleting(pod):
        return False
    namespace = pod["metadata"]["namespace"]
    for reference in pod["spec"].get("resourceClaims") or ():
        named = _named(pod, reference)
        if not named.is_known:
            return True
        claim = view.get(RESOURCE_CLAIMS, f"{namespace}/{named.name}") if named.name else None
        if named.name and claim is None and named.is_generated:
            return True
        if claim is None or not pod["spec"].get("nodeName"):
            continue
        status = claim.get("status") or {}
        uid = pod["metadata"]["uid"]
        is_reserved = any(each.get("uid") == uid for each in status.get("reservedFor") or ())
        if status.get("allocation") and not is_reserved:
            return True
    return False


# Indexes, and which keys a change concerns.


def _claims_of(pod: Object) -> Iterable[str]:
    namespace = pod["metadata"]["namespace"]
    for reference in pod["spec"].get("resourceClaims") or ():
        if name := _named(pod, reference).name:
            yield f"{namespace}/{name}"
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if extended:
        yield f"{namespace}/{extended['resourceClaimName']}"


def _templates_of(pod: Object) -> Iterable[str]:
    for reference in pod["spec"].get("resourceClaims") or ():
        if name := reference.get("resourceClaimTemplateName"):
            yield f"{pod['metadata']['namespace']}/{name}"


def _owners_of(claim: Object) -> Iterable[str]:
    owner = controller_of(claim)
    if owner is not None and owner.get("kind") == PODS.kind:
        yield f"{claim['metadata']['namespace']}/{owner['uid']}"


def _keys_of_pod(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    pod = new or old or {}
    if new is None or _is_done(pod):
        for name in _claims_of(pod):
            yield f"claim/{name}"
    if new is not None and _needs_work(pod, view):
        yield f"pod/{key_of(pod)}"


def _keys_of_claim(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    key = key_of(new or old or {})
    if new is not None:
        yield f"claim/{key}"
    for pod in view.by_index(PODS, _BY_CLAIM, key):
        yield from _keys_of_pod(pod, pod, view)


def _keys_of_template(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None:
        for pod in view.by_index(PODS, _BY_TEMPLATE, key_of(new)):
            yield from _keys_of_pod(pod, pod, view)
