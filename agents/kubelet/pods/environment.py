"""The variables of a container: service variables, then envFrom, then env; later ones win.

    objects = references(pod)      which config maps and secrets must be read first
    variables(pod, container, objects, services, addresses)

ConfigurationError: something that a container needs is not there; its text is upstream's.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.kubelet.pods.env_file import EnvFileError, parse_env_file
from kvstack.agents.kubelet.pods.sandboxes import containers_of
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse as parse_quantity

Objects: TypeAlias = Mapping[tuple[str, str], Object | None]
"""Objects of the pod's namespace, by kind (ConfigMap, Secret) and name; None: missing."""
EnvFiles: TypeAlias = Mapping[tuple[str, str], str | None]
"""The contents of files with variables, by volume and path; None: missing."""


class ConfigurationError(Exception):
    """A container cannot be configured."""


def references(pod: Object) -> set[tuple[str, str]]:
    """Return kind and name of what a pod's containers and volumes are made from."""
    found = volume_references(pod)
    for container in containers_of(pod):
        for source in container.get("envFrom") or ():
            found.update(_references(source, "configMapRef", "secretRef"))
        for variable in container.get("env") or ():
            origin = variable.get("valueFrom") or {}
            found.update(_references(origin, "configMapKeyRef", "secretKeyRef"))
    return found


def volume_references(pod: Object) -> set[tuple[str, str]]:
    """Return kind and name of what a pod's volumes show."""
    kinds_and_names: set[tuple[str, str]] = set()
    for volume in pod["spec"].get("volumes") or ():
        for source in [volume, *((volume.get("projected") or {}).get("sources") or ())]:
            if "configMap" in source:
                kinds_and_names.add(("ConfigMap", source["configMap"]["name"]))
            if "secret" in source:
                secret = source["secret"]
                kinds_and_names.add(("Secret", secret.get("secretName") or secret["name"]))
    return kinds_and_names


def _references(source: Object, config_map: str, secret: str) -> Iterator[tuple[str, str]]:
    if config_map in source:
        yield "ConfigMap", source[config_map]["name"]
    if secret in source:
        yield "Secret", source[secret]["name"]


class Addresses(NamedTuple):
    """The addresses of a pod and its node, the primary one first."""

    hosts: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


def variables(
    pod: Object,
    container: Object,
    objects: Objects,
    services: Iterable[Object],
    addresses: Addresses,
    allocatable: Mapping[str, str],
    env_files: EnvFiles | None = None,
) -> dict[str, str]:
    """Return the variables of a container; services: those that it is to know.

    env_files: those that it refers to.
    """
    values = service_variables(services)
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        values |= {prefix + key: value for key, value in _all_of(source, objects).items()}
    for variable in container.get("env") or ():
        name = variable["name"]
        origin = variable.get("valueFrom")
        if origin is None:
            values[name] = expand(variable.get("value") or "", values)
            continue
        if "fileKeyRef" in origin:
            value = _of_file(origin["fileKeyRef"], env_files or {})
        else:
            value = _value_from(pod, container, origin, objects, addresses, allocatable)
        if value is not None:
            values[name] = value
    return values


def expand(text: str, values: Mapping[str, str]) -> str:
    """Return a text with its $(NAME) replaced; unknown ones stay, $$ is one dollar."""
    parts = []
    at = 0
    while (dollar := text.find("$", at)) >= 0 and dollar + 1 < len(text):
        parts.append(text[at:dollar])
        following = text[dollar + 1]
        end = text.find(")", dollar) if following == "(" else -1
        if following == "$":
            parts.append("$")
            at = dollar + 2
        elif end >= 0:
            name = text[dollar + 2 : end]
            parts.append(values.get(name, text[dollar : end + 1]))
            at = end + 1
        else:
            parts.append(text[dollar : dollar + 2])
            at = dollar + 2
    return "".join([*parts, text[at:]])


def literal_variables(container: Object) -> dict[str, str]:
    """Return the variables of a container as far as they stand in its specification."""
    return {each["name"]: each.get("value") or "" for each in container.get("env") or ()}


def references_of(text: str) -> list[str]:
    """Return the names of variables that a text refers to."""
    references = []
    at = 0
    while (dollar := text.find("$", at)) >= 0 and dollar + 1 < len(text):
        end = text.find(")", dollar) if text[dollar + 1] == "(" else -1
        if end >= 0:
            references.append(text[dollar + 2 : end])
        at = dollar + 2 if end < 0 else end + 1
    return references


def service_variables(services: Iterable[Object]) -> dict[str, str]:
    """Return the environment variables of services with addresses."""
    variables: dict[str, str] = {}
    for service in services:
        spec = service["spec"]
        address, ports = spec.get("clusterIP"), spec.get("ports") or ()
        if not address or address == "None" or not ports:
            continue
        name = service["metadata"]["name"].upper().replace("-", "_")
        shown = f"[{address}]" if ":" in address else address
        variables[f"{name}_SERVICE_HOST"] = address
        variables[f"{name}_SERVICE_PORT"] = str(ports[0]["port"])
        for number, port in enumerate(ports):
            if port.get("name"):
                suffix = port["name"].upper().replace("-", "_")
                variables[f"{name}_SERVICE_PORT_{suffix}"] = str(port["port"])
            protocol = port.get("protocol", "TCP")
            url = f"{protocol.lower()}://{shown}:{port['port']}"
            if number == 0:
                variables[f"{name}_PORT"] = url
            prefix = f"{name}_PORT_{port['port']}_{protocol}"
            variables[prefix] = url
            variables[f"{prefix}_PROTO"] = protocol.lower()
            variables[f"{prefix}_PORT"] = str(port["port"])
            variables[f"{prefix}_ADDR"] = address
    return variables


