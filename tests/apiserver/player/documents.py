"""Bodies of answers, brought into forms that can be compared.

    body_of({"json": …})     → ("json", document)
    body_of({"base64": …})   → ("protobuf", [(field number, value), …]), guessed without a schema
    body_of({"text": …})     → ("text", text)

Left out: descriptions of types and of columns of Tables, ages, which second a managed field was
written in.
"""

import base64
import binascii
import json
import re
import struct
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import yaml

Tree: TypeAlias = list[tuple[int, Any]]

HAS_DESCRIPTIONS: Final = find_spec("kubernetes_validate") is not None
ENVELOPE = b"k8s\0"
PLACEHOLDER = "SERVER-IP:SERVER-PORT"
ADDRESS = "000.0.0.0:00000"  # as long as the recorded address: lengths within protobuf stay right
AGE = re.compile(r"(\d+(ms|[smhdy]))+")
_BASE64 = re.compile(r"[\w+/]+=*")
_YAML_DESCRIPTION = re.compile(r"(?m)^- description: .*\n(?:(?:    .*)?\n)*  ")
_YAML_MANAGED = re.compile(r"(?m)^( *)managedFields:\n((?:\1- .*\n|\1  .*\n)*)")
_YAML_AGE = re.compile(r"(?m)^(\s*- )(\d+(?:ms|[smhdy]))+$")
# Managed fields that are owned anew only when the second has changed.
STAMPS = {
    "f:lastTransitionTime",
    "f:lastPhaseTransitionTime",
    "f:lastUpdateTime",
    "f:lastProbeTime",
    "f:timeAdded",
}
# Fields of ObjectMeta and of its ManagedFieldsEntry, and what those of the latter are called.
_MANAGED_FIELDS = 17
_ENTRY = {1: "manager", 2: "operation", 3: "apiVersion", 6: "fieldsType", 8: "subresource"}
_FIELDS_V1 = 7
_TEXT_WIRE, _VARINT_WIRE = 2, 0
_FIXED = {1: 8, 5: 4}  # wire type → bytes


def packed(body: bytes) -> dict[str, Any]:
    """Return a body as recordings hold it: json, text or base64; nothing for no body."""
    if not body:
        return {}
    try:
        return {"json": json.loads(body)}
    except ValueError:
        pass
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def body_of(answer: dict[str, Any]) -> tuple[str, Any]:
    """Return the kind of an answer's body and the body; ("", None) if there is none."""
    if "json" in answer:
        return "json", answer["json"]
    text = answer.get("text")
    if "base64" in answer:
        raw = base64.b64decode(answer["base64"])
    elif text is None:
        return "", None
    elif text.startswith(ENVELOPE.decode()):
        raw = text.replace(PLACEHOLDER, ADDRESS).encode()
    else:
        raw = text.encode()
    if (tree := _enveloped(raw)) is not None:
        return "protobuf", tree
    if text is not None:
        return _text_or_frame(answer, text)
    found = tree_of(raw)
    return ("protobuf", found) if found else ("bytes", raw.hex())


def _enveloped(raw: bytes) -> Tree | None:
    if raw[:4] == ENVELOPE:
        return tree_of(raw[4:])
    if len(raw) > 4 and struct.unpack(">I", raw[:4])[0] == len(raw) - 4:
        return tree_of(raw[8:] if raw[4:8] == ENVELOPE else raw[4:])
    return None


def _text_or_frame(answer: dict[str, Any], text: str) -> tuple[str, Any]:
    """A frame of the WebSocket protocol base64.binary.k8s.io holds JSON."""
    if "opcode" in answer and _BASE64.fullmatch(text):
        try:
            return "json", json.loads(base64.b64decode(text))
        except (ValueError, binascii.Error):
            return "text", text
    return "text", text


def tree_of(message: bytes) -> Tree | None:
    """Take a protobuf message apart without its schema; None if it is no message."""
    tree: Tree = []
    at = 0
    try:
        while at < len(message):
            key, at = _varint(message, at)
            field, wire = key >> 3, key & 7
            if not field:
                return None
            if wire == _VARINT_WIRE:
                value, at = _varint(message, at)
                tree.append((field, value))
            elif wire == _TEXT_WIRE:
                length, at = _varint(message, at)
                if at + length > len(message):
                    return None
                tree.append((field, _text_or_tree(message[at : at + length])))
                at += length
            elif wire in _FIXED:
                tree.append((field, message[at : at + _FIXED[wire]].hex()))
                at += _FIXED[wire]
            else:
                return None
    except IndexError:
        return None
    return tree


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _text_or_tree(content: bytes) -> Any:
    content = content.removeprefix(ENVELOPE)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(char >= " " or char in "\n\t" for char in text):
        return text.replace(ADDRESS, PLACEHOLDER)
    tree = tree_of(content)
    return content.hex() if tree is None else tree


