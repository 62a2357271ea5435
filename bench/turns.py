"""A member without a transport, and bodies of calls for it: what the micro benchmarks measure.

A real Node on real files, as `server.assemble` builds it; the clock stands still, so the database
is committed by the number of rows alone.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kvstack.component import crate
from kvstack.component.clock import SystemClock
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.batch import Inbox
from kvstore.config.initial_cluster import initial_members
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.node.parts import Parts
from kvstore.node.turn import Node
from kvstore.server.boot.assemble import build
from kvstore.server.boot.bootstrap import Founding, boot
from kvstore.server.boot.data_dir import prepare
from kvstore.server.boot.state import snapshot_files
from kvstore.storage.files import Files
from kvstore.wire.gen import rpc_pb2 as pb

VALUE: Final = b"v" * 256
NOW_NS: Final = 1_000_000_000


@contextmanager
def member(data_dir: Path, files: Files) -> Iterator[tuple[Node, Parts]]:
    """Run a member that has joined, and close it."""
    config = configure(read_command_line([f"--data-dir={data_dir}"]), {})
    logger, clock = LineLogger([], "info"), SystemClock()
    paths = prepare(data_dir, None, logger)
    founding = Founding(
        config.name,
        lambda: initial_members(config, socket.gethostbyname),
        config.initial_cluster_token,
        is_new=True,
    )
    booted = boot(paths, founding, logger, files=files)
    if crate.encode_entries is not None:
        booted.wal.encode_entries = crate.encode_entries
    try:
        parts = build(
            config, booted, snapshot_files(config, booted, paths, logger, files), clock, logger
        )
        node = Node(parts)
        while not node.is_ready:
            node.turn(Inbox(now_ns=NOW_NS, wall_ms=1))
        yield node, parts
    finally:
        booted.backend.close()
        booted.wal.close()


def key_of(number: int) -> bytes:
    """Return a key of 8 bytes; those of numbers in order are spread over the key space."""
    return (number * 0x9E3779B97F4A7C15 & 0x7FFFFFFFFFFFFFFF).to_bytes(8, "big")


def put_body(number: int) -> bytes:
    """Return a put of that key."""
    return pb.PutRequest(key=key_of(number), value=VALUE).SerializeToString()


def get_body(number: int) -> bytes:
    """Return a linearizable read of that key."""
    return pb.RangeRequest(key=key_of(number)).SerializeToString()


def swap_body(number: int, mod_revision: int) -> bytes:
    """Return a put of that key if it was last changed at a revision; else it is read."""
    key = key_of(number)
    return pb.TxnRequest(
        compare=[pb.Compare(key=key, target=pb.Compare.MOD, mod_revision=mod_revision)],
        success=[pb.RequestOp(request_put=pb.PutRequest(key=key, value=VALUE))],
        failure=[pb.RequestOp(request_range=pb.RangeRequest(key=key))],
    ).SerializeToString()
