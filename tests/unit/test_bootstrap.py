"""What a restart hands to raft."""

import random
from pathlib import Path

from kvstore.mvcc.backend import Table
from kvstore.raft.config import Config
from kvstore.raft.model import Entry, HardState
from kvstore.raft.rawnode import RawNode
from kvstore.runtime.log.log import Log
from kvstore.server.boot.bootstrap import Founding, boot
from kvstore.server.boot.data_dir import prepare
from kvstore.storage.files import OsFiles
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.wal.wal import Wal
from kvstore.wire.gen import metadata_pb2


def test_a_commit_index_the_log_does_not_hold_is_to_be_saved(tmp_path: Path) -> None:
    """The database may be ahead: a snapshot of it counts only where the log says as much."""
    logger = Log([], "info")
    places = prepare(tmp_path / "data", None, logger)
    metadata = metadata_pb2.Metadata(NodeID=7, ClusterID=8).SerializeToString()
    wal = Wal.create(places.wal, metadata)
    wal.save(HardState(1, 7, 1), [Entry(0, 1, index, b"") for index in range(1, 6)], sync=True)
    wal.close()
    backend = LmdbBackend(places.member)
    backend.put(Table.META, b"consistent_index", (4).to_bytes(8, "big"))
    backend.close()
    booted = boot(places, Founding("m", dict, "token", is_new=True), logger, files=OsFiles())
    raft = RawNode(Config(7), booted.raft, random.Random(0))
    ready = raft.ready()
    assert (raft.committed, raft.applied) == (4, 4)
    assert ready is not None
    assert ready.hard_state == HardState(1, 7, 4)
    booted.wal.close()
    booted.backend.close()
