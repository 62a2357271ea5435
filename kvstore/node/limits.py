"""The settings of a node; times in nanoseconds, sizes in bytes."""

from dataclasses import dataclass

from kvstack.component.units import MILLISECOND_NS, SECOND_NS


@dataclass(slots=True)
class Limits:
    """Set once at start, from the configuration."""

    name: str = "default"
    client_urls: tuple[str, ...] = ()
    heartbeat_ns: int = 100 * MILLISECOND_NS
    election_ticks: int = 10
    initial_tick_advance: bool = True  # a restarted member of several campaigns early
    strict_reconfig_check: bool = True  # refuse changes of members that could lose the quorum
    corrupt_check_ns: int = 0  # between checks of the members' data; 0: not configured
    compact_hash_check_ns: int = 60 * SECOND_NS  # between checks of the hashes of compactions
    downgrade_check_ns: int = 5 * SECOND_NS  # between checks whether a downgrade is done; 0: none
    initial_corrupt_check: bool = False  # compare the data once before serving
    compact_hash_check: bool = False  # raise the alarm even if there is no majority
    is_rebuilt: bool = False  # from the others, at this start: clear the alarm when they agree
    request_bytes_max: int = 1_572_864
    txn_ops_max: int = 128
    quota_bytes: int = 0  # as configured: 0 means the default, below 0 none
    auto_compaction_mode: str = "periodic"  # or "revision"
    auto_compaction_retention: int = 0  # nanoseconds, or revisions; 0: off
    apply_gap_max: int = 5000  # entries committed and not applied; above it, writes are refused
    priority_request: bool = False  # revokes of leases are refused only above twice that
    fast_lease_keep_alive: bool = (
        True  # a known lease is renewed even if entries are still to be applied
    )
    commit_interval_ns: int = 100 * MILLISECOND_NS
    commit_ops_max: int = 10_000
    snapshot_count: int = 10_000
    snapshot_catchup_entries: int = 5000
    compaction_rows: int = 1000  # a slice
    compaction_pause_ns: int = 10 * MILLISECOND_NS  # between slices while there are requests
    hash_rows: int = 2000  # a slice
    client_cert_auth: bool = (
        False  # the user of a call without a token is its certificate's common name
    )
    bcrypt_cost: int = 10
    range_slice_keys: int = 2000  # a range over more keys is answered over several turns
    catch_up_rows: int = 2000  # a turn, for unsynced watchers
    catch_up_bytes: int = 4 << 20
    stream_backlog_bytes_max: int = 4 << 20  # a range stream pauses above
    purge_interval_ns: int = 30 * SECOND_NS
    is_solitary: bool = False  # always its cluster's only member: no turn is due for other members

    @property
    def election_timeout_ns(self) -> int:
        """How long a follower waits for a leader before it campaigns."""
        return self.heartbeat_ns * self.election_ticks

    @property
    def request_timeout_ns(self) -> int:
        """How long a request waits for the log before it is answered with a timeout."""
        return 5 * SECOND_NS + 2 * self.election_timeout_ns
