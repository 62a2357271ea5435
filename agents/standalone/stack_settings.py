"""The settings of `kvstack up`: its own flags, and what it sets of the API server's.

    kvstack up --data-dir DIR --nodes 3 --secure-port 7443
               └─ own, see StackOptions ─┘ └─ the API server's

Flags of `kvstore` are passed on as they are.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from kvstack.agents.controllers.table import UnknownControllerError, check_names
from kvstack.agents.dashboard import access as dashboard_access
from kvstack.agents.kubelet import host_root
from kvstack.agents.kubelet.hollow.nodes import names_of
from kvstack.agents.kubelet.routes.plan import AUTOMATIC, MODES
from kvstack.agents.metrics import access as metrics_access
from kvstack.agents.standalone import dns_access, network_policy_access
from kvstack.agents.standalone.joining import access as joining_access
from kvstack.agents.standalone.local_path import access as local_path_access
from kvstack.agents.standalone.page_addresses import (
    HEALTHZ_ADDRESS,
    METRICS_ADDRESS,
    page_address,
)
from kvstack.agents.standalone.parts import (
    CONTROLLERS,
    DASHBOARD,
    DNS,
    JOINING,
    LOCAL_PATH,
    METRICS,
    NETWORK_POLICY,
    NODE,
    PARTS,
)
from kvstack.agents.standalone.pod_range import NONE, parse
from kvstack.agents.standalone.rbac import OBJECTS
from kvstack.agents.standalone.store_access import (
    OWN_SOCKET,
    PEER_FLAGS,
    with_schemes,
)
from kvstack.apiserver.server.addresses import advertised_address
from kvstack.apiserver.server.settings.flags import BY_NAME, SHORT, TABLE, Kind
from kvstack.apiserver.server.settings.options import Options, options_of
from kvstack.component.flags.command_line import (
    CommandLine,
    UsageError,
    Value,
)
from kvstack.component.line_log.line_logger import LEVELS
from kvstack.component.net.hosts import join_host_port, of_families
from kvstore import embed

COMMAND: Final = "kvstack up"
ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
SERVICE_RANGE: Final = "10.96.0.0/16"
_CONTROLLERS: Final = "*,bootstrapsigner,tokencleaner"
"""The controllers of kubeadm, so that nodes may join by bootstrap tokens."""
ABOUT: Final = """\
A cluster in one process: store, API server, controllers, scheduler, and, for root, a node.

  --data-dir DIR                directory of all data (default default.etcd)
  --listen-client-urls URLS     addresses of the store: unix: is a socket in DIR (the default),
                                HOST:PORT and https: require client certificates, http: does not
  --kubeconfig FILE             the administrator's kubeconfig (default DIR/kubernetes/admin.conf)
  --log-level LEVEL             debug, info, warn or error (default warn)
  --nodes N                     number of hollow nodes, which run pods without processes
                                (default 0), or their names, comma-separated
  --controllers LIST            controllers to run, as for kube-controller-manager
                                (default {controllers})
  --node-ip IP                  address of the node and its pods, or one per family: A,B
                                (default: those of this machine)
  --cluster-cidr RANGE          range of pod addresses, or one per family: A,B; none: pods share the
                                node's address (default, for each family of the Services: the first
                                free range from 10.244.0.0/16 on; a range of fd00::/8)
  --network MODE                how pods of other nodes are reached: host-gw (their node is a
                                gateway), vxlan (a tunnel), none, or auto: host-gw where the node is
                                on a network of this machine, else vxlan (default auto)
  --image-dir DIR               directory of images (default DIR/kubernetes/node/images)
  --host-image BOOL             enable the image host:latest, this machine's files (default true)
  --host-root-namespaces LIST   namespaces whose pods of host:latest may run as root of the
                                machine if they request it (default none)
  --local-storage-limit SIZE    disk space for all pods together, as 20Gi or 50% (default: all but
                                10 % of the disk and the store's reserve)
  --ignore-limits BOOL          accept pods whose limits cannot be enforced (default false)
  --rootless BOOL               without root, run a node in a user namespace (default true)
  --cluster-dns IP              DNS server of pods; none: the node's
                                (default: the tenth address of the service range, if dns runs)
  --dns-autopath BOOL           walk the search path of a pod at its first query, in DNS
                                (default false; docs/dns.md)
  --proxy-metrics-address ADDRESS  where the proxy serves /metrics, /proxyMode and /configz; none:
                                not served (default {metrics_address})
  --proxy-healthz-address ADDRESS  where the proxy serves /healthz and /livez; none: not served
                                (default {healthz_address})
  --without PARTS               parts not to run, of: {parts}

All others are those of `kvstack apiserver`, as below, and those of `kvstore`.""".format(
    parts=", ".join(PARTS),
    controllers=_CONTROLLERS,
    metrics_address=METRICS_ADDRESS,
    healthz_address=HEALTHZ_ADDRESS,
)
_OWN: Final = {
    "data-dir": "default.etcd",
    "listen-client-urls": OWN_SOCKET,
    "kubeconfig": "",
    "log-level": "warn",
    "nodes": "0",
    "controllers": _CONTROLLERS,
    "without": "",
    "node-ip": "",
    "cluster-cidr": "",
    "cluster-dns": "",
    "dns-autopath": "false",
    "proxy-metrics-address": METRICS_ADDRESS,
    "proxy-healthz-address": HEALTHZ_ADDRESS,
    "network": AUTOMATIC,
    "image-dir": "",
    "host-image": "true",
    "host-root-namespaces": "",
    "rootless": "true",
    "ignore-limits": "false",
    "local-storage-limit": "",
}
_RBAC: Final = {
    DASHBOARD: dashboard_access.OBJECTS,
    DNS: dns_access.OBJECTS,
    JOINING: joining_access.OBJECTS,
    LOCAL_PATH: local_path_access.OBJECTS,
    METRICS: metrics_access.OBJECTS,
    NETWORK_POLICY: network_policy_access.OBJECTS,
}
"""Roles and bindings of the parts that may be left out."""
_BOOLEANS: Final = ("host-image", "ignore-limits", "rootless", "dns-autopath")


class StoreFlag(NamedTuple):
    """A flag of `kvstore` that is passed on to it."""

    name: str
    about: str
    is_bool: bool
    choices: tuple[str, ...]


class StackOptions(NamedTuple):
    """What is started, and where its data is."""

    data_dir: Path
    client_urls: tuple[str, ...]
    """The client URLs of the store, as `store_access` reads them."""
    kubeconfig: Path
    log_level: str
    store_flags: tuple[str, ...]
    """Flags in the syntax of `kvstore`."""
    has_peers: bool
    without: frozenset[str] = frozenset()
    """The agents that are left to others."""
    hollow_nodes: tuple[str, ...] = ()
    """Their names."""
    controllers: str = _CONTROLLERS
    node_ip: str = ""
    cluster_range: str = ""
    """The ranges of pods; `none`: they share the node's address; empty: a free one."""
    image_dir: Path | None = None
    has_host_image: bool = True
    host_root_namespaces: tuple[str, ...] = ()
    ignores_limits: bool = False
    local_storage_limit: str = ""
    cluster_dns: str = ""
    """An address, `none`, or empty: where the part of this process is found."""
    network: str = AUTOMATIC
    """How pods of other nodes are reached: one of `routes.plan.MODES`."""
    may_be_rootless: bool = True
    """Whether a user other than root gets a node, in a user namespace."""
    dns_walks: bool = False
    """Whether DNS tries the search paths of pods."""
    proxy_metrics_address: str = METRICS_ADDRESS
    proxy_healthz_address: str = HEALTHZ_ADDRESS
    """Empty: the pages are not served."""


def own_flags() -> dict[str, str]:
    """Return the flags of this command alone, and how ABOUT begins to say what each is for."""
    help_by_flag = dict(re.findall(r"^  --([a-z-]+) [A-Z]+ +(.*)$", ABOUT, re.MULTILINE))
    return {name: help_by_flag[name] for name in _OWN}


def store_flags() -> list[StoreFlag]:
    """Return the flags of `kvstore` that `split_own` passes on and that have an effect."""
    return [
        StoreFlag(flag.name, flag.help, flag.kind is embed.FlagKind.BOOL, flag.choices)
        for flag in embed.FLAGS_WITH_EFFECT
        if flag.name not in {*BY_NAME, *_OWN}
    ]


def split_own(arguments: Sequence[str]) -> tuple[StackOptions, list[str]]:
    """Return what is not the API server's, and the other arguments; raises UsageError."""
    own = dict(_OWN)
    store: list[str] = []
    names: set[str] = set()
    rest: list[str] = []
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        name, equals, text = argument.lstrip("-").partition("=")
        flag = embed.FLAGS.get(name)
        is_stores = flag is not None and name not in BY_NAME
        if not argument.startswith("-") or not (name in _OWN or is_stores):
            rest.append(argument)
            if not equals and waiting and _takes_next(name):
                rest.append(waiting.pop())
            continue
        if not equals:
            if flag is not None and flag.kind is embed.FlagKind.BOOL:
                text = "true"
            elif waiting:
                text = waiting.pop()
            else:
                raise UsageError(f"flag needs an argument: {argument}")
        if name in _OWN:
            own[name] = text
        else:
            store.append(f"--{name}={text}")
            names.add(name)
    return _stack_options(own, store, has_peers=not names.isdisjoint(PEER_FLAGS)), rest


def _takes_next(name: str) -> bool:
    """Return whether a flag of the API server takes its value from the next argument."""
    flag = BY_NAME.get(name.replace("_", "-")) or BY_NAME.get(SHORT.get(name, ""))
    return flag is not None and flag.kind not in (Kind.BOOL, Kind.VERSION)


def _stack_options(
    flags: Mapping[str, str], store_flags: Sequence[str], *, has_peers: bool
) -> StackOptions:
    if flags["log-level"] not in LEVELS:
        raise UsageError(f"--log-level {flags['log-level']}: one of {', '.join(LEVELS)}")
    without = frozenset(filter(None, flags["without"].split(",")))
    if unknown := sorted(without.difference(PARTS)):
        raise UsageError(f"--without {unknown[0]}: one of {', '.join(PARTS)}")
    try:
        check_names(flags["controllers"])
        hollow_nodes = names_of(flags["nodes"])
    except UnknownControllerError as error:
        raise UsageError(f"--controllers: {error}") from error
    except ValueError as error:
        raise UsageError(f"--nodes {error}") from error
    try:
        host_root_namespaces = host_root.parse(flags[host_root.FLAG])
    except ValueError as error:
        raise UsageError(str(error)) from error
    for name in _BOOLEANS:
        if flags[name] not in ("true", "false"):
            raise UsageError(f"--{name} {flags[name]}: true or false")
    if flags["cluster-cidr"]:
        try:
            parse(flags["cluster-cidr"])
        except ValueError as error:
            raise UsageError(f"--cluster-cidr {error}") from error
        if without.issuperset((CONTROLLERS, NODE)):
            raise UsageError(
                f"--cluster-cidr {flags['cluster-cidr']}: it has no effect with --without "
                f"{CONTROLLERS},{NODE}"
            )
    try:
        of_families(flags["node-ip"], ip_address)
    except ValueError as error:
        raise UsageError(f"--node-ip {error}") from error
    if flags["cluster-dns"] not in ("", NONE):
        try:
            ip_address(flags["cluster-dns"])
        except ValueError as error:
            raise UsageError(f"--cluster-dns {error}") from error
    if flags["network"] not in MODES:
        raise UsageError(f"--network {flags['network']}: one of {', '.join(MODES)}")
    _check_limit(flags["local-storage-limit"])
    data_dir = Path(flags["data-dir"])
    own_file = flags["kubeconfig"]
    return StackOptions(
        data_dir,
        with_schemes(filter(None, map(str.strip, flags["listen-client-urls"].split(",")))),
        Path(own_file) if own_file else kubernetes_dir(data_dir) / "admin.conf",
        flags["log-level"],
        tuple(store_flags),
        has_peers,
        without,
        hollow_nodes,
        flags["controllers"],
        flags["node-ip"],
        flags["cluster-cidr"],
        Path(flags["image-dir"]) if flags["image-dir"] else None,
        flags["host-image"] == "true",
        host_root_namespaces,
        flags["ignore-limits"] == "true",
        flags["local-storage-limit"],
        flags["cluster-dns"],
        flags["network"],
        flags["rootless"] == "true",
        flags["dns-autopath"] == "true",
        *(_page_address(flags, f"proxy-{name}-address") for name in ("metrics", "healthz")),
    )


def _page_address(flags: Mapping[str, str], name: str) -> str:
    """Return the address of pages; UsageError."""
    try:
        return page_address(flags[name])
    except ValueError as error:
        raise UsageError(f"--{name} {error}") from error


def _check_limit(text: str) -> None:
    """Check --local-storage-limit; UsageError."""
    if text:
        from kvstack.agents.standalone.local_storage import check  # loads parts of the node

        try:
            check(text)
        except ValueError as error:
            raise UsageError(f"--local-storage-limit {error}") from error


def stack_options(own: StackOptions, command_line: CommandLine) -> Options:
    """Return the API server's settings: the flags, with defaults that suit one process."""
    pki = pki_dir(own.data_dir)
    defaults: dict[str, Value] = {
        "etcd-servers": ("in this process",),
        "bind-address": "127.0.0.1",
        "cert-dir": str(pki),
        "tls-cert-file": str(pki / "apiserver.crt"),
        "tls-private-key-file": str(pki / "apiserver.key"),
        "client-ca-file": str(pki / "ca.crt"),
        "requestheader-client-ca-file": str(pki / "front-proxy-ca.crt"),
        "requestheader-allowed-names": ("front-proxy-client",),
        "requestheader-username-headers": ("X-Remote-User",),
        "requestheader-uid-headers": ("X-Remote-Uid",),
        "requestheader-group-headers": ("X-Remote-Group",),
        "requestheader-extra-headers-prefix": ("X-Remote-Extra-",),
        "proxy-client-cert-file": str(pki / "front-proxy-client.crt"),
        "proxy-client-key-file": str(pki / "front-proxy-client.key"),
        "kubelet-client-certificate": str(pki / "apiserver-kubelet-client.crt"),
        "kubelet-client-key": str(pki / "apiserver-kubelet-client.key"),
        "kubelet-preferred-address-types": ("InternalIP", "Hostname"),
        "service-account-issuer": (ISSUER,),
        "service-account-key-file": (str(pki / "sa.pub"),),
        "service-account-signing-key-file": str(pki / "sa.key"),
        "service-cluster-ip-range": SERVICE_RANGE,
        "authorization-mode": ("Node", "RBAC"),
        "enable-admission-plugins": ("NodeRestriction",),
        "enable-bootstrap-token-auth": True,
        "allow-privileged": True,
    }
    options = options_of(CommandLine(TABLE, {**defaults, **command_line.values}))
    return dataclasses.replace(
        options,
        # A node that was given an address of loopback, and its pods, can be reached nowhere else.
        proxies_to_loopback=own.node_ip.startswith("127."),
        rbac_objects=(
            *OBJECTS,
            *(each for part, rows in _RBAC.items() if part not in own.without for each in rows),
        ),
    )


def secrets_of(own: StackOptions) -> tuple[Path, ...]:
    """Return where the cluster has keys, credentials and its data."""
    sockets = [urlsplit(each) for each in own.client_urls]
    found = [Path(each.netloc + each.path) for each in sockets if each.scheme.startswith("unix")]
    return tuple(each.absolute() for each in (own.data_dir, own.kubeconfig, *found))


def kubernetes_dir(data_dir: Path) -> Path:
    """Return where the files are that are not the store's."""
    return data_dir / "kubernetes"


def pki_dir(data_dir: Path) -> Path:
    """Return where certificates and keys are."""
    return kubernetes_dir(data_dir) / "pki"


def server_url(options: Options) -> str:
    """Return the URL of the kubeconfig: how this machine reaches the server."""
    host = options.serving.external_host or options.serving.bind_address
    try:
        if ip_address(host).is_unspecified:
            host = "127.0.0.1"
    except ValueError:
        pass  # a name
    return f"https://{join_host_port(host, options.serving.port)}"


def announced_url(options: Options) -> str:
    """Return the API server's URL for joining machines; a loopback one: they cannot join."""
    serving = options.serving
    host = serving.external_host
    if not host:
        # An address that was added for pods is on this machine alone.
        is_hidden = ip_address(serving.bind_address).is_loopback and (
            not serving.advertise_address or bool(serving.also_bind_addresses)
        )
        host = serving.bind_address if is_hidden else advertised_address(serving)
    return f"https://{join_host_port(host, serving.port)}"
