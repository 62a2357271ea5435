"""The options of a world: sizes, limits and chances, all drawn from its seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

WEIGHTS: Final = {
    "put": 30,
    "range": 18,
    "txn": 14,
    "delete": 6,
    "range_stream": 3,
    "compact": 3,
    "grant": 5,
    "revoke": 2,
    "time_to_live": 3,
    "leases": 1,
    "hash_kv": 2,
    "hash": 1,
    "defragment": 1,
    "snapshot": 1,
    "status": 1,
    "member_list": 1,
    "disarm": 1,
    "broken": 1,
    "watch": 4,
    "unwatch": 1,
    "progress": 3,
    "keep_alive": 5,
    "vanish": 1,
    "leave": 1,
}
AUTH_WEIGHTS: Final = {
    "log_in": 6,
    "administer": 5,
    "look_up": 2,
    "switch_auth": 2,
}
OPERATOR_WEIGHTS: Final = {
    "member_add": 1.5,
    "member_remove": 0.6,
    "member_promote": 1.5,
    "member_update": 0.3,
    "move_leader": 1,
}
MS_NS: Final = 1_000_000


@dataclass(slots=True)
class Options:
    """The options of one world; see draw()."""

    members: int  # at first
    members_max: int
    learners_max: int
    keys: list[bytes]
    weights: dict[str, float]
    batch_max: int
    value_bytes_max: int
    ttl_max_s: int
    flags: list[str]
    limits: dict[str, int]
    watch_limits: dict[str, int]
    raft_limits: dict[str, int]
    compacts: bool  # automatically
    segment_bytes: int
    election_ms: int
    quota_bytes: int
    fault_rate: float  # chance a step of a fault
    big_steps: float  # chance a step that all machines are suspended
    reading: float  # chance a step that a watch stream is read
    patience: float  # chance a step that as much time passes as elections take
    turn_ns: int  # duration of a turn
    delay_ns: tuple[int, int]  # of a message, drawn between
    is_ordered: bool  # whether messages of one member to another keep their order
    auth: bool  # whether there are users, and auth is switched on and off
    signed_tokens: bool
    certificates: bool  # whether they name users
    token_ttl_s: int
    down_ns: list[int]  # a machine that crashed starts again after one of these
    faults: dict[str, float] = field(default_factory=dict)


def draw(
    rng: random.Random,
    members: int | None = None,
    *,
    auth: bool | None = None,
    often: Sequence[str] = (),
) -> Options:
    """Draw a world's options; members (how many at first) and auth unless they are given.

    often: operations that come ten times as often as usual.
    """
    pick = rng.choice
    drawn = pick((1, 3, 3, 3, 5))
    members = members or drawn
    heartbeat_ms = pick((50, 100, 200))
    election_ms = heartbeat_ms * pick((5, 10, 20))
    quota_bytes = pick((0, 0, 0, 60_000))
    learners_max = pick((1, 1, 2))
    compacts = rng.randrange(5) == 0
    is_ordered = rng.randrange(3) > 0
    has_changes = rng.randrange(2) == 0
    weights = {name: weight * pick((0.2, 1, 1, 3)) for name, weight in WEIGHTS.items()}
    weights |= {name: 10 * WEIGHTS[name] for name in often}
    changes = {name: weight * pick((0.2, 1, 1, 3)) for name, weight in OPERATOR_WEIGHTS.items()}
    if has_changes:
        weights |= changes
    elif members > 1:
        weights["move_leader"] = changes["move_leader"]
    has_auth = rng.randrange(5) < 2
    auth = has_auth if auth is None else auth
    if auth:
        weights |= {name: weight * pick((0.5, 1, 3)) for name, weight in AUTH_WEIGHTS.items()}
    return Options(
        members=members,
        members_max=max(members + 1, 4),
        learners_max=learners_max,
        keys=_keys(rng),
        weights=weights,
        batch_max=pick((1, 3, 10, 30)),
        value_bytes_max=pick((4, 40, 600)),
        ttl_max_s=pick((3, 10, 20)),
        flags=[
            *_flags(rng, heartbeat_ms, election_ms, quota_bytes, learners_max),
            *(["--auto-compaction-retention=4s"] if compacts else []),
        ],
        limits={
            "hash_rows": pick((1, 10, 2000)),
            "range_slice_keys": pick((1, 4, 2000)),
            "catch_up_rows": pick((1, 10, 2000)),
            "catch_up_bytes": pick((100, 10_000, 4 << 20)),
            "stream_backlog_bytes_max": pick((1, 1000, 4 << 20)),
            "purge_interval_ns": pick((10**8, 10**9, 30 * 10**9)),
        },
        watch_limits={
            "backlog_high_bytes": pick((500, 5000, 4 << 20)),
            "backlog_low_bytes": pick((1, 400)),
            "max_message_bytes": pick((300, 3000, 2 << 20)),
        },
        raft_limits={
            "max_size_per_message": pick((1, 200, 1 << 20)),
            # Each message out of order makes a leader send a whole window again.
            "max_inflight_messages": min(pick((1, 4, 512)), 512 if is_ordered else 8),
            "max_committed_size_per_ready": pick((1, 1000, 1 << 20)),
            "max_uncommitted_size": pick((0, 0, 5000)),
            "max_pending_reads": pick((1, 4096, 4096)),
        },
        compacts=compacts,
        segment_bytes=pick((2048, 8192, 65_536)),
        election_ms=election_ms,
        quota_bytes=quota_bytes,
        fault_rate=pick((0.0, 0.03, 0.1, 0.3)),
        big_steps=pick((0.0, 0.02, 0.05)),
        reading=pick((0.2, 0.8, 1.0)),
        patience=pick((0.02, 0.05, 0.1)),
        turn_ns=pick((10_000, 100_000, MS_NS)),
        delay_ns=pick(((0, MS_NS), (MS_NS, 5 * MS_NS), (0, heartbeat_ms * MS_NS))),
        is_ordered=is_ordered,
        auth=auth,
        signed_tokens=rng.randrange(3) == 0,
        certificates=rng.randrange(2) == 0,
        token_ttl_s=pick((2, 300, 300)),
        down_ns=[10 * MS_NS, pick((10, 500)) * MS_NS, pick((1000, 5000, 20_000)) * MS_NS],
        faults=_faults(rng, members),
    )


def _flags(
    rng: random.Random, heartbeat_ms: int, election_ms: int, quota_bytes: int, learners_max: int
) -> list[str]:
    pick = rng.choice
    return [
        f"--heartbeat-interval={heartbeat_ms}",
        f"--election-timeout={election_ms}",
        f"--initial-election-tick-advance={pick(('true', 'false'))}",
        f"--snapshot-count={pick((5, 30, 200, 10_000))}",
        f"--snapshot-catchup-entries={pick((1, 10, 100, 5000))}",
        f"--backend-batch-interval={pick((1, 20, 100, 2000))}ms",
        f"--backend-batch-limit={pick((1, 10, 10_000))}",
        f"--compaction-batch-limit={pick((1, 7, 1000))}",
        f"--compaction-sleep-interval={pick((1, 10, 100))}ms",
        f"--watch-progress-notify-interval={pick(('100ms', '1s', '10s'))}",
        f"--max-wals={pick((0, 1, 5))}",
        f"--quota-backend-bytes={quota_bytes}",
        f"--max-learners={learners_max}",
        f"--strict-reconfig-check={pick(('true', 'true', 'false'))}",
        f"--corrupt-check-time={pick(('0s', '2s', '30s'))}",
        f"--compact-hash-check-time={pick(('1s', '10s', '60s'))}",
        "--feature-gates="
        f"CompactHashCheck={pick(('true', 'false'))},"
        f"InitialCorruptCheck={pick(('true', 'false', 'false'))}",
    ]


def _faults(rng: random.Random, members: int) -> dict[str, float]:
    """Draw the weight of each fault."""
    pick = rng.choice
    alone = ("power", "armed", "kill", "stop", "sync_fails", "full", "stall", "rot", "wall_clock")
    faults: dict[str, float] = {name: pick((0, 1, 3)) for name in alone}
    together = ("partition", "one_way", "isolate", "heal", "lossy", "slow", "pause", "snapshots")
    drawn = {name: pick((0, 1, 3)) for name in together}
    if members > 1:
        faults |= drawn
        faults["heal"] = max(2, faults["heal"])
    return faults


def _keys(rng: random.Random) -> list[bytes]:
    keys = [b"k%02d" % at for at in range(rng.choice((1, 4, 12, 24)))]
    odd = [b"\0", b"\xff\xff", b"k00\0", b"long" * 20, b"j"]
    return sorted(keys + rng.sample(odd, rng.randrange(len(odd))))
