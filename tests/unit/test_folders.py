"""No folder has more modules than CONTRIBUTING.md allows: one can be read at a glance."""

from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MODULES_MAX: Final = 25
_SKIPPED: Final = frozenset(("gen", "node_modules", "__pycache__", "build", "dist"))
_FOLDERS: Final = (
    "agents",
    "apiserver",
    "bench",
    "kvstack/apimachinery",
    "kvstack/cel",
    "kvstack/clusters",
    "kvstack/component",
    "kvstore",
    "packaging",
    "proto",
    "tests",
)


def modules() -> Counter[str]:
    """Return how many modules each folder has; generated code does not count."""
    return Counter(
        str(path.parent.relative_to(ROOT))
        for folder in _FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if _SKIPPED.isdisjoint(path.relative_to(ROOT).parts)
    )


def test_folders_are_found() -> None:
    found = modules()
    assert found["apiserver/verbs"] > 5
    assert found["tests/unit"] > 2
    assert len(found) > 200


def test_no_folder_has_too_many_modules() -> None:
    full = {folder: count for folder, count in modules().items() if count > MODULES_MAX}
    assert not full, f"more than {MODULES_MAX} modules: group them by what they are about"
