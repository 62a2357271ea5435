"""The pages that people write and read, their links, and the commands in their code blocks."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
DOCS: Final = ROOT / "docs"
PROGRAMS: Final = (
    "curl", "docker", "etcdctl", "etcdutl", "go", "kubectl", "kvstack", "kvstore", "kvstore-util",
    "make", "pip", "uvx",
)  # fmt: skip
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMENT = re.compile(r"\s{2,}#.*$")
_SPAN = re.compile(r"`([^`\n]+)`")


class Documented(NamedTuple):
    """A command of a code block."""

    page: str
    text: str


def pages() -> list[Path]:
    """Return README, the pages at the root and those under docs and tests."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted(DOCS.rglob("*.md")),
        *sorted((ROOT / "tests").rglob("README.md")),
        ROOT / "bench" / "results" / "README.md",
    ]


def links(page: Path) -> list[str]:
    """Return the targets of links that lead to files or headings."""
    return [
        each for each in _LINK.findall(page.read_text()) if not each.startswith(("http", "mailto:"))
    ]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each).strip().lower().replace(" ", "-") for each in headings}


def commands() -> list[Documented]:
    """Return the commands in code blocks of README and the pages directly under docs."""
    found: dict[Documented, None] = {}
    for page in (README, *sorted(DOCS.glob("*.md"))):
        for line in _block_lines(page.read_text()):
            text = _COMMENT.sub("", line.removeprefix("$ ").removeprefix("# ")).strip()
            if text.split(" ")[0] in PROGRAMS:
                found[Documented(page.name, text)] = None
    return list(found)


def spans(page: Path) -> list[str]:
    """Return the code spans of a page that begin with one of our own programs."""
    return [each for each in _SPAN.findall(page.read_text()) if each.startswith(("kvst", "make "))]


def _block_lines(text: str) -> Iterator[str]:
    """Yield the commands of indented and fenced blocks: their lines, joined where they go on."""
    is_fenced, begun, before = False, "", ""
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("```"):
            is_fenced = not is_fenced
            before = ""
            continue
        is_block = is_fenced or (line.startswith("    ") and not before.startswith(("- ", "  ")))
        if is_block or begun:
            begun += line.strip()
            if begun.endswith("\\"):
                begun = begun[:-1].rstrip() + " "
                continue
            yield "\n".join((begun, *_document(lines))) if begun.endswith("<<END") else begun
            begun = ""
        elif line:
            before = line


def _document(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines of a here-document, its end too, without the block's indentation."""
    for line in lines:
        text = line.removeprefix("    ")
        yield text
        if text == "END":
            return
    raise ValueError("a here-document without an END")
