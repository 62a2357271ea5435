"""What pages, docstrings and comments name of this project is there: files, folders, modules."""

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages
from tests.support.sources.named import TOPS, texts_of, unknown

HISTORY = {"CHANGELOG.md", "DECISIONS.md"}
"""They tell of what was, too."""
RESULTS = ROOT / "bench" / "results"
"""So do results: they are of a commit."""
OTHERS = ("Dockerfile", "compose.yaml", "action.yml", "MANIFEST.in", ".ci/run", ".ci/long")


def test_what_pages_name_is_there() -> None:
    read = [each for each in pages() if each.name not in HISTORY and each.parent != RESULTS]
    assert len(read) > 40
    gone = [
        f"{page.relative_to(ROOT)}:{number}: {name}"
        for page in (*read, *(ROOT / each for each in OTHERS))
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if not line.startswith("prune ")  # what builds leave there, on some machines
        for name in unknown(line, page.parent)
    ]
    assert not gone


def test_what_docstrings_and_comments_name_is_there() -> None:
    read = [
        path
        for top in TOPS
        for path in sorted((ROOT / top).rglob("*.py"))
        if "gen" not in path.parts
    ]
    assert len(read) > 2000
    gone = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in read
        for line, text in texts_of(path)
        for name in unknown(text)
    ]
    assert not gone


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("`apiserver/verbs` and tests/docs/pages.py", []),
        ("see `apiserver/streams/channels`.", ["apiserver/streams/channels"]),
        ("kvstack.component.net.nft.problem", []),
        ("kvstack.component.net.nft.no_such_thing", ["kvstack.component.net.nft.no_such_thing"]),
        ("kvstore.no_such_package", ["kvstore.no_such_package"]),
        ("the finalizer kvstack.io/local-path", []),
        ("proto/kvstore/wire/gen/x.proto, tests/*/test_x.py", []),
        ("https://example.com/docs/none", []),
    ],
)
def test_missing_paths_are_detected(text: str, gone: list[str]) -> None:
    assert list(unknown(text)) == gone


def test_docstrings_and_comments_are_read(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""One."""\nA = 1  # two\n"""Three."""\nB = "four"\n')
    assert sorted(text for _, text in texts_of(file)) == ["# two", "One.", "Three."]
