"""The lessor: what is replicated, what the primary counts, and what it never does too early."""

import pytest

from kvstore.backend import Table
from kvstore.errors import (
    LEADER_CHANGED,
    LEASE_EXISTS,
    LEASE_NOT_FOUND,
    LEASE_TTL_TOO_LARGE,
    CorruptionError,
)
from kvstore.lease.lessor import NOT_PRIMARY, RENEW_LATER, TTL_MAX_S, Lessor
from kvstore.lease.row import encode_row, row_key
from kvstore.storage.memory_backend import MemoryBackend

S = 1_000_000_000
ELECTION_NS = S
RETRY_NS = 7 * S  # the request timeout: 5 s and two election timeouts
NOW = 1000 * S


def make(rows: MemoryBackend | None = None, checkpoint_interval_s: int | None = None) -> Lessor:
    interval_ns = None if checkpoint_interval_s is None else checkpoint_interval_s * S
    lessor = Lessor(rows or MemoryBackend(), 2, ELECTION_NS, interval_ns)
    lessor.restore([])
    return lessor


def rows_of(rows: MemoryBackend) -> dict[bytes, bytes]:
    return dict(rows.scan(Table.LEASE, b"", None, 1000))


def primary(checkpoint_interval_s: int | None = None) -> Lessor:
    lessor = make(checkpoint_interval_s=checkpoint_interval_s)
    lessor.promote(NOW)
    return lessor


# Grant and revoke.


def test_grant_writes_the_row_and_returns_the_ttl() -> None:
    rows = MemoryBackend()
    lessor = make(rows)
    assert lessor.grant(7, 60, NOW) == 60
    assert rows_of(rows) == {row_key(7): encode_row(7, 60, 0)}
    assert lessor.exists(7)


@pytest.mark.parametrize("ttl_s", [-5, 0, 1, 2])
def test_short_ttls_are_raised_to_the_minimum(ttl_s: int) -> None:
    rows = MemoryBackend()
    lessor = make(rows)
    assert lessor.grant(7, ttl_s, NOW) == 2
    assert rows_of(rows)[row_key(7)] == encode_row(7, 2, 0)


def test_the_largest_ttl_is_granted_and_one_more_is_refused() -> None:
    rows = MemoryBackend()
    lessor = make(rows)
    assert lessor.grant(1, TTL_MAX_S, NOW) == 9_000_000_000
    assert lessor.grant(2, TTL_MAX_S + 1, NOW) == LEASE_TTL_TOO_LARGE
    assert list(rows_of(rows)) == [row_key(1)]


def test_a_second_grant_of_an_id_changes_nothing() -> None:
    rows = MemoryBackend()
    lessor = make(rows)
    lessor.grant(7, 60, NOW)
    assert lessor.grant(7, 90, NOW) == LEASE_EXISTS
    assert rows_of(rows)[row_key(7)] == encode_row(7, 60, 0)


def test_id_zero_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="0"):
        make().grant(0, 60, NOW)


def test_revoke_names_the_keys_in_order_and_removes_the_row() -> None:
    rows = MemoryBackend()
    lessor = make(rows)
    lessor.grant(7, 60, NOW)
    for key in (b"b", b"a\xff", b"a", b"c"):
        lessor.attach(7, key)
    assert lessor.revoke(7) == [b"a", b"a\xff", b"b", b"c"]
    assert rows_of(rows) == {}
    assert not lessor.exists(7)
    assert lessor.lease_of(b"a") == 0
    assert lessor.revoke(7) == LEASE_NOT_FOUND


# Keys.


def test_a_key_is_attached_to_one_lease_at_a_time() -> None:
    lessor = make()
    lessor.grant(1, 60, NOW)
    lessor.grant(2, 60, NOW)
    lessor.attach(1, b"k")
    lessor.attach(1, b"k")
    assert lessor.keys(1) == [b"k"]
    lessor.attach(2, b"k")
    assert (lessor.keys(1), lessor.keys(2), lessor.lease_of(b"k")) == ([], [b"k"], 2)
    lessor.detach(b"k")
    lessor.detach(b"k")
    assert (lessor.keys(2), lessor.lease_of(b"k")) == ([], 0)


def test_keys_of_an_unknown_lease_are_none_and_attaching_to_it_is_a_mistake() -> None:
    lessor = make()
    assert lessor.keys(9) == []
    with pytest.raises(KeyError):
        lessor.attach(9, b"k")
    assert lessor.lease_of(b"k") == 0


# Restore.


