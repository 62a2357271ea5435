"""EndpointSlices of services with a selector.

    pods ─► an endpoint for each address type and list of ports ─► packed into slices ─► hints

Pods that are being deleted stay, as terminating, until they have ended. A service without endpoints
has one slice without any. Pods whose node is not known are left out, and looked at again.
"""

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import ENDPOINT_SLICES, NODES, PODS, SERVICES
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers.network.port_order import in_slice_order
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
from kvstack.agents.controllers.network.slices.hints import (
    Hints,
    capacity_of,
    cpu_shares,
    is_automatic,
)
from kvstack.agents.controllers.network.slices.packing import (
    Changes,
    Key,
    key_of_endpoint,
    packed,
)
from kvstack.agents.controllers.network.slices.writing import name_prefix, write
from kvstack.agents.controllers.ownership import controller_reference, is_deleting
from kvstack.agents.reconcile.plan import (
    BackOff,
    BaseController,
    Enqueue,
    Identity,
    Index,
    Later,
    Outcome,
    Plan,
    Record,
    Step,
    View,
    Watch,
)
from kvstack.apimachinery.objects.core.pod_status import is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import (
    HEADLESS_LABEL,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
    ZONE_LABEL,
)

_NAME: Final = "endpointslice-controller.k8s.io"
_RESERVED: Final = (SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL, HEADLESS_LABEL)
_INDEX: Final = "service of slice"
_ECHO_S: Final = 1.0
"""Changes of slices are looked at after so long: most are the controller's own."""
_FAMILIES: Final = ("IPv4", "IPv6")
_SLICE: Final = "slice "
_Ports: TypeAlias = tuple[tuple[object, ...], ...]


class SkippedPodError(Exception):
    """A pod was left out since its node is not known."""


