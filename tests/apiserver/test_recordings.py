"""Recordings: they hold answers of Kubernetes, not its prose."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.player.kept import write_lines

ROOT = Path(__file__).parents[2]
FOLDERS = (ROOT / "tests" / "apiserver" / "recorded", ROOT / "tests" / "agents" / "recorded")
TEXT_CHARS_MAX = 60  # what test objects are described with is shorter
OBJECTS_OF_A_CLUSTER = "Used for system critical pods that must"  # part of two PriorityClasses


def descriptions(value: Any) -> Iterator[str]:
    """Return the long descriptions in a document, and all those of columns of Tables."""
    if isinstance(value, dict):
        for column in value.get("columnDefinitions") or ():
            yield from filter(None, [isinstance(column, dict) and column.get("description")])
        text = value.get("description")
        if isinstance(text, str) and len(text) > TEXT_CHARS_MAX:
            yield text
        for each in value.values():
            yield from descriptions(each)
    elif isinstance(value, list):
        for each in value:
            yield from descriptions(each)


@pytest.mark.parametrize(
    "path",
    [path for folder in FOLDERS for path in sorted(folder.rglob("*.jsonl.gz"))],
    ids=lambda path: str(path.relative_to(ROOT / "tests")),
)
def test_no_recording_has_descriptions_of_types_and_columns(path: Path) -> None:
    with gzip.open(path) as lines:
        for line in lines:
            if b'"description"' in line:
                found = [
                    text
                    for text in descriptions(json.loads(line))
                    if not text.startswith(OBJECTS_OF_A_CLUSTER)
                ]
                assert found == []


def test_what_is_kept_from_now_on_has_none_either(tmp_path: Path) -> None:
    columns = [{"name": "Name", "description": "of another's"}, {"name": "Age"}]
    body = {"columnDefinitions": columns, "rows": [{"cells": ["a"]}]}
    write_lines(tmp_path / "x", [{"name": "one", "steps": [{"response": {"json": body}}]}])
    (line,) = gzip.decompress((tmp_path / "x").read_bytes()).splitlines()
    kept = json.loads(line)["steps"][0]["response"]["json"]
    assert list(descriptions(kept)) == []
    assert kept["rows"] == body["rows"]
    assert [each["name"] for each in kept["columnDefinitions"]] == ["Name", "Age"]
