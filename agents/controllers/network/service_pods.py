"""Which pods are behind a service, and which services a pod concerns.

Shapes: services and pods are plain objects; a service without a selector selects no pods.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kvstack.agents.client.built_in import PODS, SERVICES
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.workloads.pod_rules import ready_condition
from kvstack.agents.reconcile.plan import View
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import is_ended, is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import ENDPOINTS_TRIGGER_TIME_ANNOTATION

NO_ADDRESS: Final = "None"


def selector_of(service: Object) -> Mapping[str, str]:
    """Return the labels that a service selects pods by; empty: none are selected."""
    found: Mapping[str, str] = service["spec"].get("selector") or {}
    return found


def has_pods(service: Object) -> bool:
    """Whether endpoints of a service are made from pods."""
    return service["spec"].get("type") != "ExternalName" and bool(selector_of(service))


def pods_of(service: Object, view: View) -> list[Object]:
    """Return the pods that a service selects."""
    wanted = selector_of(service).items()
    return [
        pod
        for pod in view.list(PODS, service["metadata"]["namespace"])
        if wanted <= (pod["metadata"].get("labels") or {}).items()
    ]


def may_serve(pod: Object) -> bool:
    """Whether a pod has an address, and containers that may answer."""
    status = pod.get("status") or {}
    return not is_ended(pod) and bool(status.get("podIP") or status.get("podIPs"))


def addresses_of(pod: Object, *, is_v6: bool) -> list[str]:
    """Return a pod's addresses of a family."""
    ips = (pod.get("status") or {}).get("podIPs") or ()
    return [each["ip"] for each in ips if (":" in each["ip"]) is is_v6]


def reference_to(pod: Object) -> Object:
    """Return the reference that an endpoint has to its pod."""
    meta = pod["metadata"]
    return {
        "kind": "Pod",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


def hostname_of(pod: Object, service: Object) -> str:
    """Return the name that a pod has within a service; empty: it has none."""
    spec = pod["spec"]
    name: str = spec.get("hostname") or ""
    return name if spec.get("subdomain") == service["metadata"]["name"] else ""


def port_of(pod: Object, port: Object) -> int | None:
    """Return the number of a service's port in a pod; None: it has no port of that name."""
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target
    spec = pod["spec"]
    sidecars = [each for each in spec.get("initContainers") or () if is_sidecar(each)]
    for container in (*spec["containers"], *sidecars):
        for each in container.get("ports") or ():
            if each.get("name") == target and each["protocol"] == port["protocol"]:
                number: int = each["containerPort"]
                return number
    return None


def has_address(service: Object) -> bool:
    """Whether a Service has a cluster IP."""
    return service["spec"].get("clusterIP", "") not in ("", NO_ADDRESS)


# Which services a change concerns.


def service_keys(old: Object | None, new: Object | None, view: View) -> Iterator[str]:
    """Give the services that a change of a pod concerns."""
    if old is None or new is None:
        yield from _selecting(new or old or {}, view)
        return
    is_relabelled = _service_fields(old) != _service_fields(new)
    is_changed = _traits(old) != _traits(new)
    if not is_relabelled:
        if is_changed:
            yield from _selecting(new, view)
        return
    before, after = set(_selecting(old, view)), set(_selecting(new, view))
    is_renamed = _service_fields(old)[1:] != _service_fields(new)[1:]
    yield from sorted(before | after if is_changed or is_renamed else before ^ after)


def _selecting(pod: Object, view: View) -> Iterable[str]:
    meta = pod["metadata"]
    labels = (meta.get("labels") or {}).items()
    for service in view.list(SERVICES, meta["namespace"]):
        selector = selector_of(service)
        if selector and selector.items() <= labels:
            yield key_of(service)


def _service_fields(pod: Object) -> tuple[Object, object, object]:
    spec = pod["spec"]
    return pod["metadata"].get("labels") or {}, spec.get("hostname"), spec.get("subdomain")


def _traits(pod: Object) -> tuple[object, ...]:
    """Return what makes endpoints change; not the phase: who ends a pod makes it unready, too."""
    status = pod.get("status") or {}
    return (
        pod["metadata"].get("deletionTimestamp"),
        is_ready(pod),
        tuple(each["ip"] for each in status.get("podIPs") or ()),
    )


class TriggerTimes:
    """The trigger time of each Service: the oldest of the new changes."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def of(self, service: Object, pods: Iterable[Object]) -> str:
        """Return the time, in whole seconds; empty: nothing that has one is new."""
        key = key_of(service)
        created: str = service["metadata"]["creationTimestamp"]
        now = {"": created}
        for pod in pods:
            condition = ready_condition(pod)
            if condition is not None and condition.get("lastTransitionTime"):
                now[pod["metadata"]["name"]] = condition["lastTransitionTime"]
        before = self._known.get(key)
        self._known[key] = now
        if before is None:
            return created
        # Times of one form are in the order of their texts.
        return min((time for name, time in now.items() if time > before.get(name, "")), default="")

    def forget(self, key: str) -> None:
        """Forget a service that is gone."""
        self._known.pop(key, None)


def with_trigger_time(annotations: Mapping[str, str] | None, time: str) -> dict[str, str]:
    """Return annotations with the time of the change, or without one."""
    kept = {
        name: value
        for name, value in (annotations or {}).items()
        if name != ENDPOINTS_TRIGGER_TIME_ANNOTATION
    }
    return {**kept, ENDPOINTS_TRIGGER_TIME_ANNOTATION: time} if time else kept
