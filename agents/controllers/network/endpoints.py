"""Endpoints: the addresses of a service's pods, in one object of the service's name.

    pods that the service selects ─► an address and a port each ─► repacked ─► create or update

Endpoints of a service without a selector belong to others. Pods that are being deleted are left
out. At the start Endpoints are looked for whose service is gone.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from typing_extensions import override

from kvstack.agents.client.built_in import ENDPOINTS, PODS, SERVICES
from kvstack.agents.client.object_store import key_of, split_key
from kvstack.agents.controllers.network.service_pods import (
    TriggerTimes,
    addresses_of,
    has_address,
    has_pods,
    hostname_of,
    may_serve,
    pods_of,
    port_of,
    reference_to,
    service_keys,
    with_trigger_time,
)
from kvstack.agents.controllers.network.subsets import (
    ADDRESSES_MAX,
    are_equal,
    count_addresses,
    repacked,
    truncated,
)
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.reconcile.plan import (
    BackOff,
    BaseController,
    Create,
    Delete,
    Enqueue,
    Identity,
    Outcome,
    Plan,
    Record,
    Step,
    Update,
    View,
    Watch,
)
from kvstack.apimachinery.objects.core.pod_status import is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    ENDPOINTS_LEADER_ANNOTATION,
    ENDPOINTS_MANAGED_BY_LABEL,
    HEADLESS_LABEL,
)

_LEFTOVERS: Final = "leftovers"
_OVER_CAPACITY: Final = "endpoints.kubernetes.io/over-capacity"
_NAME: Final = "endpoint-controller"
_RETRIES_MAX: Final = 15


class EndpointsController(BaseController):
    """Keeps Endpoints."""

    back_off = BackOff(retries_max=_RETRIES_MAX)

    def __init__(self) -> None:
        """Watch services, pods and Endpoints."""
        self.identity: Identity = Identity("endpoints-controller", _NAME, _NAME)
        self.watches: Sequence[Watch] = (
            Watch(SERVICES, _keys_of_service),
            Watch(PODS, service_keys),
            Watch(ENDPOINTS, _keys_of_endpoints),
        )
        self._trigger_times = TriggerTimes()

    @override
    def initial_keys(self) -> Iterable[str]:
        """Look for what was left over."""
        return (_LEFTOVERS,)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one service."""
        if key == _LEFTOVERS:
            yield [Enqueue(tuple(_left_over(view)))]
            return None
        service = view.get(SERVICES, key)
        if service is None:
            yield from self._delete(key, view)
            return None
        if not has_pods(service):
            return None
        pods = pods_of(service, view)
        time = self._trigger_times.of(service, pods)
        current = view.get(ENDPOINTS, key)
        subsets = repacked(_subsets(service, pods))
        if current is None or not _is_right(current, service, subsets):
            yield from self._write(
                service, current, _desired_endpoints(service, current, subsets, time)
            )
        return None

    def _delete(self, key: str, view: View) -> Generator[Step, list[Outcome], None]:
        self._trigger_times.forget(key)
        if view.get(ENDPOINTS, key) is None:
            return
        [outcome] = yield [Delete(ENDPOINTS, *split_key(key))]
        if not outcome.is_not_found:
            outcome.result()

    def _write(
        self, service: Object, current: Object | None, desired: Object
    ) -> Generator[Step, list[Outcome], None]:
        namespace = service["metadata"]["namespace"]
        key = key_of(service)
        if current is None:
            [outcome] = yield [Create(ENDPOINTS, namespace, desired)]
            reason, text = "FailedToCreateEndpoint", f"Failed to create endpoint for service {key}"
        else:
            [outcome] = yield [Update(ENDPOINTS, desired)]
            reason, text = "FailedToUpdateEndpoint", f"Failed to update endpoint {key}"
        if outcome.error is None or outcome.is_namespace_terminating:
            return
        about = {**desired, "metadata": {**desired["metadata"], "namespace": namespace}}
        yield [Record(about, "Warning", reason, f"{text}: {outcome.error}")]
        raise outcome.error


def _desired_endpoints(
    service: Object, current: Object | None, subsets: list[Object], time: str
) -> Object:
    meta = dict((current or {}).get("metadata") or {"name": service["metadata"]["name"]})
    annotations = with_trigger_time(meta.pop("annotations", None), time)
    annotations.pop(_OVER_CAPACITY, None)
    if count_addresses(subsets) > ADDRESSES_MAX:
        annotations[_OVER_CAPACITY] = "truncated"
        subsets = truncated(subsets)
    if annotations:
        meta["annotations"] = annotations
    labels = dict(service["metadata"].get("labels") or {})
    labels.pop(HEADLESS_LABEL, None)
    if not has_address(service):
        labels[HEADLESS_LABEL] = ""
    meta["labels"] = {**labels, ENDPOINTS_MANAGED_BY_LABEL: _NAME}
    return {"apiVersion": "v1", "kind": "Endpoints", "metadata": meta, "subsets": subsets}


def _is_right(current: Object, service: Object, subsets: Sequence[Object]) -> bool:
    known = current.get("subsets") or []
    if not are_equal(known, subsets) and not are_equal(repacked(known), subsets):
        return False
    annotations = current["metadata"].get("annotations") or {}
    if count_addresses(known) > ADDRESSES_MAX or _OVER_CAPACITY in annotations:
        return False
    labels = dict(current["metadata"].get("labels") or {})
    if labels.pop(ENDPOINTS_MANAGED_BY_LABEL, None) != _NAME:
        return False
    labels.pop(HEADLESS_LABEL, None)
    desired = dict(service["metadata"].get("labels") or {})
    return labels == desired


def _subsets(service: Object, pods: Iterable[Object]) -> Iterable[Object]:
    """Give a subset for each pod and port."""
    spec = service["spec"]
    tolerates = spec.get("publishNotReadyAddresses", False)
    for pod in pods:
        if not may_serve(pod) or (is_deleting(pod) and not tolerates):
            continue
        address = _address(service, pod)
        if address is None:
            continue
        name = "addresses" if tolerates or is_ready(pod) else "notReadyAddresses"
        if not spec.get("ports"):
            if not has_address(service):
                yield {name: [address]}
            continue
        for port in spec["ports"]:
            number = port_of(pod, port)
            if number is not None:
                yield {name: [address], "ports": [_port(port, number)]}


def _address(service: Object, pod: Object) -> Object | None:
    found = addresses_of(pod, is_v6=_is_v6(service, pod))
    if not found:
        return None
    address: Object = {
        "ip": found[0],
        "nodeName": pod["spec"].get("nodeName", ""),
        "targetRef": reference_to(pod),
    }
    if hostname := hostname_of(pod, service):
        address["hostname"] = hostname
    return address


def _is_v6(service: Object, pod: Object) -> bool:
    spec = service["spec"]
    if spec.get("ipFamilies"):
        return bool(spec["ipFamilies"][0] == "IPv6")
    if has_address(service):
        return ":" in spec["clusterIP"]
    return ":" in (pod["status"].get("podIP") or "")


def _port(port: Object, number: int) -> Object:
    made: Object = {"port": number, "protocol": port["protocol"]}
    for name in ("name", "appProtocol"):
        if port.get(name):
            made[name] = port[name]
    return made


def _left_over(view: View) -> Iterable[str]:
    for endpoints in view.list(ENDPOINTS):
        if ENDPOINTS_LEADER_ANNOTATION not in (endpoints["metadata"].get("annotations") or {}):
            yield key_of(endpoints)


def _keys_of_service(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    yield key_of(new or old or {})


def _keys_of_endpoints(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is None and old is not None:
        yield key_of(old)
