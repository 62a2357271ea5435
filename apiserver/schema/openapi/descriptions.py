"""Descriptions of types and fields, as `kubectl explain` prints them.

The file is read when the first document is made. Its texts are Kubernetes' own, under the Apache
License 2.0; see NOTICE beside it.
"""

import lzma
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import orjson

DATA: Final = Path(__file__).resolve().parent.parent / "data" / "descriptions.json.xz"

_NONE: Final[tuple[str, Mapping[str, str]]] = ("", {})


class Descriptions:
    """The descriptions of types by name."""

    def __init__(self, texts: Mapping[str, tuple[str, Mapping[str, str]]]) -> None:
        """Hold (of the type, {field: of the field}) by name of the type."""
        self._texts = texts

    def get(self, name: str) -> tuple[str, Mapping[str, str]]:
        """Return the description of a type and those of its fields; empty if there are none."""
        return self._texts.get(name, _NONE)


@cache
def load_descriptions() -> Descriptions:
    """Return those of the built-in types."""
    return Descriptions(orjson.loads(lzma.decompress(DATA.read_bytes())))
