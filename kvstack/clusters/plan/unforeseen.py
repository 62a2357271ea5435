"""What follows from a change and nobody here can know; it is always named.

    objects of kinds       that no controller here acts for
    webhooks, servers      that were not asked
    agents                 whose rights become fewer: what they do then
    volumes, balancers     that others would make
    time                   what had not come to rest at the horizon

`assumed` says what was taken for granted.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

from kvstack.agents.client.activity import Moving
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.webhooks.outbound import API_SERVER, Unasked
from kvstack.clusters.comparison.comparison import Change, Comparison, Difference
from kvstack.clusters.contents import LeftOut
from kvstack.clusters.plan.objects import (
    ACCOUNTS,
    CLAIMS,
    CLASSES,
    INGRESSES,
    JOBS,
    PODS,
    SERVICES,
    IdentifiedObject,
    Objects,
    images_of,
)
from kvstack.clusters.plan.stuck import Finding

NOWHERE: Final = GroupResource("", "")
_RBAC: Final = "rbac.authorization.k8s.io"
_ROLES: Final = ("roles", "clusterroles")
_BINDINGS: Final = ("rolebindings", "clusterrolebindings")
_MOVING_MAX: Final = 10
_IMAGES_MAX: Final = 10


def unforeseen(
    found: Comparison,
    before: Objects,
    after: Objects,
    unasked: Sequence[Unasked],
    moving: Sequence[Moving],
) -> list[Finding]:
    """Return what cannot be known; moving: at the horizon, because of the change."""
    return [
        *_of_others(found, after),
        *_made_elsewhere(before, after),
        *_rights(found, before, after),
        *_not_asked(unasked),
        *_not_at_rest(moving),
    ]


def _of_others(found: Comparison, after: Objects) -> Iterator[Finding]:
    """Yield objects that no controller here acts for."""
    for each in found.differences:
        if each.change is Change.REMOVED:
            continue
        known = after.get(each.resource, each.path)
        subject = f"{each.kind.lower() or each.resource} {each.path}"
        if known is None:
            text = f"{each.resource} is of no kind that is known here"
        elif known.is_custom and "." in each.resource.group:
            text = f"no controller for {each.resource} runs here"
        elif each.resource == INGRESSES:
            text = "no controller for ingresses runs here"
        else:
            continue
        yield Finding(each.resource, each.path, subject, text)


def _made_elsewhere(before: Objects, after: Objects) -> Iterator[Finding]:
    for known in after.of(SERVICES):
        if _is_waiting_balancer(known.obj):
            earlier = before.get(SERVICES, known.path)
            if earlier is None or not _is_waiting_balancer(earlier.obj):
                yield _about(known, "no controller for load balancers runs here")
    for known in after.of(CLAIMS):
        earlier = before.get(CLAIMS, known.path)
        if _phase(known.obj) == "Pending" and (earlier is None or _phase(earlier.obj) != "Pending"):
            name = (known.obj.get("spec") or {}).get("storageClassName") or ""
            chosen = after.get(CLASSES, name)
            if chosen is not None and chosen.obj.get("volumeBindingMode") != "WaitForFirstConsumer":
                provisioner = chosen.obj.get("provisioner", "")
                yield _about(known, f"its provisioner {provisioner} does not run here")


def _is_waiting_balancer(service: Object) -> bool:
    status = (service.get("status") or {}).get("loadBalancer") or {}
    return service["spec"].get("type") == "LoadBalancer" and not status.get("ingress")


def _phase(obj: Object) -> str:
    phase: str = (obj.get("status") or {}).get("phase", "")
    return phase


def _about(known: IdentifiedObject, text: str) -> Finding:
    return Finding(known.resource, known.path, known.name, text)


# Rights.


def _rights(found: Comparison, before: Objects, after: Objects) -> Iterator[Finding]:
    """Yield the accounts and users that may do less than before."""
    for each in found.differences:
        if each.resource.group != _RBAC or each.change is Change.ADDED:
            continue
        if each.resource.resource in _ROLES:
            findings = _of_role(each, before)
        elif each.resource.resource in _BINDINGS:
            findings = _of_binding(each)
        else:
            continue
        gone = {known.name for known in before.of(ACCOUNTS)} - {
            known.name for known in after.of(ACCOUNTS)
        }
        yield from (finding for finding in findings if finding.subject not in gone)


def _of_role(role: Difference, before: Objects) -> Iterator[Finding]:
    lost = _lost(role.before or {}, role.after or {})
    if not lost:
        return
    namespace = role.namespace
    for resource in _BINDINGS:
        for known in before.of(GroupResource(_RBAC, resource)):
            reference = known.obj.get("roleRef") or {}
            is_of_it = reference.get("kind") == role.kind and reference.get("name") == role.name
            if is_of_it and (not namespace or known.obj["metadata"].get("namespace") == namespace):
                for subject in _subjects(known.obj):
                    yield _loses(role, subject, f"may no longer {'; '.join(lost)}")


def _of_binding(binding: Difference) -> Iterator[Finding]:
    kept = set(_subjects(binding.after or {}))
    reference = (binding.before or {}).get("roleRef") or {}
    name = f"{str(reference.get('kind', '')).lower()} {reference.get('name', '')}"
    for subject in _subjects(binding.before or {}):
        if subject not in kept:
            yield _loses(binding, subject, f"has no longer what {name} allows by this binding")


def _loses(difference: Difference, subject: str, text: str) -> Finding:
    why = f"{text}: what it does then is not foreseen"
    return Finding(difference.resource, difference.path, subject, why)


def _lost(before: Object, after: Object) -> list[str]:
    """Return the rights of rules that are gone, in words."""
    old, new = _grants(before), _grants(after)
    gone: dict[str, list[str]] = {}
    for what, verb in sorted(old - new):
        if ("*", "*") not in new and (what, "*") not in new and ("*", verb) not in new:
            gone.setdefault(what, []).append(verb)
    return [f"{', '.join(verbs)} {what}" for what, verbs in gone.items()]


def _grants(role: Object) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for rule in role.get("rules") or ():
        groups = rule.get("apiGroups") or ("",)
        names = rule.get("resourceNames") or ("",)
        what = [
            f"{resource}.{group}" if group and resource != "*" else resource
            for group in groups
            for resource in rule.get("resources") or ()
        ]
        what += rule.get("nonResourceURLs") or ()
        found |= {
            (f"{each} {name}" if name else each, verb)
            for each in what
            for name in names
            for verb in rule.get("verbs") or ()
        }
    return found


def _subjects(binding: Object) -> list[str]:
    return [
        f"{each.get('kind', '').lower()} "
        + "/".join(filter(None, (each.get("namespace"), each.get("name", ""))))
        for each in binding.get("subjects") or ()
    ]


# Others, and time.


def _not_asked(unasked: Iterable[Unasked]) -> Iterator[Finding]:
    for each in unasked:
        what = "not reached" if each.what == API_SERVER else "not asked"
        times = f"{each.times} times" if each.times > 1 else "once"
        text = f"was {what} ({times}, the last time about {each.last})"
        yield Finding(NOWHERE, "", f"{each.what} {each.name}", text)


def _not_at_rest(moving: Sequence[Moving]) -> Iterator[Finding]:
    for each in moving[:_MOVING_MAX]:
        yield Finding(NOWHERE, "", f"{each.who} {each.what}".strip(), f"at the end {each.why}")
    if len(moving) > _MOVING_MAX:
        more = len(moving) - _MOVING_MAX
        yield Finding(NOWHERE, "", f"{more} more", "had not come to rest at the end")


def assumed(
    before: Objects,
    after: Objects,
    came: Container[tuple[GroupResource, str]],
    left_out: Iterable[LeftOut],
    ready_after_s: float,
) -> list[str]:
    """Return what was taken for granted; came: objects that would be there without the change."""

    def is_new(known: IdentifiedObject) -> bool:
        at = known.resource, known.path
        return before.get(*at) is None and at not in came

    new = [each for each in after.of(PODS) if is_new(each)]
    found = []
    if new:
        found.append(f"containers are ready after {ready_after_s:g} s")
    known = {image for pod in before.of(PODS) for image in images_of(pod.obj)}
    images = sorted({image for pod in new for image in images_of(pod.obj)} - known)
    if images:
        more = f" and {len(images) - _IMAGES_MAX} more" if len(images) > _IMAGES_MAX else ""
        found.append(
            f"images that ran nowhere before start: {', '.join(images[:_IMAGES_MAX])}{more}"
        )
    if any(map(is_new, after.of(JOBS))):
        found.append("pods of Jobs end well, half a second after they start")
    what = sorted({each.what for each in left_out})
    if what:
        more = f" and {len(what) - _IMAGES_MAX} more" if len(what) > _IMAGES_MAX else ""
        found.append(f"what could not be read plays no part: {', '.join(what[:_IMAGES_MAX])}{more}")
    return found
