"""The command `kvstack kubelet`: one node, with kubelet's flags and configuration file.

Containers are processes of this machine or, with --container-runtime-endpoint, of a container
engine. Processes keep running when the command ends, and are adopted when it starts again.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from ipaddress import ip_address, ip_network
from pathlib import Path
from random import SystemRandom
from socket import gethostname
from typing import Final, TypeAlias

import yaml

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.kubeconfig import connect, load
from kvstack.agents.client.over_http import OverHttp
from kvstack.agents.kubelet import host_root
from kvstack.agents.kubelet.configuration import (
    FLAGS,
    ConfigurationFileError,
    merged,
    read_configuration,
    seconds,
    with_flags,
    without_effect,
)
from kvstack.agents.kubelet.eviction.pressures import EvictionOptions
from kvstack.agents.kubelet.identity import bootstrap, certificates
from kvstack.agents.kubelet.identity.rotation import CLIENT_KIND, Rotation
from kvstack.agents.kubelet.images.image_garbage import ImageOptions
from kvstack.agents.kubelet.node.node import label_problem
from kvstack.agents.kubelet.node.node_status import StatusOptions
from kvstack.agents.kubelet.node_shutdown import (
    ALWAYS,
    SHUTDOWN,
    WHEN,
    ShutdownPeriod,
    machine_stops,
    periods_of,
)
from kvstack.agents.kubelet.options import KeepingOptions, KubeletOptions
from kvstack.agents.kubelet.pods.sandboxes import NodeNames, quantity
from kvstack.agents.kubelet.real_node import RealNode, RealNodeOptions
from kvstack.agents.kubelet.routes.node_routes import NodeRoutes, RouteOptions
from kvstack.agents.kubelet.routes.plan import AUTOMATIC as AUTO_ROUTES
from kvstack.agents.kubelet.routes.plan import MODES, NONE
from kvstack.agents.kubelet.runtime.process.options import AUTOMATIC, BRIDGE, SHARED
from kvstack.agents.kubelet.static.static_pods import StaticSettings
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import LEVELS, LineLogger
from kvstack.component.net import resolv_conf
from kvstack.component.net.hosts import of_families, own_addresses
from kvstack.component.net.netlink import Network
from kvstack.component.process.command import Work, run_work
from kvstack.component.process.program import is_done_before, settle, stop_event

COMMAND: Final = "kvstack kubelet"
_OWN: Final = {
    # Name: default and meaning.
    "kubeconfig": ("", "kubeconfig of the API server and the node's user"),
    "bootstrap-kubeconfig": (
        "",
        "kubeconfig used to request a client certificate if --kubeconfig does not exist",
    ),
    "config": ("", "configuration file: kubelet.config.k8s.io/v1beta1, kind KubeletConfiguration"),
    "config-dir": ("", "directory of *.conf files that override --config"),
    "hostname-override": ("", "name of the node (default: host name)"),
    "node-ip": (
        "",
        "address of the node, and of pods that have none of their own; or one per family: A,B",
    ),
    "node-labels": ("", "additional labels of the node: a=b,c=d"),
    "root-dir": (
        "/var/lib/kvstack-node",
        "directory of volumes, layers, certificates and images",
    ),
    "cert-dir": ("", "directory of certificates (default: pki in --root-dir)"),
    "pod-network": (
        "auto",
        "network of a node of processes: bridge (each pod has an address of the node's podCIDR), "
        "host (pods share the node's address), or auto: bridge from the moment the node has a "
        "podCIDR, which is awaited for 10 s",
    ),
    "network-policy": (
        "true",
        "enforce NetworkPolicies on pods with addresses of the node's podCIDR",
    ),
    "cluster-cidr": (
        "",
        "range of the pods of all nodes; traffic to it is not masqueraded (default: the range of "
        "this node)",
    ),
    "network": (
        "",
        "how pods of other nodes are reached: host-gw (their node is a gateway), vxlan (a tunnel), "
        "none, or auto: host-gw where the node is on a network of this machine, else vxlan "
        "(default: auto with --cluster-cidr, else none)",
    ),
    "image-dir": ("", "directory of images of a node of processes (default: images in --root-dir)"),
    "host-image": ("false", "enable the image host:latest, this machine's files"),
    "host-root-namespaces": (
        "",
        "namespaces whose pods of host:latest may run as root of the machine if they request it: "
        "a,b",
    ),
    "end-pods": (
        SHUTDOWN,
        "when to terminate pods, in the order of shutdownGracePeriod, as the command ends: "
        "shutdown (if systemd shuts the machine down), always or never",
    ),
    "ignore-limits": ("false", "accept pods whose limits cannot be enforced"),
    "log-level": ("warn", "debug, info, warn or error"),
}
# Flags of kubelet that have no effect here.
_TAKEN_NAMES: Final = """
    v enable-server cloud-provider image-credential-provider-config
    image-credential-provider-bin-dir runtime-cgroups pod-infra-container-image fail-swap-on
    feature-gates read-only-port sync-frequency logging-format vmodule
    hairpin-mode
