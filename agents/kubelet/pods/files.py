"""The contents of volumes from the API: config maps, secrets, the downward API, and so on.

contents(pod, volume, objects, addresses, asked, …)  →  {"path/in/volume": File(bytes, mode)}

`asked` is what a node asked others for: tokens, trust bundles, certificates, by path in the volume.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.kubelet.pods.environment import (
    Addresses,
    ConfigurationError,
    Objects,
    data_of,
    field_value,
    resource_value,
)
from kvstack.agents.kubelet.pods.sandboxes import containers_of
from kvstack.apimachinery.objects.json_object import Object


class File(NamedTuple):
    """One file of a volume."""

    data: bytes
    mode: int
    user: int | None = None
    """The owner; None: root."""


Files: TypeAlias = dict[str, File]
"""By path in the volume."""

_MODE: Final = 0o644
FROM_API: Final = ("configMap", "secret", "downwardAPI", "projected")
"""Volumes whose contents come from the API."""
_CHANGING: Final = ("metadata.labels", "metadata.annotations")
_NOWHERE: Final = Addresses()


def contents(
    pod: Object,
    volume: Object,
    objects: Objects,
    addresses: Addresses,
    tokens: Mapping[str, bytes],
    allocatable: Mapping[str, str],
) -> Files:
    """Return the files of a volume; tokens: by path in the volume. ConfigurationError."""
    source = volume.get("projected") or volume.get("configMap") or volume.get("secret")
    default = (source or volume.get("downwardAPI") or {}).get("defaultMode", _MODE)
    files: Files = {}
    for each in (volume.get("projected") or {}).get("sources") or (volume,):
        if "configMap" in each:
            files |= _selected("ConfigMap", each["configMap"], objects, default)
        if "secret" in each:
            secret = {"name": each["secret"].get("secretName"), **each["secret"]}
            files |= _selected("Secret", secret, objects, default)
        if "downwardAPI" in each:
            files |= _downward(pod, each["downwardAPI"], addresses, default, allocatable)
        for path in asked_paths(each):
            files[path] = _private(pod, tokens[path], default)
    return files


_PRIVATE_MODE: Final = 0o600
_CERTIFICATE_PATHS: Final = ("credentialBundlePath", "keyPath", "certificateChainPath")


def asked_paths(source: Object) -> list[str]:
    """Return the paths of what a source of a volume has the node ask for."""
    for kind in ("serviceAccountToken", "clusterTrustBundle"):
        if kind in source:
            return [source[kind]["path"]]
    certificate = source.get("podCertificate") or {}
    return [certificate[name] for name in _CERTIFICATE_PATHS if certificate.get(name)]


def of_certificate(source: Object, key: bytes, chain: bytes) -> dict[str, bytes]:
    """Return the files of a certificate by path; key, chain: PEM."""
    texts = (key + chain, key, chain)
    named = zip(_CERTIFICATE_PATHS, texts, strict=True)
    return {source[name]: text for name, text in named if source.get(name)}


def _private(pod: Object, data: bytes, default: int) -> File:
    """Return a file that only who needs it may read, if that is known."""
    context = pod["spec"].get("securityContext") or {}
    users = {
        (each.get("securityContext") or {}).get("runAsUser", context.get("runAsUser"))
        for each in containers_of(pod)
    }
    user = users.pop() if len(users) == 1 else None
    if user is None and context.get("fsGroup") is None:
        return File(data, default)
    return File(data, _PRIVATE_MODE, user)


def _selected(kind: str, source: Object, objects: Objects, default: int) -> Files:
    name = source["name"]
    obj = objects.get((kind, name))
    is_optional = bool(source.get("optional"))
    if obj is None:
        if is_optional:
            return {}
        raise ConfigurationError(f'{kind.lower()} "{name}" not found')
    data = data_of(kind, obj)
    items = source.get("items")
    if not items:
        return {key: File(value, default) for key, value in data.items()}
    files: Files = {}
    for item in items:
        if item["key"] in data:
            mode = item.get("mode")
            files[item["path"]] = File(data[item["key"]], default if mode is None else mode)
        elif not is_optional:
            what = "config" if kind == "ConfigMap" else "secret"
            verb = (
                "configmap references non-existent"
                if what == "config"
                else "references non-existent"
            )
            raise ConfigurationError(f"{verb} {what} key: {item['key']}")
    return files


def changing_fields(pod: Object) -> dict[str, str]:
    """Return the labels and annotations that a pod's volumes show, by field path.

    All else that the downward API shows in volumes stays as it is while the pod runs.
    """
    fields: dict[str, str] = {}
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or (volume,):
            for item in (source.get("downwardAPI") or {}).get("items") or ():
                path = (item.get("fieldRef") or {}).get("fieldPath", "")
                if path.startswith(_CHANGING):
                    fields[path] = field_value(pod, path, _NOWHERE)
    return fields


def _downward(
    pod: Object, source: Object, addresses: Addresses, default: int, allocatable: Mapping[str, str]
) -> Files:
    files: Files = {}
    by_name = {each["name"]: each for each in containers_of(pod)}
    for item in source.get("items") or ():
        if "fieldRef" in item:
            text = field_value(pod, item["fieldRef"]["fieldPath"], addresses)
        else:
            reference = item["resourceFieldRef"]
            container = by_name.get(reference.get("containerName", ""), {})
            text = resource_value(container, reference, allocatable)
        mode = item.get("mode")
        files[item["path"]] = File(text.encode(), default if mode is None else mode)
    return files
