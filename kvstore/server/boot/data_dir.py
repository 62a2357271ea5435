"""The data directory: etcd's layout, with this project's database beside the log.

<data-dir>/member/wal    segments (or --wal-dir)
<data-dir>/member/snap   snapshot files; an etcd's database when there is one to take over
<data-dir>/member/lmdb   the state
<data-dir>/member/tmp    database files on their way to a client
"""

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.component.logger import Logger
from kvstore.errors import DataDirError

_PRIVATE_MODE: Final = 0o700
# fixtures: certificates made here; kubernetes, run: files and the socket of a cluster whose store
# this is.
_KNOWN: Final = frozenset({"member", "fixtures", "kubernetes", "run"})


class DataDir(NamedTuple):
    """The directories of one member."""

    member: Path
    wal: Path
    snap: Path
    lmdb: Path
    tmp: Path


def prepare(root: Path, wal_dir: Path | None, logger: Logger) -> DataDir:
    """Make missing directories; DataDirError if root cannot be a data directory."""
    member = root / "member"
    paths = DataDir(
        member, wal_dir or member / "wal", member / "snap", member / "lmdb", member / "tmp"
    )
    try:
        for directory in (root, member, paths.snap):
            directory.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
            _check_writable(directory)
        paths.wal.parent.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
        _check_mode(root, logger)
        for name in sorted(os.listdir(root)):
            if name not in _KNOWN:
                logger.warning(
                    "found invalid file under data directory", filename=name, data_dir=str(root)
                )
    except OSError as error:
        raise DataDirError(f"cannot use data directory {root}: {error.strerror}") from error
    if (root / "proxy").exists():
        raise DataDirError(f"{root} contains both a member and a v2 proxy; it can serve only one")
    return paths


def _check_writable(directory: Path) -> None:
    probe = directory / ".touch"
    probe.write_bytes(b"")
    probe.unlink()


def _check_mode(root: Path, logger: Logger) -> None:
    mode = stat.S_IMODE(root.stat().st_mode)
    if mode != _PRIVATE_MODE:
        logger.warning(
            "other users can read the data directory",
            data_dir=str(root),
            mode=f"{mode:04o}",
            recommended=f"{_PRIVATE_MODE:04o}",
        )
