"""The command `kvstack join`: joins this machine to a cluster and runs its node.

    kvstack join HOST:6443 --token abcdef.… --discovery-token-ca-cert-hash sha256:…

    discovery ─► TLS bootstrap ─► a node of processes ─► routes, the proxy

Flags are kubeadm's; all others are `kvstack kubelet`'s. The results of discovery are kept in
--root-dir: the same command, with any token, starts the node again while its certificate is valid.
Pods keep running when the command ends, and are adopted when it starts again.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml
from cryptography import x509

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import CONFIG_MAPS, NODES
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.kubeconfig import KubeconfigError, connect, load
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet import command as kubelet
from kvstack.agents.kubelet.configuration import ConfigurationFileError
from kvstack.agents.kubelet.identity import bootstrap
from kvstack.agents.standalone.joining import tokens
from kvstack.agents.standalone.joining.access import CLUSTER_CONFIG, KUBELET_CONFIG, SYSTEM
from kvstack.agents.standalone.joining.discovery import (
    DiscoveredCluster,
    discover,
    key_hash,
    parse_hash,
)
from kvstack.agents.standalone.joining.discovery_file import (
    bootstrap_kubeconfig,
    read_discovery_file,
)
from kvstack.agents.standalone.local_proxy import LocalProxy, LocalProxyOptions
from kvstack.agents.standalone.page_addresses import (
    HEALTHZ_ADDRESS,
    METRICS_ADDRESS,
    page_address,
)
from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.core.node_status import is_ready
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.certs.cert_files import write_file
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import open_logger
from kvstack.component.net.hosts import of_families, own_address
from kvstack.component.process.program import FAILED, run
from kvstack.component.units import SECOND_NS

COMMAND: Final = "kvstack join"
_OWN: Final = {
    # Name: default and meaning.
    "token": ("", "bootstrap token, as `kvstack token create` prints it"),
    "discovery-token-ca-cert-hash": (
        "",
        "hash of the public key of the cluster's CA: sha256:…; may be repeated",
    ),
    "discovery-token-unsafe-skip-ca-verification": (
        "false",
        "trust any server that knows the token; no hash is verified",
    ),
    "discovery-file": (
        "",
        "kubeconfig with the server, its CA and a token, instead of HOST:PORT and a hash",
    ),
    "discovery-timeout": ("1m0s", "timeout for a server that is not reachable or not ready"),
    "node-name": ("", "name of the node (default: host name)"),
    "without-proxy": ("false", "do not run the proxy"),
    "proxy-metrics-address": (
        METRICS_ADDRESS,
        "where the proxy serves /metrics, /proxyMode and /configz; none: not served",
    ),
    "proxy-healthz-address": (
        HEALTHZ_ADDRESS,
        "where the proxy serves /healthz and /livez; none: not served",
    ),
}
_BOOLEANS: Final = ("discovery-token-unsafe-skip-ca-verification", "without-proxy")
_SET: Final = (
    *("kubeconfig", "bootstrap-kubeconfig", "config", "client-ca-file", "hostname-override"),
    *("container-runtime-endpoint", "register-node"),
)
"""Flags of the kubelet that this command sets, or that make no sense with it."""
_PORT: Final = 6443
_ROOT: Final = "root-dir"


@dataclass(frozen=True, slots=True)
class JoinArguments:
    """The arguments of the command line."""

    server: str
    """URL at which the cluster is asked."""
    token: tokens.Token | None
    hashes: tuple[str, ...]
    is_unsafe: bool
    within_s: float
    node: str
    has_proxy: bool
    root: Path
    kubelet: tuple[str, ...]
    """Arguments for the kubelet."""
    authority: bytes = b""
    """The cluster's, if a file has told it; PEM."""
    proxy_metrics_address: str = METRICS_ADDRESS
    proxy_healthz_address: str = HEALTHZ_ADDRESS
    """Empty: the pages are not served."""

    def file(self, name: str) -> Path:
        """Return a file of this node."""
        return self.root / name

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the node."""
        return self.file("kubelet.conf")


class JoinError(ConfigError):
    """The machine cannot join."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    if any(each in ("-h", "--help") for each in arguments):
        sys.stdout.write(help_text())
        return 0
    try:
        command = read_arguments(arguments)
        kubelet.split_flags(_kubelet_flags(command, ""))  # invalid flags fail before anything else
    except (ConfigError, kubelet.FlagError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return FAILED
    if os.geteuid() != 0:
        sys.stderr.write("Error: a node needs root\n")
        return FAILED
    try:
        pods = asyncio.run(prepare(command))
        own, flags, taken = kubelet.split_flags(_kubelet_flags(command, pods))
        configuration, ignored = kubelet.read(own, flags)
        options = kubelet.node_options(own, configuration)
    except (
        *(ConfigError, KubeconfigError, ApiError, UnreachableError),
        *(kubelet.FlagError, ConfigurationFileError),
    ) as error:
        sys.stderr.write(f"Error: {error}\n")
        return FAILED
    log = open_logger(("default",), own["log-level"], "json")
    for each in (*taken, *ignored):
        log.warning("a setting has no effect", name=each)

    @asynccontextmanager
    async def beside(_api: Api, informers: Informers) -> AsyncIterator[None]:
        ranges = tuple(filter(None, pods.split(",")))
        ips = (options.ip, *options.more_ips)
        settings = LocalProxyOptions(
            options.name,
            ips,
            ranges,
            leaves_rules=True,
            metrics_address=command.proxy_metrics_address,
            healthz_address=command.proxy_healthz_address,
        )
        proxy = LocalProxy(informers, settings, SystemClock(), log)
        try:
            if command.has_proxy:
                await proxy.start()
            _print(options.name)
            yield
        finally:
            await proxy.stop()

    try:
        return run(lambda: kubelet.serve(own, options, log, beside), log)
    except (KubeconfigError, ConfigError) as error:
        log.fatal("command failed", error=str(error))
        return FAILED


def _print(name: str) -> None:
    sys.stdout.write(f"this machine is the node {name}\n")
    sys.stdout.flush()


def help_text() -> str:
    """Return what --help shows."""
    lines = [f"{__doc__}\nUsage:\n  {COMMAND} HOST:PORT [flags]\n\nFlags:"]
    for name, (default, meaning) in _OWN.items():
        shown = f" (default {default})" if default else ""
        lines.append(f"  --{name:<45} {meaning}{shown}")
    return "\n".join(lines) + "\n"


def flag_meanings() -> dict[str, str]:
    """Return the flags that have an effect, and what each is for."""
    own = {name: meaning for name, (_, meaning) in _OWN.items()}
    return own | {
        name: meaning for name, meaning in kubelet.flag_meanings().items() if name not in _SET
    }


def read_arguments(arguments: Sequence[str]) -> JoinArguments:
    """Read the command line; JoinError."""
    own = {name: default for name, (default, _) in _OWN.items()}
    hashes: list[str] = []
    addresses: list[str] = []
    rest: list[str] = []
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        name, equals, text = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            # The value of a flag of the kubelet, or the place.
            is_value = bool(rest) and rest[-1].startswith("-") and "=" not in rest[-1]
            (rest if is_value else addresses).append(argument)
            continue
        if name in _SET:
            raise JoinError(f"--{name} is not for {COMMAND}: use `kvstack kubelet`")
        if name not in own:
            rest.append(argument)
            continue
        if not equals:
            is_alone = not waiting or waiting[-1].startswith("-")
            text = "true" if name in _BOOLEANS or is_alone else waiting.pop()
        if name in _BOOLEANS and text not in ("true", "false"):
            raise JoinError(f"--{name} {text}: true or false")
        if name == "discovery-token-ca-cert-hash":
            hashes += filter(None, text.split(","))
        own[name] = text
    file = read_discovery_file(Path(own["discovery-file"])) if own["discovery-file"] else None
    if file is not None and (addresses or hashes):
        raise JoinError("--discovery-file says which server is asked and what its CA is")
    if file is None and len(addresses) != 1:
        raise JoinError(f"{COMMAND} HOST:PORT: one API server is asked, not {len(addresses)}")
    try:
        token = tokens.parse(own["token"]) if own["token"] else None
        return JoinArguments(
            server_of(file.server if file is not None else addresses[0]),
            token or (file.token if file is not None else None),
            file.hashes if file is not None else tuple(map(parse_hash, hashes)),
            own["discovery-token-unsafe-skip-ca-verification"] == "true",
            durations.parse(own["discovery-timeout"]) / SECOND_NS,
            (own["node-name"] or socket.gethostname()).strip().lower(),
            own["without-proxy"] != "true",
            _root_of(rest),
            tuple(rest),
            file.authority if file is not None else b"",
            page_address(own["proxy-metrics-address"]),
            page_address(own["proxy-healthz-address"]),
        )
    except ValueError as error:
        raise JoinError(str(error)) from error


def _root_of(arguments: Sequence[str]) -> Path:
    own, _, _ = kubelet.split_flags([*arguments, "--kubeconfig=later"])
    return Path(own[_ROOT])


def server_of(address: str) -> str:
    """Return the URL of what a user types: a host, a host and a port, or a URL; ValueError."""
    url = urlsplit(address if "://" in address else f"https://{address}")
    if url.scheme != "https" or not url.hostname or url.path.strip("/"):
        raise ValueError(f"{address}: HOST:PORT or https://HOST:PORT")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"https://{host}:{url.port or _PORT}"


async def prepare(command: JoinArguments) -> str:
    """Write the files of a node if they do not exist; return the range of the cluster's pods.

    ConfigError, KubeconfigError, ApiError, UnreachableError: the machine cannot join.
    """
    clock = SystemClock()
    if await asyncio.to_thread(_is_of_another, command):
        command.kubeconfig.unlink(missing_ok=True)
    if not await asyncio.to_thread(bootstrap.is_good, command.kubeconfig, clock.now_s()):
        await _join(command)
        return await _learn(command, command.kubeconfig)
    try:
        return await _learn(command, command.kubeconfig)
    except (ApiError, UnreachableError):
        # The node starts without an API server, too, with what it knew.
        if not command.file("config.yaml").exists():
            raise
        return _pods_in(command.file("cluster.yaml").read_text("utf-8"))


def _is_of_another(command: JoinArguments) -> bool:
    """Return whether the kept files are of another cluster than that of the hash."""
    try:
        kept = x509.load_pem_x509_certificates(command.file("ca.crt").read_bytes())
    except (OSError, ValueError):
        return False  # no files are kept
    return bool(command.hashes) and not any(key_hash(each) in command.hashes for each in kept)


async def _join(command: JoinArguments) -> None:
    """Get a certificate for this node with the token."""
    if command.token is None:
        raise JoinError("--token is needed: this machine has no certificate of the cluster yet")
    if not command.hashes and not command.is_unsafe:
        raise JoinError(
            "--discovery-token-ca-cert-hash is required, or, to trust anybody who knows the token, "
            "--discovery-token-unsafe-skip-ca-verification"
        )
    if command.authority:
        found = DiscoveredCluster(command.server, command.authority)
    else:
        found = await discover(command.server, command.token, command.hashes, command.within_s)
    authority, first = command.file("ca.crt"), command.file("bootstrap.conf")
    command.root.mkdir(mode=0o750, parents=True, exist_ok=True)
    write_file(authority, found.authority)
    cluster = {"server": found.server, "certificate-authority": str(authority.absolute())}
    content = bootstrap_kubeconfig(cluster, command.token)
    write_file(first, yaml.safe_dump(content, sort_keys=False).encode())
    try:
        await _check_name(command, first)
        pki = command.root / "pki"
        await bootstrap.ensure(str(first), command.kubeconfig, pki, command.node, SystemClock())
    finally:
        first.unlink(missing_ok=True)  # it holds the token


async def _check_name(command: JoinArguments, kubeconfig: Path) -> None:
    """Check that no other machine is the node that this one wants to be; JoinError."""
    api = Api(connect(load(kubeconfig)), Options(user_agent="kvstack-join"))
    try:
        with suppress(ApiError):  # missing or not readable: then the certificate decides
            found = await api.get(NODES, "", command.node)
            if is_ready(found):
                raise JoinError(
                    f"there is a node {command.node} already, and it is Ready: choose another "
                    "name with --node-name, or delete that node"
                )
    finally:
        await api.close()


async def _learn(command: JoinArguments, kubeconfig: Path) -> str:
    """Keep how the cluster is set up; return the range of its pods; ApiError, UnreachableError."""
    api = Api(connect(load(kubeconfig)), Options(user_agent="kvstack-join"))
    try:
        kubelets = await api.get(CONFIG_MAPS, SYSTEM, KUBELET_CONFIG)
        cluster = await api.get(CONFIG_MAPS, SYSTEM, CLUSTER_CONFIG)
    finally:
        await api.close()
    configuration = (kubelets.get("data") or {}).get("kubelet", "")
    text = (cluster.get("data") or {}).get("ClusterConfiguration", "")
    pods = _pods_in(text)
    write_file(command.file("config.yaml"), configuration.encode())
    write_file(command.file("cluster.yaml"), text.encode())
    return pods


def _pods_in(text: str) -> str:
    """Return the range of pods that a ClusterConfiguration has; empty: none; ConfigError."""
    try:
        found = yaml.safe_load(text)
        networking = found.get("networking") or {}
        return str(networking.get("podSubnet") or "")
    except (yaml.YAMLError, AttributeError) as error:
        raise ConfigError(f"{SYSTEM}/{CLUSTER_CONFIG} has no configuration: {error!r}") from error


def _kubelet_flags(command: JoinArguments, pods: str) -> list[str]:
    """Return the kubelet's arguments; pods: range of the cluster's; those of the user go before."""
    flags = {
        "kubeconfig": str(command.kubeconfig),
        "config": str(command.file("config.yaml")),
        "client-ca-file": str(command.file("ca.crt")),
        "hostname-override": command.node,
        "node-ip": ",".join(node_ips(command.server, pods)),
        **({"cluster-cidr": pods, "pod-network": "bridge"} if pods else {"pod-network": "host"}),
    }
    return [*(f"--{name}={text}" for name, text in flags.items()), *command.kubelet]


def node_ips(server: str, pods: str) -> list[str]:
    """Return the addresses of this machine as a node, that of the pods' first family first.

    That by which it reaches the server is among them; of another family of pods' ranges it has the
    one that it has towards others, if any.
    """
    towards = address_towards(server)
    if not towards:
        return []
    found = {ip_address(towards).version: towards}
    families = [each.version for each in of_families(pods, ip_network)]
    for family in families:
        address = found.get(family) or own_address(family)
        if not ip_address(address).is_loopback:
            found.setdefault(family, address)
    ordered = [found[each] for each in families if each in found]
    return ordered or [towards]


def address_towards(server: str) -> str:
    """Return the address by which this machine reaches a server; empty: it is not known."""
    url = urlsplit(server)
    try:
        rows = socket.getaddrinfo(url.hostname, url.port or _PORT, type=socket.SOCK_DGRAM)
    except OSError:
        return ""
    for family, kind, protocol, _, where in rows:
        with suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(where)  # UDP: nothing is sent
            address: str = probe.getsockname()[0]
            return address
    return ""
