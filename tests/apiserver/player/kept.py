"""The share of the recordings that is kept with the tests.

Kept is what went as recorded when the share was made, every scenario of small families and an even
sample of large ones: `python -m tests.apiserver.play --keep FOLDER --share 0.2 …` writes it.
"""

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.apiserver.player.scenarios import Scenario

RECORDED = Path(__file__).parents[1] / "recorded"
CONVERSATIONS = RECORDED / "conversations"
BESIDE = RECORDED / "beside"
STORIES = RECORDED / "stories"
_PARTS = 1 << 16


def is_sampled(name: str, share: float) -> bool:
    """Tell whether a name falls into a share of all names; always the same."""
    return zlib.crc32(name.encode()) % _PARTS < share * _PARTS


def write_lines(path: Path, documents: Iterable[Scenario]) -> None:
    """Write documents, a line each; the same documents make the same bytes.

    Descriptions of columns are left empty: they are Kubernetes' texts, and nothing compares them.
    """
    bare = (_without_column_descriptions(each) for each in documents)
    lines = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in bare)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))


def files_in(folder: Path) -> list[Path]:
    """Return the files of recordings in a folder, in order."""
    return sorted(folder.glob("*.jsonl.gz"))


def _without_column_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        found = {key: _without_column_descriptions(each) for key, each in value.items()}
        columns = found.get("columnDefinitions")
        if isinstance(columns, list):
            found["columnDefinitions"] = [
                {**each, "description": ""} if isinstance(each, dict) else each for each in columns
            ]
        return found
    return (
        [_without_column_descriptions(each) for each in value] if isinstance(value, list) else value
    )
