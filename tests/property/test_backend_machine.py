"""A machine plays any mix of calls on both backends and compares them with a dumb dict."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from typing_extensions import override

from kvstore.backend import Backend, Row, Table
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.memory_backend import MemoryBackend

TABLES = st.sampled_from([Table.KEY, Table.META, Table.LEASE])
KEYS = st.binary(min_size=1, max_size=3) | st.integers(0, 40).map(lambda n: b"k%02d" % n)
VALUES = st.binary(max_size=8) | st.sampled_from([b"v" * 3000, b"w" * 9000])
Model = dict[Table, dict[bytes, bytes]]


class BackendMachine(RuleBasedStateMachine):
    """Both backends against the model, over commits, crashes and defragmentations."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kvstore-machine-"))
        self.model: Model = {table: {} for table in Table}
        self.committed = self.copy_of_model()
        self.pending = 0

    def copy_of_model(self) -> Model:
        return {table: dict(rows) for table, rows in self.model.items()}

    @initialize()
    def open(self) -> None:
        self.lmdb: LmdbBackend = LmdbBackend(self.directory)
        self.memory = MemoryBackend()

    def both(self) -> tuple[Backend, Backend]:
        return self.lmdb, self.memory

    @rule(table=TABLES, key=KEYS, value=VALUES)
    def put(self, table: Table, key: bytes, value: bytes) -> None:
        for backend in self.both():
            backend.put(table, key, value)
        self.model[table][key] = value
        self.pending += 1

    @rule(table=TABLES, count=st.integers(0, 60), value=VALUES)
    def append(self, table: Table, count: int, value: bytes) -> None:
        last = max(self.model[table], default=b"")
        rows = [(last + b"\xff" + bytes([number]), value) for number in range(count)]
        for backend in self.both():
            backend.append(table, rows)
        self.model[table].update(rows)
        self.pending += count

    @rule(table=TABLES, key=KEYS)
    def delete(self, table: Table, key: bytes) -> None:
        expected = self.model[table].pop(key, None) is not None
        for backend in self.both():
            assert backend.delete(table, key) == expected
        self.pending += expected

    @rule(table=TABLES, data=st.data())
    def delete_many(self, table: Table, data: st.DataObject) -> None:
        there = sorted(self.model[table])
        keys = data.draw(st.lists(st.sampled_from(there), unique=True) if there else st.just([]))
        for backend in self.both():
            backend.delete_many(table, [*keys, b"\x00missing"])
        for key in keys:
            del self.model[table][key]
        self.pending += len(keys)

    @rule(table=TABLES)
    def clear(self, table: Table) -> None:
        for backend in self.both():
            backend.clear(table)
        self.pending += len(self.model[table])
        self.model[table] = {}

    @rule(table=TABLES, start=KEYS | st.just(b""), end=KEYS | st.none(), limit=st.integers(0, 100))
    def scan(self, table: Table, start: bytes, end: bytes | None, limit: int) -> None:
        rows = sorted(self.model[table].items())
        inside = [row for row in rows if row[0] >= start and (end is None or row[0] < end)]
        for backend in self.both():
            assert backend.scan(table, start, end, limit) == inside[:limit]

    @rule(table=TABLES, key=KEYS)
    def get(self, table: Table, key: bytes) -> None:
        rows = self.model[table]
        for backend in self.both():
            assert backend.get(table, key) == rows.get(key)
            assert backend.get_many(table, list(rows)) == list(rows.values())

    @rule()
    def commit(self) -> None:
        for backend in self.both():
            backend.commit()
        self.note_commit()

    def note_commit(self) -> None:
        self.committed = self.copy_of_model()
        self.pending = 0

    @rule()
    def reopen(self) -> None:
        self.lmdb.close()
        self.lmdb = LmdbBackend(self.directory)
        self.memory.close()
        self.memory = self.memory.crash()
        self.note_commit()

    @rule()
    def crash(self) -> None:
        self.lmdb.abandon()  # as in a killed process, the open transaction is never committed
        self.lmdb = LmdbBackend(self.directory)
        self.memory = self.memory.crash()
        self.model = {table: dict(rows) for table, rows in self.committed.items()}
        self.pending = 0

    @rule()
    def defragment(self) -> None:
        """Start, or take one step; threads are waited for, so that a run can be repeated."""
        if not self.lmdb.defragmenting():
            self.lmdb.start_defragment()
            self.memory.commit()
            self.note_commit()
            return
        running = self.lmdb._defragmentation
        background = running.background_work() if running is not None else None
        if background is not None:
            background.join()
        if self.lmdb.step_defragment():
            self.memory.commit()
            self.note_commit()

    @invariant()
    def all_agree(self) -> None:
        if not hasattr(self, "lmdb"):
            return
        for table in (Table.KEY, Table.META, Table.LEASE):
            rows: list[Row] = sorted(self.model[table].items())
            for backend in self.both():
                assert backend.scan(table, b"", None, 100_000) == rows
                assert backend.last(table) == (rows[-1] if rows else None)
        for backend in self.both():
            assert backend.pending_ops() == self.pending
            assert backend.size_in_use_bytes() <= backend.size_bytes()

    @override
    def teardown(self) -> None:
        if hasattr(self, "lmdb"):
            self.lmdb.close()
        shutil.rmtree(self.directory)


TestBackendMachine: Any = BackendMachine.TestCase
TestBackendMachine.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
