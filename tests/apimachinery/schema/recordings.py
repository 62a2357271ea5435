"""Reading the recorded conversations."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "apiserver" / "recorded"


def lines(name: str) -> Iterator[Any]:
    """Return the lines of one file."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
