"""Requests and durations as text for log lines, as in etcd's, without values and secrets.

    loggable(put)                put:<key:"a" value_size:3>
    loggable_entry(TXN, body)    txn:<compare:<...> success:<request_put:<...>> failure:<>>
    duration_text(1_234_567)     1.234567ms

Values are replaced by their sizes, passwords and tokens are omitted. The text is cut at
TEXT_CHARS_MAX. Keys are shown.
"""

from typing import Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.text_encoding import CEscape

from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field

TEXT_CHARS_MAX: Final = 2048
_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_MINUTE_NS: Final = 60_000_000_000

_NAMES: Final = {int(field): field.name.lower() for field in Field}
# The requests that may be shown, some shortened; of any other only the kind is.
_SHOWN: Final[dict[int, tuple[str, type[Message]]]] = {
    Field.RANGE: ("range", pb.RangeRequest),
    Field.PUT: ("put", pb.PutRequest),
    Field.DELETE_RANGE: ("delete_range", pb.DeleteRangeRequest),
    Field.TXN: ("txn", pb.TxnRequest),
    Field.COMPACTION: ("compaction", pb.CompactionRequest),
    Field.LEASE_GRANT: ("lease_grant", pb.LeaseGrantRequest),
    Field.LEASE_REVOKE: ("lease_revoke", pb.LeaseRevokeRequest),
    Field.LEASE_CHECKPOINT: ("lease_checkpoint", pb.LeaseCheckpointRequest),
    Field.ALARM: ("alarm", pb.AlarmRequest),
}


def loggable(request: Message) -> str:
    """Return the text of a Range, Put, DeleteRange, Txn or other request without secrets."""
    return _cut(_text(request))


def loggable_entry(field: int, body: bytes) -> str:
    """Return the text of a request by its field in InternalRaftRequest."""
    shown = _SHOWN.get(field)
    if shown is None:
        return _NAMES.get(field, str(field))
    name, kind = shown
    try:
        return _cut(f"{name}:<{_text(kind.FromString(body))}>")
    except DecodeError:
        return name


def duration_text(duration_ns: int) -> str:
    """Return a duration as Go prints it: "0s", "1.5ms", "2m3s"."""
    if duration_ns == 0:
        return "0s"
    sign, left_ns = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    minutes, seconds_ns = divmod(left_ns, _MINUTE_NS)
    if minutes:
        hours, minutes = divmod(minutes, 60)
        head = f"{hours}h{minutes}m" if hours else f"{minutes}m"
        return f"{sign}{head}{_decimal(seconds_ns, 1_000_000_000)}s"
    unit_ns, unit = next(each for each in _UNITS if left_ns >= each[0])
    return f"{sign}{_decimal(left_ns, unit_ns)}{unit}"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}" if rest else str(whole)


def _cut(text: str) -> str:
    if len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{text[:TEXT_CHARS_MAX]}... ({len(text)} characters)"


def _text(request: Message) -> str:
    if isinstance(request, pb.PutRequest):
        return _put_text(request)
    if isinstance(request, pb.TxnRequest):
        return _txn_text(request)
    return _plain(request)


def _plain(message: Message) -> str:
    """Return a message as Go prints it: fields that are set, in the order of their numbers."""
    return " ".join(
        f"{field.name}:{_value_text(field, each)}"
        for field, value in message.ListFields()
        for each in (value if field.is_repeated else (value,))
    )


def _value_text(field: FieldDescriptor, value: object) -> str:
    if isinstance(value, Message):
        return f"{{{_plain(value)}}}"
    if isinstance(value, bytes):
        return f'"{CEscape(value, as_utf8=False)}"'
    if isinstance(value, str):
        return f'"{CEscape(value.encode(), as_utf8=True)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if field.enum_type is not None and isinstance(value, int):
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return str(value)


def _put_text(request: pb.PutRequest) -> str:
    rest = pb.PutRequest()
    rest.CopyFrom(request)
    rest.ClearField("value")
    size = f"value_size:{len(request.value)}" if request.value else ""
    return " ".join(part for part in (_plain(rest), size) if part)


def _txn_text(request: pb.TxnRequest) -> str:
    compares = " ".join(map(_compare_text, request.compare))
    success = " ".join(map(_op_text, request.success))
    failure = " ".join(map(_op_text, request.failure))
    return f"compare:<{compares}> success:<{success}> failure:<{failure}>"


def _compare_text(compare: pb.Compare) -> str:
    if compare.WhichOneof("target_union") != "value":
        return _plain(compare)
    rest = pb.Compare()
    rest.CopyFrom(compare)
    rest.ClearField("value")
    return f"{_plain(rest)} value_size:{len(compare.value)}"


def _op_text(op: pb.RequestOp) -> str:
    match op.WhichOneof("request"):
        case "request_put":
            return f"request_put:<{_put_text(op.request_put)}>"
        case "request_txn":
            return f"request_txn:<{_txn_text(op.request_txn)}>"
        case _:
            return _plain(op)
