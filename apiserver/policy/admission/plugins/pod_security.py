"""PodSecurity: enforces the Pod Security Standard of a namespace.

    pods         refused, warned of and audited, as the labels of the namespace say
    workloads    their templates are warned of and audited
    namespaces   labels must be valid; pods that violate a stricter label are warned of

Some namespaces, users and runtime classes are exempt.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import NAMESPACES, PODS
from kvstack.apimachinery.objects.field_errors import FieldError, summary
from kvstack.apimachinery.objects.groups import GroupKind, GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import ObjectView
from kvstack.apiserver.policy.pod_security.evaluation import findings, findings_text
from kvstack.apiserver.policy.pod_security.standards import (
    DEFAULT_POLICY,
    PRIVILEGED,
    Policy,
    Standard,
    asked_modes,
    policy_of,
)
from kvstack.component.clock import Clock

_IGNORED: Final = frozenset(
    ("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status")
)
_TEMPLATES: Final = {
    GroupResource("", "podtemplates"): ("template",),
    GroupResource("", "replicationcontrollers"): ("spec", "template"),
    GroupResource("apps", "daemonsets"): ("spec", "template"),
    GroupResource("apps", "deployments"): ("spec", "template"),
    GroupResource("apps", "replicasets"): ("spec", "template"),
    GroupResource("apps", "statefulsets"): ("spec", "template"),
    GroupResource("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
    GroupResource("batch", "jobs"): ("spec", "template"),
}
"""Path of the pod template in each workload."""
_ANNOTATION: Final = "pod-security.kubernetes.io/"
_CHECKED_MAX: Final = 3000
_CHECKED_NS: Final = 1_000_000_000
_PODS_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class Exemptions:
    """What no standard applies to."""

    namespaces: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    runtime_classes: frozenset[str] = frozenset()


NO_EXEMPTIONS: Final = Exemptions()


class PodSecurity:
    """Enforces the Pod Security Standards."""

    name = "PodSecurity"

    def __init__(
        self,
        view: ObjectView,
        clock: Clock,
        defaults: Policy = DEFAULT_POLICY,
        exemptions: Exemptions = NO_EXEMPTIONS,
    ) -> None:
        """defaults: of namespaces without labels."""
        self._view: Final = view
        self._clock: Final = clock
        self._defaults: Final = defaults
        self._exemptions: Final = exemptions

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether it is a create or update of a pod, a workload or a namespace."""
        if operation not in {CREATE, UPDATE}:
            return False
        if resource == PODS:
            return subresource not in _IGNORED
        return not subresource and (resource == NAMESPACES or resource in _TEMPLATES)

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Check an object against the standards of its namespace."""
        if request.resource == NAMESPACES:
            return self._check_namespace(request)
        if request.namespace in self._exemptions.namespaces:
            _annotate(request, "exempt", "namespace")
        elif request.user.name in self._exemptions.users:
            _annotate(request, "exempt", "user")
        elif request.resource == PODS:
            self._check_pod(request)
        else:
            self._check_workload(request)
        return None

    # Pods and workloads.

    def _check_pod(self, request: AdmissionRequest) -> None:
        namespace = self._view.get(NAMESPACES, "", request.namespace)
        if namespace is None:
            text = f"failed to lookup namespace {quote(request.namespace)}"
            raise status.internal_error(text)
        policy, errors = policy_of(_labels(namespace), self._defaults)
        if not errors and policy.is_privileged:
            _annotate(request, "enforce-policy", str(policy.enforce))
            return
        pod, old = request.new, request.old
        if request.operation == UPDATE and old is not None and not _is_significant(pod, old):
            return
        self._evaluate(request, policy, errors, pod, enforces=True)

    def _check_workload(self, request: AdmissionRequest) -> None:
        namespace = self._view.get(NAMESPACES, "", request.namespace)
        if namespace is None:
            message = f"failed to lookup namespace {quote(request.namespace)}"
            _annotate(request, "error", message)
            return
        policy, errors = policy_of(_labels(namespace), self._defaults)
        if not errors and PRIVILEGED == policy.warn.level == policy.audit.level:
            return
        template: Object | None = request.new
        for member in _TEMPLATES[request.resource]:
            template = (template or {}).get(member)
        if template is not None:
            self._evaluate(request, policy, errors, template, enforces=False)

    def _evaluate(
        self,
        request: AdmissionRequest,
        policy: Policy,
        errors: list[FieldError],
        pod: Object,
        *,
        enforces: bool,
    ) -> None:
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        if spec.get("runtimeClassName") in self._exemptions.runtime_classes:
            _annotate(request, "exempt", "runtimeClass")
            return
        if errors:
            _annotate(request, "error", f"Failed to parse policy: {summary(errors)}")
        results: dict[Standard, str] = {}

        def result(standard: Standard) -> str:
            if standard not in results:
                results[standard] = findings_text(findings(standard, metadata, spec))
            return results[standard]

        if enforces:
            _annotate(request, "enforce-policy", str(policy.enforce))
        if violations := result(policy.audit):
            text = f"would violate PodSecurity {quote(str(policy.audit))}: {violations}"
            _annotate(request, "audit-violations", text)
        if enforces and (violations := result(policy.enforce)):
            text = f"violates PodSecurity {quote(str(policy.enforce))}: {violations}"
            raise status.forbidden(request.resource, request.name, text)
        if violations := result(policy.warn):
            request.warnings.append(
                f"would violate PodSecurity {quote(str(policy.warn))}: {violations}"
            )

    # Namespaces.

    def _check_namespace(self, request: AdmissionRequest) -> Awaitable[None] | None:
        labels = _labels(request.new)
        policy, errors = policy_of(labels, self._defaults)
        is_exempt = request.namespace in self._exemptions.namespaces
        if request.operation == CREATE:
            _refuse(request, errors)
            if is_exempt:
                self._warn_of_exemption(request, policy)
            return None
        old, old_errors = policy_of(_labels(request.old or {}), self._defaults)
        if errors != old_errors:
            _refuse(request, errors)
        new_one, old_one = policy.enforce, old.enforce
        if new_one == old_one or new_one.level == PRIVILEGED:
            return None
        if new_one.minor == old_one.minor and not new_one.is_stricter_than(old_one):
            return None
        if is_exempt:
            self._warn_of_exemption(request, policy)
            return None
        return self._warn_of_pods(request, new_one)

    def _warn_of_exemption(self, request: AdmissionRequest, policy: Policy) -> None:
        if policy.is_privileged or policy == self._defaults:
            return
        asked = asked_modes(policy, _labels(request.new))
        if asked:
            name = quote(request.new["metadata"].get("name", ""))
            request.warnings.append(
                f"namespace {name} is exempt from Pod Security, and the policy ({asked}) will be"
                " ignored"
            )

    async def _warn_of_pods(self, request: AdmissionRequest, standard: Standard) -> None:
        name = request.new["metadata"]["name"]
        pods = _one_of_each_owner(
            each
            for each in self._view.list(PODS, name)
            if each["spec"].get("runtimeClassName") not in self._exemptions.runtime_classes
        )
        until = self._clock.monotonic_ns() + _CHECKED_NS
        pods_by_warning: dict[str, list[str]] = {}
        checked = 0
        for pod in pods[:_CHECKED_MAX]:
            reasons = findings(standard, pod["metadata"], pod["spec"])
            if reasons:
                reasons_text = ", ".join(each.reason for each in reasons)
                pods_by_warning.setdefault(reasons_text, []).append(pod["metadata"]["name"])
            checked += 1
            if checked % _PODS_AT_ONCE == 0:
                # Yields to other requests.
                await asyncio.sleep(0)
                if self._clock.monotonic_ns() > until:
                    break
        if checked < len(pods):
            request.warnings.append(
                "new PodSecurity enforce level only checked against the first"
                f" {checked} of {len(pods)} existing pods"
            )
        if pods_by_warning:
            request.warnings.append(
                f"existing pods in namespace {quote(name)} violate the new PodSecurity enforce"
                f" level {quote(str(standard))}"
            )
        request.warnings += sorted(
            _with_names(reasons_text, names) for reasons_text, names in pods_by_warning.items()
        )


def _labels(namespace: Object) -> dict[str, str]:
    return (namespace.get("metadata") or {}).get("labels") or {}


def _annotate(request: AdmissionRequest, name: str, value: str) -> None:
    request.annotations[f"{_ANNOTATION}{name}"] = value


def _refuse(request: AdmissionRequest, errors: list[FieldError]) -> None:
    if errors:
        kind = GroupKind(request.kind.group, request.kind.kind)
        raise status.invalid(kind, request.name, errors)


def _is_significant(pod: Object, old: Object) -> bool:
    """Return whether an update changes a field that standards check."""
    new_spec, old_spec = pod.get("spec") or {}, old.get("spec") or {}
    for member in ("containers", "initContainers"):
        images = [
            [each.get("image") for each in spec.get(member) or ()] for spec in (new_spec, old_spec)
        ]
        if images[0] != images[1]:
            return True
    before = {
        each.get("name"): each.get("image") for each in old_spec.get("ephemeralContainers") or ()
    }
    return any(
        each.get("name") not in before or before[each.get("name")] != each.get("image")
        for each in new_spec.get("ephemeralContainers") or ()
    )


def _one_of_each_owner(pods: Iterable[Object]) -> list[Object]:
    """Return pods with the first of each controller before its others."""
    first: list[Object] = []
    others: list[Object] = []
    seen: set[str] = set()
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        owner = next((each["uid"] for each in owners if each.get("controller")), "")
        (others if owner in seen else first).append(pod)
        if owner:
            seen.add(owner)
    return first + others


def _with_names(reasons_text: str, names: list[str]) -> str:
    name = min(names)
    if len(names) == 1:
        return f"{name}: {reasons_text}"
    others = len(names) - 1
    return f"{name} (and {others} other {'pod' if others == 1 else 'pods'}): {reasons_text}"
