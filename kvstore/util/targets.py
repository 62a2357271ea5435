"""Writing new data directories: all or nothing, and never over an existing one.

    <data-dir>/member.tmp/…  ── everything written and synced ──► <data-dir>/member

The rename is the last step. So a directory has either a member or, after a crash, only
`member.tmp`, which the next attempt removes. A separate log directory is made before the rename and
removed again if anything fails. The state is written as LMDB tables or as an etcd database file,
from any source of rows.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kvstore.backend import Row, Table
from kvstore.errors import CorruptionError, DataDirError
from kvstore.meta_rows import CLUSTER_VERSION_KEY, STORAGE_VERSION_KEY
from kvstore.storage.etcd_db.writer import EtcdDbWriter
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.files import sync_directory
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.storage.takeover import check_buckets, copy_rows, refuse_newer
from kvstore.util.locations import DataFormat
from kvstore.util.progress import Advance, bar, tracked

BUILD_NAME: Final = "member.tmp"
DIRECTORY_MODE: Final = 0o700
_LOCK_NAME: Final = "lmdb.lock"


class MemberDirs(NamedTuple):
    """The directories of a member that is being written."""

    member: Path
    wal: Path
    snap: Path


@contextmanager
def building(data_dir: Path, wal_dir: Path | None) -> Iterator[MemberDirs]:
    """Make a member's directories; at the end of the block they become data_dir's member.

    The block must sync everything in them. Raises DataDirError if data_dir is not empty, or wal_dir
    exists, or the directories cannot be made; then nothing has changed.
    """
    check_vacant(data_dir, wal_dir)
    existed = data_dir.exists()
    build = data_dir / BUILD_NAME
    dirs = MemberDirs(build, wal_dir or build / "wal", build / "snap")
    try:
        shutil.rmtree(build, ignore_errors=True)
        dirs.snap.mkdir(mode=DIRECTORY_MODE, parents=True)
        data_dir.chmod(DIRECTORY_MODE)
        build.chmod(DIRECTORY_MODE)
        yield dirs
        _install(dirs, data_dir)
    except BaseException as error:
        _remove(dirs, data_dir, wal_dir, existed=existed)
        if isinstance(error, OSError):
            raise DataDirError(f"{data_dir} cannot be written: {error}") from error
        raise


def check_vacant(data_dir: Path, wal_dir: Path | None) -> None:
    """Raise DataDirError unless data_dir is missing or empty, and wal_dir missing."""
    try:
        names = sorted(os.listdir(data_dir)) if os.path.lexists(data_dir) else []
    except OSError as error:
        raise DataDirError(f'data-dir "{data_dir}" not empty or could not be read: {error}') from (
            error
        )
    if names not in ([], [BUILD_NAME]):
        found = ", ".join(names[:3])
        raise DataDirError(f'data-dir "{data_dir}" not empty or could not be read: it has {found}')
    if wal_dir is not None and os.path.lexists(wal_dir):
        raise DataDirError(f'wal-dir "{wal_dir}" exists')


def write_state(source: RowSource, dirs: MemberDirs, target: DataFormat) -> None:
    """Write every row of source in the target format, synced.

    Raises DataDirError for rows that LMDB tables cannot have or this version does not know,
    CorruptionError if source is damaged or out of order, StorageFatalError if the disk fails.
    """
    if target is DataFormat.ETCD:
        write_etcd_db(source, dirs.snap / "db")
        return
    check_buckets(source)
    for table, key in ((Table.META, STORAGE_VERSION_KEY), (Table.CLUSTER, CLUSTER_VERSION_KEY)):
        refuse_newer(source.path, key, small_rows(source, table).get(key))
    backend = LmdbBackend(dirs.member)
    try:
        with bar("writing lmdb", source.size_bytes) as advance:
            copy_rows(_TrackedSource(source, advance), backend)
        backend.commit()
    except ValueError as error:
        raise CorruptionError(f"{source.path}: {error}") from error
    finally:
        backend.abandon()
    (dirs.member / _LOCK_NAME).unlink(missing_ok=True)


def write_etcd_db(source: RowSource, path: Path) -> None:
    """Write every row of source as an etcd database file, synced."""
    with bar(f"writing {path.name}", source.size_bytes) as advance, EtcdDbWriter(path) as db:
        for name in source.buckets():
            db.write_bucket(name, tracked(source.scan(name), advance))


class _TrackedSource:
    """A source whose rows are counted while they are read."""

    def __init__(self, source: RowSource, advance: Advance) -> None:
        self._source = source
        self._advance = advance
        self.path = source.path
        self.size_bytes = source.size_bytes
        self.buckets = source.buckets

    def scan(self, bucket: bytes) -> Iterator[Row]:
        """Yield the rows of a bucket."""
        return tracked(self._source.scan(bucket), self._advance)


def _install(dirs: MemberDirs, data_dir: Path) -> None:
    """Sync the member's directories and rename them to their final name."""
    for directory in (dirs.wal, dirs.wal.parent, dirs.snap, dirs.member):
        sync_directory(directory)
    dirs.member.rename(data_dir / "member")
    sync_directory(data_dir)
    sync_directory(data_dir.absolute().parent)


def _remove(dirs: MemberDirs, data_dir: Path, wal_dir: Path | None, *, existed: bool) -> None:
    shutil.rmtree(dirs.member, ignore_errors=True)
    if wal_dir is not None:
        shutil.rmtree(wal_dir, ignore_errors=True)
        shutil.rmtree(wal_dir.with_name(f"{wal_dir.name}.tmp"), ignore_errors=True)
    if not existed and data_dir.is_dir() and not os.listdir(data_dir):
        data_dir.rmdir()