class ServiceSlices(BaseController):
    """Keeps EndpointSlices of services."""

    back_off = BackOff(base_s=1.0, max_s=1000.0, has_bucket=False, retries_max=15)

    def __init__(self, limit: int) -> None:
        """limit: endpoints of a slice."""
        self.identity: Identity = Identity(
            "endpointslice-controller", "endpointslice-controller", "endpoint-slice-controller"
        )
        self.watches: Sequence[Watch] = (
            Watch(SERVICES, _keys_of_service),
            Watch(PODS, service_keys),
            Watch(ENDPOINT_SLICES, _keys_of_slice),
            Watch(NODES, self._keys_of_node),
        )
        self.indexes = (Index(ENDPOINT_SLICES, _INDEX, service_of_slice),)
        self._limit = limit
        self._trigger_times = TriggerTimes()
        self._hints = Hints()
        self._shares: dict[str, float] | None = None
        """The CPUs of each zone when they last affected a Service."""
        self._own: dict[str, dict[str, set[str]]] = {}
        """For each Service: own versions of its slices, by uid; empty: deleted."""

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one service."""
        if key.startswith(_SLICE):
            service_key, uid, version = key.removeprefix(_SLICE).split(" ")
            versions = self._own.get(service_key, {}).get(uid, set())
            if version in versions:
                versions.discard(version)
            else:
                yield [Enqueue((service_key,))]
            return None
        service = view.get(SERVICES, key)
        if service is None:
            self._own.pop(key, None)
            self._trigger_times.forget(key)
            self._hints.forget(key)
            return None
        if not has_pods(service):
            return None
        pods = pods_of(service, view)
        slices = [
            each
            for each in view.by_index(ENDPOINT_SLICES, _INDEX, key)
            if _is_managed(each) and not is_deleting(each)
        ]
        time = self._trigger_times.of(service, pods)
        try:
            yield from self._reconcile(service, pods, slices, time, view)
        except (ApiError, UnreachableError, SkippedPodError) as error:
            text = f"Error updating Endpoint Slices for Service {key}: {error}"
            yield [Record(service, "Warning", "FailedToUpdateEndpointSlices", text)]
            raise
        return None

    def _reconcile(
        self,
        service: Object,
        pods: Sequence[Object],
        slices: Sequence[Object],
        time: str,
        view: View,
    ) -> Generator[Step, list[Outcome], None]:
        types = _address_types(service)
        skipped: list[str] = []
        for address_type in types:
            own = [each for each in slices if each["addressType"] == address_type]
            changes = self._changes(service, pods, own, address_type, view, skipped)
            events = self._hints.apply(
                key_of(service), service, address_type, changes, own, view.list(NODES)
            )
            changes.recycle(lambda old: _is_owned(old, service))
            yield from self._write(service, _timed(changes, time))
            yield [Record(service, *event) for event in events]
        others = Changes(delete=[each for each in slices if each["addressType"] not in types])
        yield from self._write(service, others)
        if skipped:
            raise SkippedPodError(", ".join(skipped))

    def _write(self, service: Object, changes: Changes) -> Generator[Step, list[Outcome], None]:
        """Write changes, and remember them, so that they are ignored when watched."""
        written = yield from write(service, changes)
        own = self._own.setdefault(key_of(service), {})
        for each in written:
            own.setdefault(each["metadata"]["uid"], set()).add(each["metadata"]["resourceVersion"])
        for each in changes.delete:
            own.setdefault(each["metadata"]["uid"], set()).add("")

    def _changes(
        self,
        service: Object,
        pods: Iterable[Object],
        slices: Sequence[Object],
        address_type: str,
        view: View,
        skipped: list[str],
    ) -> Changes:
        """Return what has to change in the slices of one type, but for hints."""
        by_ports: dict[_Ports, list[Object]] = {}
        changes = Changes()
        for each in slices:
            if _is_owned(each, service):
                by_ports.setdefault(_ports_key(each.get("ports") or ()), []).append(each)
            else:
                changes.delete.append(each)
        ports_of: dict[_Ports, list[Object]] = {}
        desired: dict[_Ports, dict[Key, Object]] = {}
        for pod in pods:
            if not may_serve(pod):
                continue
            ports = _ports(service, pod)
            ports_key = _ports_key(ports)
            ports_of.setdefault(ports_key, ports)
            endpoints = desired.setdefault(ports_key, {})
            node = view.get(NODES, pod["spec"].get("nodeName") or "")
            if node is None and not service["spec"].get("publishNotReadyAddresses"):
                skipped.append(_skipped(service, pod))
                continue
            endpoint = _endpoint(service, pod, node, address_type)
            if endpoint is not None:
                endpoints[key_of_endpoint(endpoint)] = endpoint
        for ports_key, endpoints in desired.items():
            changes.add(
                packed(
                    by_ports.pop(ports_key, ()),
                    endpoints,
                    self._limit,
                    partial(_new, service, address_type, ports_of[ports_key]),
                    partial(_relabelled, service),
                )
            )
        for rest in by_ports.values():
            changes.delete += rest
        if len(changes.delete) == len(slices) and not changes.create:
            placeholder = _new(service, address_type, [])
            if len(changes.delete) == 1 and _is_placeholder(changes.delete[0], placeholder):
                changes.delete.clear()
            else:
                changes.create.append(placeholder)
        return changes

    def _keys_of_node(self, old: Object | None, new: Object | None, view: View) -> Iterable[str]:
        """Give the services whose endpoints a node's zone or CPU changes."""
        if capacity_of(old) == capacity_of(new):
            return
        automatic = [key_of(each) for each in view.list(SERVICES) if is_automatic(each)]
        if not automatic:
            self._shares = None
            return
        shares = cpu_shares(view.list(NODES))
        are_others = shares != self._shares
        self._shares = shares
        if are_others:
            yield from automatic


def service_of_slice(each: Object) -> tuple[str, ...]:
    """Return the key of the service that a slice says it is of."""
    meta = each["metadata"]
    name = (meta.get("labels") or {}).get(SERVICE_NAME_LABEL)
    return (f"{meta['namespace']}/{name}",) if name else ()


def _is_managed(each: Object) -> bool:
    return (each["metadata"].get("labels") or {}).get(SLICE_MANAGED_BY_LABEL) == _NAME


def _is_owned(each: Object, service: Object) -> bool:
    return any(
        owner["uid"] == service["metadata"]["uid"]
        and owner["kind"] == "Service"
        and owner["apiVersion"] == "v1"
        for owner in each["metadata"].get("ownerReferences") or ()
    )


def _address_types(service: Object) -> Sequence[str]:
    spec = service["spec"]
    if spec.get("ipFamilies"):
        return [each for each in _FAMILIES if each in spec["ipFamilies"]]
    if has_address(service):
        return ["IPv6" if ":" in spec["clusterIP"] else "IPv4"]
    return _FAMILIES


