"""The settings of a controller manager, from its flags and the files that they name."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from kvstack.agents.controllers.options import (
    AutoscalerOptions,
    NodeLifecycleOptions,
    NodeRanges,
    Options,
    SignerOptions,
    VolumeOptions,
)
from kvstack.agents.controllers.table import UnknownControllerError, check_names
from kvstack.agents.manager.flags import SIGNERS, WORKERS
from kvstack.agents.process.local_zone import local_zone
from kvstack.agents.process.settings import Settings, raise_wrong, read_settings
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_reader import FlagReader

_MASKS: Final = {4: 24, 6: 64}
_MASK_SPAN_MAX: Final = 16
"""The maximum difference between the masks of the cluster's IPv6 range and of a node's, in bits."""


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """Settings of a controller manager."""

    process: Settings
    chosen: str
    """The controllers that run, in the syntax of `--controllers`."""
    controllers: Options
    workers: Mapping[str, int]
    """The number of workers by the controller's name."""
    per_second: float
    """Requests of each controller; 0: no limit."""
    burst: int
    own_accounts: bool
    """Whether each controller uses a service account of its own."""


def manager_settings(given: CommandLine) -> ManagerSettings:
    """Return the settings of a command line; raises ConfigError with all that is wrong."""
    wrong: list[str] = []
    reader = FlagReader(given, wrong)
    process = read_settings(reader)
    settings = ManagerSettings(
        process,
        _chosen(reader),
        _options(reader),
        {controller: _workers(reader, name) for name, (controller, _) in WORKERS.items()},
        max(0.0, reader.float("kube-api-qps")),
        max(1, reader.int("kube-api-burst")),
        reader.flag("use-service-account-credentials"),
    )
    raise_wrong(wrong)
    return settings


def _chosen(reader: FlagReader) -> str:
    names = [each.strip() for each in reader.texts("controllers")]
    if not reader.flag("enable-garbage-collector"):
        names.append("-garbage-collector-controller")
    chosen = ",".join(filter(None, names))
    try:
        check_names(chosen)
    except UnknownControllerError as error:
        reader.wrong.append(str(error))
    return chosen


def _workers(reader: FlagReader, name: str) -> int:
    count = reader.int(name)
    if count < 1:
        reader.wrong.append(f"--{name} must be greater than 0, but got {count}")
    return count


def _options(reader: FlagReader) -> Options:
    return Options(
        root_ca=_file(reader, "root-ca-file").decode("utf-8", "replace"),
        service_account_key=_file(reader, "service-account-private-key-file"),
        signers=_signers(reader),
        signing_duration_s=reader.seconds("cluster-signing-duration"),
        autoscaler=AutoscalerOptions(
            reader.seconds("horizontal-pod-autoscaler-sync-period"),
            reader.seconds("horizontal-pod-autoscaler-downscale-stabilization"),
            reader.float("horizontal-pod-autoscaler-tolerance"),
            reader.seconds("horizontal-pod-autoscaler-cpu-initialization-period"),
            reader.seconds("horizontal-pod-autoscaler-initial-readiness-delay"),
        ),
        nodes=NodeLifecycleOptions(
            reader.seconds("node-monitor-period"),
            reader.seconds("node-monitor-grace-period"),
            reader.seconds("node-startup-grace-period"),
            reader.float("node-eviction-rate"),
            reader.float("secondary-node-eviction-rate"),
            reader.int("large-cluster-size-threshold"),
            reader.float("unhealthy-zone-threshold"),
        ),
        volumes=VolumeOptions(
            reader.seconds("pvclaimbinder-sync-period"),
            reader.flag("enable-dynamic-provisioning"),
            not reader.flag("disable-force-detach-on-timeout"),
        ),
        node_ranges=_node_ranges(reader),
        terminated_pods_max=reader.int("terminated-pod-gc-threshold"),
        quota_sync_period_s=reader.seconds("resource-quota-sync-period"),
        endpoints_per_slice_max=reader.int("max-endpoints-per-slice"),
        mirrored_addresses_max=reader.int("mirroring-max-endpoints-per-subset"),
        unused_token_s=reader.seconds("legacy-service-account-token-clean-up-period"),
        local_zone=local_zone(),
    )


def _file(reader: FlagReader, name: str) -> bytes:
    path = reader.text(name)
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reader.wrong.append(f"--{name}: {path}: {error.strerror}")
        return b""


def _signers(reader: FlagReader) -> dict[str, SignerOptions]:
    """Return the authorities by signer; one for all of them, or some of their own."""
    common = _signer(reader, "")
    own = {
        name: pair for flag, name in SIGNERS.items() if (pair := _signer(reader, f"-{flag}")).key
    }
    if common.key and own:
        reader.wrong.append(
            "cannot specify --cluster-signing-{cert,key}-file and other --cluster-signing-*-file"
            " flags at the same time"
        )
    return dict.fromkeys(SIGNERS.values(), common) if common.key else own


def _signer(reader: FlagReader, which: str) -> SignerOptions:
    cert_flag, key_flag = f"cluster-signing{which}-cert-file", f"cluster-signing{which}-key-file"
    if reader.text(key_flag) and not reader.text(cert_flag):
        reader.wrong.append("cannot specify key without cert")
    if reader.text(cert_flag) and not reader.text(key_flag):
        reader.wrong.append("cannot specify cert without key")
    return SignerOptions(_file(reader, cert_flag), _file(reader, key_flag))


def _node_ranges(reader: FlagReader) -> NodeRanges | None:
    """Return the ranges that nodes are given parts of; None: they are given none."""
    if not reader.flag("allocate-node-cidrs"):
        return None
    try:
        clusters = [ip_network(each.strip()) for each in _parts(reader, "cluster-cidr")]
        services = [ip_network(each.strip()) for each in _parts(reader, "service-cluster-ip-range")]
    except ValueError as error:
        reader.wrong.append(f"--cluster-cidr, --service-cluster-ip-range: {error}")
        return None
    versions = [each.version for each in clusters]
    if not clusters or len(versions) != len(set(versions)):
        reader.wrong.append(
            "--allocate-node-cidrs needs --cluster-cidr: one range, or one of each family"
        )
        return None
    is_dual = len(clusters) > 1
    if is_dual and reader.int("node-cidr-mask-size"):
        reader.wrong.append("--node-cidr-mask-size is not for two families")
    masks = []
    for cluster in clusters:
        own = reader.int(f"node-cidr-mask-size-ipv{cluster.version}")
        mask = own or reader.int("node-cidr-mask-size") or _MASKS[cluster.version]
        longest = 32 if cluster.version == 4 else cluster.prefixlen + _MASK_SPAN_MAX
        if not cluster.prefixlen <= mask <= longest:
            reader.wrong.append(f"a node's range of /{mask} does not suit --cluster-cidr {cluster}")
        masks.append(mask)
    return NodeRanges(tuple(clusters), tuple(masks), tuple(services))


def _parts(reader: FlagReader, name: str) -> list[str]:
    return list(filter(None, reader.text(name).split(",")))
