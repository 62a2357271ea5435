"""From Go's declarations and the OpenAPI documents to the rows of the tables of types.

Each field has what either of the two says: Go its names, type, number in the message and whether
zero values are left out; the documents what defaults and lists mean to clients.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from kvstack.apimachinery.schema.generate.go_source import GoConstant, GoField, GoPackage, GoType
from kvstack.apimachinery.schema.generate.openapi_documents import beyond_go
from kvstack.apimachinery.schema.generate.packages import openapi_package
from kvstack.apimachinery.schema.generate.text_tables import Row, short_package
from kvstack.apimachinery.schema.openapi.schemas import Schema

FindPackage: TypeAlias = Callable[[str], GoPackage]

_QUALIFIED: Final = re.compile(r"((?:[\w.-]+/)+[\w.-]+)\.([A-Z]\w*)")
_SHORT: Final = {
    "x-kubernetes-list-type": "list",
    "x-kubernetes-list-map-keys": "keys",
    "x-kubernetes-map-type": "map",
    "x-kubernetes-patch-strategy": "strategy",
    "x-kubernetes-patch-merge-key": "merge_key",
    "default": "default",
}


def schemas_of_embedded(
    packages: Iterable[GoPackage], schemas: Mapping[str, Schema]
) -> dict[str, Schema]:
    """Return schemas of structs that are published only as parts of those that embed them."""
    embedded: dict[str, Schema] = {}
    for package in packages:
        for declared in package.types.values():
            schema = schemas.get(f"{openapi_package(package.path)}.{declared.name}", {})
            for field in declared.fields:
                name = _openapi_name(field.type, package)
                is_embedded = not field.name and field.tags.get("json", "")[:1] in {"", ","}
                if schema and is_embedded and name not in schemas:
                    parts = ("properties", "required")
                    embedded[name] = {part: schema[part] for part in parts if part in schema}
    return embedded


def _openapi_name(text: str, package: GoPackage) -> str:
    path, _, name = text.lstrip("*").rpartition(".")
    return f"{openapi_package(path or package.path)}.{name}"


def versioned_rows(
    package: GoPackage, schemas: Mapping[str, Schema], find_package: FindPackage
) -> list[Row]:
    """Return the rows of the types of one package of API types, by name.

    find_package: returns the package of an import path; values of enumerations may stand there.
    """
    prefix = openapi_package(package.path)
    return [
        _versioned(each, package, schemas.get(f"{prefix}.{each.name}", {}), find_package)
        for each in sorted(package.types.values(), key=lambda each: each.name)
        if each.name[0].isupper() and not each.underlying.startswith(("interface", "func"))
    ]


def internal_rows(package: GoPackage) -> list[Row]:
    """Return the rows of the types of one package of internal types, in order of names."""
    return [
        _internal(each)
        for each in sorted(package.types.values(), key=lambda each: each.name)
        if each.name[0].isupper() and not each.underlying.startswith(("interface", "func"))
    ]


def _versioned(
    declared: GoType, package: GoPackage, schema: Schema, find_package: FindPackage
) -> Row:
    row: Row = {"name": declared.name}
    if declared.underlying:
        row["alias" if declared.is_alias else "is"] = _short(declared.underlying)
        if "protobuf.nullable=true" in declared.markers:
            row["message"] = True
        values = [] if declared.is_alias else _enumeration(declared, package, find_package)
        if values:
            row["enum"] = values
        return row
    kinds = schema.get("x-kubernetes-group-version-kind")
    if kinds and declared.name not in {"DeleteOptions", "WatchEvent"}:  # those list all groups
        row["kinds"] = [[each["group"], each["version"], each["kind"]] for each in kinds]
    if "x-kubernetes-map-type" in schema:
        row["map"] = schema["x-kubernetes-map-type"]
    if "x-kubernetes-unions" in schema:
        row["unions"] = schema["x-kubernetes-unions"]
    row["fields"] = [
        _versioned_field(each, schema)
        for each in declared.fields
        if not each.tags.get("json", "").startswith("-")
    ]
    return row


def _versioned_field(field: GoField, schema: Schema) -> Row:
    name, _, options = field.tags.get("json", "").partition(",")
    row: Row = {}
    if field.name or name:
        row["name"] = name or field.name
    row["go"] = field.name or field.type.rpartition(".")[2].lstrip("*")
    row["type"] = _short(field.type)
    number = field.tags.get("protobuf", "").split(",")[1:2]
    if number:
        row["number"] = int(number[0])
    omit = [each for each in ("omitempty", "omitzero") if each in options.split(",")]
    if omit:
        row["omit"] = omit[-1]
    if name in schema.get("required", ()):
        row["required"] = True
    row.update(_declared(schema.get("properties", {}).get(name, {}), field))
    return row


def _declared(schema: Schema, field: GoField) -> Row:
    found: dict[str, Any] = {}
    for key, value in beyond_go(schema).items():
        if key not in _SHORT:
            raise ValueError(f"field {field.name}: {key} in the schema is not known")
        found[_SHORT[key]] = value
    return found


def _internal(declared: GoType) -> Row:
    if declared.underlying:
        key = "alias" if declared.is_alias else "is"
        return {"name": declared.name, key: _short(declared.underlying)}
    rows: list[Row] = []
    for field in declared.fields:
        row: Row = {"go": field.name} if field.name else {"embedded": True}
        row["type"] = _short(field.type)
        if "json" in field.tags:
            row["json"] = field.tags["json"]
        rows.append(row)
    return {"name": declared.name, "fields": rows}


def _enumeration(declared: GoType, package: GoPackage, find_package: FindPackage) -> list[str]:
    if "enum" not in declared.markers:
        return []
    constants = {
        _value(each, package, find_package)
        for each in package.constants
        if each.type == declared.name
    }
    if not constants:
        raise ValueError(f"the enumeration {package.path}.{declared.name} has no values")
    return sorted(constants)


def _value(constant: GoConstant, package: GoPackage, find_package: FindPackage) -> str:
    """Return the text of a constant, which may be that of another one."""
    if not constant.same_as:
        return constant.value
    path, _, name = constant.same_as.rpartition(".")
    home = find_package(path) if path else package
    other = next((each for each in home.constants if each.name == name), None)
    if other is None:
        raise ValueError(
            f"{package.path}.{constant.name} is {constant.same_as}, which is not a string"
        )
    return _value(other, home, find_package)


def _short(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        return f"{short_package(match[1])}.{match[2]}"

    return _QUALIFIED.sub(replace, text)
