"""The contents of volumes that the API holds: config maps, secrets, the downward API, tokens.

contents(pod, volume, objects, addresses, token)  →  {"path/in/volume": File(bytes, mode)}
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.agents.kubelet.pods.environment import (
    Addresses,
    ConfigurationError,
    Objects,
    data_of,
    field_value,
    resource_value,
)
from kvstack.agents.kubelet.pods.sandboxes import containers_of

Object: TypeAlias = dict[str, Any]


class File(NamedTuple):
    """One file of a volume."""

    data: bytes
    mode: int
    user: int | None = None
    """Whose it is; None: root's."""


Files: TypeAlias = dict[str, File]
"""By path in the volume."""

_MODE: Final = 0o644
FROM_API: Final = ("configMap", "secret", "downwardAPI", "projected")
"""Volumes whose contents come from the API."""


def token_requests(volume: Object) -> list[Object]:
    """Return the tokens that a volume holds, as its sources ask for them."""
    sources = (volume.get("projected") or {}).get("sources") or ()
    return [each["serviceAccountToken"] for each in sources if "serviceAccountToken" in each]


def contents(
    pod: Object,
    volume: Object,
    objects: Objects,
    addresses: Addresses,
    tokens: Mapping[str, str],
    allocatable: Mapping[str, str],
) -> Files:
    """Return the files of a volume; tokens: by path in the volume. ConfigurationError."""
    source = volume.get("projected") or volume.get("configMap") or volume.get("secret")
    default = (source or volume.get("downwardAPI") or {}).get("defaultMode", _MODE)
    found: Files = {}
    for each in (volume.get("projected") or {}).get("sources") or (volume,):
        if "configMap" in each:
            found |= _selected("ConfigMap", each["configMap"], objects, default)
        if "secret" in each:
            secret = {"name": each["secret"].get("secretName"), **each["secret"]}
            found |= _selected("Secret", secret, objects, default)
        if "downwardAPI" in each:
            found |= _downward(pod, each["downwardAPI"], addresses, default, allocatable)
        if "serviceAccountToken" in each:
            path = each["serviceAccountToken"]["path"]
            found[path] = _token(pod, tokens[path], default)
    return found


_TOKEN_MODE: Final = 0o600


def _token(pod: Object, text: str, default: int) -> File:
    """Return the file of a token: only who needs it may read it, if that is known."""
    context = pod["spec"].get("securityContext") or {}
    users = {
        (each.get("securityContext") or {}).get("runAsUser", context.get("runAsUser"))
        for each in containers_of(pod)
    }
    user = users.pop() if len(users) == 1 else None
    if user is None and context.get("fsGroup") is None:
        return File(text.encode(), default)
    return File(text.encode(), _TOKEN_MODE, user)


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
    found: Files = {}
    for item in items:
        if item["key"] in data:
            mode = item.get("mode")
            found[item["path"]] = File(data[item["key"]], default if mode is None else mode)
        elif not is_optional:
            what = "config" if kind == "ConfigMap" else "secret"
            verb = (
                "configmap references non-existent"
                if what == "config"
                else "references non-existent"
            )
            raise ConfigurationError(f"{verb} {what} key: {item['key']}")
    return found


def _downward(
    pod: Object, source: Object, addresses: Addresses, default: int, allocatable: Mapping[str, str]
) -> Files:
    found: Files = {}
    by_name = {each["name"]: each for each in containers_of(pod)}
    for item in source.get("items") or ():
        if "fieldRef" in item:
            text = field_value(pod, item["fieldRef"]["fieldPath"], addresses)
        else:
            reference = item["resourceFieldRef"]
            container = by_name.get(reference.get("containerName", ""), {})
            text = resource_value(container, reference, allocatable)
        mode = item.get("mode")
        found[item["path"]] = File(text.encode(), default if mode is None else mode)
    return found
