"""Mirroring: EndpointSlices of Endpoints that others write for a service.

    Endpoints of a service without a selector ─► a slice for each subset and address family

Not mirrored: Endpoints that are labelled so, and those that served to elect a leader. Addresses
beyond the limit of a subset are left out, with an event; so are those that are none.
"""

import ipaddress
from collections.abc import Generator, Iterable, Sequence
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.network.port_order import in_slice_order
from kvstack.agents.controllers.network.slices.packing import (
    Changes,
    Key,
    is_as,
    key_of_endpoint,
    renamed,
)
from kvstack.agents.controllers.network.slices.service_slices import service_of_slice
from kvstack.agents.controllers.network.slices.writing import name_prefix, write
from kvstack.agents.controllers.network.subsets import repacked
from kvstack.agents.controllers.ownership import controller_reference
from kvstack.agents.reconcile.plan import (
    BackOff,
    BaseController,
    Identity,
    Index,
    Outcome,
    Plan,
    Record,
    Step,
    View,
    Watch,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    ENDPOINTS_LEADER_ANNOTATION,
    ENDPOINTS_TRIGGER_TIME_ANNOTATION,
    LAST_APPLIED_ANNOTATION,
    SERVICE_NAME_LABEL,
    SKIP_MIRROR_LABEL,
    SLICE_MANAGED_BY_LABEL,
)

_NAME: Final = "endpointslicemirroring-controller.k8s.io"
_INDEX: Final = "service of slice"
_NOT_COPIED: Final = frozenset((ENDPOINTS_TRIGGER_TIME_ANNOTATION, LAST_APPLIED_ANNOTATION))
_SliceKey: TypeAlias = tuple[object, ...]


