"""The envelope of protobuf bodies, stored values and watch events.

    k8s\\0 + runtime.Unknown {1: {1: apiVersion, 2: kind}, 2: object, 3: encoding, 4: content type}

Kind and version are only in the envelope, also for Status errors and lists; the objects in a
list have neither. A frame of a watch has no envelope of its own, but the object in it has.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kvstack.apimachinery.schema.protobuf.leaves import contents
from kvstack.apimachinery.schema.protobuf.wire import LENGTH, ProtobufError, delimited, tag

MAGIC: Final = b"k8s\0"

_FIRST: Final = tag(1, LENGTH)
_SECOND: Final = tag(2, LENGTH)
_NO_ENCODING: Final = delimited(tag(3, LENGTH), b"") + delimited(tag(4, LENGTH), b"")


class Envelope(NamedTuple):
    """A message with its kind and version."""

    api_version: str
    kind: str
    content: bytes
    content_encoding: str = ""
    content_type: str = ""


def wrap(api_version: str, kind: str, content: bytes) -> bytes:
    """Return a message in its envelope."""
    meta = delimited(_FIRST, api_version.encode()) + delimited(_SECOND, kind.encode())
    return b"".join((MAGIC, delimited(_FIRST, meta), delimited(_SECOND, content), _NO_ENCODING))


def unwrap(data: bytes) -> Envelope:
    """Return the contents of an envelope; ProtobufError if it is invalid or truncated."""
    if data[:4] != MAGIC:
        raise ProtobufError(
            "provided data does not appear to be a protobuf message, expected prefix"
            f" [{' '.join(str(byte) for byte in MAGIC)}]"
        )
    outer = dict(contents(data, len(MAGIC), len(data)))
    meta = outer.get(1, b"")
    names = dict(contents(meta, 0, len(meta)))
    return Envelope(
        _text(names.get(1, b"")),
        _text(names.get(2, b"")),
        outer.get(2, b""),
        _text(outer.get(3, b"")),
        _text(outer.get(4, b"")),
    )


def watch_frame(event_type: str, enveloped: bytes) -> bytes:
    """Return one event of a watch stream, its length of four bytes in front."""
    event = delimited(_FIRST, event_type.encode()) + delimited(
        _SECOND, delimited(_FIRST, enveloped)
    )
    return len(event).to_bytes(4, "big") + event


def list_content(metadata: bytes, items: Iterable[bytes]) -> bytes:
    """Return the message of a list from those of its metadata and items.

    Fields 1 and 2, as in all lists but PartialObjectMetadataList of meta.k8s.io/v1beta1.
    """
    return b"".join(
        (delimited(_FIRST, metadata), *(delimited(_SECOND, content) for content in items))
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
