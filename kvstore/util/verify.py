"""Checks of a data directory or a database file; a failed check does not stop the later ones.

    log          segments in sequence, the CRC chain, records that fit each other
    snapshots    every .snap file is readable and has the index and term of its name
    database     pages and order; checksums of rows; every row of etcd's buckets is readable and
                 has its own key
    index        the key index can be built, leases of keys exist, HashKV can be computed
    consistency  last snapshot <= applied index <= last entry; terms; the log's member is known

A finding has failures, or notes about something that a server repairs at its start (a torn tail, a
key whose lease no longer exists). Rows in an etcd's database have no checksums, nor have ours of
the older format: a flipped bit in a value is found there only by comparing HashKV with another
member's.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kvstack.component.errors import ComponentError
from kvstore.backend import BUCKETS, Table
from kvstore.errors import CorruptionError
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.storage.snapshots.file import list_snapshot_files, read_snapshot_file
from kvstore.util.dumps import row_of
from kvstore.util.hashing import hash_kv, read_index
from kvstore.util.locations import DataFormat, Location
from kvstore.util.log_reader import LogContents, read_log
from kvstore.util.progress import bar, tracked
from kvstore.util.states import CONSISTENT_INDEX, TERM, LmdbState, open_state
from kvstore.wire.gen import metadata_pb2

FAILURES_MAX: Final = 20  # of one check


class Finding(NamedTuple):
    """The result of one check: failures if there are any, else a summary, and notes."""

    check: str
    failures: tuple[str, ...]
    summary: str
    notes: tuple[str, ...] = ()


def verify(location: Location, timeout_s: float) -> Iterator[Finding]:
    """Yield the finding of each check, as soon as it is made."""
    log: LogContents | None = None
    if location.format is not DataFormat.FILE:
        found, log = _check_log(location)
        yield found
        yield _check_snapshots(location)
    try:
        with open_state(location, timeout_s) as state:
            yield _check_database(state)
            yield _checked("index", lambda: _index(state))
            if log is not None:
                its_log = log
                yield _checked("consistency", lambda: _consistency(state, its_log))
    except ComponentError as error:
        yield Finding("database", (str(error),), "")


def _checked(name: str, check: Callable[[], tuple[str, list[str]]]) -> Finding:
    """Make a check; check returns (summary, notes)."""
    try:
        summary, notes = check()
    except ComponentError as error:
        return Finding(name, (str(error),), "")
    return Finding(name, (), summary, tuple(notes))


def _check_log(location: Location) -> tuple[Finding, LogContents | None]:
    try:
        log = read_log(location.wal)
    except (ComponentError, OSError) as error:
        return Finding("log", (str(error),), ""), None
    state = log.replay.hard_state
    notes = []
    if log.torn is not None:
        path = log.segments[-1].path
        notes.append(
            f"{path}: torn at offset {log.torn.offset}, the next start cuts it: {log.torn.text}"
        )
    summary = (
        f"{len(log.segments)} segments, snapshot {log.start.index}, last entry {log.last_index}, "
        f"commit {state.commit}, term {state.term}"
    )
    return Finding("log", (), summary, tuple(notes)), log


def _check_snapshots(location: Location) -> Finding:
    failures: list[str] = []
    try:
        files = list_snapshot_files(location.snap) if location.snap.is_dir() else []
    except OSError as error:
        return Finding("snapshots", (f"{location.snap}: {error.strerror}",), "")
    for file in files:
        try:
            metadata = read_snapshot_file(file.path).metadata
        except (ComponentError, OSError) as error:
            failures.append(f"{file.path}: {error}" if isinstance(error, OSError) else str(error))
            continue
        if (metadata.term, metadata.index) != (file.term, file.index):
            failures.append(
                f"{file.path}: expected term {file.term}, index {file.index} as its name says, "
                f"found {metadata.term} and {metadata.index}"
            )
    return Finding("snapshots", tuple(failures[:FAILURES_MAX]), f"{len(files)} files")


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
    notes: tuple[str, ...] = ()
    if isinstance(state, LmdbState) and not state.has_checksums:
        notes = ("rows have no checksums: damage within a value is not detected",)
    return Finding("database", tuple(failures), f"{len(names)} buckets, {rows} rows", notes)


def _index(state: RowSource) -> tuple[str, list[str]]:
    index = read_index(state)
    leases = {int.from_bytes(key) for key in small_rows(state, Table.LEASE)}
    lost = [key for key, lease in index.leases.items() if lease % 2**64 not in leases]
    notes = (
        [f"{len(lost)} keys name a lease that does not exist, {lost[0]!r} first"] if lost else []
    )
    result = hash_kv(state, 0)
    summary = (
        f"{len(index.keys.live)} keys at revision {index.revision}, compacted "
        f"{index.compacted}, HashKV {result.hash}"
    )
    return summary, notes


def _consistency(state: RowSource, log: LogContents) -> tuple[str, list[str]]:
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