def test_restore_reads_rows_attaches_keys_and_returns_orphans() -> None:
    rows = MemoryBackend()
    for each, ttl_s in ((1, 1), (-3, 60)):
        rows.put(Table.LEASE, row_key(each), encode_row(each, ttl_s, 0))
    lessor = Lessor(rows, 2, ELECTION_NS)
    orphans = lessor.restore([(b"a", 1), (b"b", -3), (b"x", 99)])
    assert orphans == [(b"x", 99)]
    assert lessor.keys(1) == [b"a"]
    assert lessor.lease_of(b"b") == -3
    lessor.promote(NOW, 0)
    assert lessor.time_to_live(1, NOW) == (2, 2)  # raised in memory,
    assert rows_of(rows)[row_key(1)] == encode_row(1, 1, 0)  # not in the row


def test_restore_forgets_what_was_before() -> None:
    rows = MemoryBackend()
    lessor = make(rows)
    lessor.promote(NOW)
    lessor.grant(1, 60, NOW)
    lessor.attach(1, b"k")
    rows.clear(Table.LEASE)
    lessor.restore([])
    assert not lessor.exists(1)
    assert lessor.lease_of(b"k") == 0
    assert not lessor.is_primary
    assert lessor.next_expiry_ns() is None


def test_restore_refuses_a_row_that_is_no_lease() -> None:
    rows = MemoryBackend()
    rows.put(Table.LEASE, row_key(1), b"\xff")
    with pytest.raises(CorruptionError, match="0000000000000001"):
        make(rows)


# Counting down.


def test_only_the_primary_renews_or_expires() -> None:
    lessor = make()
    lessor.grant(1, 60, NOW)
    assert lessor.renew(1, NOW) == NOT_PRIMARY
    assert lessor.time_to_live(1, NOW) == LEADER_CHANGED
    assert lessor.time_to_live(2, NOW) == LEASE_NOT_FOUND
    assert lessor.due(NOW + 10**6 * S) == []
    assert lessor.next_expiry_ns() is None


def test_a_lease_is_due_at_its_expiry_and_not_a_nanosecond_before() -> None:
    lessor = primary()
    lessor.grant(1, 60, NOW)
    assert lessor.next_expiry_ns() == NOW + 60 * S
    assert lessor.due(NOW + 60 * S - 1) == []
    assert lessor.due(NOW + 60 * S) == [1]


def test_renew_gives_the_full_ttl_again() -> None:
    lessor = primary()
    lessor.grant(1, 60, NOW)
    assert lessor.renew(1, NOW + 59 * S) == 60
    assert lessor.due(NOW + 60 * S) == []
    assert lessor.time_to_live(1, NOW + 60 * S) == (59, 60)
    assert lessor.due(NOW + 119 * S - 1) == []
    assert lessor.due(NOW + 119 * S) == [1]
    assert lessor.renew(2, NOW) == LEASE_NOT_FOUND


def test_an_expired_lease_is_not_renewed_while_its_revoke_is_under_way() -> None:
    lessor = primary()
    lessor.grant(1, 60, NOW)
    at = NOW + 60 * S
    assert lessor.renew(1, at) == RENEW_LATER
    assert lessor.due(at) == [1]
    assert lessor.renew(1, at + S) == RENEW_LATER
    assert lessor.time_to_live(1, at + S) == (0, 60)
    lessor.revoke(1)
    assert lessor.renew(1, at + S) == LEASE_NOT_FOUND


def test_a_lost_revoke_is_due_again_after_the_request_timeout() -> None:
    lessor = primary()
    lessor.grant(1, 60, NOW)
    at = NOW + 61 * S
    assert lessor.due(at) == [1]
    assert lessor.next_expiry_ns() == at + RETRY_NS
    assert lessor.due(at + RETRY_NS - 1) == []
    assert lessor.due(at + RETRY_NS) == [1]
    lessor.revoke(1)
    assert lessor.next_expiry_ns() is None


def test_due_stops_at_its_limit_and_continues_there() -> None:
    lessor = primary()
    for each in range(1, 8):
        lessor.grant(each, 60, NOW + each)
    at = NOW + 100 * S
    assert lessor.due(at, 3) == [1, 2, 3]
    assert lessor.due(at, 3) == [4, 5, 6]
    assert lessor.due(at, 3) == [7]


def test_an_id_granted_again_has_its_own_deadline() -> None:
    lessor = primary()
    lessor.grant(1, 60, NOW)
    lessor.revoke(1)
    lessor.grant(1, 90, NOW)
    assert lessor.due(NOW + 60 * S) == []
    assert lessor.due(NOW + 90 * S) == [1]
    assert lessor.due(NOW + 90 * S) == []


def test_leases_are_listed_by_expiry_on_the_primary() -> None:
    lessor = primary()
    for each, ttl_s in ((1, 90), (2, 30), (3, 60)):
        lessor.grant(each, ttl_s, NOW)
    assert lessor.leases() == [2, 3, 1]
    lessor.renew(2, NOW + 29 * S)
    lessor.renew(2, NOW + 58 * S)
    assert lessor.leases() == [3, 2, 1]
    lessor.demote()
    assert lessor.leases() == [1, 2, 3]