class Mirroring(BaseController):
    """Keeps slices like Endpoints."""

    back_off = BackOff(base_s=1.0, max_s=100.0, retries_max=15)

    def __init__(self, limit: int) -> None:
        """limit: addresses of a subset that are mirrored."""
        self.identity: Identity = Identity(
            "endpointslice-mirroring-controller",
            "endpointslicemirroring-controller",
            "endpoint-slice-mirroring-controller",
        )
        self.watches: Sequence[Watch] = (
            Watch(ENDPOINTS, _keys_of_either),
            Watch(SERVICES, _keys_of_service),
            Watch(ENDPOINT_SLICES, _keys_of_slice),
        )
        self.indexes = (Index(ENDPOINT_SLICES, _INDEX, service_of_slice),)
        self._limit = limit

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one Endpoints."""
        endpoints = view.get(ENDPOINTS, key)
        service = view.get(SERVICES, key)
        slices = [each for each in view.by_index(ENDPOINT_SLICES, _INDEX, key) if _is_mirror(each)]
        if (
            endpoints is None
            or not _is_mirrored(endpoints)
            or service is None
            or service["spec"].get("selector")
        ):
            if slices:
                yield from write(slices[0], Changes(delete=slices))
            return None
        yield from self._mirror(endpoints, slices)
        return None

    def _mirror(
        self, endpoints: Object, slices: Sequence[Object]
    ) -> Generator[Step, list[Outcome], None]:
        desired, ports, warnings = self._desired_slices(endpoints)
        slices_by_key: dict[_SliceKey, list[Object]] = {}
        for each in slices:
            key = _slice_key(each["addressType"], each.get("ports") or ())
            slices_by_key.setdefault(key, []).append(each)
        yield [Record(endpoints, "Warning", *warning) for warning in warnings]
        changes = Changes()
        for key, found in desired.items():
            existing = slices_by_key.pop(key, [])
            if not found:
                changes.delete += existing
                continue
            changes.delete += existing[1:]
            if existing and _is_current(existing[0], endpoints, found):
                continue
            new = _slice(endpoints, str(key[0]), ports[key], list(found.values())[: self._limit])
            if existing:
                changes.update.append(renamed(new, existing[0]))
            else:
                changes.create.append(new)
        for rest in slices_by_key.values():
            changes.delete += rest
        changes.update = [_without_prefix(each) for each in changes.update]
        changes.recycle(lambda _: True)
        yield from write(endpoints, changes)

    def _desired_slices(
        self, endpoints: Object
    ) -> tuple[
        dict[_SliceKey, dict[Key, Object]], dict[_SliceKey, list[Object]], list[tuple[str, str]]
    ]:
        """Return endpoints and ports of each slice, and what is to be warned of."""
        desired: dict[_SliceKey, dict[Key, Object]] = {}
        ports_of: dict[_SliceKey, list[Object]] = {}
        invalid = skipped = 0
        for subset in repacked(endpoints.get("subsets") or ()):
            ports = in_slice_order(map(_port, subset.get("ports") or ()))
            for family in ("IPv4", "IPv6"):
                key = _slice_key(family, ports)
                desired.setdefault(key, {})
                ports_of[key] = ports
            added = total = 0
            for name, is_ready in (("addresses", True), ("notReadyAddresses", False)):
                for address in subset.get(name) or ():
                    total += 1
                    if added >= self._limit:
                        continue
                    found = _endpoint(address, is_ready=is_ready)
                    if found is None:
                        invalid += 1
                        continue
                    family, endpoint = found
                    desired[_slice_key(family, ports)][key_of_endpoint(endpoint)] = endpoint
                    added += 1
            skipped += total - added
        return desired, ports_of, self._warnings(invalid, skipped)

    def _warnings(self, invalid: int, skipped: int) -> list[tuple[str, str]]:
        warnings = []
        if invalid:
            text = f"Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"
            warnings.append(("InvalidIPAddress", text))
        if skipped > invalid:
            text = (
                f"A max of {self._limit} addresses can be mirrored to EndpointSlices per Endpoints"
                f" subset. {skipped} addresses were skipped"
            )
            warnings.append(("TooManyAddressesToMirror", text))
        return warnings


def _is_mirror(each: Object) -> bool:
    return (each["metadata"].get("labels") or {}).get(SLICE_MANAGED_BY_LABEL) == _NAME


def _is_mirrored(endpoints: Object) -> bool:
    meta = endpoints["metadata"]
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    return (
        labels.get(SKIP_MIRROR_LABEL) != "true" and ENDPOINTS_LEADER_ANNOTATION not in annotations
    )


def _slice_key(family: str, ports: Iterable[Object]) -> _SliceKey:
    return (
        family,
        *sorted(
            (
                port.get("name") or "",
                port.get("protocol") or "",
                port.get("port") or 0,
                port.get("appProtocol") or "",
            )
            for port in ports
        ),
    )


def _port(port: Object) -> Object:
    made = {"name": port.get("name", ""), "protocol": port["protocol"], "port": port["port"]}
    if port.get("appProtocol"):
        made["appProtocol"] = port["appProtocol"]
    return made


def _endpoint(address: Object, *, is_ready: bool) -> tuple[str, Object] | None:
    """Return family and endpoint of an address; None: it is not an address."""
    try:
        ip = ipaddress.ip_address(address["ip"])
    except ValueError:
        return None
    endpoint: Object = {"addresses": [str(ip)], "conditions": {"ready": is_ready}}
    for name in ("hostname", "nodeName", "targetRef"):
        if address.get(name):
            endpoint[name] = address[name]
    return f"IPv{ip.version}", endpoint


def _copied(annotations: dict[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (annotations or {}).items() if name not in _NOT_COPIED}


def _is_current(each: Object, endpoints: Object, desired: dict[Key, Object]) -> bool:
    """Whether a slice is up to date."""
    known = {key_of_endpoint(endpoint): endpoint for endpoint in each.get("endpoints") or ()}
    if known.keys() != desired.keys():
        return False
    if not all(is_as(known[key], endpoint) for key, endpoint in desired.items()):
        return False
    meta, own = endpoints["metadata"], each["metadata"]
    labels = dict(own.get("labels") or {})
    for name in (SLICE_MANAGED_BY_LABEL, SERVICE_NAME_LABEL):
        labels.pop(name, None)
    if labels != (meta.get("labels") or {}):
        return False
    if (own.get("annotations") or {}) != _copied(meta.get("annotations")):
        return False
    return not any(
        owner["kind"] == "Endpoints"
        and owner["name"] == meta["name"]
        and owner["uid"] != meta["uid"]
        for owner in own.get("ownerReferences") or ()
    )


def _slice(
    endpoints: Object, family: str, ports: Sequence[Object], members: Sequence[Object]
) -> Object:
    meta = endpoints["metadata"]
    new_meta: Object = {
        "generateName": name_prefix(meta["name"]),
        "namespace": meta["namespace"],
        "labels": {
            **(meta.get("labels") or {}),
            SERVICE_NAME_LABEL: meta["name"],
            SLICE_MANAGED_BY_LABEL: _NAME,
        },
        "ownerReferences": [
            controller_reference({**endpoints, "apiVersion": "v1", "kind": "Endpoints"})
        ],
    }
    if annotations := _copied(meta.get("annotations")):
        new_meta["annotations"] = annotations
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": new_meta,
        "addressType": family,
        "endpoints": list(members),
        "ports": list(ports),
    }


def _without_prefix(each: Object) -> Object:
    meta = {name: value for name, value in each["metadata"].items() if name != "generateName"}
    return {**each, "metadata": meta}


# Which Endpoints a change concerns.


def _keys_of_either(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if any(each is not None and _is_mirrored(each) for each in (old, new)):
        yield key_of(new or old or {})


def _keys_of_service(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    selected = [bool(each["spec"].get("selector")) for each in (old, new) if each is not None]
    if (len(selected) == 1 and not selected[0]) or len(set(selected)) == 2:
        yield key_of(new or old or {})


def _keys_of_slice(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    for each in (old, new):
        if each is not None and _is_mirror(each):
            yield from service_of_slice(each)
