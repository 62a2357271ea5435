"""The position that the writer of a member's snapshot reports before it writes, decoded.

    {"index": 77, "term": 2, "conf_state": "{\\"voters\\":[1]}",
     "members": ["{\\"id\\":1,…}"], "removed": ["2a"], "version": "3.7.0"}

Rows are sent as they are in the state. The writer has no codecs loaded (see `peer_writer`); the
server, which reads this, has them anyway.
"""

import json

from kvstore.raft.model import ConfState, Snapshot, SnapshotMetadata
from kvstore.storage.v2_store import encode_v2_store
from kvstore.wire.members import decode_member
from kvstore.wire.varint import WireError


def snapshot_of(position: bytes) -> Snapshot:
    """Return raft's snapshot of a state at an encoded position; WireError if it is unreadable."""
    try:
        fields = json.loads(position)
        data = encode_v2_store(
            [decode_member(row.encode()) for row in fields["members"]],
            sorted(int(key, 16) for key in fields["removed"]),
            fields["version"],
        )
        conf_state = _conf_state(fields["conf_state"])
        return Snapshot(SnapshotMetadata(conf_state, fields["index"], fields["term"]), data)
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
