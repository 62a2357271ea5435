"""What a restart hands to raft."""

import random
from collections import Counter
from pathlib import Path

from typing_extensions import override

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.backend import Table
from kvstore.raft.config import Config
from kvstore.raft.model import ConfState, Entry, HardState
from kvstore.raft.rawnode import RawNode
from kvstore.server.boot.bootstrap import Founding, boot
from kvstore.server.boot.data_dir import prepare
from kvstore.storage.files import OsFiles
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.wal.record import WalSnapshot
from kvstore.storage.wal.wal import Wal
from kvstore.wire.gen import metadata_pb2


class CountingFiles(OsFiles):
    """A disk that counts how often each file is opened and each handle is read."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()
        self.reads: Counter[int] = Counter()

    @override
    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        self.opened[path.name] += path.suffix == ".wal"
        return super().open(path, write=write, create=create)

    @override
    def read(self, handle: int, offset: int, size_bytes: int) -> bytes:
        self.reads[handle] += 1
        return super().read(handle, offset, size_bytes)


def test_a_restart_reads_each_segment_it_needs_once(tmp_path: Path) -> None:
    logger = LineLogger([], "info")
    paths = prepare(tmp_path / "data", None, logger)
    metadata = metadata_pb2.Metadata(NodeID=7, ClusterID=8).SerializeToString()
    wal = Wal.create(paths.wal, metadata, segment_bytes=1024)
    for index in range(1, 31):
        wal.save(HardState(1, 7, index), [Entry(0, 1, index, bytes(200))], sync=True)
        if index == 20:
            wal.save_snapshot(WalSnapshot(12, 1, ConfState((7,))))
    wal.close()
    backend = LmdbBackend(paths.member)
    backend.put(Table.META, b"consistent_index", (30).to_bytes(8, "big"))
    backend.close()
    files = CountingFiles()
    founding = Founding("m", dict, "token", is_new=True)
    booted = boot(paths, founding, logger, files=files, segment_bytes=1024)
    assert [entry.index for entry in booted.raft.entries] == list(range(13, 31))
    first_indexes = {path.name: int(path.name[17:33], 16) for path in paths.wal.glob("*.wal")}
    begin = max(first for first in first_indexes.values() if first <= 12)
    needed = [name for name, first in first_indexes.items() if first >= begin]
    assert 4 < len(needed) < len(first_indexes)
    assert files.opened == dict.fromkeys(needed, 1)
    assert sum(files.reads.values()) == len(needed)
    booted.wal.close()
    booted.backend.close()


def test_a_commit_index_the_log_does_not_hold_is_to_be_saved(tmp_path: Path) -> None:
    """The database may be ahead: a snapshot of it counts only where the log says as much."""
    logger = LineLogger([], "info")
    paths = prepare(tmp_path / "data", None, logger)
    metadata = metadata_pb2.Metadata(NodeID=7, ClusterID=8).SerializeToString()
    wal = Wal.create(paths.wal, metadata)
    wal.save(HardState(1, 7, 1), [Entry(0, 1, index, b"") for index in range(1, 6)], sync=True)
    wal.close()
    backend = LmdbBackend(paths.member)
    backend.put(Table.META, b"consistent_index", (4).to_bytes(8, "big"))
    backend.close()
    booted = boot(paths, Founding("m", dict, "token", is_new=True), logger, files=OsFiles())
    raft = RawNode(Config(7), booted.raft, random.Random(0))
    ready = raft.ready()
    assert (raft.committed, raft.applied) == (4, 4)
    assert ready is not None
    assert ready.hard_state == HardState(1, 7, 4)
    booted.wal.close()
    booted.backend.close()
