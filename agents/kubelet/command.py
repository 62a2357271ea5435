"""The command `kvstack kubelet`: one node, with kubelet's flags and configuration file.

Containers are processes of this machine, or, with --container-runtime-endpoint, those of a
container engine. Without the engine they live on when the command ends, and are found again.
"""

import asyncio
import os
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from socket import gethostname
from typing import Any, Final, TypeAlias

import yaml

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.kubeconfig import KubeconfigError, connect, load
from kvstack.agents.client.over_http import OverHttp
from kvstack.agents.client.timing import SystemClock
from kvstack.agents.kubelet import resolv_conf
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
from kvstack.agents.kubelet.housekeeping import KeepingOptions
from kvstack.agents.kubelet.identity import bootstrap, certificates
from kvstack.agents.kubelet.identity.rotation import CLIENT_KIND, Rotation
from kvstack.agents.kubelet.image_garbage import ImageOptions
from kvstack.agents.kubelet.node import label_problem
from kvstack.agents.kubelet.node_status import StatusOptions
from kvstack.agents.kubelet.options import KubeletOptions
from kvstack.agents.kubelet.pods.sandboxes import NodeNames, quantity
from kvstack.agents.kubelet.real_node import RealNode, RealNodeOptions, own_address
from kvstack.agents.kubelet.runtime.process.options import AUTOMATIC, BRIDGE, SHARED
from kvstack.agents.kubelet.static.static_pods import StaticSettings
from kvstack.apiserver.server.program import (
    FAILED,
    is_done_before,
    keep_log_of_loop,
    run,
    settle,
    stop_event,
)
from kvstore.errors import ConfigError
from kvstore.runtime.log.line_logger import LEVELS, LineLogger, open_logger

Object: TypeAlias = dict[str, Any]

COMMAND: Final = "kvstack kubelet"
_OWN: Final = {
    # Name: default and meaning.
    "kubeconfig": ("", "how the API server is reached, and as whom"),
    "bootstrap-kubeconfig": ("", "how a certificate is asked for, if --kubeconfig is not there"),
    "config": ("", "a file: kubelet.config.k8s.io/v1beta1, kind KubeletConfiguration"),
    "config-dir": ("", "a directory of *.conf files that are laid over it"),
    "hostname-override": ("", "name of the node (default: of the machine)"),
    "node-ip": ("", "address of the node, and of pods without one of their own"),
    "node-labels": ("", "more labels: a=b,c=d"),
    "root-dir": (
        "/var/lib/kvstack-node",
        "volumes, layers, certificates, and the folder of images",
    ),
    "cert-dir": ("", "of certificates (default: pki in --root-dir)"),
    "pod-network": (
        "auto",
        "of a node of processes: bridge (each pod has an address of the node's podCIDR), host "
        "(pods share the node's), or auto: bridge once there is a podCIDR",
    ),
    "image-dir": ("", "images of a node of processes (default: images in --root-dir)"),
    "host-image": ("false", "whether host:latest, the machine's own files, is an image"),
    "ignore-limits": ("false", "take pods with limits where none can be enforced"),
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


class FlagError(Exception):
    """A flag cannot be meant."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    if any(each in ("-h", "--help") for each in arguments):
        sys.stdout.write(help_text())
        return 0
    try:
        own, flags, taken = split_flags(arguments)
        configuration, ignored = _configuration(own, flags)
    except (FlagError, ConfigurationFileError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return FAILED
    log = open_logger(("default",), own["log-level"], "json")
    for each in (*taken, *ignored):
        log.warning("a setting has no effect", name=each)
    try:
        options = node_options(own, configuration)
        return run(lambda: _serve(own, options, log), log)
    except (KubeconfigError, ConfigError) as error:
        log.fatal("command failed", error=str(error))
        return FAILED


def help_text() -> str:
    """Return what --help shows."""
    lines = [f"{__doc__}\nUsage:\n  {COMMAND} [flags]\n\nFlags:"]
    for name, (default, meaning) in _OWN.items():
        shown = f" (default {default})" if default else ""
        lines.append(f"  --{name:<24} {meaning}{shown}")
    lines.append("\nOf the configuration, as kubelet has them:")
    lines += [f"  --{name:<38} {'.'.join(path)}" for name, path in FLAGS.items()]
    return "\n".join(lines) + "\n"


def split_flags(
    arguments: Sequence[str],
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Return own flags, those of the configuration, and those without effect; FlagError."""
    own = {name: default for name, (default, _) in _OWN.items()}
    flags: dict[str, str] = {}
    taken: list[str] = []
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
            taken.append(f"--{name}")
    if own["log-level"] not in LEVELS:
        raise FlagError(f"--log-level {own['log-level']}: one of {', '.join(LEVELS)}")
    if own["pod-network"] not in (AUTOMATIC, BRIDGE, SHARED):
        raise FlagError(f"--pod-network {own['pod-network']}: {AUTOMATIC}, {BRIDGE} or {SHARED}")
    for label in own["node-labels"].split(","):
        if problem := label_problem(label.partition("=")[0]):
            raise FlagError(problem)
    if not own["kubeconfig"]:
        raise FlagError("--kubeconfig is required: a node without an API server is not supported")
    return own, flags, taken


def _configuration(own: dict[str, str], flags: dict[str, str]) -> tuple[Object, list[str]]:
    """Return the configuration, and the names of what has no effect."""
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
            raise ConfigurationFileError(f"{file}: it holds no object")
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
        images=Path(own["image-dir"]) if own["image-dir"] else None,
        ends_with_node=False,
        kubelet=kubelet,
        runtime_endpoint=configuration["containerRuntimeEndpoint"],
        image_endpoint=configuration["imageServiceEndpoint"],
        cgroup_driver=configuration["cgroupDriver"],
        configuration=configuration,
        pki=Path(own["cert-dir"]) if own["cert-dir"] else None,
        network=own["pod-network"],
    )