"""
_TAKEN: Final = frozenset(_TAKEN_NAMES.split())


class FlagError(ConfigError):
    """A flag cannot be meant."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_work(lambda: _prepare(arguments))


def _prepare(arguments: Sequence[str]) -> Work | None:
    if any(each in ("-h", "--help") for each in arguments):
        sys.stdout.write(help_text())
        return None
    own, flags, taken = split_flags(arguments)
    configuration, ignored = read(own, flags)
    options = node_options(own, configuration)
    return Work(lambda log: serve(own, options, log), own["log-level"], (*taken, *ignored))


def help_text() -> str:
    """Return what --help shows."""
    lines = [f"{__doc__}\nUsage:\n  {COMMAND} [flags]\n\nFlags:"]
    for name, (default, meaning) in _OWN.items():
        shown = f" (default {default})" if default else ""
        lines.append(f"  --{name:<24} {meaning}{shown}")
    lines.append("\nFlags for fields of the configuration, as in kubelet:")
    lines += [f"  --{name:<38} {'.'.join(path)}" for name, path in FLAGS.items()]
    return "\n".join(lines) + "\n"


def flag_meanings() -> dict[str, str]:
    """Return the flags that have an effect, and what each is for."""
    return {name: meaning for name, (_, meaning) in _OWN.items()} | {
        name: ".".join(path) for name, path in FLAGS.items()
    }


