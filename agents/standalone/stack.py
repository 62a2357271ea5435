"""A cluster in one process: `kvstack up`.

    store ◄── API server ◄── agents (`local_agents`)

    DIR/                            the store, as `kvstore --data-dir DIR` has it
    DIR/kubernetes/pki/             ca, apiserver, admin, front-proxy-ca, front-proxy-client, sa
    DIR/kubernetes/admin.conf       the kubeconfig of the administrator
    DIR/kubernetes/node/            of the node that runs pods as processes: images, volumes, logs

Certificates are made where they are missing and renewed in time. The store listens on 2379 as
before, and answers the API server without a socket. All flags of both may be given.
"""

import asyncio
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Final, NamedTuple

from kvstack.agents.controllers.table import UnknownControllerError, check_names
from kvstack.agents.kubelet.hollow.nodes import names_of
from kvstack.agents.process.local_zone import local_zone
from kvstack.agents.standalone.parts import CONTROLLERS, NODE, PARTS
from kvstack.agents.standalone.pod_range import NONE, PREFIX, parse, taken
from kvstack.apiserver.server.addresses import join_host_port
from kvstack.apiserver.server.certs.pki import Pki
from kvstack.apiserver.server.process import announce, serve_store
from kvstack.apiserver.server.program import FAILED, run, version_text
from kvstack.apiserver.server.settings.command_line import (
    Given,
    UsageError,
    Value,
    help_text,
    read_command_line,
)
from kvstack.apiserver.server.settings.flags import BY_NAME, SHORT, Kind
from kvstack.apiserver.server.settings.options import Options, options_of
from kvstore.config.flags import BY_NAME as STORE_FLAGS
from kvstore.config.flags import FlagKind as StoreKind
from kvstore.errors import ConfigError
from kvstore.runtime.log.line_logger import LEVELS, LineLogger, open_logger

if TYPE_CHECKING:
    from kvstack.agents.standalone.local_agents import AgentOptions
    from kvstore.embed import Member

COMMAND: Final = "kvstack up"
ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
SERVICE_RANGE: Final = "10.96.0.0/16"
_CONTROLLERS: Final = "*,bootstrapsigner,tokencleaner"
"""As kubeadm has them: nodes may join by bootstrap tokens."""
SWITCH_S: Final = 0.0005
"""How long one thread keeps Python's lock while the other wants it."""
ABOUT: Final = """\
A cluster in one process: store, API server, controllers, scheduler, and, for root, a node.

  --data-dir DIR                where everything is kept (default default.etcd)
  --listen-client-urls URLS     where the store listens (default http://127.0.0.1:2379)
  --kubeconfig FILE             of the administrator (default DIR/kubernetes/admin.conf)
  --log-level LEVEL             debug, info, warn or error (default warn)
  --nodes N                     hollow nodes, which run pods without processes (default 0); or
                                their names, comma-separated
  --controllers LIST            as of kube-controller-manager: *, name, -name
                                (default {controllers})
  --node-ip IP                  of the node and its pods (default that of this machine)
  --cluster-cidr RANGE          of the addresses of pods; none: pods share the node's address
                                (default the first of 10.244.0.0/16 and on that is free here)
  --image-dir DIR               images of the node (default DIR/kubernetes/node/images)
  --host-image BOOL             whether host:latest, this machine's files, is one (default true)
  --ignore-limits BOOL          take pods with limits where none can be enforced (default false)
  --without PARTS               what is left to others, of: {parts}

All others are those of `kvstack apiserver`, as below, and those of `kvstore`.""".format(
    parts=", ".join(PARTS), controllers=_CONTROLLERS
)
PEER_FLAGS: Final = ("initial-cluster", "listen-peer-urls", "initial-advertise-peer-urls")
"""Of the store: who gives one of them wants a member that other members reach."""

_OWN: Final = {
    "data-dir": "default.etcd",
    "listen-client-urls": "http://127.0.0.1:2379",
    "kubeconfig": "",
    "log-level": "warn",
    "nodes": "0",
    "controllers": _CONTROLLERS,
    "without": "",
    "node-ip": "",
    "cluster-cidr": "",
    "image-dir": "",
    "host-image": "true",
    "ignore-limits": "false",
}
_BOOLEANS: Final = ("host-image", "ignore-limits")


