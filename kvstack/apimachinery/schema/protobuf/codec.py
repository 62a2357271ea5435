"""Objects to protobuf and back, by their types.

    content = to_protobuf(deployment, type_)         the message alone
    body = encode(deployment, type_)                 in its envelope
    from_protobuf(unwrap(body).content, type_)       == deployment, without kind and apiVersion

Objects must be as `decode` makes them. What is written is, byte by byte, what Go's generated code
writes for the same object.
"""

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.protobuf.envelope import wrap
from kvstack.apimachinery.schema.protobuf.reader import reader
from kvstack.apimachinery.schema.protobuf.wire import ProtobufError
from kvstack.apimachinery.schema.protobuf.writer import writer
from kvstack.apimachinery.schema.types import Type


def to_protobuf(obj: Object, type_: Type) -> bytes:
    """Return the message of an object."""
    return writer(type_)(obj)


def from_protobuf(content: bytes, type_: Type) -> Object:
    """Return the object of a message, without kind and apiVersion; raises ProtobufError."""
    try:
        obj: Object = reader(type_)(content, 0, len(content))
    except IndexError:
        raise ProtobufError("unexpected EOF") from None
    except RecursionError:
        raise ProtobufError("messages are nested too deeply") from None
    return obj


def encode(obj: Object, type_: Type) -> bytes:
    """Return an object that has kind and apiVersion in its envelope."""
    return wrap(obj["apiVersion"], obj["kind"], to_protobuf(obj, type_))