def _ports(service: Object, pod: Object) -> list[Object]:
    ports: list[Object] = []
    for port in service["spec"].get("ports") or ():
        number = port_of(pod, port)
        if number is None:
            continue
        found: Object = {
            "name": port.get("name", ""),
            "protocol": port["protocol"],
            "port": number,
        }
        if port.get("appProtocol"):
            found["appProtocol"] = port["appProtocol"]
        ports.append(found)
    return in_slice_order(ports)


def _ports_key(ports: Iterable[Object]) -> _Ports:
    return tuple(
        sorted(
            (
                port.get("name") or "",
                port.get("protocol") or "",
                port.get("port") or 0,
                port.get("appProtocol") or "",
            )
            for port in ports
        )
    )


def _endpoint(
    service: Object, pod: Object, node: Object | None, address_type: str
) -> Object | None:
    addresses = addresses_of(pod, is_v6=address_type == "IPv6")
    if not addresses:
        return None
    serving, terminating = is_ready(pod), is_deleting(pod)
    ready = service["spec"].get("publishNotReadyAddresses", False) or (serving and not terminating)
    endpoint: Object = {
        "addresses": addresses,
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": reference_to(pod),
    }
    if hostname := hostname_of(pod, service):
        endpoint["hostname"] = hostname
    if pod["spec"].get("nodeName"):
        endpoint["nodeName"] = pod["spec"]["nodeName"]
    zone = ((node or {}).get("metadata", {}).get("labels") or {}).get(ZONE_LABEL)
    if zone:
        endpoint["zone"] = zone
    return endpoint


def _skipped(service: Object, pod: Object) -> str:
    node = pod["spec"].get("nodeName") or ""
    name = pod["metadata"]["name"]
    return f"skipping Pod {name} for Service {key_of(service)}: Node {node} Not Found"


def _labels(service: Object) -> dict[str, str]:
    labels = {
        name: value
        for name, value in (service["metadata"].get("labels") or {}).items()
        if name not in _RESERVED
    }
    if not has_address(service):
        labels[HEADLESS_LABEL] = ""
    return {
        **labels,
        SERVICE_NAME_LABEL: service["metadata"]["name"],
        SLICE_MANAGED_BY_LABEL: _NAME,
    }


def _relabelled(service: Object, each: Object) -> Object | None:
    """Return a slice with the labels of its service; None: it has them."""
    wanted = _labels(service)
    own = each["metadata"].get("labels") or {}

    def free(labels: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in labels.items() if name not in _RESERVED}

    if free(own) == free(wanted):
        return None
    return {**each, "metadata": {**each["metadata"], "labels": wanted}}


def _new(service: Object, address_type: str, ports: Sequence[Object]) -> Object:
    meta = service["metadata"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": name_prefix(meta["name"]),
            "namespace": meta["namespace"],
            "labels": _labels(service),
            "ownerReferences": [
                controller_reference({**service, "apiVersion": "v1", "kind": "Service"})
            ],
        },
        "addressType": address_type,
        "endpoints": [],
        "ports": list(ports),
    }


def _is_placeholder(each: Object, placeholder: Object) -> bool:
    labels = each["metadata"].get("labels") or {}
    return (
        not each.get("endpoints")
        and not each.get("ports")
        and bool(labels == placeholder["metadata"]["labels"])
    )


def _timed(changes: Changes, time: str) -> Changes:
    return Changes(
        [_with_time(each, time) for each in changes.create],
        [_with_time(each, time) for each in changes.update],
        changes.delete,
    )


def _with_time(each: Object, time: str) -> Object:
    meta = dict(each["metadata"])
    annotations = with_trigger_time(meta.pop("annotations", None), time)
    if annotations:
        meta["annotations"] = annotations
    return {**each, "metadata": meta}


# Which services a change concerns.


def _keys_of_service(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    yield key_of(new or old or {})


def _keys_of_slice(old: Object | None, new: Object | None, view: View) -> Iterable[Later]:
    for each in (old, new):
        if each is not None and _is_managed(each):
            uid = each["metadata"]["uid"]
            version = "" if new is None else new["metadata"]["resourceVersion"]
            for key in service_of_slice(each):
                yield Later(f"{_SLICE}{key} {uid} {version}", _ECHO_S)
