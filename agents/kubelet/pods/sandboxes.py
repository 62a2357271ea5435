"""A pod's specification for the runtime: its sandbox, privileges and limits.

sandbox_of(pod, node)              what its containers share
security_of(pod, container)        a container's value over its pod's
limits_of(pod, container, memory)  shares, quota, memory, how soon the kernel kills it
names_of(pod, node)                how names are resolved: servers, searches, options
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kvstack.agents.kubelet.runtime.runtime import Limits, Port, Sandbox, Security
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar, pod_requests
from kvstack.apimachinery.objects.core.quality_of_service import quality_of
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse as parse_quantity
from kvstack.apimachinery.well_known import CONFIG_SOURCE_ANNOTATION

CRITICAL_PRIORITY: Final = 2_000_000_000
NODE_CRITICAL_PRIORITY: Final = CRITICAL_PRIORITY + 1000
_PERIOD_US: Final = 100_000
_QUOTA_MIN_US: Final = 1000
_SHARES_MIN: Final = 2
_SHARES_MAX: Final = 262_144
_MILLI: Final = -3
_SERVERS_MAX: Final = 3
_SEARCHES_MAX: Final = 32
_SEARCH_CHARACTERS_MAX: Final = 2048
_SEARCH_MAX: Final = 253
_GUARANTEED_SCORE: Final = -997
_BEST_EFFORT_SCORE: Final = 1000


@dataclass(frozen=True, slots=True)
class NodeNames:
    """The DNS settings of a node, and those for its pods."""

    cluster_servers: Sequence[str] = ()
    cluster_domain: str = ""
    servers: Sequence[str] = ()
    """The resolvers of the node itself."""
    searches: Sequence[str] = ()
    options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """Settings of a node that apply to each pod."""

    logs: str
    memory_bytes: int
    cgroup_root: str = "kubepods"
    names: NodeNames = field(default_factory=NodeNames)
    seccomp_default: bool = False
    pids_max: int = -1
    """Processes of a pod; -1: as many as it likes."""
    seccomp_root: str = ""
    """The directory of the seccomp profiles that pods name."""


def containers_of(pod: Object) -> list[Object]:
    """Return all containers of a specification: init, regular, ephemeral."""
    spec = pod["spec"]
    return [
        *(spec.get("initContainers") or ()),
        *spec["containers"],
        *(spec.get("ephemeralContainers") or ()),
    ]


def image_volumes(pod: Object) -> dict[str, Object]:
    """Return the volumes of a pod that are images, by name."""
    volumes = pod["spec"].get("volumes") or ()
    return {
        each["name"]: each["image"]
        for each in volumes
        if (each.get("image") or {}).get("reference")
    }


def log_directory(pod: Object, logs: str) -> str:
    """Return where the logs of a pod are."""
    meta = pod["metadata"]
    return f"{logs}/{meta['namespace']}_{meta['name']}_{meta['uid']}"


def hostname(pod: Object) -> str:
    """Return the host name of a pod's containers."""
    spec = pod["spec"]
    name: str = spec.get("hostnameOverride") or spec.get("hostname") or pod["metadata"]["name"]
    return name[:63].rstrip("-.")


def domain(pod: Object, cluster_domain: str) -> str:
    """Return the domain of a pod's host name; empty: it has none."""
    spec = pod["spec"]
    if not spec.get("subdomain") or spec.get("hostnameOverride"):
        return ""
    return f"{spec['subdomain']}.{pod['metadata']['namespace']}.svc.{cluster_domain}"


def shown_hostname(pod: Object, cluster_domain: str) -> str:
    """Return the host name of a pod: its fully qualified name, if requested."""
    name, behind = hostname(pod), domain(pod, cluster_domain)
    return f"{name}.{behind}" if behind and pod["spec"].get("setHostnameAsFQDN") else name


def hostname_problem(pod: Object, cluster_domain: str) -> str:
    """Return why a pod's host cannot have its name; empty: it can."""
    found = shown_hostname(pod, cluster_domain)
    if pod["spec"].get("hostNetwork") or len(found) <= _HOSTNAME_MAX:
        return ""
    return (
        f"failed to construct FQDN from pod hostname and cluster domain, FQDN {found} is too long "
        f"({_HOSTNAME_MAX} characters is the max, {len(found)} characters requested)"
    )


