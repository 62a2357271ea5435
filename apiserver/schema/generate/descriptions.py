"""Making the file of descriptions from the definitions in the package kubernetes-validate."""

import json
import lzma
from pathlib import Path
from typing import Any

import orjson


def descriptions_of(definitions: Path) -> bytes:
    """Return the data file made of a file `_definitions.json`."""
    schemas: dict[str, Any] = json.loads(definitions.read_text(encoding="utf-8"))["$defs"]
    texts = {name: _texts(schema) for name, schema in sorted(schemas.items())}
    return lzma.compress(orjson.dumps(texts), preset=9 | lzma.PRESET_EXTREME)


def _texts(schema: dict[str, Any]) -> tuple[str, dict[str, str]]:
    of_fields = {
        name: each["description"]
        for name, each in schema.get("properties", {}).items()
        if each.get("description")
    }
    return schema.get("description", ""), of_fields
