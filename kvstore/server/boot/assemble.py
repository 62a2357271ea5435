"""Makes the parts of a node from the opened state and the configuration.

Nothing is run here: see `kvstore.server.member`. The simulation builds its nodes here as well.
"""

import random

from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.units import MILLISECOND_NS, SECOND_NS
from kvstore.apply.alarms import Alarms
from kvstore.apply.applier import Applier
from kvstore.apply.membership import Membership
from kvstore.apply.quota import Quota
from kvstore.auth.store import AuthStore
from kvstore.backend import Backend
from kvstore.config.model import Config
from kvstore.lease.lessor import Lessor
from kvstore.mvcc.store import Store
from kvstore.node.limits import Limits
from kvstore.node.parts import Parts, Replication, StateMachine
from kvstore.node.ports import SnapshotKeeper
from kvstore.raft.config import Config as RaftConfig
from kvstore.raft.rawnode import RawNode
from kvstore.server.auth.tokens import bcrypt_cost_of, tokens_of
from kvstore.server.boot.bootstrap import Boot
from kvstore.watch.hub import Hub
from kvstore.watch.stream import WatchLimits
from kvstore.wire.internal import RequestIds
from kvstore.wire.splice import HeaderMaker

_COMPACTION_STEPS = 4  # slices per batch of etcd
_CHECKPOINT_INTERVAL_NS = 300 * SECOND_NS  # etcd's


def build(
    config: Config, booted: Boot, snapshots: SnapshotKeeper, clock: Clock, logger: Logger
) -> Parts:
    """Restore every part from the opened state."""
    limits = limits_of(config)
    backend = booted.backend
    store = Store(backend)
    lessor = _lessor(backend, limits, has_checkpoints=config.feature_gates["LeaseCheckpoint"])
    for key, lease in lessor.restore(store.restore()):
        logger.warning("key of a lease that does not exist", key=key, lease=f"{lease:016x}")
    alarms = Alarms(backend)
    alarms.restore()
    membership = Membership(backend, learners_max=config.max_learners)
    membership.restore()
    auth = AuthStore(backend, tokens_of(config, logger, clock))
    auth.restore()
    headers = HeaderMaker(booted.cluster_id, booted.member_id)
    quota = Quota(config.quota_backend_bytes)
    # Not a secret: timeouts and jitter only need to differ between members.
    rng = random.Random(booted.member_id ^ clock.unix_ms())  # noqa: S311 - timeouts of elections
    raft = _raft(booted, limits, rng, pre_vote=config.pre_vote)
    applier = Applier(
        backend=backend,
        store=store,
        lessor=lessor,
        alarms=alarms,
        membership=membership,
        quota=quota,
        headers=headers,
        auth=auth,
    )
    hub = Hub(
        store,
        lambda revision: headers.field(revision, raft.term),
        WatchLimits(
            max_message_bytes=config.message_bytes_max,
            progress_interval_ns=int(config.watch_progress_notify_interval_s * SECOND_NS),
        ),
        rng,
    )
    return Parts(
        member_id=booted.member_id,
        cluster_id=booted.cluster_id,
        limits=limits,
        raft=raft,
        state=StateMachine(
            backend=backend,
            store=store,
            lessor=lessor,
            hub=hub,
            alarms=alarms,
            auth=auth,
            membership=membership,
            quota=quota,
            applier=applier,
        ),
        replication=Replication(
            log=booted.wal,
            snapshots=snapshots,
            request_ids=RequestIds(booted.member_id, clock.unix_ms()),
            remotes={each: tuple(urls) for each, urls in booted.remotes.items()},
        ),
        headers=headers,
        logger=logger,
    )


def _lessor(backend: Backend, limits: Limits, *, has_checkpoints: bool) -> Lessor:
    return Lessor(
        backend,
        _min_ttl_s(limits),
        limits.election_timeout_ns,
        _CHECKPOINT_INTERVAL_NS if has_checkpoints else None,
    )


def _raft(booted: Boot, limits: Limits, rng: random.Random, *, pre_vote: bool) -> RawNode:
    """Return raft as it was; a cluster that is new begins with its founding members."""
    raft = RawNode(
        RaftConfig(
            booted.member_id,
            election_tick=limits.election_ticks,
            pre_vote=pre_vote,
            notifies_commits=False,  # the exchange sends the commit index
        ),
        booted.raft,
        rng,
    )
    if booted.founding:
        raft.bootstrap(booted.founding)
    return raft


def limits_of(config: Config) -> Limits:
    """Return the node's limits for a configuration."""
    heartbeat_ms = config.heartbeat_interval_ms
    return Limits(
        name=config.name,
        client_urls=tuple(sorted(config.advertise_client_urls)),
        heartbeat_ns=heartbeat_ms * MILLISECOND_NS,
        election_ticks=config.election_timeout_ms // heartbeat_ms,
        initial_tick_advance=config.initial_election_tick_advance,
        strict_reconfig_check=config.strict_reconfig_check,
        corrupt_check_ns=int(config.corrupt_check_time_s * SECOND_NS),
        compact_hash_check_ns=int(config.compact_hash_check_time_s * SECOND_NS),
        downgrade_check_ns=int(config.downgrade_check_time_s * SECOND_NS),
        initial_corrupt_check=config.feature_gates["InitialCorruptCheck"],
        compact_hash_check=config.feature_gates["CompactHashCheck"],
        fast_lease_keep_alive=config.feature_gates["FastLeaseKeepAlive"],
        priority_request=config.feature_gates["PriorityRequest"],
        request_bytes_max=config.max_request_bytes,
        txn_ops_max=config.max_txn_ops,
        quota_bytes=config.quota_backend_bytes,
        commit_interval_ns=int(config.backend_batch_interval_s * SECOND_NS),
        commit_ops_max=config.backend_batch_limit,
        auto_compaction_mode=config.auto_compaction_mode,
        auto_compaction_retention=config.auto_compaction_retention,
        snapshot_count=config.snapshot_count,
        snapshot_catchup_entries=config.snapshot_catchup_entries,
        client_cert_auth=config.client_tls.client_cert_auth,
        bcrypt_cost=bcrypt_cost_of(config),
        # The same rate in smaller steps: a slice delays every request of its turn.
        compaction_rows=max(config.compaction_batch_limit // _COMPACTION_STEPS, 1),
        compaction_pause_ns=int(config.compaction_sleep_interval_s * SECOND_NS)
        // _COMPACTION_STEPS,
    )


def _min_ttl_s(limits: Limits) -> int:
    """A lease must outlive an election, or it could expire while no leader can renew it."""
    return -(-3 * limits.election_timeout_ns // (2 * SECOND_NS))
