"""The settings of a member as the first line of its log has them.

    {"msg": "starting a server", "etcd-version": "3.7.1", …, "snapshot-catchup-entries": 5000, …}

Names, order and forms are etcd's, so what reads an etcd's log reads this one. Durations are Go's
texts ("1m0s"). Of what runs the process, etcd shows Go's version and this its Python's. Secrets are
not shown.
"""

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from kvstack.component.units import MILLISECOND_NS, SECOND_NS
from kvstore.config.flags import FEATURE_GATES
from kvstore.config.model import Config
from kvstore.server.boot.member_address import local_address_of
from kvstore.types import SERVER_VERSION
from kvstore.wire.loggable import duration_text


def start_fields(config: Config) -> dict[str, object]:
    """Return the fields by etcd's names, in etcd's order."""
    return {
        **_process(config),
        **_member(config),
        **_cluster(config),
        **_limits(config),
        **_discovery(config),
        "downgrade-check-interval": _seconds(config.downgrade_check_time_s),
        "max-learners": config.max_learners,
        "v2-deprecation": "write-only",
    }


def _process(config: Config) -> dict[str, object]:
    directory = Path(config.data_dir) / "member"
    log = Path(config.wal_dir) if config.wal_dir else directory / "wal"
    return {
        "etcd-version": SERVER_VERSION,
        "python-version": platform.python_version(),
        "max-cpu-set": len(os.sched_getaffinity(0)),
        "max-cpu-available": os.cpu_count(),
        "member-initialized": any(log.glob("*.wal")),
        "name": config.name,
        "data-dir": config.data_dir,
        "wal-dir": config.wal_dir,
        "wal-dir-dedicated": config.wal_dir,
        "member-dir": str(directory),
        "force-new-cluster": config.force_new_cluster,
    }


def _member(config: Config) -> dict[str, object]:
    return {
        "heartbeat-interval": duration_text(config.heartbeat_interval_ms * MILLISECOND_NS),
        "election-timeout": duration_text(config.election_timeout_ms * MILLISECOND_NS),
        "initial-election-tick-advance": config.initial_election_tick_advance,
        "snapshot-count": config.snapshot_count,
        "max-wals": config.max_wals,
        "max-snapshots": config.max_snapshots,
        "snapshot-catchup-entries": config.snapshot_catchup_entries,
    }


def _cluster(config: Config) -> dict[str, object]:
    return {
        "initial-advertise-peer-urls": list(config.initial_advertise_peer_urls),
        "listen-peer-urls": list(config.listen_peer_urls),
        "advertise-client-urls": list(config.advertise_client_urls),
        "listen-client-urls": list(config.listen_client_urls),
        "listen-metrics-urls": list(config.listen_metrics_urls),
        "local-address": local_address_of(config),
        "cors": sorted(config.cors),
        "host-whitelist": sorted(config.host_whitelist),
        "initial-cluster": config.initial_cluster,
        "initial-cluster-state": config.initial_cluster_state,
        "initial-cluster-token": config.initial_cluster_token,
    }


def _limits(config: Config) -> dict[str, object]:
    retention = duration_text(config.auto_compaction_retention)
    return {
        "quota-backend-bytes": config.quota_backend_bytes,
        "max-request-bytes": config.max_request_bytes,
        "max-concurrent-streams": config.max_concurrent_streams,
        "pre-vote": config.pre_vote,
        "feature-gates": _gates(config.feature_gates),
        "initial-corrupt-check": config.feature_gates["InitialCorruptCheck"],
        "corrupt-check-time-interval": _seconds(config.corrupt_check_time_s),
        "compact-check-time-interval": _seconds(config.compact_hash_check_time_s),
        "auto-compaction-mode": config.auto_compaction_mode,
        "auto-compaction-retention": retention,
        "auto-compaction-interval": retention,
    }


def _discovery(config: Config) -> dict[str, object]:
    discovery = config.discovery
    return {
        "discovery-token": discovery.token,
        "discovery-endpoints": ",".join(discovery.endpoints),
        "discovery-dial-timeout": _seconds(discovery.dial_timeout_s),
        "discovery-request-timeout": _seconds(discovery.request_timeout_s),
        "discovery-keepalive-time": _seconds(discovery.keepalive_time_s),
        "discovery-keepalive-timeout": _seconds(discovery.keepalive_timeout_s),
        "discovery-insecure-transport": discovery.insecure_transport,
        "discovery-insecure-skip-tls-verify": discovery.insecure_skip_tls_verify,
        "discovery-cert": discovery.cert_file,
        "discovery-key": discovery.key_file,
        "discovery-cacert": discovery.trusted_ca_file,
        "discovery-user": discovery.user,
    }


def _gates(gates: Mapping[str, bool]) -> str:
    """Return the gates that are not at their default: "InitialCorruptCheck=true"."""
    return ",".join(
        f"{gate}={str(is_on).lower()}"
        for gate, is_on in sorted(gates.items())
        if is_on != FEATURE_GATES[gate]
    )


def _seconds(seconds: float) -> str:
    return duration_text(round(seconds * SECOND_NS))
