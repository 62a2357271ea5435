"""Descriptions of types and fields, which `kubectl explain` prints.

    descriptions = load_descriptions("1.37")
    descriptions.get("io.k8s.api.core.v1.Pod")     → ("Pod is …", {"spec": "Specification of …"})
    descriptions.source                            → "kubernetes-validate v1.37.0"

The texts belong to Kubernetes and are not part of this project. They are read from the package
kubernetes-validate (`pip install kvstack[explain]`) when the first OpenAPI document is made: from
its definitions of the newest release that is not newer than the one that is served. Without the
package there are none, and documents have types without descriptions. The package is not imported.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson

PACKAGE: Final = "kubernetes_validate"
DISTRIBUTION: Final = "kubernetes-validate"

_NONE: Final[tuple[str, Mapping[str, str]]] = ("", {})
_FOLDER: Final = re.compile(r"v(\d+)\.(\d+)\.(\d+)-local")
_FILE_BYTES_MAX: Final = 32 << 20


class Descriptions:
    """The descriptions of types by name."""

    def __init__(
        self, texts: Mapping[str, tuple[str, Mapping[str, str]]], source: str = ""
    ) -> None:
        """Hold (of the type, {field: of the field}) by name of the type; source: whose they are."""
        self._texts = texts
        self.source = source

    def get(self, name: str) -> tuple[str, Mapping[str, str]]:
        """Return the description of a type and those of its fields; empty if there are none."""
        return self._texts.get(name, _NONE)

    def of_field(self, type_name: str, field: str, default: str) -> str:
        """Return the description of a field, or the default if there is none."""
        return self.get(type_name)[1].get(field, default)


@cache
def load_descriptions(version: str) -> Descriptions:
    """Return those for a release such as `1.37`; ValueError: the package's file is not readable."""
    spec = find_spec(PACKAGE)
    roots = [Path(each) for each in (spec and spec.submodule_search_locations) or ()]
    return read_descriptions(roots, version)


def read_descriptions(roots: Iterable[Path], version: str) -> Descriptions:
    """Return the descriptions for a release from folders of the package; empty if missing."""
    folders = [
        each for root in roots for each in (root / "kubernetes-json-schema").glob("v*-local")
    ]
    releases = {
        release: folder
        for folder in folders
        if (release := _release(folder.name)) and release[:2] <= _minor(version)
    }
    if not releases:
        return Descriptions({})
    folder = releases[max(releases)]
    source = f"{DISTRIBUTION} {folder.name.removesuffix('-local')}"
    return Descriptions(_read(folder / "_definitions.json"), source)


def _release(name: str) -> tuple[int, ...]:
    """Return (1, 37, 0) of `v1.37.0-local`; empty: the name is another."""
    found = _FOLDER.fullmatch(name)
    return tuple(map(int, found.groups())) if found else ()


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in version.split(".")[:2])


def _read(file: Path) -> dict[str, tuple[str, Mapping[str, str]]]:
    try:
        return _parse(file)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"descriptions cannot be read from {file}: {error!r}; "
            f"reinstall {DISTRIBUTION}, or uninstall it to serve documents without descriptions"
        ) from error


def _parse(file: Path) -> dict[str, tuple[str, Mapping[str, str]]]:
    size = file.stat().st_size
    if size > _FILE_BYTES_MAX:
        raise ValueError(f"it has {size} bytes; at most {_FILE_BYTES_MAX} are read")
    schemas: dict[str, Any] = orjson.loads(file.read_bytes())["$defs"]
    kept: dict[str, str] = {}  # a text of many types is held once
    return {name: _texts(schema, kept) for name, schema in schemas.items()}


def _texts(schema: dict[str, Any], kept: dict[str, str]) -> tuple[str, Mapping[str, str]]:
    of_fields = {
        name: kept.setdefault(text, text)
        for name, each in schema.get("properties", {}).items()
        if (text := each.get("description"))
    }
    text = schema.get("description", "")
    return kept.setdefault(text, text), of_fields