class StackOptions(NamedTuple):
    """What is started, and where it is kept."""

    data_dir: Path
    client_urls: tuple[str, ...]
    kubeconfig: Path
    log_level: str
    store_flags: tuple[str, ...]
    """As `kvstore` takes them."""
    has_peers: bool
    without: frozenset[str] = frozenset()
    """The agents that are left to others."""
    hollow_nodes: tuple[str, ...] = ()
    """Their names."""
    controllers: str = _CONTROLLERS
    node_ip: str = ""
    cluster_range: str = ""
    """Of pods; `none`: they share the node's address; empty: one that is free."""
    image_dir: Path | None = None
    has_host_image: bool = True
    ignores_limits: bool = False


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    try:
        own, rest = split_own(arguments)
        given = read_command_line(rest, COMMAND)
        if given.values.get("help"):
            sys.stdout.write(help_text(COMMAND, ABOUT))
            return 0
        if given.values.get("version"):
            sys.stdout.write(version_text())
            return 0
    except UsageError as error:
        sys.stderr.write(f"Error: {error}\n")
        return FAILED
    log = open_logger(("default",), own.log_level, "json")
    try:
        options = stack_options(own, given)
        announce(options, log)
        return run(lambda: _serve(own, options, log), log)
    except ConfigError as error:
        log.fatal("command failed", error=str(error))
        return FAILED


def split_own(arguments: Sequence[str]) -> tuple[StackOptions, list[str]]:
    """Return what is not the API server's, and the other arguments; raises UsageError."""
    found = dict(_OWN)
    store: list[str] = []
    names: set[str] = set()
    rest: list[str] = []
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        name, equals, text = argument.lstrip("-").partition("=")
        flag = STORE_FLAGS.get(name)
        is_stores = flag is not None and name not in BY_NAME
        if not argument.startswith("-") or not (name in _OWN or is_stores):
            rest.append(argument)
            if not equals and waiting and _takes_next(name):
                rest.append(waiting.pop())
            continue
        if not equals:
            if flag is not None and flag.kind is StoreKind.BOOL:
                text = "true"
            elif waiting:
                text = waiting.pop()
            else:
                raise UsageError(f"flag needs an argument: {argument}")
        if name in _OWN:
            found[name] = text
        else:
            store.append(f"--{name}={text}")
            names.add(name)
    return _stack_options(found, store, has_peers=not names.isdisjoint(PEER_FLAGS)), rest


def _takes_next(name: str) -> bool:
    """Tell whether a flag of the API server has its value in the next argument."""
    flag = BY_NAME.get(name.replace("_", "-")) or BY_NAME.get(SHORT.get(name, ""))
    return flag is not None and flag.kind not in (Kind.BOOL, Kind.VERSION)


def _stack_options(
    found: Mapping[str, str], store_flags: Sequence[str], *, has_peers: bool
) -> StackOptions:
    if found["log-level"] not in LEVELS:
        raise UsageError(f"--log-level {found['log-level']}: one of {', '.join(LEVELS)}")
    without = frozenset(filter(None, found["without"].split(",")))
    if unknown := sorted(without.difference(PARTS)):
        raise UsageError(f"--without {unknown[0]}: one of {', '.join(PARTS)}")
    try:
        check_names(found["controllers"])
        hollow_nodes = names_of(found["nodes"])
    except UnknownControllerError as error:
        raise UsageError(f"--controllers: {error}") from error
    except ValueError as error:
        raise UsageError(f"--nodes {error}") from error
    for name in _BOOLEANS:
        if found[name] not in ("true", "false"):
            raise UsageError(f"--{name} {found[name]}: true or false")
    if found["cluster-cidr"]:
        try:
            parse(found["cluster-cidr"])
        except ValueError as error:
            raise UsageError(f"--cluster-cidr {error}") from error
    data_dir = Path(found["data-dir"])
    own_file = found["kubeconfig"]
    return StackOptions(
        data_dir,
        tuple(filter(None, found["listen-client-urls"].split(","))),
        Path(own_file) if own_file else kubernetes_dir(data_dir) / "admin.conf",
        found["log-level"],
        tuple(store_flags),
        has_peers,
        without,
        hollow_nodes,
        found["controllers"],
        found["node-ip"],
        found["cluster-cidr"],
        Path(found["image-dir"]) if found["image-dir"] else None,
        found["host-image"] == "true",
        found["ignore-limits"] == "true",
    )


