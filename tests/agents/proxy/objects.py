"""Services and EndpointSlices of tests."""

from typing import Any

from kvstack.apimachinery.objects.json_object import Object


def service(name: str = "web", *ports: Object, **spec: Any) -> Object:
    """Return a Service of the namespace ns; a status may be among its members."""
    status = spec.pop("status", {})
    labels = spec.pop("labels", {})
    version = spec.pop("version", "1")
    given = {"type": "ClusterIP", "clusterIP": "10.96.0.10", **spec}
    given.setdefault("clusterIPs", [given["clusterIP"]])
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": labels,
            "uid": name,
            "resourceVersion": version,
        },
        "spec": {**given, "ports": list(ports) or [{"port": 80, "protocol": "TCP"}]},
        "status": status,
    }


def balanced(*addresses: str, **spec: Any) -> Object:
    """Return a Service whose load balancer has addresses."""
    ingress = [{"ip": each, "ipMode": "VIP"} for each in addresses]
    spec.setdefault("type", "LoadBalancer")
    return service(status={"loadBalancer": {"ingress": ingress}}, **spec)


def endpoint(address: str, node: str = "here", conditions: str = "", **members: Any) -> Object:
    """Return an endpoint; conditions: of `ready serving terminating`, what is not as usual."""
    told: Object = {"ready": True, "serving": True, "terminating": False}
    if conditions == "draining":
        told = {"ready": False, "serving": True, "terminating": True}
    elif conditions == "not ready":
        told = {"ready": False, "serving": False, "terminating": False}
    return {"addresses": [address], "nodeName": node, "conditions": told, **members}


def endpoint_slice(
    *endpoints: Object,
    name: str = "web-1",
    of: str = "web",
    port: int = 8080,
    port_name: str = "",
    protocol: str = "TCP",
    family: str = "IPv4",
) -> Object:
    """Return a slice of a Service of the namespace ns."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "labels": {"kubernetes.io/service-name": of},
            "uid": name,
            "resourceVersion": "1",
        },
        "addressType": family,
        "ports": [{"name": port_name, "port": port, "protocol": protocol}],
        "endpoints": list(endpoints),
    }
