"""README and docs: their length, their links, and that the commands they name exist."""

import re
from pathlib import Path

import pytest

from kvstack.cli import COMMANDS
from kvstore.util.commands import root as util_commands
from tests.docs.pages import DOCS, README, ROOT, anchors, commands, links, pages, spans

README_LINES_MAX = 140
STORE_COMMANDS = {"gateway", "grpc-proxy"}
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= README_LINES_MAX


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{page.relative_to(ROOT)}: {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{page.relative_to(ROOT)}: {target}"


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text()
    missing = {each.name for each in DOCS.glob("*.md")} - set(re.findall(r"\(([\w-]+\.md)", index))
    assert missing == {"README.md"}


def test_every_command_named_exists() -> None:
    named = [
        *(text for page in (README, *DOCS.glob("*.md")) for text in spans(page)),
        *(each.text for each in commands()),
    ]
    assert len(named) > 100
    unknown = sorted({text for text in named if not _exists(text.split(" "))})
    assert not unknown


@pytest.mark.parametrize("name", ["run", "long"])
def test_ci_runs_targets_that_exist(name: str) -> None:
    (command,) = re.findall(r"^exec make (.*)$", (ROOT / ".ci" / name).read_text(), re.MULTILINE)
    targets = [word for word in command.split() if not word.startswith("-") and "=" not in word]
    assert targets
    assert set(targets) <= TARGETS


def _exists(words: list[str]) -> bool:
    program, first = words[0], words[1] if len(words) > 1 else ""
    if not first or first.startswith(("-", "…", "<")):
        return True
    if program == "kvstack":
        return first in COMMANDS or first == "COMMAND"
    if program == "kvstore":
        return first in STORE_COMMANDS
    if program == "make":
        return "=" in first or first in TARGETS
    if program == "kvstore-util":
        return first in util_commands.commands
    return True
