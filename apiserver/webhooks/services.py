"""Endpoints of a Service for calls by the API server.

    services.endpoints("hooks", "policy", 443)   → [("10.0.0.7", 8443)]

The API server has no proxy for cluster IPs, so it calls the ready endpoints directly, as upstream
does with `--enable-aggregator-routing`. EndpointSlices come first; if there are none, Endpoints
count.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import SERVICE_NAME_LABEL

SERVICES: Final = GroupResource("", "services")
ENDPOINTS: Final = GroupResource("", "endpoints")
SLICES: Final = GroupResource("discovery.k8s.io", "endpointslices")

Address = tuple[str, int]


class ServiceError(OSError):
    """A Service cannot be reached; the text says why."""


class Objects(Protocol):
    """The watch cache."""

    def get(self, resource: GroupResource, namespace: str, name: str) -> Object | None:
        """Return an object; None: it does not exist."""
        ...

    def list(self, resource: GroupResource, namespace: str | None = None) -> Iterable[Object]:
        """Return the objects of a namespace."""
        ...


class Services:
    """Finds the endpoints of Services."""

    def __init__(self, view: Objects) -> None:
        self._view: Final = view

    def endpoints(self, namespace: str, name: str, port: int) -> list[Address]:
        """Return the endpoints of a Service's port; raises ServiceError if there are none."""
        service = self._view.get(SERVICES, namespace, name)
        if service is None:
            raise ServiceError(f"service {quote(name)} not found")
        spec = service.get("spec") or {}
        if spec.get("type") == "ExternalName":
            return [(spec.get("externalName", ""), port)]
        given = next((each for each in spec.get("ports") or () if each.get("port") == port), None)
        if given is None:
            raise ServiceError(f"no service port {port} found for service {quote(name)}")
        port_name = given.get("name", "")
        found = list(self._of_slices(namespace, name, port_name))
        if not found:
            found = list(self._of_endpoints(namespace, name, port_name))
        if not found:
            raise ServiceError(f"no endpoints available for service {quote(name)}")
        return found

    def slices(self, namespace: str, name: str) -> list[Object]:
        """Return the EndpointSlices of a Service."""
        return [
            each
            for each in self._view.list(SLICES, namespace)
            if (each["metadata"].get("labels") or {}).get(SERVICE_NAME_LABEL) == name
        ]

    def _of_slices(self, namespace: str, name: str, port_name: str) -> Iterator[Address]:
        for each in self.slices(namespace, name):
            port = _port(each.get("ports"), port_name)
            if not port:
                continue
            for endpoint in each.get("endpoints") or ():
                if (endpoint.get("conditions") or {}).get("ready") is not False:
                    for address in (endpoint.get("addresses") or ())[:1]:
                        yield address, port

    def _of_endpoints(self, namespace: str, name: str, port_name: str) -> Iterator[Address]:
        found = self._view.get(ENDPOINTS, namespace, name) or {}
        for subset in found.get("subsets") or ():
            port = _port(subset.get("ports"), port_name)
            if port:
                for address in subset.get("addresses") or ():
                    yield address["ip"], port


def _port(ports: Iterable[Object] | None, name: str) -> int:
    for each in ports or ():
        if (each.get("name") or "") == name and each.get("port"):
            return int(each["port"])
    return 0
