"""Warnings about pods and pod templates: valid, but probably not intended.

spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.addresses import ip_warnings
from kvstack.apimachinery.objects.field_errors import child, index, key
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import SECCOMP_POD_ANNOTATION
from kvstack.apiserver.kinds.deprecations import (
    VOLUME_DEPRECATIONS,
    claim_warnings,
    deprecated_node_label,
    fractional_bytes,
    node_selector_term_warnings,
)
from kvstack.apiserver.kinds.internal_values import go_struct_text
from kvstack.apiserver.kinds.pods.annotations import (
    APP_ARMOR_PREFIX,
    SECCOMP_PREFIX,
    app_armor_profile,
)
from kvstack.apiserver.kinds.pods.known_specs import KnownSpecs, key_of_spec
from kvstack.apiserver.kinds.pods.scheduling import PREFERRED_TERMS, REQUIRED_TERMS
from kvstack.apiserver.kinds.pods.scope import containers_with_paths
from kvstack.apiserver.kinds.strategy import Context

_DNS_LABEL: Final = (
    "metadata.name: this is used in {what}, which can result in surprising behavior; a DNS label"
    " is recommended: [{wrong}]"
)
_DEPRECATED_ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod": (
        'non-functional in v1.16+; use the "priorityClassName" field instead'
    ),
    "security.alpha.kubernetes.io/sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
    "security.alpha.kubernetes.io/unsafe-sysctls": (
        'non-functional in v1.11+; use the "sysctls" field instead'
    ),
}
_NO_SECCOMP_FIELD: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_LOOKED_AT: Final = frozenset((*VOLUME_DEPRECATIONS, "ephemeral"))
_PLAIN_SOURCES: Final = (
    ("configMap", "ConfigMap", "name"),
    ("secret", "Secret", "secretName"),
    ("downwardAPI", "DownwardAPI", ""),
)
_WITHOUT_WARNINGS: Final = KnownSpecs()
_NO_SELECTOR: Final = "a null labelSelector results in matching no pod"


def warnings(pod: Object, _context: Context) -> list[str]:
    """Return the warnings about a new pod."""
    found = name_warnings(pod, "the Pod's hostname")
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    key = key_of_spec(spec, metadata.get("annotations"))
    _WITHOUT_WARNINGS.check(key, found, lambda: _add_warnings(found, spec, metadata, ""))
    return found


def template_warnings(template: Object | None, path: str) -> list[str]:
    """Return the warnings about a pod template; `path`: of the template."""
    found: list[str] = []
    if template is not None:
        _add_warnings(found, template.get("spec") or {}, template.get("metadata") or {}, path)
    return found


def name_warnings(obj: Object, what: str = "Pod names and hostnames") -> list[str]:
    """Return the warning about a name that is not a valid hostname."""
    wrong = check_dns_label(obj["metadata"].get("name", ""))
    return [_DNS_LABEL.format(what=what, wrong=" ".join(wrong))] if wrong else []


def _add_warnings(warnings: list[str], spec: Object, metadata: Object, path: str) -> None:
    spec_path = child(path, "spec")
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    annotations_path = child(path, "metadata", "annotations")
    warnings += _node_label_warnings(spec, spec_path)
    if annotations:
        warnings += [
            f"{key(annotations_path, name)}: {message}"
            for name, message in _DEPRECATED_ANNOTATIONS.items()
            if name in annotations
        ]
    if spec.get("volumes"):
        warnings += _volume_warnings(spec["volumes"], child(spec_path, "volumes"))
    if aliases := spec.get("hostAliases"):
        warnings += _duplicates(aliases, "ip", child(spec_path, "hostAliases"), "ip")
    if secrets := spec.get("imagePullSecrets"):
        warnings += _pull_secret_warnings(secrets, child(spec_path, "imagePullSecrets"))
    warnings += fractional_bytes(spec.get("overhead"), child(spec_path, "overhead"))
    context = spec.get("securityContext") or {}
    if SECCOMP_POD_ANNOTATION in annotations and context.get("seccompProfile") is None:
        warnings.append(f"{key(annotations_path, SECCOMP_POD_ANNOTATION)}: {_NO_SECCOMP_FIELD}")
    containers = list(containers_with_paths(spec, spec_path))
    of_pod = context.get("appArmorProfile")
    for container, container_path in containers:
        if annotations:
            warnings += _profile_warnings(
                container, annotations, annotations_path, of_pod, is_template=bool(path)
            )
        warnings += _container_warnings(container, container_path)
    if any(each.get("ports") for each, _ in containers):
        warnings += _port_warnings(containers)
        warnings += _port_name_warnings(containers)
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        warnings.append(
            f"{child(spec_path, 'terminationGracePeriodSeconds')}: must be >= 0; negative values"
            " are invalid and will be treated as 1"
        )
    if affinity := spec.get("affinity"):
        warnings += _pod_affinity_warnings(affinity, child(spec_path, "affinity"))
    warnings += _address_warnings(spec, spec_path)


def _node_label_warnings(spec: Object, path: str) -> Iterable[str]:
    for name in spec.get("nodeSelector") or ():
        message = deprecated_node_label(name)
        if message:
            yield f"{key(child(path, 'nodeSelector'), name)}: {message}"
    if affinity := (spec.get("affinity") or {}).get("nodeAffinity"):
        yield from _node_affinity_warnings(affinity, child(path, "affinity", "nodeAffinity"))
    for position, each in enumerate(spec.get("topologySpreadConstraints") or ()):
        spread_path = index(child(path, "topologySpreadConstraints"), position)
        name = each.get("topologyKey", "")
        message = deprecated_node_label(name)
        if message:
            yield f"{child(spread_path, 'topologyKey')}: {name} is {message}"
        if each.get("labelSelector") is None:
            yield f"{child(spread_path, 'labelSelector')}: {_NO_SELECTOR}"


def _node_affinity_warnings(affinity: Object, path: str) -> Iterable[str]:
    needed = (affinity.get(REQUIRED_TERMS) or {}).get("nodeSelectorTerms") or ()
    terms_path = child(path, REQUIRED_TERMS, "nodeSelectorTerms")
    for position, term in enumerate(needed):
        yield from node_selector_term_warnings(term, index(terms_path, position))
    preferred_path = child(path, PREFERRED_TERMS)
    for position, term in enumerate(affinity.get(PREFERRED_TERMS) or ()):
        preference_path = child(index(preferred_path, position), "preference")
        preference = term.get("preference") or {}
        yield from node_selector_term_warnings(preference, preference_path, checks_values=True)


def _volume_warnings(volumes: Sequence[Object], path: str) -> Iterable[str]:
    for position, volume in enumerate(volumes):
        if _LOOKED_AT.isdisjoint(volume):
            continue
        volume_path = index(path, position)
        for name, (shown, message) in VOLUME_DEPRECATIONS.items():
            if volume.get(name) is not None:
                yield f"{child(volume_path, shown)}: {message}"
            if name == "glusterfs":
                template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
                if template is not None:
                    claim_path = child(volume_path, "ephemeral", "volumeClaimTemplate", "spec")
                    yield from claim_warnings(template.get("spec") or {}, claim_path)
    for volume in volumes:
        yield from _overlap_warnings(volume)


class _File(NamedTuple):
    """A file of a volume and the source of its content."""

    path: str
    """Without trailing slashes."""
    source: str = ""
    name: str | None = None
    """Name of the source, if it has one."""

    def describe(self) -> str:
        """Return the file as in warnings."""
        if not self.source:
            return quote(self.path)
        source = self.source if self.name is None else f"{self.source} {quote(self.name)}"
        return f"{quote(self.path)} ({source})"


def _file(holder: Object, source: str = "", name: str | None = None) -> _File:
    path: str = holder.get("path", "")
    return _File(path.rstrip("/"), source, name)


def _overlap_warnings(volume: Object) -> Iterable[str]:
    for field, what, name in _PLAIN_SOURCES:
        source = volume.get(field)
        if source and source.get("items"):
            shown = f"{what} {quote(source.get(name, ''))}" if name else what
            for pair in _overlaps([_file(each) for each in source["items"]], []):
                yield f"volume {_name(volume)} ({shown}): overlapping paths: {pair}"
    known: list[_File] = []
    for source in (volume.get("projected") or {}).get("sources") or ():
        if not source:
            yield f"volume {_name(volume)} (Projected) has no sources provided"
        for pair in _overlaps(_projected_files(source), known):
            yield f"volume {_name(volume)} (Projected): overlapping paths: {pair}"


def _name(volume: Object) -> str:
    return quote(volume.get("name", ""))


def _projected_files(source: Object) -> list[_File]:
    for field, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        one = source.get(field)
        if one is not None and one.get("items"):
            return [_file(each, kind, one.get("name", "")) for each in one["items"]]
    downward = source.get("downwardAPI")
    if downward is not None and downward.get("items"):
        return [_file(each, "DownwardAPI") for each in downward["items"]]
    token, bundle = source.get("serviceAccountToken"), source.get("clusterTrustBundle")
    if token is not None:
        return [_file(token, "ServiceAccountToken")]
    if bundle is not None:
        name = bundle.get("name", bundle.get("signerName", ""))
        return [_file(bundle, "ClusterTrustBundle", name)]
    certificate = source.get("podCertificate") or {}
    return [
        _File(certificate[field].rstrip("/"), f"PodCertificate {what}")
        for field, what in (
            ("certificateChainPath", "chain"),
            ("keyPath", "key"),
            ("credentialBundlePath", "credential bundle"),
        )
        if certificate.get(field)
    ]


def _overlaps(files: Sequence[_File], known: list[_File]) -> Iterable[str]:
    """Yield pairs of overlapping files (equal paths, or one below the other); add the files."""
    for file in files:
        for other in known:
            if file.path and other.path and _is_below(file.path, other.path):
                yield f"{file.describe()} with {other.describe()}"
        known.append(file)


def _is_below(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _duplicates(items: Sequence[Object], field: str, path: str, what: str) -> Iterable[str]:
    seen: set[str] = set()
    for position, each in enumerate(items):
        value = each.get(field, "")
        if value in seen:
            yield f"{child(index(path, position), field)}: duplicate {what} {quote(value)}"
        seen.add(value)


def _pull_secret_warnings(secrets: Sequence[Object], path: str) -> Iterable[str]:
    yield from _duplicates(secrets, "name", path, "name")
    for position, each in enumerate(secrets):
        if not each.get("name"):
            yield f'{child(index(path, position), "name")}: invalid empty name ""'


def _profile_warnings(
    container: Object,
    annotations: Mapping[str, str],
    path: str,
    of_pod: Object | None,
    *,
    is_template: bool,
) -> Iterable[str]:
    context = container.get("securityContext") or {}
    name = SECCOMP_PREFIX + container.get("name", "")
    if name in annotations and context.get("seccompProfile") is None:
        yield f"{key(path, name)}: {_NO_SECCOMP_FIELD}"
    # Annotations of pods were warned of when their profiles were copied.
    name = APP_ARMOR_PREFIX + container.get("name", "")
    if not is_template or name not in annotations or context.get("appArmorProfile") is not None:
        return
    if of_pod is None or of_pod != app_armor_profile(annotations[name]):
        yield (
            f'{key(path, name)}: deprecated since v1.30; use the "appArmorProfile" field instead'
        )


def _container_warnings(container: Object, path: str) -> Iterable[str]:
    if resources := container.get("resources"):
        amounts_path = child(path, "resources")
        for name in ("memory", "ephemeral-storage"):
            for list_name in ("limits", "requests"):
                amounts = resources.get(list_name)
                if amounts and name in amounts:
                    yield from fractional_bytes(amounts, child(amounts_path, list_name), (name,))
    seen: set[str] = set()
    for position, variable in enumerate(container.get("env") or ()):
        name = variable.get("name", "")
        if name in seen:
            value, reference = variable.get("value", ""), f"$({name})"
            is_derived = value != reference and reference in value
            if variable.get("valueFrom") is not None or not is_derived:
                yield (
                    f"{index(child(path, 'env'), position)}: hides previous definition of"
                    f" {quote(name)}, which may be dropped when using apply"
                )
        seen.add(name)


class _Port(NamedTuple):
    """A port and its path."""

    port: Object
    container: str
    position: int

    def path(self) -> str:
        return index(child(self.container, "ports"), self.position)


def _ports(containers: Sequence[tuple[Object, str]]) -> Iterable[_Port]:
    for container, path in containers:
        for position, port in enumerate(container.get("ports") or ()):
            yield _Port(port, path, position)


def _port_warnings(containers: Sequence[tuple[Object, str]]) -> Iterable[str]:
    ports_by_key: dict[tuple[int, str], list[_Port]] = {}
    for declared in _ports(containers):
        port = declared.port
        host_ip, host_port = port.get("hostIP", ""), port.get("hostPort", 0)
        if host_ip and not host_port:
            shown = go_struct_text(port, "io.k8s.api.core.v1.ContainerPort")
            yield f"{declared.path()}: hostIP set without hostPort: {shown}"
        same = ports_by_key.setdefault((port.get("containerPort", 0), port.get("protocol", "")), [])
        for other in same:
            other_ip, other_port = other.port.get("hostIP", ""), other.port.get("hostPort", 0)
            problem = ""
            if (host_ip, host_port) == (other_ip, other_port):
                problem = "duplicate"
            elif not host_port or not other_port:
                problem = "overlapping"
            elif host_port == other_port and bool(host_ip) != bool(other_ip):
                problem = "dangerously ambiguous"
            if problem:
                yield f"{declared.path()}: {problem} port definition with {other.path()}"
        same.append(declared)


def _port_name_warnings(containers: Sequence[tuple[Object, str]]) -> Iterable[str]:
    known: dict[str, _Port] = {}
    for each in _ports(containers):
        name = each.port.get("name")
        if not name:
            continue
        first = known.setdefault(name, each)
        if first is not each:
            other = first.path()
            yield (
                f"{each.path()}: duplicate port name {quote(name)} with {other}, services and"
                f" probes that select ports by name will use {other}"
            )


def _pod_affinity_warnings(affinity: Object, path: str) -> Iterable[str]:
    for name in ("podAffinity", "podAntiAffinity"):
        one = affinity.get(name) or {}
        for field, below in ((REQUIRED_TERMS, ()), (PREFERRED_TERMS, ("podAffinityTerm",))):
            terms_path = child(path, name, field)
            for position, each in enumerate(one.get(field) or ()):
                term = each.get(below[0]) or {} if below else each
                if term.get("labelSelector") is None:
                    selector_path = child(index(terms_path, position), *below, "labelSelector")
                    yield f"{selector_path}: {_NO_SELECTOR}"


def _address_warnings(spec: Object, path: str) -> Iterable[str]:
    for position, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        servers_path = child(path, "dnsConfig", "nameservers")
        yield from ip_warnings(index(servers_path, position), server)
    for position, alias in enumerate(spec.get("hostAliases") or ()):
        alias_path = index(child(path, "hostAliases"), position)
        yield from ip_warnings(child(alias_path, "ip"), alias.get("ip", ""))
