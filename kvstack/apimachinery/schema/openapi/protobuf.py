"""OpenAPI documents in protobuf, in the messages `openapi.v2` and `openapi.v3` of gnostic.

    encode_v3(document)    of application/com.github.proto-openapi.spec.v3.v1.0+protobuf
    encode_v2(document)    of application/com.github.proto-openapi.spec.v2.v1.0+protobuf

A table defines the encoding of each member of an object; a member in no table is an error, but for
extensions (`x-…`), which are sent as YAML (JSON is that, too), and so are examples and the like.
Fields are written in ascending order.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from kvstack.apimachinery.schema.protobuf.wire import (
    FIXED64,
    LENGTH,
    VARINT,
    delimited,
    tag,
    varint,
)

Value = Any
"""A value of JSON."""
Encode = Callable[[Value], bytes]
"""Returns the content of a field with a length."""


_FIRST: Final = tag(1, LENGTH)
_SECOND: Final = tag(2, LENGTH)

_V3_SCHEMA: Final = (
    "nullable:1:bool title:9:string multipleOf:10:number maximum:11:number"
    " exclusiveMaximum:12:bool minimum:13:number exclusiveMinimum:14:bool maxLength:15:integer"
    " minLength:16:integer pattern:17:string maxItems:18:integer minItems:19:integer"
    " uniqueItems:20:bool maxProperties:21:integer minProperties:22:integer required:23:[string]"
    " enum:24:[any] type:25:string allOf:26:[Schema?] oneOf:27:[Schema?] anyOf:28:[Schema?]"
    " not:29:Schema items:30:Items properties:31:Properties additionalProperties:32:Additional"
    " default:33:Default description:34:string format:35:string example:7:any x-:36:Extension"
)
_V3: Final = {
    "Document": "openapi:1:string info:2:Info paths:4:Paths components:5:Components",
    "Info": "title:1:string version:6:string",
    "Paths": "*:1:PathItem",
    "PathItem": (
        "get:4:Operation put:5:Operation post:6:Operation delete:7:Operation options:8:Operation"
        " head:9:Operation patch:10:Operation parameters:13:[Parameter?]"
    ),
    "Operation": (
        "tags:1:[string] description:3:string operationId:5:string parameters:6:[Parameter?]"
        " requestBody:7:RequestBody? responses:8:Responses x-:13:Extension"
    ),
    "Parameter": (
        "name:1:string in:2:string description:3:string required:4:bool schema:10:Schema?"
    ),
    "RequestBody": "content:2:MediaTypes required:3:bool",
    "MediaTypes": "*:1:MediaType",
    "MediaType": "schema:1:Schema?",
    "Responses": "*:2:Response?",
    "Response": "description:1:string content:3:MediaTypes",
    "Schema": _V3_SCHEMA,
    "Properties": "*:1:Schema?",
    "Components": "schemas:1:Properties securitySchemes:7:SecuritySchemes",
    "SecuritySchemes": "*:1:SecurityScheme?",
    "SecurityScheme": "type:1:string description:2:string name:3:string in:4:string",
}
_V2: Final = {
    "Document": (
        "swagger:1:string info:2:Info paths:8:Paths definitions:9:Properties"
        " security:12:[Requirement] securityDefinitions:13:SecurityDefinitions"
    ),
    "Info": "title:1:string version:2:string",
    "Paths": "*:2:PathItem",
    "PathItem": (
        "get:2:Operation put:3:Operation post:4:Operation delete:5:Operation options:6:Operation"
        " head:7:Operation patch:8:Operation parameters:9:[Parameter?]"
    ),
    "Operation": (
        "tags:1:[string] description:3:string operationId:5:string produces:6:[string]"
        " consumes:7:[string] parameters:8:[Parameter?] responses:9:Responses schemes:10:[string]"
        " x-:13:Extension"
    ),
    "BodyParameter": (
        "description:1:string name:2:string in:3:string required:4:bool schema:5:Schema"
    ),
    "QueryParameter": (
        "required:1:bool in:2:string description:3:string name:4:string type:6:string"
        " uniqueItems:20:bool"
    ),
    "PathParameter": (
        "required:1:bool in:2:string description:3:string name:4:string type:5:string"
        " uniqueItems:19:bool"
    ),
    "Responses": "*:1:Response?",
    "Response": "description:1:string schema:2:First<Schema>",
    "Schema": (
        "$ref:1:string format:2:string title:3:string description:4:string default:5:any"
        " multipleOf:6:number maximum:7:number exclusiveMaximum:8:bool minimum:9:number"
        " exclusiveMinimum:10:bool"
        " maxLength:11:integer minLength:12:integer pattern:13:string maxItems:14:integer"
        " minItems:15:integer uniqueItems:16:bool maxProperties:17:integer"
        " minProperties:18:integer required:19:[string] enum:20:[any]"
        " additionalProperties:21:Additional type:22:Types items:23:Items properties:25:Properties"
        " example:30:any x-:31:Extension"
    ),
    "Properties": "*:1:Schema",
    "Requirement": "*:1:Strings",
    "SecurityDefinitions": "*:1:SecurityDefinition",
    "ApiKey": "type:1:string name:2:string in:3:string description:4:string",
}
"""For each message: JSON name, number and type of its fields. `*` takes all members as name and
value, `x-` the extensions; `X?` is X or a reference, `[X]` a list."""


def encode_v3(document: Mapping[str, Value]) -> bytes:
    """Return a document of version 3."""
    return _V3_ENCODER.message("Document")(document)


def encode_v2(document: Mapping[str, Value]) -> bytes:
    """Return a document of version 2."""
    return _V2_ENCODER.message("Document")(document)


class _Encoder:
    """Encodes the messages of one table."""

    def __init__(self, table: Mapping[str, str], special: Mapping[str, str]) -> None:
        self._table = table
        self._special = special
        self._made: dict[str, Encode] = {}

    def message(self, name: str) -> Encode:
        """Return what encodes a message, or a value of another type, by its name in the table."""
        found = self._made.get(name)
        if found is None:
            self._made[name] = lambda value: self._made[name](value)
            found = self._made[name] = self._make(name)
        return found

    def _make(self, name: str) -> Encode:
        if name in self._special:
            encode: Encode = getattr(self, self._special[name])
            return encode
        if name.endswith("?"):
            return self._or_reference(name[:-1])
        if name.startswith("First<"):
            inner = self.message(name[6:-1])
            return lambda value: delimited(_FIRST, inner(value))
        rows = dict(self._row(row) for row in self._table[name].split())
        if "*" in rows:
            return rows["*"][1]
        return lambda value: _fields(rows, name, value)

    def _row(self, row: str) -> tuple[str, tuple[int, Encode]]:
        """Return JSON name, number, and what encodes the whole field with its tag."""
        name, number_text, kind = row.split(":")
        number = int(number_text)
        if name == "*":
            return name, (number, self._named(number, kind))
        if kind == "Extension":
            return name, (number, lambda value: _extension(number, value))
        if kind in _SCALARS:
            write = _SCALARS[kind]
            return name, (number, lambda value: write(number, value))
        if kind.startswith("["):
            return name, (number, self._list(number, kind[1:-1]))
        encode = self.message(kind)
        start = tag(number, LENGTH)
        return name, (number, lambda value: delimited(start, encode(value)))

    def _list(self, number: int, kind: str) -> Encode:
        if kind in _SCALARS:
            write = _SCALARS[kind]
            return lambda value: b"".join(write(number, each) for each in value)
        encode = self.message(kind)
        start = tag(number, LENGTH)
        return lambda value: b"".join(delimited(start, encode(each)) for each in value)

    def _named(self, number: int, kind: str) -> Encode:
        """Return what encodes all members as pairs of name and value."""
        encode = self.message(kind)
        start = tag(number, LENGTH)

        def write(value: Mapping[str, Value]) -> bytes:
            return b"".join(
                delimited(
                    start,
                    delimited(_FIRST, name.encode()) + delimited(_SECOND, encode(each)),
                )
                for name, each in value.items()
            )

        return write

    def _or_reference(self, kind: str) -> Encode:
        encode = self.message(kind)

        def write(value: Mapping[str, Value]) -> bytes:
            if isinstance(value.get("$ref"), str):
                return delimited(_SECOND, delimited(_FIRST, value["$ref"].encode()))
            return delimited(_FIRST, encode(value))

        return write

    def _items(self, value: Value) -> bytes:
        return delimited(_FIRST, self.message(self._special["@Schema"])(value))

    def _additional(self, value: Value) -> bytes:
        if isinstance(value, bool):
            return _bool(2, value)
        return delimited(_FIRST, self.message(self._special["@Schema"])(value))

    def _default(self, value: Value) -> bytes:
        if isinstance(value, bool):
            return tag(2, VARINT) + (b"\1" if value else b"\0")
        if isinstance(value, (int, float)):
            return tag(1, FIXED64) + struct.pack("<d", value)
        return delimited(tag(3, LENGTH), value.encode()) if isinstance(value, str) else b""

    def _types(self, value: Value) -> bytes:
        return delimited(_FIRST, value.encode())

    def _strings(self, value: Value) -> bytes:
        return b"".join(delimited(_FIRST, each.encode()) for each in value)

    def _parameter(self, value: Mapping[str, Value]) -> bytes:
        """Return a parameter of version 2: in the body, or one of two sorts of others."""
        if value["in"] == "body":
            return delimited(_FIRST, self.message("BodyParameter")(value))
        number, name = (4, "PathParameter") if value["in"] == "path" else (3, "QueryParameter")
        return delimited(_SECOND, delimited(tag(number, LENGTH), self.message(name)(value)))

    def _security_definition(self, value: Value) -> bytes:
        return delimited(_SECOND, self.message("ApiKey")(value))


def _fields(rows: Mapping[str, tuple[int, Encode]], message: str, value: Value) -> bytes:
    parts: list[tuple[int, bytes]] = []
    extensions: dict[str, Value] = {}
    for name, member in value.items():
        if name.startswith("x-"):
            extensions[name] = member
        elif name not in rows:
            raise ValueError(f"{message} has no member {name}")
        else:
            number, encode = rows[name]
            parts.append((number, encode(member)))
    if extensions:
        number, encode = rows["x-"]
        parts.append((number, encode(extensions)))
    return b"".join(part for _, part in sorted(parts))


def _extension(number: int, value: Mapping[str, Value]) -> bytes:
    start = tag(number, LENGTH)
    return b"".join(
        delimited(start, delimited(_FIRST, name.encode()) + delimited(_SECOND, _yaml(each)))
        for name, each in value.items()
    )


def _yaml(value: Value) -> bytes:
    return delimited(_SECOND, orjson.dumps(value) + b"\n")


def _string(number: int, value: str) -> bytes:
    return delimited(tag(number, LENGTH), value.encode()) if value else b""


def _bool(number: int, value: object) -> bytes:
    return tag(number, VARINT) + b"\1" if value else b""


def _integer(number: int, value: int) -> bytes:
    return tag(number, VARINT) + varint(value) if value else b""


def _number(number: int, value: float) -> bytes:
    return tag(number, FIXED64) + struct.pack("<d", value) if value else b""


def _any(number: int, value: Value) -> bytes:
    return delimited(tag(number, LENGTH), _yaml(value))


_SCALARS: Final[Mapping[str, Callable[[int, Value], bytes]]] = {
    "string": _string,
    "bool": _bool,
    "integer": _integer,
    "number": _number,
    "any": _any,
}
_V3_ENCODER: Final = _Encoder(
    _V3,
    {"Items": "_items", "Additional": "_additional", "Default": "_default", "@Schema": "Schema?"},
)
_V2_ENCODER: Final = _Encoder(
    _V2,
    {
        "Items": "_items",
        "Additional": "_additional",
        "Types": "_types",
        "Strings": "_strings",
        "Parameter": "_parameter",
        "SecurityDefinition": "_security_definition",
        "@Schema": "Schema",
    },
)