def split_flags(
    arguments: Sequence[str],
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return own flags, those of the configuration, and those without effect; FlagError."""
    own = {name: default for name, (default, _) in _OWN.items()}
    flags: dict[str, str] = {}
    kubelet_flags: list[str] = []
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        name, equals, text = argument.lstrip("-").partition("=")
        if not argument.startswith("-") or name not in {*own, *FLAGS, *_TAKEN}:
            raise FlagError(f"unknown flag: {argument}")
        if not equals:
            is_alone = not waiting or waiting[-1].startswith("-")
            text = "true" if is_alone else waiting.pop()
        if name in own:
            own[name] = text
        elif name in FLAGS:
            flags[name] = text
        else:
            kubelet_flags.append(f"--{name}")
    _check(own)
    return own, flags, kubelet_flags


def _check(own: dict[str, str]) -> None:
    """Check the values of own flags; FlagError."""
    if own["log-level"] not in LEVELS:
        raise FlagError(f"--log-level {own['log-level']}: one of {', '.join(LEVELS)}")
    if own["pod-network"] not in (AUTOMATIC, BRIDGE, SHARED):
        raise FlagError(f"--pod-network {own['pod-network']}: {AUTOMATIC}, {BRIDGE} or {SHARED}")
    if own["network"] not in ("", *MODES):
        raise FlagError(f"--network {own['network']}: one of {', '.join(MODES)}")
    if own["end-pods"] not in WHEN:
        raise FlagError(f"--end-pods {own['end-pods']}: one of {', '.join(WHEN)}")
    try:
        host_root.parse(own[host_root.FLAG])
    except ValueError as error:
        raise FlagError(str(error)) from error
    _node_ips(own)
    if not _cluster_ranges(own) and own["network"] not in ("", NONE):
        raise FlagError(f"--network {own['network']}: --cluster-cidr is needed, too")
    if own["network-policy"] not in ("true", "false"):
        raise FlagError(f"--network-policy {own['network-policy']}: true or false")
    for label in own["node-labels"].split(","):
        if problem := label_problem(label.partition("=")[0]):
            raise FlagError(problem)
    if not own["kubeconfig"]:
        raise FlagError("--kubeconfig is required: a node without an API server is not supported")


def _cluster_ranges(own: dict[str, str]) -> tuple[Network, ...]:
    """Return what --cluster-cidr says: one range of a family at most; FlagError."""
    try:
        return of_families(own["cluster-cidr"], ip_network)
    except ValueError as error:
        raise FlagError(f"--cluster-cidr {error}") from error


def _node_ips(own: dict[str, str]) -> tuple[str, ...]:
    """Return what --node-ip says, or the addresses of this machine towards others; FlagError.

    It has one of each family of --cluster-cidr, as far as the machine has it.
    """
    try:
        found = of_families(own["node-ip"], ip_address)
    except ValueError as error:
        raise FlagError(f"--node-ip {error}") from error
    if found:
        return tuple(map(str, found))
    if ranges := _cluster_ranges(own):
        return own_addresses(each.version for each in ranges)
    return own_addresses((4, 6))[:1]


def route_options(own: dict[str, str], options: RealNodeOptions) -> RouteOptions | None:
    """Return how pods of other nodes are reached; None: that is left to others."""
    ranges, mode = options.cluster_ranges, own["network"] or AUTO_ROUTES
    # An engine's pods have networks of their engine's making: that it is ours is to be said.
    is_engines = bool(options.runtime_endpoint)
    is_left = not own["network"] if is_engines else options.network == SHARED
    if not ranges or is_left:
        return None
    return RouteOptions(options.name, ranges, mode, ends_with_node=options.ends_with_node)


def read(own: dict[str, str], flags: dict[str, str]) -> tuple[Object, list[str]]:
    """Return the configuration, and the names of what has no effect; ConfigurationFileError."""
    files = [Path(own["config"])] if own["config"] else []
    if own["config-dir"]:
        files += sorted(Path(own["config-dir"]).glob("*.conf"))
    given: Object = {}
    for file in files:
        try:
            found = yaml.safe_load(file.read_text("utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise ConfigurationFileError(f"{file}: {error}") from error
        if not isinstance(found, dict):
            raise ConfigurationFileError(f"{file}: not an object")
        given = merged(given, found)
    return with_flags(read_configuration(given), flags), without_effect(given)


def node_options(own: dict[str, str], configuration: Object) -> RealNodeOptions:
    """Return the settings of a node."""
    kubelet = _kubelet_options(own, configuration)
    return RealNodeOptions(
        kubelet.name,
        configuration["authentication"]["x509"]["clientCAFile"],
        kubelet.ip,
        configuration["address"],
        configuration["port"],
        kubelet.root,
        has_host_image=own["host-image"] == "true",
        host_root_namespaces=host_root.parse(own[host_root.FLAG]),
        hidden=_credentials(own),
        images=Path(own["image-dir"]) if own["image-dir"] else None,
        ends_with_node=False,
        kubelet=kubelet,
        runtime_endpoint=configuration["containerRuntimeEndpoint"],
        image_endpoint=configuration["imageServiceEndpoint"],
        cgroup_driver=configuration["cgroupDriver"],
        configuration=configuration,
        pki=Path(own["cert-dir"]) if own["cert-dir"] else None,
        network=own["pod-network"],
        cluster_ranges=_cluster_ranges(own),
        more_ips=kubelet.more_ips,
        enforces_policies=own["network-policy"] == "true",
    )


def _credentials(own: dict[str, str]) -> list[Path]:
    """Return the files by which the API server is reached."""
    names = ("kubeconfig", "bootstrap-kubeconfig")
    return [Path(own[name]) for name in names if own[name]]


def _kubelet_options(own: dict[str, str], configuration: Object) -> KubeletOptions:
    static = configuration["staticPodPath"]
    logs = Path(configuration["podLogsDir"])
    ips = _node_ips(own)
    return KubeletOptions(
        (own["hostname-override"] or gethostname()).strip().lower(),
        ips[0],
        Path(own["root-dir"]),
        configuration["port"],
        pods_max(configuration, os.cpu_count() or 1),
        own["ignore-limits"] == "true",
        logs,
        f"{configuration['cgroupRoot'].strip('/')}/kubepods".lstrip("/"),
        node_names(configuration),
        configuration["seccompDefault"],
        configuration["podPidsLimit"],
        seconds(configuration["crashLoopBackOff"], "maxContainerRestartPeriod"),
        StaticSettings(Path(static) if static else None, configuration["staticPodURL"]),
        seconds(configuration, "fileCheckFrequency"),
        _summed(configuration["systemReserved"], configuration["kubeReserved"]),
        _status_options(own, configuration),
        _keeping_options(configuration),
        log_links=logs.parent / "containers",
        allowed_sysctls=configuration["allowedUnsafeSysctls"],
        device_plugins=Path(own["root-dir"]) / "device-plugins",
        shutdown=_shutdown_periods(configuration),
        lease_s=configuration["nodeLeaseDurationSeconds"],
        more_ips=ips[1:],
    )


def _shutdown_periods(configuration: Object) -> Sequence[ShutdownPeriod]:
    if given := configuration["shutdownGracePeriodByPodPriority"]:
        return tuple(
            ShutdownPeriod(each["priority"], float(each["shutdownGracePeriodSeconds"]))
            for each in given
        )
    names = ("shutdownGracePeriod", "shutdownGracePeriodCriticalPods")
    whole_s, critical_s = (seconds(configuration, each) for each in names)
    return periods_of(whole_s, critical_s)


def _status_options(own: dict[str, str], configuration: Object) -> StatusOptions:
    return StatusOptions(
        seconds(configuration, "nodeStatusUpdateFrequency"),
        seconds(configuration, "nodeStatusReportFrequency"),
        dict(each.partition("=")[::2] for each in own["node-labels"].split(",") if each),
        configuration["registerWithTaints"],
        configuration["providerID"],
        configuration["registerNode"],
        configuration["nodeStatusMaxImages"],
    )


def _keeping_options(configuration: Object) -> KeepingOptions:
    images = ImageOptions(
        configuration["imageGCHighThresholdPercent"],
        configuration["imageGCLowThresholdPercent"],
        seconds(configuration, "imageMinimumGCAge"),
        seconds(configuration, "imageMaximumGCAge"),
    )
    return KeepingOptions(
        _evictions(configuration),
        images,
        quantity(configuration["containerLogMaxSize"]),
        configuration["containerLogMaxFiles"],
    )


def pods_max(configuration: Object, cores: int) -> int:
    """Return how many pods a node takes."""
    most: int = configuration["maxPods"]
    per_core: int = configuration["podsPerCore"]
    return min(most, per_core * cores) if per_core else most


def _evictions(configuration: Object) -> EvictionOptions:
    periods = configuration["evictionSoftGracePeriod"]
    return EvictionOptions(
        configuration["evictionHard"],
        configuration["evictionSoft"],
        {signal: seconds(periods, signal) for signal in periods},
        configuration["evictionMinimumReclaim"],
        seconds(configuration, "evictionPressureTransitionPeriod"),
        float(configuration["evictionMaxPodGracePeriod"]),
    )


def _summed(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Return what two say together."""
    return {
        name: f"{quantity(one.get(name, 0), -3) + quantity(other.get(name, 0), -3)}m"
        for name in {**one, **other}
    }


def node_names(configuration: Object) -> NodeNames:
    """Return how names are resolved, by the configuration and the node's own file."""
    servers, searches, options = resolv_conf.read(configuration["resolvConf"])
    return NodeNames(
        configuration["clusterDNS"], configuration["clusterDomain"], servers, searches, options
    )


Beside: TypeAlias = Callable[[Api, Informers], AbstractAsyncContextManager[object]]
"""Other work of a node, which gets the API client of the node's user."""


async def serve(
    own: dict[str, str], options: RealNodeOptions, log: LineLogger, beside: Beside | None = None
) -> None:
    """Run a node until a signal comes; beside: other work, from the registration on."""
    end = asyncio.ensure_future(stop_event().wait())
    settle()  # it may wait for an API server for days
    clock, random = SystemClock(), SystemRandom().random
    kubeconfig = Path(own["kubeconfig"])
    pki = options.pki or options.root / "pki"
    if first := own["bootstrap-kubeconfig"]:
        asking = bootstrap.ensure(first, kubeconfig, pki, options.name, clock)
        if not await is_done_before(end, asking):
            return
    transport = connect(load(kubeconfig))
    api = Api(transport, Options(user_agent="kvstack-kubelet"))
    node = RealNode(api, clock, random, log, options)
    informers = Informers(api, clock, random, log)
    rotation: asyncio.Task[None] | None = None
    besides = AsyncExitStack()
    try:
        if options.configuration["rotateCertificates"]:
            use = used_by(transport)
            kept = certificates.current(pki, certificates.CLIENT)
            if certificates.is_good(kept, clock.now_s()):
                await use(kept)
            work = Rotation(api, CLIENT_KIND, pki, options.name, (), use, clock, random, log).run()
            rotation = asyncio.create_task(work, name="rotation of the client certificate")
        if await is_done_before(end, node.start()):
            log.info("the node is ready", name=options.name)
            if (wanted := route_options(own, options)) is not None:
                recorder = EventRecorder(api, "kubelet", clock, random, log, host=options.name)
                besides.push_async_callback(recorder.close)
                routes = NodeRoutes(informers.of(NODES), recorder, log, wanted)
                await routes.start()
                besides.push_async_callback(routes.stop)
            if beside is not None:
                await besides.enter_async_context(beside(api, informers))
            settle()
            await end
            when = own["end-pods"]
            if when == ALWAYS or (when == SHUTDOWN and await asyncio.to_thread(machine_stops)):
                await node.kubelet.shut_down()
    finally:
        if rotation is not None:
            rotation.cancel()
            await asyncio.gather(rotation, return_exceptions=True)
        async with AsyncExitStack() as ends:
            ends.push_async_callback(api.close)
            ends.push_async_callback(informers.close)
            ends.push_async_callback(besides.aclose)
            ends.push_async_callback(node.stop)


def used_by(transport: OverHttp) -> Callable[[Path], Awaitable[None]]:
    """Return what lets a transport ask with the certificate and key of a file."""

    async def use(file: Path) -> None:
        pem = await asyncio.to_thread(file.read_bytes)
        await transport.use_certificate(pem, pem)

    return use
