"""From the text tables to the one data file that `kvstack.apimachinery.schema.load` reads.

    {"nodes": [node, …], "names": {OpenAPI name: index of a node}, "resources": [row, …]}

A node is one type, written as an array:

    [shape, Go kind, name, message?, map type, fields, embedded structs, extra]   a struct
    [shape, Go kind, element, list type, list keys, map type, message]            a list or map
    [shape, Go kind, name, type it may hold]                                 a form of its own
    [shape, Go kind, "", list type, values of an enumeration]                any other
    field    [JSON name, Go name, node, number, flags, extra?]

References are indices, so that the loader can build types when they are asked for. Trailing zeros,
empty texts and lists are cut off.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from kvstack.apimachinery.schema.generate import text_tables
from kvstack.apimachinery.schema.generate.packages import openapi_package, protobuf_package
from kvstack.apimachinery.schema.generate.text_tables import Row
from kvstack.apimachinery.schema.load import EMBEDDED, OMITS, POINTER, REQUIRED
from kvstack.apimachinery.schema.types import Shape

_BASIC: Final = {
    "string": Shape.STRING,
    "bool": Shape.BOOL,
    "int32": Shape.INT32,
    "int64": Shape.INT64,
    "int": Shape.INT64,
    "uint32": Shape.INT64,
    "uint16": Shape.INT32,
    "uint8": Shape.INT32,
    "float64": Shape.FLOAT64,
    "time.Duration": Shape.INT64,
    "any": Shape.RAW,
    "interface{}": Shape.RAW,
}
_BASIC_KINDS: Final = {"any": "interface {}", "interface{}": "interface {}"}
_LEAVES: Final = {
    "api/resource.Quantity": Shape.QUANTITY,
    "intstr.IntOrString": Shape.INT_OR_STRING,
    "meta/v1.Time": Shape.TIME,
    "meta/v1.MicroTime": Shape.MICRO_TIME,
    "meta/v1.Duration": Shape.DURATION,
    "meta/v1.FieldsV1": Shape.FIELDS_V1,
    "runtime.RawExtension": Shape.RAW,
    "runtime.Object": Shape.RAW,
    "apiextensions/v1.JSON": Shape.RAW,
    "apiextensions/v1beta1.JSON": Shape.RAW,
}
_HOLDERS: Final = frozenset(
    f"apiextensions/{version}.JSONSchemaPropsOr{other}"
    for version in ("v1", "v1beta1")
    for other in ("Array", "Bool", "StringArray")
)
"""Types that write themselves as a JSONSchemaProps or as something else."""
_ALWAYS_WRITTEN: Final = frozenset(
    {
        Shape.STRUCT,
        Shape.TIME,
        Shape.MICRO_TIME,
        Shape.DURATION,
        Shape.QUANTITY,
        Shape.INT_OR_STRING,
        Shape.RAW,
        Shape.FIELDS_V1,
    }
)  # Go structs: omitempty does not leave them out
_ROOTS: Final = frozenset({"version.Info", "meta/v1.Patch"})
_QUALIFIED: Final = re.compile(r"^(?:([\w./-]+)\.)?([A-Z]\w*)$")
_MAP: Final = re.compile(r"^map\[([\w./-]+)\](.+)$")


def compile_tables(sources: Path = text_tables.SOURCES) -> bytes:
    """Return the data file of the text tables in a folder."""
    types = _Types(sources / "types")
    for name in types.roots():
        types.node(name)
    for group, version, kind, name in text_tables.read(sources / "kinds.json"):
        types.add_kind(group, version, kind, name)
    storage = text_tables.read(sources / "storage.json")
    selectable = text_tables.read(sources / "selectable.json")
    columns = _columns(sources)
    resources = [
        _resource(row, storage, selectable, columns)
        for row in text_tables.read(sources / "resources.json")
    ]
    return orjson.dumps(
        {
            "nodes": types.nodes,
            "names": dict(sorted(types.names.items())),
            "kinds": sorted(types.kinds),
            "resources": resources,
            "priorities": text_tables.read(sources / "priorities.json"),
        }
    )


def compile_internal(sources: Path = text_tables.SOURCES) -> bytes:
    """Return the data file of the internal types: {name: text, or [[Go name, type, JSON tag?]]}."""
    compiled: dict[str, Any] = {}
    for file in sorted((sources / "internal").glob("*.json")):
        table = text_tables.read(file)
        short = text_tables.short_package(table["package"])
        for row in table["types"]:
            text = row.get("alias", row.get("is"))
            fields = [
                [each.get("go", ""), each["type"], *([each["json"]] if "json" in each else [])]
                for each in row.get("fields", ())
            ]
            compiled[f"{short}.{row['name']}"] = fields if text is None else text
    return orjson.dumps(compiled)


class _Types:
    """Numbers the types that are used, each once; `api/resource.Quantity` style names."""

    def __init__(self, folder: Path) -> None:
        self.nodes: list[list[Any]] = []
        self.names: dict[str, int] = {}
        self.kinds: list[list[str]] = []
        self._rows: dict[str, Row] = {}
        self._paths: dict[str, str] = {}
        self._known: dict[tuple[object, ...], int] = {}
        for file in sorted(folder.glob("*.json")):
            table = text_tables.read(file)
            short = text_tables.short_package(table["package"])
            self._paths[short] = table["package"]
            for row in table["types"]:
                self._rows[f"{short}.{row['name']}"] = row

    def roots(self) -> Iterator[str]:
        """Names of the structs that are messages, or bodies on their own."""
        for name, row in self._rows.items():
            fields = row.get("fields", ())
            if name in _LEAVES or name in _HOLDERS:
                continue
            if name in _ROOTS or any(
                "number" in each or each["type"] == "meta/v1.TypeMeta" for each in fields
            ):
                yield name
            for kind in row.get("kinds", ()):
                self.kinds.append([*kind, self._openapi_name(name)])

    def add_kind(self, group: str, version: str, kind: str, name: str) -> None:
        """Say what the objects of a kind are that no OpenAPI document names."""
        self.node(name)
        self.kinds.append([group, version, kind, self._openapi_name(name)])

    def node(self, text: str, package: str = "", **listing: object) -> int:
        """Return the index of the type that Go writes as `text` within a package."""
        text = text.lstrip("*")
        if text == "[]byte":
            return self._add(Shape.BYTES, "[]uint8", "", listing.get("list", ""))
        if text.startswith("[]"):
            element = self.node(text[2:], package)
            return self._list(f"[]{self._go_kind(text[2:], package)}", element, listing)
        match = _MAP.match(text)
        if match:
            element = self.node(match[2], package)
            kind = f"map[{self._go_kind(match[1], package)}]{self._go_kind(match[2], package)}"
            return self._map(kind, element, listing)
        if text in _BASIC:
            return self._add(_BASIC[text], _BASIC_KINDS.get(text, text))
        return self._named(text, package, listing)

    def _named(self, text: str, package: str, listing: Row) -> int:
        name = self._full_name(text, package)
        kind = self._go_kind(text, package)
        if name in _LEAVES or name in _HOLDERS:
            return self._leaf(name, kind)
        row = self._rows[name]
        own = name.rpartition(".")[0]
        if "alias" in row:
            return self.node(row["alias"], own, **listing)
        if "is" not in row:
            return self._struct(name, row, own)
        base = self.nodes[self.node(row["is"], own)]
        shape = Shape(base[0])
        if shape is Shape.STRUCT:
            other = self._full_name(row["is"], own)
            return self._struct(name, self._rows[other], other.rpartition(".")[0])
        message = self._message(name) if row.get("message") else ""
        if shape is Shape.LIST:
            return self._list(kind, base[2], listing, message)
        if shape is Shape.MAP:
            return self._map(kind, base[2], listing)
        return self._add(shape, kind, "", "", row.get("enum", []))

    def _leaf(self, name: str, kind: str) -> int:
        openapi = self._openapi_name(name)
        index = self.names.get(openapi)
        if index is None:
            node: list[Any] = [_LEAVES.get(name, Shape.RAW).value, kind, openapi]
            index = self.names[openapi] = len(self.nodes)
            self.nodes.append(node)
            if name in _HOLDERS:
                package, _, last = name.rpartition(".")
                node.append(self.node(last.partition("Or")[0], package))
        return index

    def _struct(self, name: str, row: Row, package: str) -> int:
        openapi = self._openapi_name(name)
        if openapi in self.names:
            return self.names[openapi]
        index = self.names[openapi] = len(self.nodes)
        node: list[Any] = []
        self.nodes.append(node)
        fields, embedded = self._fields(row, package)
        is_message = not fields or any("number" in each for each in row["fields"])
        kind, map_type = self._go_kind(name, ""), row.get("map", "")
        node += [Shape.STRUCT.value, kind, openapi, int(is_message), map_type, fields, embedded]
        node.append({key: row[key] for key in ("kinds", "unions") if key in row})
        return index

    def _fields(self, row: Row, package: str) -> tuple[list[list[Any]], list[list[int]]]:
        fields: list[list[Any]] = []
        embedded: list[list[int]] = []
        for field in row["fields"]:
            if "name" in field:
                fields.append(self._field(field, package))
                continue
            index = self.node(field["type"], package)
            if "number" in field:
                embedded.append([field["number"], index])
            below = self.nodes[index]
            fields.extend(_promoted(inner, field["go"]) for inner in below[5])
        return fields, embedded

    def _field(self, row: Row, package: str) -> list[Any]:
        text = row["type"]
        index = self.node(text, package, **_listing(row))
        if _listing(row):
            index = self._merged(index, _listing(row))
        is_pointer = text.startswith("*")
        omit = row.get("omit", "")
        omits = bool(omit) and (
            is_pointer or omit == "omitzero" or Shape(self.nodes[index][0]) not in _ALWAYS_WRITTEN
        )
        flags = POINTER * is_pointer | OMITS * omits | REQUIRED * row.get("required", False)
        extra = {key: row[key] for key in ("default", "strategy", "merge_key") if key in row}
        return _trimmed([row["name"], row["go"], index, row.get("number", 0), flags, extra])

    def _merged(self, index: int, listing: Row) -> int:
        """Return the index of a type with the merge rule of one field: `map` on a struct."""
        node = self.nodes[index]
        shape = Shape(node[0])
        if shape in {Shape.LIST, Shape.MAP, Shape.BYTES}:
            return index
        if shape is not Shape.STRUCT or set(listing) != {"map"}:
            raise ValueError(f"{node[1]} cannot be merged as {listing}")
        return self._add(*[shape, *node[1:4], listing["map"], *node[5:]])

    def _list(self, kind: str, element: int, listing: Row, message: str = "") -> int:
        keys = listing.get("keys", [])
        list_type = listing.get("list", "")
        return self._add(Shape.LIST, kind, element, list_type, keys, "", message)

    def _map(self, kind: str, element: int, listing: Row) -> int:
        return self._add(Shape.MAP, kind, element, "", [], listing.get("map", ""))

    def _add(self, shape: Shape, kind: str, *rest: object) -> int:
        row = _trimmed([shape.value, kind, *rest])
        key = (shape, repr(row))
        index = self._known.get(key)
        if index is None:
            index = self._known[key] = len(self.nodes)
            self.nodes.append(row)
        return index

    def _full_name(self, text: str, package: str) -> str:
        match = _QUALIFIED.match(text)
        if match is None:
            raise ValueError(f"{package}: cannot read the type {text}")
        return text if match[1] else f"{package}.{text}"

    def _go_kind(self, text: str, package: str) -> str:
        """Return what Go's reflection calls the type: `[]v1.Container`."""
        for prefix in ("*", "[]"):
            if text.startswith(prefix) and text != "[]byte":
                return prefix + self._go_kind(text[len(prefix) :], package)
        if text == "[]byte":
            return "[]uint8"
        match = _MAP.match(text)
        if match:
            return f"map[{self._go_kind(match[1], package)}]{self._go_kind(match[2], package)}"
        if text in _BASIC:
            return _BASIC_KINDS.get(text, text)
        full = self._full_name(text, package)
        row = self._rows.get(full, {})
        if "alias" in row:
            return self._go_kind(row["alias"], full.rpartition(".")[0])
        folder, _, name = full.rpartition(".")
        return f"{folder.rpartition('/')[2]}.{name}"

    def _openapi_name(self, name: str) -> str:
        package, _, last = name.rpartition(".")
        return f"{openapi_package(self._paths[package])}.{last}"

    def _message(self, name: str) -> str:
        package, _, last = name.rpartition(".")
        return f"{protobuf_package(self._paths[package])}.{last}"


