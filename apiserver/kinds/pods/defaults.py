"""Defaults of pods and of the pod specs of workloads.

    default_spec(spec)     pods and templates
    default_pod(pod)       pods: requests from limits, host ports, service links

Constant defaults are in tables; functions set those that depend on other fields. Templates do not
get the defaults of pods alone, so that a new default does not change stored templates.
"""

from collections.abc import Mapping
from typing import Final

from kvstack.apimachinery.objects.core.containers import all_containers
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.amounts import round_up_amounts
from kvstack.apiserver.kinds.claim_specs import default_claim_spec
from kvstack.apiserver.kinds.pods.containers.images import tag_of_image

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE: Final = {
    "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
}  # fmt: skip
_SOURCES: Final[Mapping[str, Mapping[str, object]]] = {
    "hostPath": {"type": ""},
    "secret": {"defaultMode": 420},
    "configMap": {"defaultMode": 420},
    "downwardAPI": {"defaultMode": 420},
    "projected": {"defaultMode": 420},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "readOnly": False,
        "kind": "Shared",
    },
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
"""Defaults of volume sources, shared with persistent volumes."""


def default_pod(pod: Object) -> None:
    """Set the defaults of a pod."""
    spec = pod.get("spec")
    if spec is not None:
        _default_pod_spec(spec)
        default_spec(spec)
    status = pod.get("status")
    if status:
        _default_status(status)


def default_template(template: Object) -> None:
    """Set the defaults of a pod template."""
    spec = template.get("spec")
    if spec is not None:
        default_spec(spec)


def default_spec(spec: Object) -> None:
    """Set the defaults of a pod's spec that templates get too."""
    _default_service_account(spec)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for container in all_containers(spec):
        _default_container(container)
    round_up_amounts(spec.get("overhead"))
    _round_up(spec.get("resources"))


def default_volume_source(source_holder: Object) -> None:
    """Set the constant defaults of a volume source, of a pod or a persistent volume."""
    for name in source_holder.keys() & _SOURCES.keys():
        source = source_holder[name]
        if source is not None:
            for field, value in _SOURCES[name].items():
                source.setdefault(field, value)


def _default_service_account(spec: Object) -> None:
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name


def _default_pod_spec(spec: Object) -> None:
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        spec["terminationGracePeriodSeconds"] = 1
    uses_host_network = spec.get("hostNetwork")
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            resources = container.get("resources")
            if resources:
                _requests_from_limits(resources)
            if uses_host_network:
                for port in container.get("ports") or ():
                    if not port.get("hostPort") and port.get("containerPort"):
                        port["hostPort"] = port["containerPort"]
    spec.setdefault("enableServiceLinks", True)


def _requests_from_limits(resources: Object) -> None:
    limits = resources.get("limits")
    if limits:
        requests = resources.get("requests") or {}
        resources["requests"] = requests
        for name, amount in limits.items():
            requests.setdefault(name, amount)


def _default_volume(volume: Object) -> None:
    if not any(value is not None for name, value in volume.items() if name != "name"):
        volume["emptyDir"] = {}
        return
    default_volume_source(volume)
    image = volume.get("image")
    if image is not None:
        image.setdefault("pullPolicy", _pull_policy(image.get("reference", "")))
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _default_field_reference(item.get("fieldRef"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _default_field_reference(item.get("fieldRef"))
        token = source.get("serviceAccountToken")
        if token is not None:
            token.setdefault("expirationSeconds", 3600)
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        default_claim_spec(template.setdefault("spec", {}))


def _default_container(container: Object) -> None:
    container.setdefault("imagePullPolicy", _pull_policy(container.get("image", "")))
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        if source is not None:
            _default_field_reference(source.get("fieldRef"))
            file = source.get("fileKeyRef")
            if file is not None:
                file.setdefault("optional", False)
    _round_up(container.get("resources"))
    for name in _PROBES:
        probe = container.get(name)
        if probe is not None:
            for field, value in _PROBE.items():
                probe.setdefault(field, value)
            _default_http_get(probe.get("httpGet"))
            if probe.get("grpc") is not None and probe["grpc"].get("service") is None:
                # Decoding gives every action the member: Go writes it even if it is not set.
                probe["grpc"]["service"] = ""
    lifecycle = container.get("lifecycle")
    if lifecycle is not None:
        for name in ("postStart", "preStop"):
            _default_http_get((lifecycle.get(name) or {}).get("httpGet"))


def _default_http_get(action: Object | None) -> None:
    if action is not None:
        action.setdefault("path", "/")
        action.setdefault("scheme", "HTTP")


def _default_field_reference(reference: Object | None) -> None:
    if reference is not None:
        reference.setdefault("apiVersion", "v1")


def _default_status(status: Object) -> None:
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address:
        if not addresses or addresses[0].get("ip") != address:
            status["podIPs"] = [{"ip": address}]
    elif addresses and addresses[0].get("ip"):
        status["podIP"] = addresses[0]["ip"]
    for name in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(name) or ():
            round_up_amounts(each.get("allocatedResources"))
            _round_up(each.get("resources"))
    round_up_amounts(status.get("allocatedResources"))
    _round_up(status.get("resources"))


def _round_up(resources: Object | None) -> None:
    if resources:
        round_up_amounts(resources.get("limits"))
        round_up_amounts(resources.get("requests"))


def _pull_policy(image: str) -> str:
    return "Always" if tag_of_image(image) == "latest" else "IfNotPresent"
