"""The recorded stories of upstream's controllers."""

import gzip
import json
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).parents[1] / "recorded"
_FILES = ("cluster.jsonl.gz", "workloads.jsonl.gz")


def stories() -> list[dict[str, Any]]:
    """Return all of them."""
    found: list[dict[str, Any]] = []
    for name in _FILES:
        with gzip.open(_DIRECTORY / name, "rt") as file:
            found += [json.loads(line) for line in file]
    return found
