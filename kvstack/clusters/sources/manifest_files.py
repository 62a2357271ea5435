"""The objects in files of YAML and JSON, with their positions.

    for each in manifests([Path("k8s/")], problems): each.obj, each.at      → {…}, "k8s/web.yaml:12"

Directories are read with all below them, links to directories apart, in the order of their names.
Lists are split. Anything but an object is a problem of its file: an error if the file was named
itself, and otherwise (values of a chart, a kustomization) left out.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.value_limit import TooManyValuesError
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError
from kvstack.apimachinery.objects.text.yaml_text import parse
from kvstack.clusters.contents import LeftOut
from kvstack.clusters.sources.source import SourceError

FILE_BYTES_MAX: Final = 256 << 20
FILES_MAX: Final = 50_000
_SUFFIXES: Final = frozenset((".yaml", ".yml", ".json"))
_BORDER: Final = re.compile(r"^---(?=\s|$)[^\n]*\n?", re.MULTILINE)


class Manifest(NamedTuple):
    """An object of a file."""

    obj: Object
    at: str
    """File and line of its document."""


def manifests(paths: Sequence[Path], left_out: list[LeftOut]) -> Iterator[Manifest]:
    """Yield the objects of files and directories; raises SourceError.

    left_out: contents of directories that are not objects are added to it.
    """
    for path in paths:
        if path.is_dir():
            for file in _files(path):
                yield from _objects(file, left_out)
        else:
            yield from _objects(path, None)


def manifests_of(text: str, name: str) -> Iterator[Manifest]:
    """Yield the objects of a text; name: what errors call it; raises SourceError."""
    for line, document in _parts(text):
        yield from _of_document(document, f"{name}:{line}", None)


def _files(directory: Path) -> list[Path]:
    files: list[Path] = []
    for parent, directories, names in os.walk(directory):
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        files += [
            Path(parent) / name
            for name in sorted(names)
            if Path(name).suffix in _SUFFIXES and not name.startswith(".")
        ]
        if len(files) > FILES_MAX:
            raise SourceError(f"{directory}: more than {FILES_MAX} files")
    if not files:
        raise SourceError(f"{directory}: no file ends in .yaml, .yml or .json")
    return files


def _objects(path: Path, left_out: list[LeftOut] | None) -> Iterator[Manifest]:
    for line, document in _documents(path):
        yield from _of_document(document, f"{path}:{line}", left_out)


def _of_document(document: str, at: str, left_out: list[LeftOut] | None) -> Iterator[Manifest]:
    try:
        value = parse(document.encode()).value
    except (YamlError, TooManyValuesError) as error:
        if left_out is None:
            raise SourceError(f"{at}: {error}") from error
        left_out.append(LeftOut(at, str(error)))
        return
    if value is None:
        return
    try:
        yield from _flattened(value, at)
    except SourceError as error:
        if left_out is None:
            raise
        left_out.append(LeftOut(at, str(error).removeprefix(f"{at}: ")))


def _documents(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the documents of a file, each with the line it begins at."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SourceError(f"{path}: more than {FILE_BYTES_MAX} bytes")
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: {error}") from error
    yield from _parts(text)


def _parts(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for border in _BORDER.finditer(text):
        yield text.count("\n", 0, start) + 1, text[start : border.start()]
        start = border.end()
    yield text.count("\n", 0, start) + 1, text[start:]


def _flattened(value: object, at: str) -> Iterator[Manifest]:
    """Yield an object, or those of a list; raises SourceError for anything else."""
    if not isinstance(value, dict):
        raise SourceError(f"{at}: expected an object")
    kind, api_version = value.get("kind"), value.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(api_version, str) or not kind:
        raise SourceError(f"{at}: it has no apiVersion and kind")
    items = value.get("items")
    if kind.endswith("List") and (isinstance(items, list) or "items" in value):
        for number, item in enumerate(items or ()):
            if not isinstance(item, dict):
                raise SourceError(f"{at}: item {number} is not an object")
            if kind != "List":
                item.setdefault("kind", kind.removesuffix("List"))
                item.setdefault("apiVersion", api_version)
            yield from _flattened(item, f"{at}[{number}]")
        return
    meta = value.get("metadata")
    if not isinstance(meta, dict) or not isinstance(meta.get("name"), str) or not meta["name"]:
        raise SourceError(f"{at}: {kind} has no metadata.name")
    yield Manifest(value, at)
