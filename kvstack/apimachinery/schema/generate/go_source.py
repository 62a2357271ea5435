"""Reading declarations of types from Go files, as `gofmt` lays them out.

    type DeploymentSpec struct {
        Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,1,opt,name=replicas"`
    }

Structs become lists of `GoField`, all other declarations keep the text of what they stand for, and
constants of string types are kept for the values of enumerations, in each of the forms

    PathTypeExact PathType = "Exact"
    PathTypeExact = PathType("Exact")
    AddressTypeIPv4 = AddressType(v1.IPv4Protocol)

Bodies of functions, struct types without a name and generic types are not read.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_BLOCK_COMMENT: Final = re.compile(r"^\s*/\*.*?\*/", re.DOTALL | re.MULTILINE)
_IMPORT: Final = re.compile(r'^\s*(?:(\w+)\s+)?"([^"]+)"$')
_TYPE: Final = re.compile(r"^type (\w+)(?: (=))? (.+)$")
_FIELD: Final = re.compile(r"^\t([A-Z]\w*(?:, [A-Z]\w*)*)\s+([^`\s].*?)(?:\s+`(.*)`)?$")
_EMBEDDED: Final = re.compile(r"^\t(\*?[\w.]+)(?:\s+`(.*)`)?$")
_TAG: Final = re.compile(r'(\w+):"((?:[^"\\]|\\.)*)"')
_CONSTANT: Final = re.compile(r"^\s*(?:const )?(?!type )(\w+)(?:\s+([\w.]+))?\s*=\s*(\S.*)$")
_CONVERSION: Final = re.compile(r"^([A-Za-z][\w.]*)\((.+)\)$")
_LITERAL: Final = re.compile(r'^"([^"]*)"$')
_NAME: Final = re.compile(r"^(?:\w+\.)?[A-Z]\w*$")


@dataclass(slots=True)
class GoField:
    """One field of a struct; `name` is empty where Go embeds `type`."""

    name: str
    type: str
    tags: dict[str, str]


@dataclass(slots=True)
class GoType:
    """One declared type: a struct with `fields`, or a name for `underlying`."""

    name: str
    fields: list[GoField] = field(default_factory=list)
    underlying: str = ""
    is_alias: bool = False
    markers: tuple[str, ...] = ()
    """Comments that begin with `+`, without it."""


@dataclass(slots=True)
class GoConstant:
    """One constant: either its text, or the name of the constant that it equals."""

    name: str
    type: str
    """Empty: not declared."""
    value: str
    same_as: str = ""
    """Name of a constant of the same package, or `import/path.Name`; empty: `value` counts."""


@dataclass(slots=True)
class GoPackage:
    """The declarations of one package."""

    path: str
    types: dict[str, GoType] = field(default_factory=dict)
    constants: list[GoConstant] = field(default_factory=list)
    """Constants that are texts or refer to other constants."""


def read_package(path: str, files: Iterable[Path]) -> GoPackage:
    """Return the declarations in files of the package with the import path `path`.

    Names of other packages in types are replaced by their import paths: `metav1.Time` becomes
    `k8s.io/apimachinery/pkg/apis/meta/v1.Time`.
    """
    package = GoPackage(path)
    for file in files:
        text = _BLOCK_COMMENT.sub("", file.read_text(encoding="utf-8"))
        lines = text.splitlines()
        imports = _imports(lines)
        for declared in _types(lines):
            declared.underlying = _qualified(declared.underlying, imports)
            for each in declared.fields:
                each.type = _qualified(each.type, imports)
            package.types[declared.name] = declared
        package.constants.extend(_constants(lines, imports))
    return package


def _imports(lines: list[str]) -> dict[str, str]:
    imports: dict[str, str] = {}
    inside = False
    for line in lines:
        if line == "import (":
            inside = True
        elif line == ")":
            inside = False
        elif inside or line.startswith("import "):
            match = _IMPORT.match(line.removeprefix("import"))
            if match:
                path = match[2]
                imports[match[1] or path.rpartition("/")[2]] = path
    return imports


def _types(lines: list[str]) -> Iterator[GoType]:
    comments: list[str] = []
    rest = iter(lines)
    for line in rest:
        match = _TYPE.match(line)
        if match:
            markers = tuple(each[1:] for each in comments if each.startswith("+"))
            declared = GoType(match[1], is_alias=bool(match[2]), markers=markers)
            text = match[3].partition(" //")[0].rstrip()
            if text == "struct {":
                declared.fields = list(_fields(rest))
            elif text != "struct{}":
                declared.underlying = text
            if text not in {"struct {", "interface {"} and text.endswith("{"):
                raise ValueError(f"cannot read the type {match[1]}: {text}")
            yield declared
        if line.startswith("//"):
            comments.append(line[2:].strip())
        elif line:
            comments.clear()


def _fields(rest: Iterator[str]) -> Iterator[GoField]:
    for raw in rest:
        if raw == "}":
            return
        line = raw if "`" in raw else raw.partition("//")[0].rstrip()
        if "`" in line:
            line = line[: line.rindex("`") + 1]
        if not line.strip() or line.lstrip().startswith("//"):
            continue
        match = _EMBEDDED.match(line)
        if match:
            yield GoField("", match[1], _tags(match[2]))
            continue
        match = _FIELD.match(line)
        if match and not match[2].endswith("{"):
            for name in match[1].split(", "):
                yield GoField(name, match[2], _tags(match[3]))
        elif line[1:2].isupper():  # unexported names are used in their package only
            raise ValueError(f"cannot read the field {raw!r}")


def _tags(text: str | None) -> dict[str, str]:
    return dict(_TAG.findall(text or ""))


def _constants(lines: list[str], imports: dict[str, str]) -> Iterator[GoConstant]:
    for line in lines:
        match = _CONSTANT.match(line.partition(" //")[0].rstrip())
        if match is None:
            continue
        name, declared, text = match[1], match[2] or "", match[3]
        conversion = _CONVERSION.match(text)
        if conversion is not None:
            declared, text = declared or conversion[1], conversion[2]
        literal = _LITERAL.match(text)
        if literal is not None:
            yield GoConstant(name, declared, literal[1])
        elif _NAME.match(text):
            package, _, other = text.rpartition(".")
            if not package or package in imports:
                yield GoConstant(
                    name, declared, "", _qualified(text, imports) if package else other
                )


def _qualified(text: str, imports: dict[str, str]) -> str:
    return re.sub(
        r"\b([a-z]\w*)\.([A-Z]\w*)", lambda match: f"{imports[match[1]]}.{match[2]}", text
    )
