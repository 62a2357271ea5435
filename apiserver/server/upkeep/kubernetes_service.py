"""The Service `kubernetes`, by which programs in the cluster reach its API servers.

    Service default/kubernetes           the first address of the range, port 443 → the secure port
    /registry/masterleases/192.0.2.7     one key a server, with a lease of 15 s, put every 10 s
    Endpoints, EndpointSlice             the addresses of all keys

A server that stops deletes its key; that of a killed server expires with its lease.
"""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import SERVICE_NAME_LABEL, SKIP_MIRROR_LABEL
from kvstack.apiserver.allocators.cluster_ips import AddressRange
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.server.certs.serving_certificate import first_address
from kvstack.apiserver.server.loopback import Loopback
from kvstore.client.values import prefix_end

PERIOD_S: Final = 10.0
LEASE_S: Final = 15
NAMESPACE: Final = "default"
NAME: Final = "kubernetes"

_SERVICES: Final = GroupResource("", "services")
_ENDPOINTS: Final = GroupResource("", "endpoints")
_SLICES: Final = GroupResource("discovery.k8s.io", "endpointslices")
RESOURCES: Final = (_SERVICES, _ENDPOINTS, _SLICES)
"""Which it makes and puts right."""
_LABELS: Final = {"component": "apiserver", "provider": "kubernetes"}
_SKIP_MIRROR: Final = {SKIP_MIRROR_LABEL: "true"}
_SERVICE_NAME: Final = {SERVICE_NAME_LABEL: NAME}
_PORT_NAME: Final = "https"
_SERVICE_PORT: Final = 443


class KubernetesService:
    """Maintains the Service and its endpoints."""

    def __init__(
        self,
        loopback: Loopback,
        registry: Registry,
        block: AddressRange,
        address: str,
        port: int,
        *,
        node_port: int = 0,
        keeps_endpoints: bool = True,
        is_alone: bool = False,
    ) -> None:
        """Maintain the Service at the first address of a block, and this server's endpoint.

        node_port: 0 is none. is_alone: there are no other servers that read the master lease.
        """
        self._loopback: Final = loopback
        self._registry: Final = registry
        self._cluster_ip: Final = first_address(block)
        self._address: Final = address
        self._port: Final = port
        self._node_port: Final = node_port
        self._keeps_endpoints: Final = keeps_endpoints
        self._is_alone: Final = is_alone
        self._family: Final = block.family
        self._leases: Final = f"{registry.watch_cache.prefixes.root}masterleases/".encode()

    async def keep(self) -> None:
        """Reconcile Service and endpoints; raises ApiError and StoreError."""
        await self._keep_service()
        if self._keeps_endpoints and self._is_alone:
            await self._keep_endpoints([self._address])
        elif self._keeps_endpoints:
            store = self._registry.store
            lease = await store.lease_grant(LEASE_S)
            await store.put(self._own_key, self._lease_value(), lease=lease.lease)
            await self._keep_endpoints(await self._addresses())

    async def leave(self) -> None:
        """Remove this server from the endpoints; raises ApiError and StoreError.

        The last address stays, as upstream: clients that know no other keep trying.
        """
        if self._keeps_endpoints and not self._is_alone:
            await self._registry.store.delete(self._own_key)
            await self._keep_endpoints(await self._addresses())

    @property
    def _own_key(self) -> bytes:
        return self._leases + self._address.encode()

    def _lease_value(self) -> bytes:
        subsets = [{"addresses": [{"ip": self._address}]}]
        return orjson.dumps(
            {"kind": "Endpoints", "apiVersion": "v1", "metadata": {}, "subsets": subsets}
        )

    async def _addresses(self) -> list[str]:
        """Return the addresses of all servers, sorted."""
        found = await self._registry.store.range(
            self._leases, prefix_end(self._leases), keys_only=True
        )
        return sorted(each.key[len(self._leases) :].decode() for each in found.kvs)

    async def _keep_service(self) -> None:
        port: dict[str, Any] = {
            "name": _PORT_NAME,
            "port": _SERVICE_PORT,
            "protocol": "TCP",
            "targetPort": self._port,
        }
        type_ = "ClusterIP"
        if self._node_port:
            type_ = "NodePort"
            port["nodePort"] = self._node_port
        service = self._loopback.get(_SERVICES, NAMESPACE, NAME)
        if service is None:
            metadata = {"name": NAME, "namespace": NAMESPACE, "labels": _LABELS}
            spec = {
                "clusterIP": self._cluster_ip,
                "ipFamilyPolicy": "SingleStack",
                "ports": [port],
                "sessionAffinity": "None",
                "type": type_,
            }
            await self._create(_SERVICES, {"metadata": metadata, "spec": spec})
        elif service["spec"].get("ports") != [port] or service["spec"].get("type") != type_:
            spec = {**service["spec"], "ports": [port], "type": type_}
            await self._loopback.update(_SERVICES, {**service, "spec": spec})

    async def _keep_endpoints(self, addresses: Sequence[str]) -> None:
        if not addresses:
            return
        port = {"name": _PORT_NAME, "port": self._port, "protocol": "TCP"}
        subset = {"addresses": [{"ip": each} for each in addresses], "ports": [port]}
        await self._put(_ENDPOINTS, _SKIP_MIRROR, {"subsets": [subset]})
        endpoints = [{"addresses": [each], "conditions": {"ready": True}} for each in addresses]
        body = {"addressType": self._family, "endpoints": endpoints, "ports": [port]}
        await self._put(_SLICES, _SERVICE_NAME, body)

    async def _put(
        self, resource: GroupResource, labels: dict[str, str], desired: dict[str, Any]
    ) -> None:
        """Create or update an object if it differs from the desired one."""
        stored = self._loopback.get(resource, NAMESPACE, NAME)
        if stored is None:
            metadata = {"name": NAME, "namespace": NAMESPACE, "labels": labels}
            await self._create(resource, {"metadata": metadata, **desired})
            return
        own = stored["metadata"].get("labels") or {}
        is_same = all((stored.get(name) or []) == value for name, value in desired.items())
        if is_same and all(own.get(name) == value for name, value in labels.items()):
            return
        metadata = {**stored["metadata"], "labels": {**own, **labels}}
        await self._loopback.update(resource, {**stored, "metadata": metadata, **desired})

    async def _create(self, resource: GroupResource, obj: Object) -> None:
        try:
            await self._loopback.create(resource, obj)
        except ApiError as error:
            if not error.is_conflict:
                raise