def _kubelet_options(own: dict[str, str], configuration: Object) -> KubeletOptions:
    static = configuration["staticPodPath"]
    logs = Path(configuration["podLogsDir"])
    return KubeletOptions(
        (own["hostname-override"] or gethostname()).strip().lower(),
        own["node-ip"] or own_address(),
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
        lease_s=configuration["nodeLeaseDurationSeconds"],
    )


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


async def _serve(own: dict[str, str], options: RealNodeOptions, log: LineLogger) -> None:
    end = asyncio.ensure_future(stop_event().wait())
    keep_log_of_loop(log)
    settle()  # it may wait for an API server for days
    clock, chance = SystemClock(), random.SystemRandom().random
    kubeconfig = Path(own["kubeconfig"])
    pki = options.pki or options.root / "pki"
    if first := own["bootstrap-kubeconfig"]:
        asking = bootstrap.ensure(first, kubeconfig, pki, options.name, clock)
        if not await is_done_before(end, asking):
            return
    transport = connect(load(kubeconfig))
    api = Api(transport, Options(user_agent="kvstack-kubelet"))
    node = RealNode(api, clock, chance, log, options)
    rotation: asyncio.Task[None] | None = None
    try:
        if options.configuration["rotateCertificates"]:
            use = used_by(transport)
            kept = certificates.current(pki, certificates.CLIENT)
            if certificates.is_good(kept, clock.now_s()):
                await use(kept)
            work = Rotation(api, CLIENT_KIND, pki, options.name, (), use, clock, chance, log).run()
            rotation = asyncio.create_task(work, name="rotation of the client certificate")
        if await is_done_before(end, node.start()):
            log.info("the node is ready", name=options.name)
            settle()
            await end
    finally:
        if rotation is not None:
            rotation.cancel()
            await asyncio.gather(rotation, return_exceptions=True)
        await node.stop()
        await api.close()


def used_by(transport: OverHttp) -> Callable[[Path], Awaitable[None]]:
    """Return what lets a transport ask with the certificate and key of a file."""

    async def use(file: Path) -> None:
        pem = await asyncio.to_thread(file.read_bytes)
        await transport.use_certificate(pem, pem)

    return use
