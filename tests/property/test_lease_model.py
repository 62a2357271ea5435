"""A lessor against a model that knows only promises: nothing ends early, nothing is forgotten.

The model keeps, for each lease, the last moment its holder was promised. Whatever is renewed,
lost, moved or promoted in between, a lease must never be due before that moment, and must be due
once everything has expired.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from typing_extensions import override

from kvstore.backend import Table
from kvstore.errors import LEASE_EXISTS, LEASE_NOT_FOUND, Refusal
from kvstore.lease.lessor import NOT_PRIMARY, RENEW_LATER, Lessor
from kvstore.storage.memory_backend import MemoryBackend

S = 1_000_000_000
MIN_TTL_S = 2
IDS = st.integers(-2, 6).filter(bool)
KEYS = st.binary(min_size=1, max_size=2)


class LessorModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rows = MemoryBackend()
        self.now_ns = 10**15
        self.primary = False
        self.ttl_s: dict[int, int] = {}
        self.remaining_s: dict[int, int] = {}
        self.promised_ns: dict[int, int] = {}
        self.lease_of: dict[bytes, int] = {}
        self.lessor = self.fresh()

    def fresh(self) -> Lessor:
        lessor = Lessor(self.rows, MIN_TTL_S, S, 5 * S)
        assert lessor.restore(self.lease_of.items()) == []
        return lessor

    @rule(lease_id=IDS, ttl_s=st.integers(-1, 30))
    def grant(self, lease_id: int, ttl_s: int) -> None:
        got = self.lessor.grant(lease_id, ttl_s, self.now_ns)
        if lease_id in self.ttl_s:
            assert got == LEASE_EXISTS
            return
        assert got == max(ttl_s, MIN_TTL_S)
        self.ttl_s[lease_id] = got
        self.promised_ns[lease_id] = self.now_ns + got * S

    @rule(lease_id=IDS)
    def revoke(self, lease_id: int) -> None:
        got = self.lessor.revoke(lease_id)
        if self.ttl_s.pop(lease_id, None) is None:
            assert got == LEASE_NOT_FOUND
            return
        keys = sorted(key for key, on in self.lease_of.items() if on == lease_id)
        assert got == keys
        for key in keys:
            del self.lease_of[key]
        self.remaining_s.pop(lease_id, None)
        del self.promised_ns[lease_id]

    @rule(lease_id=IDS, key=KEYS)
    def attach(self, lease_id: int, key: bytes) -> None:
        if lease_id in self.ttl_s:
            self.lessor.attach(lease_id, key)
            self.lease_of[key] = lease_id

    @rule(key=KEYS)
    def detach(self, key: bytes) -> None:
        self.lessor.detach(key)
        self.lease_of.pop(key, None)

    @rule(lease_id=IDS)
    def renew(self, lease_id: int) -> None:
        got = self.lessor.renew(lease_id, self.now_ns)
        if not self.primary:
            assert got == NOT_PRIMARY
        elif lease_id not in self.ttl_s:
            assert got == LEASE_NOT_FOUND
        elif got != RENEW_LATER:
            assert got == self.ttl_s[lease_id]
            assert lease_id not in self.remaining_s
            self.promised_ns[lease_id] = self.now_ns + got * S

    @rule(passed_ns=st.integers(0, 12 * S))
    def time_passes(self, passed_ns: int) -> None:
        self.now_ns += passed_ns

    @rule(limit=st.integers(1, 3), apply=st.booleans())
    def expire(self, limit: int, apply: bool) -> None:  # noqa: FBT001
        due = self.lessor.due(self.now_ns, limit)
        assert len(due) <= limit
        assert len(set(due)) == len(due)
        for lease_id in due:
            assert self.primary
            assert self.promised_ns[lease_id] <= self.now_ns
            if apply:
                self.revoke(lease_id)

    @rule(apply=st.booleans(), persist=st.booleans())
    def checkpoint(self, apply: bool, persist: bool) -> None:  # noqa: FBT001
        for lease_id, remaining_s in self.lessor.checkpoints_due(self.now_ns):
            assert self.primary
            # A checkpoint is never less than what is still promised.
            if remaining_s:
                assert self.now_ns + remaining_s * S >= self.promised_ns[lease_id]
            if apply:
                self.lessor.checkpoint(lease_id, remaining_s, persist=True)
                self.note_checkpoint(lease_id, remaining_s)
            elif persist and remaining_s == 0:
                self.lessor.checkpoint(lease_id, 0, persist=True)
                self.note_checkpoint(lease_id, 0)

    def note_checkpoint(self, lease_id: int, remaining_s: int) -> None:
        self.remaining_s.pop(lease_id, None)
        if remaining_s:
            self.remaining_s[lease_id] = remaining_s

    @rule()
    def promote(self) -> None:
        self.lessor.promote(self.now_ns)
        self.primary = True
        for lease_id, ttl_s in self.ttl_s.items():
            anew_ns = self.now_ns + self.remaining_s.get(lease_id, ttl_s) * S + S
            assert anew_ns >= self.promised_ns[lease_id]
            self.promised_ns[lease_id] = anew_ns

    @rule()
    def demote(self) -> None:
        self.lessor.demote()
        self.primary = False

    @rule()
    def restart(self) -> None:
        self.lessor = self.fresh()
        self.primary = False

    @invariant()
    def the_same_leases_and_keys(self) -> None:
        assert sorted(self.lessor.leases()) == sorted(self.ttl_s)
        assert len(self.rows.scan(Table.LEASE, b"", None, 100)) == len(self.ttl_s)
        for lease_id in self.ttl_s:
            keys = sorted(key for key, on in self.lease_of.items() if on == lease_id)
            assert self.lessor.keys(lease_id) == keys
        for key, lease_id in self.lease_of.items():
            assert self.lessor.lease_of(key) == lease_id

    @invariant()
    def reported_times_hold(self) -> None:
        if not self.primary:
            return
        for lease_id, ttl_s in self.ttl_s.items():
            found = self.lessor.time_to_live(lease_id, self.now_ns)
            assert not isinstance(found, Refusal)
            assert found[1] == ttl_s
            assert found[0] >= (self.promised_ns[lease_id] - self.now_ns) // S

    @override
    def teardown(self) -> None:
        """After the last promise (and every retry) all leases are due."""
        if self.primary:
            late_ns = self.now_ns + 10**6 * S
            next_ns = self.lessor.next_expiry_ns()
            assert (next_ns is None) == (not self.ttl_s)
            assert sorted(self.lessor.due(late_ns)) == sorted(self.ttl_s)


LessorModel.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestLessorModel = LessorModel.TestCase
