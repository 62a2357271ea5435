"""Writing data directories: in the making until whole, and never over one that is there.

    <data-dir>/member.tmp/…  ── everything written and synced ──► <data-dir>/member

The rename is the last step, so a directory either holds a member or, after a crash, only
`member.tmp`, which the next attempt removes. A log directory of its own is made before the rename
and removed again if anything fails. The state inside is written as LMDB tables or as an etcd
database file, from any source of rows.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from kvstore.errors import CorruptionError, DataDirError
from kvstore.mvcc.backend import Row, Table
from kvstore.mvcc.meta_rows import CLUSTER_VERSION_KEY, STORAGE_VERSION_KEY
from kvstore.storage.etcd_db.etcd_db import EtcdDbWriter
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.files import sync_directory
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.storage.takeover import check_buckets, copy_rows, refuse_newer
from kvstore.util.places import Kind
from kvstore.util.progress import Advance, bar, tracked

BUILD_NAME: Final = "member.tmp"
DIRECTORY_MODE: Final = 0o700
_LOCK_NAME: Final = "lmdb.lock"


class Site(NamedTuple):
    """The directories of a member in the making."""

    member: Path
    wal: Path
    snap: Path


@contextmanager
def building(data_dir: Path, wal_dir: Path | None) -> Iterator[Site]:
    """Make a member's directories; at the end of the block they become data_dir's member.

    The block must leave everything in them durable. Raises DataDirError if data_dir holds
    anything, or wal_dir exists, or the directories cannot be made; then nothing has changed.
    """
    check_vacant(data_dir, wal_dir)
    existed = data_dir.exists()
    build = data_dir / BUILD_NAME
    site = Site(build, wal_dir or build / "wal", build / "snap")
    try:
        shutil.rmtree(build, ignore_errors=True)
        site.snap.mkdir(mode=DIRECTORY_MODE, parents=True)
        data_dir.chmod(DIRECTORY_MODE)
        build.chmod(DIRECTORY_MODE)
        yield site
        _settle(site, data_dir)
    except BaseException as error:
        _tear_down(site, data_dir, wal_dir, existed=existed)
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


def write_state(source: RowSource, site: Site, kind: Kind) -> None:
    """Write every row of source in one format, durably.

    Raises DataDirError for what LMDB tables cannot hold or this version does not know,
    CorruptionError if source is damaged or out of order, StorageFatalError if the disk fails.
    """
    if kind is Kind.ETCD:
        write_etcd_db(source, site.snap / "db")
        return
    check_buckets(source)
    for table, key in ((Table.META, STORAGE_VERSION_KEY), (Table.CLUSTER, CLUSTER_VERSION_KEY)):
        refuse_newer(source.path, key, small_rows(source, table).get(key))
    backend = LmdbBackend(site.member)
    try:
        with bar("writing lmdb", source.size_bytes) as advance:
            copy_rows(_Watched(source, advance), backend)
        backend.commit()
    except ValueError as error:
        raise CorruptionError(f"{source.path}: {error}") from error
    finally:
        backend.abandon()
    (site.member / _LOCK_NAME).unlink(missing_ok=True)


def write_etcd_db(source: RowSource, path: Path) -> None:
    """Write every row of source as an etcd database file, synced."""
    with bar(f"writing {path.name}", source.size_bytes) as advance, EtcdDbWriter(path) as db:
        for name in source.buckets():
            db.write_bucket(name, tracked(source.scan(name), advance))


class _Watched:
    """A source whose rows are counted as they go by."""

    def __init__(self, source: RowSource, advance: Advance) -> None:
        self._source = source
        self._advance = advance
        self.path = source.path
        self.size_bytes = source.size_bytes
        self.buckets = source.buckets

    def scan(self, bucket: bytes) -> Iterator[Row]:
        """Yield the rows of a bucket."""
        return tracked(self._source.scan(bucket), self._advance)


def _settle(site: Site, data_dir: Path) -> None:
    """Make the member's directories durable and give them their name."""
    for directory in (site.wal, site.wal.parent, site.snap, site.member):
        sync_directory(directory)
    site.member.rename(data_dir / "member")
    sync_directory(data_dir)
    sync_directory(data_dir.absolute().parent)


def _tear_down(site: Site, data_dir: Path, wal_dir: Path | None, *, existed: bool) -> None:
    shutil.rmtree(site.member, ignore_errors=True)
    if wal_dir is not None:
        shutil.rmtree(wal_dir, ignore_errors=True)
        shutil.rmtree(wal_dir.with_name(f"{wal_dir.name}.tmp"), ignore_errors=True)
    if not existed and data_dir.is_dir() and not os.listdir(data_dir):
        data_dir.rmdir()
