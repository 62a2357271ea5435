"""The store against a model that keeps all rows in a list, through restarts and crashes."""

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvstore.backend import Table
from kvstore.errors import COMPACTED, FUTURE_REVISION
from kvstore.mvcc.hashing import HashJob, HashResult
from kvstore.mvcc.ranges import RangeResult
from kvstore.mvcc.store import Store
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.wire.gen.kv_pb2 import KeyValue
from tests.support.models.mvcc_model import Model

KEYS = st.sampled_from([b"a", b"a\0", b"b", b"\xff", b"k" * 130])
ENDS = st.one_of(st.just(b""), st.just(b"\0"), KEYS)
VALUES = st.sampled_from([b"", b"1", b"x" * 126, b"y" * 127, b"z" * 130])
LEASES = st.sampled_from([0, 0, 0, 7, 1 << 62])
PUTS = st.tuples(st.just("put"), KEYS, VALUES, LEASES)
DELETES = st.tuples(st.just("delete"), KEYS, ENDS, st.just(0))
OPS = st.lists(st.one_of(PUTS, DELETES), max_size=6)
SLICES = st.sampled_from([1, 2, 3, 1000])


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.backend = MemoryBackend()
        self.store = Store(self.backend)
        assert self.store.restore() == []
        self.model = Model()
        self.durable = self.model.copy()
        self.jobs: list[tuple[HashJob, HashResult]] = []
        self.compaction_hashes: dict[int, tuple[int, int, int | None]] = {}

    # writes

    @rule(key=KEYS, value=VALUES, lease=LEASES)
    def put_one(self, key: bytes, value: bytes, lease: int) -> None:
        before = self.model.row_at(key, self.model.revision)
        event = self.store.put_one(key, value, lease)
        self.model.put(key, value, lease, 0)
        self.model.revision += 1
        assert event == self.model.events(self.model.revision, self.model.revision + 1)[0]
        assert event.prev == (before and before.revkey)
        assert self.store.value_of(event.prev or b"") == (before and before.kv)

    @rule(ops=OPS, key=KEYS, range_end=ENDS)
    def txn(self, ops: list[tuple[str, bytes, bytes, int]], key: bytes, range_end: bytes) -> None:
        store, model = self.store, self.model
        main = model.revision + 1
        store.begin()
        touched: set[bytes] = set()
        sub = 0
        for kind, target, rest, lease in ops:
            if kind == "put":
                if target in touched:  # etcd refuses such transactions
                    continue
                touched.add(target)
                before = model.row_at(target, main)
                model.put(target, rest, lease, sub)
                assert store.put(target, rest, lease).prev == (before and before.revkey)
                sub += 1
            else:
                doomed = [KeyValue.FromString(kv).key for kv in model.range_at(target, rest, main)]
                before_all = [model.row_at(each, main) for each in doomed]
                events = store.delete_range(target, rest)
                assert [event.key for event in events] == doomed
                assert [event.prev for event in events] == [
                    row and row.revkey for row in before_all
                ]
                for each in doomed:
                    model.delete(each, sub)
                    sub += 1
                touched.update(doomed)
            self.check_range(key, range_end, main if sub else main - 1)
        events = store.end()
        assert events == model.events(main, main + 1)
        model.revision += bool(events)

    # upkeep

    @rule(back=st.integers(-1, 8))
    def compact(self, back: int) -> None:
        at = self.model.revision - back
        refusal = None
        clean = not self.store.compaction_pending
        if at <= self.model.compacted:
            refusal = COMPACTED
        elif at > self.model.revision:
            refusal = FUTURE_REVISION
        assert self.store.compact(at) == refusal
        if refusal is None:
            previous = self.model.compacted
            value, other = self.model.compact(at)
            if clean:
                self.compaction_hashes[at] = (value, previous, other)

    @rule(rows=SLICES)
    def compaction_step(self, rows: int) -> None:
        assert self.store.compaction_step(rows) == (not self.store.compaction_pending)

    @rule(back=st.integers(0, 3), rows=SLICES)
    def compact_whole(self, back: int, rows: int) -> None:
        self.compact(back)
        self.finish_compaction()
        self.compact(0)
        self.compaction_step(rows)

    @rule()
    def finish_compaction(self) -> None:
        for job, _ in self.jobs:
            job.close()
        self.jobs.clear()
        while not self.store.compaction_step(2):
            pass
        self.store.flush()
        rows = self.backend.scan(Table.KEY, b"", None, 1 << 20)
        assert rows == [(row.revkey, row.kv) for row in self.model.rows]
        remembered = sorted(self.compaction_hashes)[-10:]
        assert [each.hash_revision for each in self.store.compaction_hashes()] == remembered[::-1]

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def commit(self) -> None:
        self.store.flush()
        self.backend.commit()
        self.durable = self.model.copy()

    @rule()
    def restart(self) -> None:
        self.commit()
        self.crash()

    @rule()
    def crash(self) -> None:
        self.backend = self.backend.crash()
        self.model = self.durable.copy()
        self.store = Store(self.backend)
        assert dict(self.store.restore()) == self.model.leases()
        self.jobs.clear()
        self.compaction_hashes.clear()

    # reads

    def check_range(self, key: bytes, range_end: bytes, main: int, limit: int = 0) -> None:
        want = self.model.range_at(key, range_end, main)
        cut = want[:limit] if limit else want
        now = self.store.txn_revision
        bare = [KeyValue.FromString(kv) for kv in cut]
        for kv in bare:
            kv.value, kv.lease = b"", 0
        for asked in {main, 0 if main == now else main}:
            read = self.store.range(key, range_end, revision=asked, limit=limit)
            assert read == RangeResult(cut, len(want), now)
            read = self.store.range(key, range_end, revision=asked, limit=limit, keys_only=True)
            assert isinstance(read, RangeResult)
            assert read.kvs == [kv.SerializeToString() for kv in bare]
            read = self.store.range(key, range_end, revision=asked, count_only=True)
            assert read == RangeResult([], len(want), now)
            read = self.store.range(key, range_end, revision=asked, limit=limit, with_count=False)
            assert read == RangeResult(cut, len(cut), now)

    @rule(key=KEYS, range_end=ENDS, back=st.integers(0, 10), limit=st.integers(0, 4))
    def read_range(self, key: bytes, range_end: bytes, back: int, limit: int) -> None:
        main = self.model.revision - back
        if main >= max(1, self.model.compacted):
            self.check_range(key, range_end, main, limit)
        elif main > 0:
            assert self.store.range(key, range_end, revision=main) == COMPACTED

    @rule(key=KEYS)
    def read_future(self, key: bytes) -> None:
        assert self.store.range(key, b"", revision=self.model.revision + 1) == FUTURE_REVISION

    @rule(back=st.integers(0, 12), length=st.integers(0, 14), limit=st.integers(1, 6))
    def history(self, back: int, length: int, limit: int) -> None:
        start = max(self.model.revision - back, self.model.compacted, 0)
        end = start + length
        want = self.model.events(start, end)
        got = []
        at = start
        while at < end:
            events, following = self.store.history(at, end, limit, 200)
            assert following > at
            assert all(at <= event.main < following for event in events)
            got += events
            at = following
        assert got == want

    # hashes

    @precondition(lambda self: len(self.jobs) < 3)
    @rule(back=st.integers(-1, 8))
    def start_hash(self, back: int) -> None:
        at = self.model.revision - back
        asked = max(at, 0)
        revision, compacted = self.model.revision, self.model.compacted
        answer = self.store.start_hash(asked)
        remembered = {each.hash_revision for each in self.store.compaction_hashes()}
        if asked in remembered:
            value, previous, other = self.compaction_hashes[asked]
            assert answer == HashResult(value, previous, asked, revision, other)
        elif 0 < asked < compacted:
            assert answer == COMPACTED
        elif asked > revision:
            assert answer == FUTURE_REVISION
        else:
            assert isinstance(answer, HashJob)
            at = asked or revision
            value, other = self.model.hash_at(at)
            self.jobs.append((answer, HashResult(value, compacted, at, revision, other)))

    @precondition(lambda self: len(self.jobs) < 3)
    @rule(back=st.integers(0, 3), rows=SLICES, rounds=st.integers(1, 30))
    def hash_under_compaction(self, back: int, rows: int, rounds: int) -> None:
        """A job under way when a compaction comes must not lose a record."""
        self.start_hash(back)
        if self.jobs:
            self.hash_step(rows, len(self.jobs) - 1, 1)
            self.compact(0)
            self.compaction_step(rounds)
            self.history(0, 1, 1)  # at the compacted revision, whose records are still there
        if self.jobs:
            self.hash_step(1, 0, rounds)

    @precondition(lambda self: bool(self.jobs))
    @rule(rows=SLICES, which=st.integers(0, 2), rounds=st.integers(1, 30))
    def hash_step(self, rows: int, which: int, rounds: int) -> None:
        place = which % len(self.jobs)
        job, want = self.jobs[place]
        for _ in range(rounds):
            result = job.step(rows)
            if result is not None:
                note(f"hash {result}")
                assert result == want
                del self.jobs[place]
                return

    @precondition(lambda self: bool(self.jobs))
    @rule()
    def give_up_hash(self) -> None:
        self.jobs.pop()[0].close()

    # always

    @invariant()
    def agrees(self) -> None:
        store, model = self.store, self.model
        assert (store.revision, store.compacted) == (model.revision, model.compacted)
        live = [model.row_at(key, model.revision) for key in {row.key for row in model.rows}]
        assert store.key_count == sum(1 for row in live if row)
        for row in live:
            if row is not None:
                kv = KeyValue.FromString(row.kv)
                current = store.current(row.key)
                assert current == (kv.create_revision, kv.mod_revision, kv.version, row.revkey)
                assert store.kv(row.key) == row.kv


StoreMachine.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestStore = StoreMachine.TestCase
