"""The Secrets and ConfigMaps that a pod refers to."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvstack.apimachinery.objects.core.containers import all_containers
from kvstack.apimachinery.well_known import MIRROR_ANNOTATION

Obj = Mapping[str, Any]


_SECRETS_OF_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "azureFile": ("secretName",),
    "cephfs": ("secretRef", "name"),
    "cinder": ("secretRef", "name"),
    "csi": ("nodePublishSecretRef", "name"),
    "flexVolume": ("secretRef", "name"),
    "iscsi": ("secretRef", "name"),
    "rbd": ("secretRef", "name"),
    "scaleIO": ("secretRef", "name"),
    "secret": ("secretName",),
    "storageos": ("secretRef", "name"),
}
"""The field of each volume source that names its Secret."""


def is_mirror(pod: Obj) -> bool:
    """Return whether a kubelet runs the pod from a file."""
    return MIRROR_ANNOTATION in (pod["metadata"].get("annotations") or {})


def secret_names(pod: Obj) -> Iterator[str]:
    """Yield the names of all Secrets that a pod needs; some may occur twice."""
    spec = pod.get("spec") or {}
    for reference in spec.get("imagePullSecrets") or ():
        if name := reference.get("name"):
            yield name
    yield from _of_containers(spec, "secretRef", "secretKeyRef")
    for volume in spec.get("volumes") or ():
        for kind, path in _SECRETS_OF_SOURCES.items():
            if name := _at(volume.get(kind), path):
                yield name
        yield from _of_projection(volume, "secret")


def config_map_names(pod: Obj) -> Iterator[str]:
    """Yield the names of all ConfigMaps that a pod needs; some may occur twice."""
    spec = pod.get("spec") or {}
    yield from _of_containers(spec, "configMapRef", "configMapKeyRef")
    for volume in spec.get("volumes") or ():
        if name := _at(volume.get("configMap"), ("name",)):
            yield name
        yield from _of_projection(volume, "configMap")


def _of_containers(spec: Obj, whole: str, key: str) -> Iterator[str]:
    for container in all_containers(dict(spec)):
        for source in container.get("envFrom") or ():
            if name := _at(source.get(whole), ("name",)):
                yield name
        for variable in container.get("env") or ():
            if name := _at(variable.get("valueFrom"), (key, "name")):
                yield name


def _of_projection(volume: Obj, kind: str) -> Iterator[str]:
    for source in (volume.get("projected") or {}).get("sources") or ():
        if name := _at(source.get(kind), ("name",)):
            yield name


def _at(value: Any, path: tuple[str, ...]) -> str:  # noqa: ANN401 — a value of JSON
    for member in path:
        if not value:
            return ""
        value = value.get(member)
    return value or ""
