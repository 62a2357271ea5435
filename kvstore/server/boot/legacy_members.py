"""Corrects the member list of a state that etcd 3.5 may have written.

    members as of the log's snapshot     from its v2 store, none if there is no snapshot
    entries up to the applied index      membership changes, published attributes
    rows that differ                     are rewritten and logged

Such a state has no storage version. Early 3.5 wrote neither promotions nor what members publish
into its `members` table; raft's configuration is made from that table, so a promoted learner would
not be counted as a voter.
"""

from collections.abc import Sequence
from pathlib import Path

from kvstack.component.errors import ComponentError
from kvstack.component.logger import Logger
from kvstore.apply.membership import Membership
from kvstore.backend import Backend, Table
from kvstore.meta_rows import CONSISTENT_INDEX_KEY
from kvstore.raft.model import Entry, EntryType
from kvstore.storage.files import Files
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.storage.snapshots.file import list_snapshot_files, read_snapshot_file
from kvstore.wire.gen import membership_pb2
from kvstore.wire.internal import Field, decode_v2_request, unwrap
from kvstore.wire.raft_codec import decode_conf_change
from kvstore.wire.v2_members import V2Members, decode_attributes, decode_v2_members
from kvstore.wire.varint import WireError


def correct_members(
    backend: Backend,
    snap_dir: Path,
    snapshot_index: int,
    entries: Sequence[Entry],
    learners_max: int,
    logger: Logger,
    files: Files,
) -> None:
    """Correct the rows of members; if the snapshot cannot be read, log it and keep the rows.

    Args: snap_dir, the directory of the snapshot files; snapshot_index, where the log begins, 0 for
    the beginning; entries, those of the log after it.
    """
    applied = int.from_bytes(backend.get(Table.META, CONSISTENT_INDEX_KEY) or b"", "big")
    try:
        recorded = _as_of_snapshot(snap_dir, snapshot_index, files)
        recorded = _replayed(recorded, entries, applied, learners_max)
    except (ComponentError, WireError) as error:
        logger.warning("using the members of the database's rows", error=str(error))
        return
    rows = Membership(backend, learners_max=learners_max)
    rows.restore()
    wrong = rows.correct(recorded)
    if wrong:
        members = [f"{each:x}" for each in wrong]
        logger.info("corrected rows of members by the log", members=members)


def _as_of_snapshot(snap_dir: Path, index: int, files: Files) -> V2Members:
    if index == 0:
        return V2Members({}, set())
    for each in list_snapshot_files(snap_dir, files):
        if each.index == index:
            return decode_v2_members(read_snapshot_file(each.path, files).data)
    raise WireError(f"{snap_dir} has no snapshot of index {index}")


def _replayed(
    recorded: V2Members, entries: Sequence[Entry], applied: int, learners_max: int
) -> V2Members:
    """Return the members after the entries that are applied."""
    members = Membership(MemoryBackend(), learners_max=learners_max)
    members.correct(recorded)
    for entry in entries:
        if entry.index > applied:
            break
        if entry.type == EntryType.CONF_CHANGE:
            members.change(decode_conf_change(entry.data))
        elif entry.data:
            _publish(members, entry.data)
    return V2Members(members.members, members.removed)


def _publish(members: Membership, data: bytes) -> None:
    """Apply an entry that publishes the attributes of a member, of the v2 or the v3 kind."""
    try:
        field, body, _ = unwrap(data)
    except WireError:
        request = decode_v2_request(data)
        attributes = decode_attributes(request.path, request.val)
        if attributes is not None:
            members.set_attributes(*attributes)
        return
    if field == Field.CLUSTER_MEMBER_ATTR_SET:
        attr_set = membership_pb2.ClusterMemberAttrSetRequest.FromString(body)
        urls = list(attr_set.member_attributes.client_urls)
        members.set_attributes(attr_set.member_ID, attr_set.member_attributes.name, urls)
