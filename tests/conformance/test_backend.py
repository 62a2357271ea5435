"""One suite, every backend: what mvcc, lease and apply may rely on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvstore.backend import BUCKETS, Backend, Row, Table
from kvstore.errors import CorruptionError, DataDirError, DefragmentError, StorageFatalError
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.storage.row_limits import KEY_BYTES_MAX

DEFRAGMENT_STEPS_MAX = 1_000_000


@pytest.fixture(params=["lmdb", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    opened: Backend = LmdbBackend(tmp_path) if request.param == "lmdb" else MemoryBackend()
    yield opened
    opened.close()


def key(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"_" + bytes(8)


def rows(first: int, last: int, value: bytes = b"v") -> list[Row]:
    return [(key(number), value + b"%d" % number) for number in range(first, last)]


def everything(backend: Backend) -> list[list[Row]]:
    return [backend.scan(table, b"", None, 1_000_000) for table in Table]


def defragment(backend: Backend, between: Callable[[int], None] = lambda step: None) -> None:
    backend.start_defragment()
    for step in range(DEFRAGMENT_STEPS_MAX):
        between(step)
        if backend.step_defragment():
            return
    raise AssertionError("the defragmentation does not end")


def test_a_new_backend_is_empty(backend: Backend) -> None:
    assert everything(backend) == [[] for _ in BUCKETS]
    assert backend.pending_ops() == 0
    assert all(backend.last(table) is None for table in Table)


def test_reads_see_writes_before_the_commit(backend: Backend) -> None:
    backend.put(Table.META, b"a", b"1")
    assert backend.get(Table.META, b"a") == b"1"
    backend.put(Table.META, b"a", b"2")
    assert backend.get(Table.META, b"a") == b"2"
    assert backend.scan(Table.META, b"", None, 10) == [(b"a", b"2")]


def test_tables_do_not_mix(backend: Backend) -> None:
    for table in Table:
        backend.put(table, b"k", table.name.encode())
    assert [backend.get(table, b"k") for table in Table] == [t.name.encode() for t in Table]


def test_an_empty_value_is_not_a_missing_one(backend: Backend) -> None:
    backend.put(Table.ALARM, b"alarm", b"")
    assert backend.get(Table.ALARM, b"alarm") == b""
    assert backend.get(Table.ALARM, b"alar") is None
    assert backend.scan(Table.ALARM, b"", None, 10) == [(b"alarm", b"")]


@pytest.mark.parametrize("size_bytes", [4000, 5000, 1_500_000, 8_000_000])
def test_values_larger_than_a_page(backend: Backend, size_bytes: int) -> None:
    value = bytes(range(256)) * (size_bytes // 256 + 1)
    backend.append(Table.KEY, [(key(1), value[:size_bytes]), (key(2), b"next")])
    backend.commit()
    assert backend.get(Table.KEY, key(1)) == value[:size_bytes]
    assert backend.get(Table.KEY, key(2)) == b"next"


def test_get_many_keeps_order_and_repeats(backend: Backend) -> None:
    backend.append(Table.KEY, rows(0, 100))
    wanted = [key(70), key(3), key(70), key(99)]
    assert backend.get_many(Table.KEY, wanted) == [b"v70", b"v3", b"v70", b"v99"]
    assert backend.get_many(Table.KEY, []) == []


@pytest.mark.parametrize("missing", [key(100), b"", b"x" * 600])
def test_get_many_of_a_missing_row_is_corruption(backend: Backend, missing: bytes) -> None:
    backend.append(Table.KEY, rows(0, 100))
    with pytest.raises(CorruptionError, match="key has no row"):
        backend.get_many(Table.KEY, [key(1), missing])
    assert backend.get(Table.KEY, key(1)) == b"v1"


@pytest.mark.parametrize("limit", [1, 63, 64, 65, 200, 500, 2**40])
@pytest.mark.parametrize("end", [None, 0, 1, 60, 64, 65, 299, 300, 1000])
def test_scan_is_half_open_and_limited(backend: Backend, limit: int, end: int | None) -> None:
    backend.append(Table.KEY, rows(0, 300))
    for start in (0, 1, 64, 299, 300):
        beyond = 300 if end is None else min(end, 300)
        expected = rows(start, beyond)[:limit]
        end_key = None if end is None else key(end)
        assert backend.scan(Table.KEY, key(start), end_key, limit) == expected


def test_scan_of_nothing(backend: Backend) -> None:
    backend.append(Table.KEY, rows(0, 10))
    assert backend.scan(Table.KEY, b"", None, 0) == []
    assert backend.scan(Table.KEY, b"", None, -1) == []
    assert backend.scan(Table.KEY, key(5), key(5), 10) == []
    assert backend.scan(Table.KEY, key(6), key(5), 10) == []
    assert backend.scan(Table.KEY, b"\xff" * 600, None, 10) == []


def test_keys_are_ordered_bytewise(backend: Backend) -> None:
    keys = [b"\x00", b"\x00\x00", b"a", b"a\x00", b"ab", b"b", b"\x7f", b"\x80", b"\xff\xff"]
    for each in reversed(keys):
        backend.put(Table.LEASE, each, each)
    assert [k for k, _ in backend.scan(Table.LEASE, b"", None, 100)] == sorted(keys)
    assert backend.last(Table.LEASE) == (b"\xff\xff", b"\xff\xff")


def test_last_follows_deletes(backend: Backend) -> None:
    backend.append(Table.KEY, rows(0, 3))
    assert backend.last(Table.KEY) == (key(2), b"v2")
    backend.delete(Table.KEY, key(2))
    assert backend.last(Table.KEY) == (key(1), b"v1")


def test_append_takes_any_iterable(backend: Backend) -> None:
    backend.append(Table.KEY, iter(rows(0, 5)))
    backend.append(Table.KEY, tuple(rows(5, 7)))
    backend.append(Table.KEY, [])
    assert backend.scan(Table.KEY, b"", None, 10) == rows(0, 7)
    assert backend.pending_ops() == 7


@pytest.mark.parametrize("late", [rows(3, 5), [*rows(6, 8), *rows(7, 8)], rows(4, 6)])
def test_append_out_of_order_is_refused(backend: Backend, late: list[Row]) -> None:
    backend.append(Table.KEY, rows(0, 5))
    with pytest.raises(ValueError, match="is not after all rows of KEY"):
        backend.append(Table.KEY, late)


def test_delete_tells_whether_the_row_was_there(backend: Backend) -> None:
    backend.put(Table.LEASE, b"l", b"1")
    assert backend.delete(Table.LEASE, b"l") is True
    assert backend.delete(Table.LEASE, b"l") is False
    assert backend.delete(Table.LEASE, b"") is False
    assert backend.delete(Table.LEASE, b"x" * 600) is False
    assert backend.pending_ops() == 2


def test_delete_many_passes_over_the_missing(backend: Backend) -> None:
    backend.append(Table.KEY, rows(0, 10))
    backend.delete_many(Table.KEY, [key(1), key(55), key(9), key(1)])
    left = [row for row in rows(0, 10) if row[0] not in (key(1), key(9))]
    assert backend.scan(Table.KEY, b"", None, 100) == left
    assert backend.pending_ops() == 12


def test_clear_empties_one_table(backend: Backend) -> None:
    backend.append(Table.KEY, rows(0, 1000))
    backend.put(Table.META, b"m", b"1")
    backend.commit()
    backend.clear(Table.KEY)
    assert backend.pending_ops() == 1000
    assert backend.scan(Table.KEY, b"", None, 10) == []
    assert backend.get(Table.META, b"m") == b"1"
    backend.append(Table.KEY, rows(0, 2))
    backend.commit()
    assert backend.scan(Table.KEY, b"", None, 10) == rows(0, 2)


def test_pending_ops_count_from_the_commit(backend: Backend) -> None:
    backend.append(Table.KEY, rows(0, 10))
    backend.put(Table.META, b"m", b"1")
    assert backend.pending_ops() == 11
    backend.commit()
    assert backend.pending_ops() == 0
    backend.commit()
    assert backend.get(Table.META, b"m") == b"1"


def test_the_longest_key_fits(backend: Backend) -> None:
    longest = b"k" * KEY_BYTES_MAX
    backend.put(Table.AUTH_USERS, longest, b"v")
    backend.append(Table.AUTH_ROLES, [(longest, b"v")])
    backend.commit()
    assert backend.get(Table.AUTH_USERS, longest) == b"v"
    assert backend.get(Table.AUTH_ROLES, longest) == b"v"


@pytest.mark.parametrize("bad", [b"", b"k" * (KEY_BYTES_MAX + 1)])
def test_a_key_no_row_can_have_is_refused_by_length_and_limit(backend: Backend, bad: bytes) -> None:
    backend.put(Table.AUTH_USERS, b"root", b"r")
    with pytest.raises(DataDirError, match=rf"authUsers: a row key of {len(bad)} bytes.* 511 "):
        backend.put(Table.AUTH_USERS, bad, b"v")
    with pytest.raises(DataDirError, match=rf"a row key of {len(bad)} bytes.* 511 "):
        backend.append(Table.AUTH_USERS, [(b"s", b""), (bad, b"v")])
    assert backend.get(Table.AUTH_USERS, bad) is None
    assert backend.get(Table.AUTH_USERS, b"root") == b"r"
    backend.commit()


def test_an_empty_database_is_far_below_thirteen_pages(backend: Backend) -> None:
    for number in range(50):  # what a server writes at its first start, and then at every commit
        backend.put(Table.META, b"consistent_index", number.to_bytes(8, "big"))
        backend.put(Table.META, b"term", number.to_bytes(8, "big"))
        backend.put(Table.META, b"confState", b'{"voters":[1],"learners":[],"auto_leave":false}')
        backend.put(Table.CLUSTER, b"clusterVersion", b"3.7.0")
        backend.put(Table.MEMBERS, b"8e9e05c52164694d", b"{}" * 50)
        backend.put(Table.AUTH, b"authRevision", bytes(8))
        backend.commit()
    assert backend.size_in_use_bytes() <= 9 * 4096
    assert backend.size_bytes() <= 9 * 4096


def test_sizes_grow_with_puts_and_shrink_by_compaction_and_defragment(backend: Backend) -> None:
    empty_bytes = backend.size_bytes()
    backend.append(Table.KEY, rows(0, 2000, b"v" * 256))
    assert backend.size_bytes() == empty_bytes  # as of the last commit
    backend.commit()
    full_bytes = backend.size_bytes()
    assert full_bytes > empty_bytes + 2000 * 256
    backend.delete_many(Table.KEY, [key(number) for number in range(1900)])
    backend.commit()
    backend.put(Table.META, b"m", b"1")
    backend.commit()
    assert backend.size_bytes() >= full_bytes - 16 * 4096  # a few free pages are not counted
    assert backend.size_in_use_bytes() < full_bytes // 4
    defragment(backend)
    assert backend.size_bytes() < full_bytes // 4
    assert backend.scan(Table.KEY, b"", None, 1000) == rows(1900, 2000, b"v" * 256)


def test_defragment_keeps_every_row_and_every_change_meanwhile(backend: Backend) -> None:
    backend.append(Table.KEY, rows(0, 5000))
    for table in Table:
        backend.put(table, b"\xffstays", b"1")
        backend.put(table, b"\xffgoes", b"1")
    backend.delete(Table.KEY, b"\xffstays")
    backend.delete(Table.KEY, b"\xffgoes")

    def change(step: int) -> None:
        if step > 20:
            return
        backend.append(Table.KEY, rows(5000 + step * 10, 5010 + step * 10))
        backend.delete(Table.KEY, key(step * 7))
        backend.delete(Table.KEY, key(5003 + step * 10))
        backend.put(Table.META, b"consistent_index", b"%d" % step)
        backend.delete(Table.LEASE, b"\xffgoes")
        backend.put(Table.LEASE, b"%d" % step, b"new")
        if step == 3:
            backend.clear(Table.MEMBERS)
            backend.put(Table.MEMBERS, b"again", b"2")
        if step % 4 == 0:
            backend.commit()

    before: list[list[list[Row]]] = []

    def change_and_look(step: int) -> None:
        change(step)
        before[:] = [everything(backend)]

    defragment(backend, change_and_look)
    assert everything(backend) == before[0]
    assert backend.pending_ops() == 0  # taking over commits
    backend.append(Table.KEY, rows(9000, 9001))
    backend.commit()
    assert backend.last(Table.KEY) == (key(9000), b"v9000")


def test_defragment_again_and_again(backend: Backend) -> None:
    for round_number in range(5):
        backend.append(Table.KEY, rows(round_number * 10, round_number * 10 + 10))
        defragment(backend)
    assert backend.scan(Table.KEY, b"", None, 100) == rows(0, 50)


def test_only_one_defragmentation_at_a_time(backend: Backend) -> None:
    with pytest.raises(DefragmentError, match="no defragmentation"):
        backend.step_defragment()
    backend.start_defragment()
    with pytest.raises(DefragmentError, match="under way already"):
        backend.start_defragment()


def test_an_abandoned_backend_commits_nothing_more(tmp_path: Path) -> None:
    backend, memory = LmdbBackend(tmp_path), MemoryBackend()
    for each in (backend, memory):
        each.put(Table.META, b"m", b"1")
        each.commit()
        each.put(Table.META, b"m", b"2")
        each.start_defragment()
        each.put(Table.META, b"m", b"3")
        each.abandon()
        each.abandon()
        each.close()
    for survivor in (LmdbBackend(tmp_path), memory.crash()):
        assert survivor.get(Table.META, b"m") == b"2"
        survivor.close()


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_a_closed_backend_refuses_everything(backend: Backend, end: str) -> None:
    backend.put(Table.META, b"m", b"1")
    getattr(backend, end)()
    backend.close()
    calls: list[Callable[[], object]] = [
        lambda: backend.get(Table.META, b"m"),
        lambda: backend.get_many(Table.META, [b"m"]),
        lambda: backend.scan(Table.META, b"", None, 1),
        lambda: backend.last(Table.META),
        lambda: backend.put(Table.META, b"m", b"2"),
        lambda: backend.append(Table.META, [(b"n", b"2")]),
        lambda: backend.delete(Table.META, b"m"),
        lambda: backend.delete_many(Table.META, [b"m"]),
        lambda: backend.clear(Table.META),
        backend.commit,
        backend.start_defragment,
    ]
    for call in calls:
        with pytest.raises(StorageFatalError, match="closed"):
            call()
