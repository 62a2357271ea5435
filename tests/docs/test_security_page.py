"""docs/security.md: the tests that it names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| .* \| (`tests/.*) \|$", re.MULTILINE)


def test_the_tests_that_it_names_are_there() -> None:
    rows = ROW.findall((ROOT / "docs" / "security.md").read_text())
    assert len(rows) >= 5
    for row in rows:
        folder = Path()
        for name in re.findall(r"`([^`]+)`", row):
            # A name alone is a file beside the one before it.
            path = Path(name) if name.startswith("tests/") else folder / name
            folder = path.parent
            assert (ROOT / path).exists(), path