# Promotion.


def test_promotion_counts_the_full_ttl_and_an_election_timeout() -> None:
    lessor = make()
    lessor.grant(1, 60, NOW)
    at = NOW + 1000 * S
    lessor.promote(at)
    assert lessor.time_to_live(1, at) == (61, 60)
    lessor.demote()
    assert lessor.due(at + 10**6 * S) == []
    lessor.promote(at, 5 * S)
    assert lessor.due(at + 65 * S - 1) == []
    assert lessor.due(at + 65 * S) == [1]


def test_promotion_counts_from_the_checkpoint() -> None:
    lessor = make()
    lessor.grant(1, 600, NOW)
    lessor.checkpoint(1, 100, persist=False)
    lessor.promote(NOW, 0)
    assert lessor.time_to_live(1, NOW) == (100, 600)


def test_promotion_spreads_expiries_and_makes_none_earlier() -> None:
    lessor = make()
    for each in range(1, 3001):
        lessor.grant(each, 60 + each % 3, NOW)
    lessor.promote(NOW, 0)
    expiries = []
    for each in range(1, 3001):
        at_ns = lessor._leases[each].expiry_ns
        assert at_ns >= NOW + (60 + each % 3) * S
        expiries.append(at_ns)
    expiries.sort()
    spans = [later - first for first, later in zip(expiries, expiries[750:], strict=False)]
    assert min(spans) >= S
    assert expiries[-1] <= NOW + 64 * S


def test_below_a_thousand_leases_nothing_is_spread() -> None:
    lessor = make()
    for each in range(1, 1000):
        lessor.grant(each, 60, NOW)
    lessor.promote(NOW, 0)
    assert len(lessor.due(NOW + 60 * S, 2000)) == 999


# Checkpoints.


def test_a_checkpoint_is_persisted_only_if_requested_and_unknown_leases_are_ignored() -> None:
    rows = MemoryBackend()
    lessor = make(rows)
    lessor.grant(1, 600, NOW)
    lessor.checkpoint(1, 100, persist=False)
    assert rows_of(rows)[row_key(1)] == encode_row(1, 600, 0)
    lessor.checkpoint(1, 100, persist=True)
    lessor.checkpoint(2, 100, persist=True)
    assert rows_of(rows) == {row_key(1): encode_row(1, 600, 100)}
    again = make(rows)
    again.promote(NOW, 0)
    assert again.time_to_live(1, NOW) == (100, 600)


def test_checkpoints_are_off_by_default() -> None:
    lessor = primary()
    lessor.grant(1, 3600, NOW)
    assert lessor.checkpoints_due(NOW + 3599 * S) == []


def test_long_leases_are_checkpointed_every_interval_short_ones_never() -> None:
    lessor = primary(checkpoint_interval_s=300)
    lessor.grant(1, 1000, NOW)
    lessor.grant(2, 300, NOW)
    assert lessor.checkpoints_due(NOW + 300 * S - 1) == []
    assert lessor.checkpoints_due(NOW + 300 * S) == [(1, 700)]
    assert lessor.checkpoints_due(NOW + 300 * S) == []
    assert lessor.checkpoints_due(NOW + 600 * S + 1) == [(1, 400)]
    lessor.checkpoint(1, 400, persist=True)
    lessor.revoke(1)
    assert lessor.checkpoints_due(NOW + 10**6 * S) == []


def test_renewing_a_checkpointed_lease_first_clears_the_checkpoint() -> None:
    lessor = primary()
    lessor.grant(1, 600, NOW)
    lessor.checkpoint(1, 100, persist=True)
    at = NOW + 500 * S
    assert lessor.renew(1, at) == RENEW_LATER
    assert lessor.next_expiry_ns() == at
    assert lessor.checkpoints_due(at) == [(1, 0)]
    assert lessor.renew(1, at + 1) == RENEW_LATER
    assert lessor.checkpoints_due(at + 1) == []  # not proposed every turn,
    assert lessor.checkpoints_due(at + RETRY_NS) == [(1, 0)]  # but again if it got lost
    lessor.checkpoint(1, 0, persist=True)
    assert lessor.renew(1, at + 1) == 600
    assert lessor.checkpoints_due(at + 10 * RETRY_NS) == []


def test_a_lease_does_not_expire_while_its_checkpoint_is_cleared() -> None:
    lessor = primary()
    lessor.grant(1, 600, NOW)
    lessor.checkpoint(1, 100, persist=True)
    lessor.renew(1, NOW + 599 * S)
    assert lessor.due(NOW + 600 * S) == []