def data_of(kind: str, obj: Object) -> dict[str, bytes]:
    """Return the contents of a config map or secret."""
    data = obj.get("data") or {}
    if kind == "Secret":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary = obj.get("binaryData") or {}
    return {
        **{key: value.encode() for key, value in data.items()},
        **{key: base64.b64decode(value) for key, value in binary.items()},
    }


_NANO: Final = -9
_LOWER: Final = {"ConfigMap": "configmap", "Secret": "secret"}


def _object(kind: str, reference: Object, objects: Objects) -> Object | None:
    """Return what is referred to; None: it need not be there, and is not."""
    name = reference["name"]
    found = objects.get((kind, name))
    if found is None and not reference.get("optional"):
        raise ConfigurationError(f'{_LOWER[kind]} "{name}" not found')
    return found


def _all_of(source: Object, objects: Objects) -> dict[str, str]:
    is_secret = "secretRef" in source
    kind = "Secret" if is_secret else "ConfigMap"
    obj = _object(kind, source["secretRef" if is_secret else "configMapRef"], objects)
    if obj is None:
        return {}
    if not is_secret:
        return dict(obj.get("data") or {})
    return {key: value.decode("utf-8", "replace") for key, value in data_of(kind, obj).items()}


def _value_from(
    pod: Object,
    container: Object,
    origin: Object,
    objects: Objects,
    addresses: Addresses,
    allocatable: Mapping[str, str],
) -> str | None:
    if "fieldRef" in origin:
        return field_value(pod, origin["fieldRef"]["fieldPath"], addresses)
    if "resourceFieldRef" in origin:
        return resource_value(container, origin["resourceFieldRef"], allocatable)
    for kind, field in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
        if field not in origin:
            continue
        reference = origin[field]
        obj = _object(kind, reference, objects)
        if obj is None:
            return None
        value = data_of(kind, obj).get(reference["key"])
        if value is None and not reference.get("optional"):
            owner = f"{pod['metadata']['namespace']}/{reference['name']}"
            raise ConfigurationError(f"couldn't find key {reference['key']} in {kind} {owner}")
        return None if value is None else value.decode("utf-8", "replace")
    kinds = ", ".join(origin)
    raise ConfigurationError(f"{kinds} is not supported by the process runtime of this node")


def env_file_references(container: Object) -> list[tuple[str, str]]:
    """Return volumes and paths of the files that variables of a container come from."""
    origins = [each.get("valueFrom") or {} for each in container.get("env") or ()]
    return [
        (each["fileKeyRef"]["volumeName"], each["fileKeyRef"]["path"])
        for each in origins
        if "fileKeyRef" in each
    ]


def _of_file(reference: Object, env_files: EnvFiles) -> str | None:
    text = env_files.get((reference["volumeName"], reference["path"]))
    is_optional = bool(reference.get("optional"))
    path, key = reference["path"], reference["key"]
    if text is None:
        if is_optional:
            return None
        raise ConfigurationError(f'environment variable file "{path}" does not exist')
    try:
        value = parse_env_file(text).get(key)
    except EnvFileError as error:
        raise ConfigurationError(f'couldn\'t parse env file "{path}": {error}') from error
    if value is None and not is_optional:
        text = f'environment variable key "{key}" not found in file "{path}"'
        raise ConfigurationError(text)
    return value


def field_value(pod: Object, path: str, addresses: Addresses) -> str:
    """Return what a field reference of the downward API says."""
    meta, spec = pod["metadata"], pod["spec"]
    if path.endswith("']"):
        group, _, key = path[:-2].partition("['")
        found: str = (meta.get(group.removeprefix("metadata.")) or {}).get(key, "")
        return found
    if path in ("metadata.labels", "metadata.annotations"):
        values = meta.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{key}="{_escaped(values[key])}"' for key in sorted(values))
    by_path = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": next(iter(addresses.hosts), ""),
        "status.hostIPs": ",".join(addresses.hosts),
        "status.podIP": next(iter(addresses.pods), ""),
        "status.podIPs": ",".join(addresses.pods),
    }
    if path not in by_path:
        raise ConfigurationError(f"unsupported fieldPath: {path}")
    return str(by_path[path])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resource_value(container: Object, reference: Object, allocatable: Mapping[str, str]) -> str:
    """Return what a resource reference says; the node's is the limit of what has none."""
    where, _, name = reference["resource"].partition(".")
    found = ((container.get("resources") or {}).get(where) or {}).get(name)
    if found is None:
        found = allocatable.get(name, "0") if where == "limits" else "0"
    divisor = reference.get("divisor") or "1"
    if divisor == "0":
        divisor = "1"
    value, unit = parse_quantity(found).scaled_value(_NANO), parse_quantity(divisor)
    return str(-(-value // unit.scaled_value(_NANO)))