def is_plain_bookmark(event: dict[str, Any]) -> bool:
    """Tell whether an event is a BOOKMARK that may come at any time."""
    if "json" in event:
        raw = json.dumps(event["json"]).encode()
    elif "base64" in event:
        raw = base64.b64decode(event["base64"])
    else:
        raw = event["text"].encode()
        if event.get("opcode") == 1:
            try:
                raw = base64.b64decode(raw)
            except binascii.Error:
                return False
    return b"BOOKMARK" in raw[:40] and b"k8s.io/initial-events-end" not in raw


def managed_fields(entries: list[Any]) -> Any:
    """Return managedFields as a set.

    Updates of one manager share an entry only if they fell into one second, so they are joined.
    """
    if not all(isinstance(entry, dict) for entry in entries):
        return entries
    found: dict[str, Any] = {}
    for number, entry in enumerate(entries):
        fields = entry.get("fieldsV1", {})
        stripped = _without_stamps(fields)
        if fields and not stripped:
            continue
        parts = ("manager", "operation", "apiVersion", "subresource")
        name = " ".join(str(entry.get(part, "-")) for part in parts)
        if name in found and entry.get("operation") != "Update":
            name += f" #{number}"
        before = found[name]["fieldsV1"] if name in found else {}
        found[name] = {**entry, "fieldsV1": _union(before, stripped)}
    return found


def managed_messages(message: Any) -> tuple[Any, list[Any]]:
    """Take managedFields out of a message; return the rest, and them as JSON has them.

    Their times are left out. Anything but a message is returned as it is.
    """
    if not isinstance(message, list):
        return message, []
    rest, entries = [], []
    for field, value in message:
        entry = _entry_of(value) if field == _MANAGED_FIELDS else None
        if entry is None:
            rest.append((field, value))
        else:
            entries.append(entry)
    return rest, entries


def _entry_of(value: Any) -> dict[str, Any] | None:
    members = dict(value) if isinstance(value, list) else {}
    entry = {name: members[field] for field, name in _ENTRY.items() if members.get(field)}
    if entry.get("operation") not in ("Update", "Apply"):
        return None
    if _FIELDS_V1 in members:
        fields = members[_FIELDS_V1]  # a message that looks like a text where it is short
        text = fields if isinstance(fields, str) else dict(fields)[1]
        entry["fieldsV1"] = json.loads(text[text.index("{") :])
    return entry


def yaml_parts(text: str) -> dict[str, Any]:
    """Take managedFields out of objects in YAML; return the rest of the text, and them."""
    found = [yaml.safe_load(match[2]) for match in _YAML_MANAGED.finditer(text)]
    rest = _YAML_MANAGED.sub(r"\1managedFields\n", text)
    return {"text": rest, "objects": [{"managedFields": each} for each in found]}


def _without_stamps(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_stamps(value)
        for key, value in fields.items()
        if key not in STAMPS and (not value or _without_stamps(value))
    }


def _union(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {**a, **{key: _union(a[key], value) if key in a else value for key, value in b.items()}}


def plain_table(table: dict[str, Any]) -> dict[str, Any]:
    """Return a Table without the descriptions of its columns and without ages."""

    def cell(value: Any) -> Any:
        aged = isinstance(value, str) and (AGE.fullmatch(value) or value == "DAYS")
        return "<age>" if aged else value

    columns, rows = table["columnDefinitions"], table.get("rows")
    if columns:
        columns = [{k: v for k, v in each.items() if k != "description"} for each in columns]
    if isinstance(rows, list):
        rows = [
            {**row, "cells": [cell(each) for each in row["cells"]]}
            if isinstance(row.get("cells"), list)
            else row
            for row in rows
        ]
    return {**table, "columnDefinitions": columns, "rows": rows}


def plain_yaml_table(text: str) -> str:
    """Return a Table in YAML likewise."""
    head, mark, rest = text.partition("\nkind: Table\n")
    return _YAML_DESCRIPTION.sub("- ", head) + mark + _YAML_AGE.sub(r"\1<age>", rest)


def without_descriptions(value: Any) -> Any:
    """Return a document without the members named description that are texts."""
    if isinstance(value, dict):
        return {
            key: without_descriptions(each)
            for key, each in value.items()
            if not (key == "description" and isinstance(each, str))
        }
    return [without_descriptions(each) for each in value] if isinstance(value, list) else value


def openapi_structure(value: Any) -> Any:
    """Return an OpenAPI document without descriptions.

    A reference with a description beside it is an allOf of that one. Where the package with the
    descriptions is not installed, it is a plain reference, and is here.
    """
    bare = without_descriptions(value)
    return bare if HAS_DESCRIPTIONS else _with_plain_references(bare)


def _with_plain_references(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"allOf"} and len(value["allOf"]) == 1:
            return value["allOf"][0]
        return {key: _with_plain_references(each) for key, each in value.items()}
    return [_with_plain_references(each) for each in value] if isinstance(value, list) else value