def stack_options(own: StackOptions, given: Given) -> Options:
    """Return the API server's settings: what is given, and else what suits one process."""
    pki = pki_dir(own.data_dir)
    defaults: dict[str, Value] = {
        "etcd-servers": own.client_urls or ("in this process",),
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
    options = options_of(Given({**defaults, **given.values}))
    # A node that was given an address of loopback, and its pods, can be reached nowhere else.
    return dataclasses.replace(options, proxies_to_loopback=own.node_ip.startswith("127."))


def kubernetes_dir(data_dir: Path) -> Path:
    """Return where the files are that are not the store's."""
    return data_dir / "kubernetes"


def pki_dir(data_dir: Path) -> Path:
    """Return where certificates and keys are."""
    return kubernetes_dir(data_dir) / "pki"


async def _serve(own: StackOptions, options: Options, log: LineLogger) -> None:
    # A member takes its turns in a thread of its own.
    sys.setswitchinterval(SWITCH_S)
    try:
        own.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot use data directory {own.data_dir}: {error.strerror}") from error
    node_dir = kubernetes_dir(own.data_dir) / "node"
    wanted = own.cluster_range if own.without.isdisjoint((NODE, CONTROLLERS)) else NONE
    pki = Pki(pki_dir(own.data_dir), own.kubeconfig, options, server_url(options), log)
    starting = asyncio.create_task(asyncio.to_thread(_start_member, own, log))
    making = asyncio.create_task(asyncio.to_thread(pki.ensure))
    await asyncio.sleep(0)  # so that both begin
    # Meanwhile: what the API server is made of.
    from kvstack.agents.standalone.local_agents import LocalAgents

    await asyncio.wait([starting, making])
    member = starting.result()
    try:
        making.result()
        with taken(wanted, node_dir, log) as pods:
            async with member.store() as store:
                await serve_store(
                    store,
                    options,
                    log,
                    on_ready=lambda: _tell(own),
                    ended=asyncio.to_thread(member.wait),
                    renew=pki.ensure,
                    beside=lambda server: LocalAgents(server, agent_options(own, pods), log),
                )
    finally:
        await asyncio.to_thread(member.stop)


def agent_options(own: StackOptions, pods: IPv4Network | None = None) -> "AgentOptions":
    """Return the settings of the agents, once the certificates are there.

    pods: the range of their addresses; None: they share their node's.
    """
    from kvstack.agents.controllers.options import SIGNERS, NodeRanges, SignerOptions
    from kvstack.agents.controllers.options import Options as ControllerOptions
    from kvstack.agents.kubelet.real_node import RealNodeOptions, own_address
    from kvstack.agents.kubelet.runtime.process.options import AUTOMATIC, BRIDGE, SHARED
    from kvstack.agents.standalone.local_agents import AgentOptions

    pki = pki_dir(own.data_dir)
    authority = (pki / "ca.crt").read_bytes()
    ip = own.node_ip or own_address()
    is_left = CONTROLLERS in own.without and own.cluster_range != NONE
    network = BRIDGE if pods else AUTOMATIC if is_left else SHARED
    node = RealNodeOptions(
        gethostname().lower(),
        str(pki / "ca.crt"),
        ip,
        ip,
        root=kubernetes_dir(own.data_dir).absolute() / "node",
        has_host_image=own.has_host_image,
        images=own.image_dir,
        ignores_limits=own.ignores_limits,
        port_may_differ=True,
        network=network,
    )
    ranges = None
    if pods:
        ranges = NodeRanges((pods,), (PREFIX,), (IPv4Network(SERVICE_RANGE),))
    signer = SignerOptions(authority, (pki / "ca.key").read_bytes())
    return AgentOptions(
        own.without,
        own.hollow_nodes,
        own.controllers,
        controllers=ControllerOptions(
            root_ca=authority.decode(),
            service_account_key=(pki / "sa.key").read_bytes(),
            signers=dict.fromkeys(SIGNERS, signer),
            node_ranges=ranges,
            local_zone=local_zone(),
        ),
        node=node,
    )


def _start_member(own: StackOptions, log: LineLogger) -> "Member":
    from kvstore import embed

    return embed.start(own.data_dir, client_urls=own.client_urls, flags=own.store_flags, logger=log)


def server_url(options: Options) -> str:
    """Return the URL of the kubeconfig: how this machine reaches the server."""
    host = options.serving.external_host or options.serving.bind_address
    try:
        if ip_address(host).is_unspecified:
            host = "127.0.0.1"
    except ValueError:
        pass  # a name
    return f"https://{join_host_port(host, options.serving.port)}"


def _tell(own: StackOptions) -> None:
    sys.stdout.write(f"export KUBECONFIG={own.kubeconfig.absolute()}\nkubectl get namespaces\n")
    sys.stdout.flush()