_HOSTNAME_MAX: Final = 64


def qos_of(pod: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort."""
    return quality_of(pod, limited=True)


def is_static(pod: Object) -> bool:
    """Whether a pod is a static pod, from a file or a URL."""
    annotations = pod["metadata"].get("annotations") or {}
    return bool(annotations.get(CONFIG_SOURCE_ANNOTATION, "api") != "api")


def is_critical(pod: Object) -> bool:
    """Whether a pod is critical: preferred over all others on its node."""
    return is_static(pod) or (pod["spec"].get("priority") or 0) >= CRITICAL_PRIORITY


def cgroup_of(pod: Object, root: str) -> str:
    """Return the control group of a pod."""
    qos = qos_of(pod)
    middle = "" if qos == "Guaranteed" else f"{qos.lower()}/"
    return f"{root}/{middle}pod{pod['metadata']['uid']}"


def quantity(text: object, scale: int = 0) -> int:
    """Return a quantity, rounded up, in units of 10**scale."""
    return parse_quantity(str(text)).scaled_value(scale)


def limits_of(pod: Object, container: Object, memory_bytes: int) -> Limits:
    """Return what a container may use; memory_bytes: of the node."""
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    cpu_limit = quantity(limits.get("cpu", 0), _MILLI)
    cpu = quantity(requests["cpu"], _MILLI) if "cpu" in requests else cpu_limit
    score = _oom_score(pod, _memory_asked(container), memory_bytes)
    if is_sidecar(container):  # it goes no sooner than those that it serves
        own = [_oom_score(pod, _memory_asked(each), memory_bytes) for each in _regular(pod)]
        score = min(score, *own)
    return Limits(
        _shares(cpu), _quota(cpu_limit), quantity(limits.get("memory", 0)), score, kills_all=True
    )


def _regular(pod: Object) -> list[Object]:
    found: list[Object] = pod["spec"]["containers"]
    return found


def _memory_asked(container: Object) -> int:
    resources = container.get("resources") or {}
    limit = (resources.get("limits") or {}).get("memory", 0)
    return quantity((resources.get("requests") or {}).get("memory", limit))


def _shares(cpu_milli: int) -> int:
    return min(max(cpu_milli * 1024 // 1000, _SHARES_MIN), _SHARES_MAX)


def _oom_score(pod: Object, asked_bytes: int, memory_bytes: int) -> int:
    if (pod["spec"].get("priority") or 0) >= NODE_CRITICAL_PRIORITY:
        return _GUARANTEED_SCORE
    qos = qos_of(pod)
    if qos == "Guaranteed":
        return _GUARANTEED_SCORE
    if qos == "BestEffort":
        return _BEST_EFFORT_SCORE
    score = 1000 - 1000 * asked_bytes // max(memory_bytes, 1)
    return min(max(score, 1000 + _GUARANTEED_SCORE), 999)


def pod_limits(pod: Object, pids_max: int) -> Limits:
    """Return the limits of the whole pod: its own, or, where each container has one, their sum."""
    requests = requests_of(pod)
    own = (pod["spec"].get("resources") or {}).get("limits") or {}
    # Sidecars run beside the others; what other init containers use is over by then.
    beside = [each for each in pod["spec"].get("initContainers") or () if is_sidecar(each)]
    limits = [limits_of(pod, each, 1) for each in (*pod["spec"]["containers"], *beside)]
    quotas = [each.cpu_quota_us for each in limits]
    memory = [each.memory_bytes for each in limits]
    overhead = pod["spec"].get("overhead") or {}  # of the runtime, beside the containers
    more_us = _quota(quantity(overhead.get("cpu", 0), _MILLI))
    more_bytes = quantity(overhead.get("memory", 0))
    quota = _quota(quantity(own["cpu"], _MILLI)) if "cpu" in own else 0
    limit = quantity(own["memory"]) if "memory" in own else 0
    quota = quota or (sum(quotas) if all(quotas) else 0)
    limit = limit or (sum(memory) if all(memory) else 0)
    return Limits(
        _shares(requests.get("cpu", 0)),
        quota + more_us if quota else 0,
        limit + more_bytes if limit else 0,
        processes=max(pids_max, 0),
    )


def memory_volume_bytes(pod: Object, volume: Object, allocatable: Mapping[str, str]) -> int:
    """Return how large an emptyDir in memory may grow: as its pod may, or less; 0: no limit."""
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    found = (
        quantity(limit or 0),
        pod_limits(pod, -1).memory_bytes,
        quantity(allocatable.get("memory", 0)),
    )
    return min((each for each in found if each), default=0)


def _quota(cpu_milli: int) -> int:
    return max(cpu_milli * _PERIOD_US // 1000, _QUOTA_MIN_US) if cpu_milli else 0


def security_of(
    pod: Object, container: Object, *, seccomp_default: bool = False, seccomp_root: str = ""
) -> Security:
    """Return the rights of a container; the user of its image is left to the runtime."""
    of_pod = pod["spec"].get("securityContext") or {}
    own = container.get("securityContext") or {}
    security = {**of_pod, **own}
    capabilities = own.get("capabilities") or {}
    groups = list(of_pod.get("supplementalGroups") or ())
    if of_pod.get("fsGroup") is not None:
        groups.append(of_pod["fsGroup"])
    profile = security.get("seccompProfile") or {}
    kind = profile.get("type") or ("RuntimeDefault" if seccomp_default else "")
    if kind == "Localhost":
        kind = f"{seccomp_root}/{profile['localhostProfile']}"
    return Security(
        security.get("runAsUser"),
        security.get("runAsGroup"),
        tuple(groups),
        is_strict=of_pod.get("supplementalGroupsPolicy") == "Strict",
        is_privileged=bool(own.get("privileged")),
        added=tuple(capabilities.get("add") or ()),
        dropped=tuple(capabilities.get("drop") or ()),
        no_new_privileges=own.get("allowPrivilegeEscalation") is False,
        has_read_only_root=bool(own.get("readOnlyRootFilesystem")),
        seccomp=kind,
    )


def root_problem(pod: Object, container: Object, image_user: str) -> str:
    """Return why a container that must not run as root cannot start; empty: it can."""
    security = {
        **(pod["spec"].get("securityContext") or {}),
        **(container.get("securityContext") or {}),
    }
    if not security.get("runAsNonRoot"):
        return ""
    meta = pod["metadata"]
    where = (
        f'(pod: "{meta["name"]}_{meta["namespace"]}({meta["uid"]})", '
        f"container: {container['name']})"
    )
    user = security.get("runAsUser")
    if user is not None:
        return f"container's runAsUser breaks non-root policy {where}" if user == 0 else ""
    name = image_user.partition(":")[0]
    if name in ("", "0"):
        return f"container has runAsNonRoot and image will run as root {where}"
    if not name.isdecimal():
        return (
            f"container has runAsNonRoot and image has non-numeric user ({name}), "
            f"cannot verify user is non-root {where}"
        )
    return ""


class Names(NamedTuple):
    """The DNS settings of a pod."""

    servers: list[str]
    searches: list[str]
    options: list[str]
    problems: list[tuple[str, str]]
    """Fields of the pod that cannot be honoured: reasons and texts of warnings."""


_NO_SERVERS: Final = (
    "kubelet does not have ClusterDNS IP configured and cannot create Pod using "
    '"ClusterFirst" policy. Falling back to "Default" policy.'
)


def names_of(pod: Object, names: NodeNames) -> Names:
    """Return how a pod resolves names."""
    spec, meta = pod["spec"], pod["metadata"]
    problems: list[tuple[str, str]] = []
    policy = spec.get("dnsPolicy", "ClusterFirst")
    is_cluster = policy == "ClusterFirstWithHostNet" or (
        policy == "ClusterFirst" and not spec.get("hostNetwork")
    )
    if is_cluster and not names.cluster_servers:
        owner = f"{meta['name']}_{meta['namespace']}({meta['uid']})"
        problems.append(("MissingClusterDNS", f'pod: "{owner}". {_NO_SERVERS}'))
    if policy == "None":
        merged: tuple[list[str], list[str], list[str]] = ([], [], [])
    elif is_cluster and names.cluster_servers:
        base = names.cluster_domain
        space = pod["metadata"]["namespace"]
        own = [f"{space}.svc.{base}", f"svc.{base}", base] if base else []
        merged = (list(names.cluster_servers), [*own, *names.searches], ["ndots:5"])
    else:
        merged = (list(names.servers), list(names.searches), list(names.options))
    given = spec.get("dnsConfig") or {}
    options = {each.partition(":")[0]: each for each in merged[2]}
    for each in given.get("options") or ():
        value = each.get("value")
        options[each["name"]] = f"{each['name']}:{value}" if value else each["name"]
    servers = list(dict.fromkeys([*merged[0], *(given.get("nameservers") or ())]))
    searches = list(dict.fromkeys([*merged[1], *(given.get("searches") or ())]))
    if len(servers) > _SERVERS_MAX:
        servers = servers[:_SERVERS_MAX]
        text = (
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            f"the applied nameserver line is: {' '.join(servers)}"
        )
        problems.append((_DNS, text))
    if (kept := _within_limits(searches)) != searches:
        text = (
            "Search Line limits were exceeded, some search paths have been omitted, "
            f"the applied search line is: {' '.join(kept)}"
        )
        problems.append((_DNS, text))
    return Names(servers, kept, list(options.values()), problems)


_DNS: Final = "DNSConfigForming"


def _within_limits(searches: Sequence[str]) -> list[str]:
    """Return as many of the domains that are searched as a resolver takes."""
    kept = [each for each in searches[:_SEARCHES_MAX] if len(each) <= _SEARCH_MAX]
    while len(" ".join(kept)) > _SEARCH_CHARACTERS_MAX:
        kept.pop()
    return kept


def sandbox_of(pod: Object, node: NodeSettings, handler: str = "") -> Sandbox:
    """Return what the containers of a pod share."""
    meta, spec = pod["metadata"], pod["spec"]
    servers, searches, options, _ = names_of(pod, node.names)
    context = spec.get("securityContext") or {}
    regular = [security_of(pod, each) for each in containers_of(pod)]
    return Sandbox(
        meta["uid"],
        meta["name"],
        meta["namespace"],
        "" if spec.get("hostNetwork") else shown_hostname(pod, node.names.cluster_domain),
        log_directory(pod, node.logs),
        meta.get("labels") or {},
        meta.get("annotations") or {},
        cgroup_of(pod, node.cgroup_root),
        pod_limits(pod, node.pids_max),
        servers,
        searches,
        options,
        tuple(_ports(pod)),
        {each["name"]: each["value"] for each in context.get("sysctls") or ()},
        Security(
            context.get("runAsUser"),
            context.get("runAsGroup"),
            regular[0].groups if regular else (),
            is_privileged=any(each.is_privileged for each in regular),
            seccomp="RuntimeDefault",
        ),
        handler,
        has_host_network=bool(spec.get("hostNetwork")),
        has_host_pids=bool(spec.get("hostPID")),
        has_host_ipc=bool(spec.get("hostIPC")),
        shares_pids=bool(spec.get("shareProcessNamespace")),
        host_users=spec.get("hostUsers"),
        images=tuple(each["image"] for each in containers_of(pod)),
        asks_for_root=any(each.user == 0 or each.is_privileged for each in regular),
    )


def _ports(pod: Object) -> Iterator[Port]:
    for container in containers_of(pod):
        for each in container.get("ports") or ():
            yield Port(
                each["containerPort"],
                each.get("hostPort", 0),
                each.get("protocol", "TCP"),
                each.get("hostIP", ""),
            )


def requests_of(pod: Object) -> Mapping[str, int]:
    """Return what a pod asks of its node: cpu in thousandths, the rest in units."""
    requests = pod_requests(pod["spec"], limited=True)
    return {
        name: amount.scaled_value(_MILLI if name == "cpu" else 0)
        for name, amount in requests.items()
    }


def in_units(name: str, value: object) -> int:
    """Return an amount of a resource: cpu in thousandths, the rest in units."""
    return quantity(value, _MILLI if name == "cpu" else 0)
