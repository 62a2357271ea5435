"""What the writer of a member's snapshot says before it writes, made part of the message.

    {"index": 77, "term": 2, "conf_state": "{\\"voters\\":[1]}",
     "members": ["{\\"id\\":1,…}"], "removed": ["2a"], "version": "3.7.0"}

Rows travel as they stand in the state. The process that reads them has no codecs loaded, this one
has them anyway: see `peer_writer`.
"""

import json

from kvstore.raft.model import ConfState, Snapshot, SnapshotMetadata
from kvstore.storage.v2_store import encode_v2_store
from kvstore.wire.members import decode_member
from kvstore.wire.varint import WireError


def snapshot_of(position: bytes) -> Snapshot:
    """Return the snapshot that a state at a position stands for; WireError if it is none."""
    try:
        told = json.loads(position)
        data = encode_v2_store(
            [decode_member(row.encode()) for row in told["members"]],
            sorted(int(key, 16) for key in told["removed"]),
            told["version"],
        )
        conf_state = _conf_state(told["conf_state"])
        return Snapshot(SnapshotMetadata(conf_state, told["index"], told["term"]), data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WireError(f"a position of {len(position)} bytes cannot be read: {error!r}") from None


def _conf_state(text: str) -> ConfState:
    row = json.loads(text)
    return ConfState(
        tuple(row.get("voters", ())),
        tuple(row.get("learners", ())),
        tuple(row.get("voters_outgoing", ())),
        tuple(row.get("learners_next", ())),
        bool(row.get("auto_leave", False)),
    )