def _promoted(field: list[Any], by: str) -> list[Any]:
    """Return a field of an embedded struct as one of the struct that embeds it."""
    name, go, index = field[:3]
    flags = field[4] if len(field) > 4 else 0
    extra = field[5] if len(field) > 5 else {}
    embeds = [by, *extra.get("embeds", ())]
    return [name, go, index, 0, flags | EMBEDDED, {**extra, "embeds": embeds}]


def _listing(row: Row) -> Row:
    """Return how server-side apply merges the lists and maps of a field."""
    return {key: row[key] for key in ("list", "keys", "map") if key in row}


def _columns(sources: Path) -> Row:
    """Return the columns of each kind, described where a description is known."""
    texts = text_tables.read(sources / "column_descriptions.json")
    return {
        kind: [
            {**column, "description": texts[column["name"]]} if column["name"] in texts else column
            for column in columns
        ]
        for kind, columns in text_tables.read(sources / "columns.json").items()
    }


def _resource(row: Row, storage: Row, selectable: Row, columns: Row) -> Row:
    name = row["resource"] if not row["group"] else f"{row['resource']}.{row['group']}"
    stored = dict(storage.get(name, {}))
    if stored:
        group = stored.get("group", row["group"])
        written = f"{group}/{stored['version']}/{row['kind']}"
        digest = base64.b64encode(hashlib.sha256(written.encode()).digest()[:8]).decode()
        if digest != row["storageVersionHash"]:
            raise ValueError(f"{name} is not stored as {written}: another storageVersionHash")
    compiled = {**row, "storage": stored, "columns": columns.get(row["kind"], [])}
    compiled["below"] = [
        {**each, "columns": columns.get(each["kind"], [])}
        for each in compiled.pop("subresources", [])
    ]
    if name in selectable:
        compiled["selectable"] = selectable[name]
    return compiled


def _trimmed(values: Iterable[object]) -> list[Any]:
    found = list(values)
    while found and found[-1] in (0, "", [], {}, None, False):
        found.pop()
    return found
