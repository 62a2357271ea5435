"""Checks of a data directory or a database file, all of them, whatever the ones before found.

    log          segments in sequence, the crc chain, records that fit each other
    snapshots    every .snap file readable, and what its name says
    database     pages and order, every row of etcd's buckets readable and under its own key
    index        the key index builds, leases of keys exist, HashKV can be told
    consistency  last snapshot <= applied index <= last entry; terms; the log's member is known

A finding is a failure, or a note: something a server deals with at its start (a torn tail, a key
whose lease is gone). Values carry no checksum in either database format, so a flipped bit inside
one is beyond any check but comparing HashKV with another member's.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kvstore.errors import CorruptionError, KvstoreError
from kvstore.mvcc.backend import BUCKETS, Table
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.storage.snapshots.file import list_snapshot_files, read_snapshot_file
from kvstore.util.dumps import row_of
from kvstore.util.hashing import hash_kv, read_index
from kvstore.util.log_reader import Log, read
from kvstore.util.places import Kind, Place
from kvstore.util.progress import bar, tracked
from kvstore.util.states import CONSISTENT_INDEX, TERM, open_state
from kvstore.wire.gen import metadata_pb2

FAILURES_MAX: Final = 20  # of one check; more of the same help nobody


class Finding(NamedTuple):
    """What one check said: failures if there are any, else what it looked at, and notes."""

    check: str
    failures: tuple[str, ...]
    summary: str
    notes: tuple[str, ...] = ()


def verify(place: Place, timeout_s: float) -> Iterator[Finding]:
    """Yield a finding for each check, as soon as it is done."""
    log: Log | None = None
    if place.kind is not Kind.FILE:
        found, log = _check_log(place)
        yield found
        yield _check_snapshots(place)
    try:
        with open_state(place, timeout_s) as state:
            yield _check_database(state)
            yield _checked("index", lambda: _index(state))
            if log is not None:
                its_log = log
                yield _checked("consistency", lambda: _consistency(state, its_log))
    except KvstoreError as error:
        yield Finding("database", (str(error),), "")


def _checked(name: str, check: Callable[[], tuple[str, list[str]]]) -> Finding:
    """Carry a check out; check returns (summary, notes)."""
    try:
        summary, notes = check()
    except KvstoreError as error:
        return Finding(name, (str(error),), "")
    return Finding(name, (), summary, tuple(notes))


def _check_log(place: Place) -> tuple[Finding, Log | None]:
    try:
        log = read(place.wal)
    except (KvstoreError, OSError) as error:
        return Finding("log", (str(error),), ""), None
    state = log.replay.hard_state
    notes = []
    if log.torn is not None:
        path = log.segments[-1].path
        notes.append(f"{path}: torn at offset {log.torn.offset}, a start cuts it: {log.torn.text}")
    summary = (
        f"{len(log.segments)} segments, snapshot {log.start.index}, last entry {log.last_index}, "
        f"commit {state.commit}, term {state.term}"
    )
    return Finding("log", (), summary, tuple(notes)), log


def _check_snapshots(place: Place) -> Finding:
    failures: list[str] = []
    try:
        found = list_snapshot_files(place.snap) if place.snap.is_dir() else []
    except OSError as error:
        return Finding("snapshots", (f"{place.snap}: {error.strerror}",), "")
    for file in found:
        try:
            metadata = read_snapshot_file(file.path).metadata
        except (KvstoreError, OSError) as error:
            failures.append(f"{file.path}: {error}" if isinstance(error, OSError) else str(error))
            continue
        if (metadata.term, metadata.index) != (file.term, file.index):
            failures.append(
                f"{file.path}: expected term {file.term}, index {file.index} as its name says, "
                f"found {metadata.term} and {metadata.index}"
            )
    return Finding("snapshots", tuple(failures[:FAILURES_MAX]), f"{len(found)} files")


def _check_database(state: RowSource) -> Finding:
    failures: list[str] = []
    rows = 0
    names = state.buckets()
    with bar("checking rows", state.size_bytes) as advance:
        for name in names:
            try:
                for row in tracked(state.scan(name), advance):
                    rows += 1
                    try:
                        row_of(state, name, row)
                    except CorruptionError as error:
                        failures.append(str(error))
                        if len(failures) == FAILURES_MAX:
                            return Finding("database", tuple(failures), "")
            except CorruptionError as error:
                failures.append(str(error))
    required = (BUCKETS[Table.KEY], BUCKETS[Table.META])
    failures += [
        f"{state.path}: no bucket {name.decode()}" for name in required if name not in names
    ]
    return Finding("database", tuple(failures), f"{len(names)} buckets, {rows} rows")


def _index(state: RowSource) -> tuple[str, list[str]]:
    index = read_index(state)
    leases = {int.from_bytes(key) for key in small_rows(state, Table.LEASE)}
    lost = [key for key, lease in index.leases.items() if lease % 2**64 not in leases]
    notes = [f"{len(lost)} keys name a lease that is gone, {lost[0]!r} first"] if lost else []
    result = hash_kv(state, 0)
    summary = (
        f"{len(index.keys.live)} keys at revision {index.revision}, compacted "
        f"{index.compacted}, HashKV {result.hash}"
    )
    return summary, notes


def _consistency(state: RowSource, log: Log) -> tuple[str, list[str]]:
    meta = small_rows(state, Table.META)
    applied = int.from_bytes(meta.get(CONSISTENT_INDEX, b""))
    term = int.from_bytes(meta.get(TERM, b""))
    hard = log.replay.hard_state
    if not log.start.index <= applied <= log.last_index:
        raise CorruptionError(
            f"{state.path}: consistent_index {applied}, expected {log.start.index} (the log's last "
            f"snapshot) to {log.last_index} (its last entry)"
        )
    if term > hard.term:
        raise CorruptionError(f"{state.path}: term {term}, the log is at term {hard.term}")
    own_id = metadata_pb2.Metadata.FromString(log.replay.metadata).NodeID
    members = small_rows(state, Table.MEMBERS)
    if members and f"{own_id:x}".encode() not in members:
        raise CorruptionError(f"{state.path}: the log is of member {own_id:x}, not one of its own")
    notes = []
    if applied > hard.commit:
        notes.append(f"applied {applied} is beyond commit {hard.commit}: commits are not synced")
    return f"applied {applied} of {log.last_index}, term {term}", notes
