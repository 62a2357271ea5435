"""The log and the state as JSON lines: one object a record or row, in order.

    {"segment":"0000000000000000-0000000000000000.wal","offset":80,"record":"entry","term":1,
     "index":1,"type":"conf_change","change":{…}}
    {"bucket":"key","revision":2,"sub":0,"kv":{"key":"foo","create_revision":2,…}}

At the first record that cannot be read the output ends with an error that names file and offset.
"""

import json
from collections.abc import Iterator

from kvstore.errors import CorruptionError, DataDirError
from kvstore.raft.model import ConfChangeType, Entry, EntryType
from kvstore.storage.row_source import RowSource
from kvstore.storage.wal.record import (
    CRC,
    ENTRY,
    METADATA,
    SNAPSHOT,
    STATE,
    decode_snapshot_body,
)
from kvstore.util.log_reader import LogRecord
from kvstore.util.messages import Json, readable, request_json, row_json
from kvstore.wire.gen import metadata_pb2
from kvstore.wire.members import decode_change_context
from kvstore.wire.raft_codec import (
    decode_conf_change,
    decode_conf_change_v2,
    decode_entry,
    decode_hard_state,
)
from kvstore.wire.varint import WireError


def log_lines(records: Iterator[LogRecord], start_index: int) -> Iterator[str]:
    """Yield a line for each record, entries from start_index on; CorruptionError at a bad one."""
    for record in records:
        line: dict[str, Json] = {"segment": record.path.name, "offset": record.offset}
        try:
            fields = _record(record)
        except (WireError, ValueError) as error:
            raise CorruptionError(
                f"{record.path}: corrupt at offset {record.offset}: {error}"
            ) from error
        index = fields.get("index")
        if fields["record"] == "entry" and isinstance(index, int) and index < start_index:
            continue
        yield json_line(line | fields)


def state_lines(source: RowSource, bucket: str | None) -> Iterator[str]:
    """Yield a line for each row, of one bucket or of all; CorruptionError at a bad one."""
    names = source.buckets()
    if bucket is not None:
        if bucket.encode() not in names:
            known = ", ".join(name.decode(errors="backslashreplace") for name in names)
            raise DataDirError(f"{source.path}: no bucket {bucket!r}; there are {known}")
        names = [bucket.encode()]
    for name in names:
        for row in source.scan(name):
            yield json_line({"bucket": readable(name), **row_of(source, name, row)})


def row_of(source: RowSource, bucket: bytes, row: tuple[bytes, bytes]) -> dict[str, Json]:
    """Return a decoded row; CorruptionError names file, bucket and row if it is invalid."""
    try:
        return row_json(bucket, row)
    except WireError as error:
        where = f"bucket {bucket.decode(errors='backslashreplace')}, row {row[0][:32].hex()}"
        raise CorruptionError(f"{source.path}: {where}: {error}") from error


def json_line(fields: dict[str, Json]) -> str:
    """Return compact JSON."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _record(record: LogRecord) -> dict[str, Json]:
    body = record.body
    if record.kind == CRC:
        return {"record": "crc", "crc": f"{record.crc:08x}"}
    if record.kind == METADATA:
        ids = metadata_pb2.Metadata.FromString(body)
        found: dict[str, Json] = {
            "member_id": f"{ids.NodeID:x}",
            "cluster_id": f"{ids.ClusterID:x}",
        }
        return {"record": "metadata", **found}
    if record.kind == STATE:
        state = decode_hard_state(body)
        return {
            "record": "state",
            "term": state.term,
            "vote": f"{state.vote:x}",
            "commit": state.commit,
        }
    if record.kind == SNAPSHOT:
        snapshot = decode_snapshot_body(body)
        line: dict[str, Json] = {
            "record": "snapshot",
            "term": snapshot.term,
            "index": snapshot.index,
        }
        if snapshot.conf_state is not None:
            line["voters"] = [f"{member:x}" for member in snapshot.conf_state.voters]
            line["learners"] = [f"{member:x}" for member in snapshot.conf_state.learners]
        return line
    assert record.kind == ENTRY
    return _entry(decode_entry(body))


def _entry(entry: Entry) -> dict[str, Json]:
    line: dict[str, Json] = {"record": "entry", "term": entry.term, "index": entry.index}
    if entry.type == EntryType.CONF_CHANGE:
        return line | {"type": "conf_change", "change": _change(entry.data)}
    if entry.type == EntryType.CONF_CHANGE_V2:
        changes = decode_conf_change_v2(entry.data).changes
        steps: list[Json] = [
            {"type": ConfChangeType(step.type).name.lower(), "node_id": f"{step.node_id:x}"}
            for step in changes
        ]
        return line | {"type": "conf_change_v2", "changes": steps}
    line["type"] = "normal"
    if entry.data:
        line["request"] = request_json(entry.data)
    return line


def _change(data: bytes) -> Json:
    if not data:
        return {}
    change = decode_conf_change(data)
    line: dict[str, Json] = {
        "type": ConfChangeType(change.type).name.lower(),
        "node_id": f"{change.node_id:x}",
    }
    if change.id:
        line["id"] = change.id
    if change.context:
        member, is_promotion = decode_change_context(change.context)
        line["peer_urls"] = list(member.peer_urls)
        if member.name:
            line["name"] = member.name
        if member.is_learner:
            line["is_learner"] = True
        if is_promotion:
            line["is_promotion"] = True
    return line
