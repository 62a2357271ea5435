"""Addresses of kubelets: the preferred address of a node, and its kubelet port."""

from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.registry.keys import object_key
from kvstack.apiserver.verbs.call import Call

NODES: Final = GroupResource("", "nodes")
_PORT: Final = 10250
_WEB_SOCKETS: Final = "ExtendWebSocketsToKubelet"


class Address(NamedTuple):
    """The address of a kubelet."""

    host: str
    port: int
    takes_websockets: bool = False
    """Whether the node declares support for the WebSocket protocol of clients."""


async def kubelet_of(call: Call, name: str) -> Address:
    """Return the address of a node's kubelet; raises ApiError.

    The error says that the resource of the request is missing, as upstream's does.
    """
    registry = call.env.registry
    record = await registry.reads.get(registry.collection(NODES), object_key("", name), None)
    if record is None:
        raise status.not_found(call.endpoint.resource, name)
    node_status: dict[str, Any] = record.parse().get("status") or {}
    node_addresses = node_status.get("addresses") or []
    addresses = {each["type"]: each["address"] for each in reversed(node_addresses)}
    endpoint = (node_status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    for type_ in call.env.settings.kubelet_addresses:
        if type_ in addresses:
            features = node_status.get("declaredFeatures") or ()
            port = endpoint.get("Port") or _PORT
            return Address(addresses[type_], port, _WEB_SOCKETS in features)
    known = " ".join(f"{{{each['type']} {each['address']}}}" for each in node_addresses)
    raise status.unknown(f"no preferred addresses found; known addresses: [{known}]")
