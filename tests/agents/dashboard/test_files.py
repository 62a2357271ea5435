"""The files of the page: what is served, to whom, and what they may not hold."""

import re
from pathlib import Path

import pytest

from kvstack.agents.dashboard.contents import HEADERS, POLICY, contents
from tests.agents.dashboard.javascript import SCRIPTS, STATIC, needs_node, node

MARKUP = (
    "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(",
    "setHTML", "DOMParser", "createContextualFragment", "javascript:",
)  # fmt: skip
MODULES = sorted(STATIC.rglob("*.js"))
LINES_MAX = 300
COLUMNS_MAX = 190
"""Expressions in texts cannot be broken."""
FILES_MAX = 25


def test_every_file_is_served_and_no_other() -> None:
    files = {str(each.relative_to(STATIC)) for each in STATIC.rglob("*") if each.is_file()}
    assert contents().keys() == files | {""}
    assert contents()[""] == contents()["index.html"]


def test_the_policy_lets_no_script_in_but_these_files() -> None:
    policy = dict(HEADERS)["Content-Security-Policy"]
    sources = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert sources == POLICY
    assert sources["default-src"] == sources["object-src"] == "'none'"
    assert sources["script-src"] == sources["connect-src"] == sources["style-src"] == "'self'"
    assert sources["frame-ancestors"] == sources["base-uri"] == sources["form-action"] == "'none'"
    assert sources["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy
    headers = dict(HEADERS)
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script.*", page) == [
        '<script src="boot.js"></script>',
        '<script type="module" src="main.js"></script>',
    ]
    assert "<style" not in page
    assert not re.search(r"\s(on\w+|style)=", page)


@pytest.mark.parametrize("module", MODULES, ids=lambda each: str(each.relative_to(STATIC)))
def test_no_text_of_the_cluster_becomes_markup_and_nothing_is_kept(module: Path) -> None:
    text = module.read_text()
    for way in MARKUP:
        assert way not in text, f"{module.name}: {way}"
    # The token ends with the page.
    for store in (
        "localStorage",
        "sessionStorage",
        "document.cookie",
        "indexedDB",
        "caches.",
        "serviceWorker",
    ):
        assert store not in text, f"{module.name}: {store}"
    for named in re.findall(r'from "([^"]+)"', text):
        assert (module.parent / named).is_file(), named
    assert text.startswith("// "), "it says what it is for"
    assert text.count("\n") <= LINES_MAX
    assert max(map(len, text.splitlines())) <= COLUMNS_MAX


def test_folders_are_small() -> None:
    for folder in (STATIC, *(each for each in STATIC.iterdir() if each.is_dir())):
        assert len([each for each in folder.iterdir() if each.is_file()]) <= FILES_MAX, folder


def test_modules_are_imported_one_way() -> None:
    """text → server → parts → terminal → actions → screens → shell, and back never."""
    order = ["text", "server", "parts", "terminal", "actions", "screens", "shell"]
    for module in MODULES:
        room = module.parent.name
        if room not in order:
            continue
        for named in re.findall(r'from "\.\./([a-z]+)/', module.read_text()):
            assert order.index(named) < order.index(room), f"{module.name} imports {named}"


@needs_node
def test_names_are_known_and_used() -> None:
    files = [str(each) for each in MODULES]
    found = node("--expose-internals", str(SCRIPTS / "names.js"), *files)
    assert found.strip() == ""


@needs_node
def test_names_that_are_not_known_or_not_used_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.js"
    module.write_text('import { a } from "./b.js";\nexport const c = (d, e) => d + f;\nlet g;\n')
    found = node("--expose-internals", str(SCRIPTS / "names.js"), str(module)).splitlines()
    names = sorted(line.partition(": ")[2] for line in found)
    assert names == ["a is not used", "e is not used", "f is not known", "g is not used"]


@pytest.mark.parametrize("module", MODULES, ids=lambda each: str(each.relative_to(STATIC)))
def test_functions_are_exported_for_somebody(module: Path) -> None:
    exported = re.findall(
        r"^export (?:async )?(?:function\*? |const |class )(\w+)", module.read_text(), re.MULTILINE
    )
    others = "".join(
        each.read_text()
        for each in (*MODULES, *Path(__file__).parent.glob("*.py"))
        if each != module
    )
    others += (SCRIPTS / "calls.js").read_text()
    for name in exported:
        assert re.search(rf"\b{name}\b", others), f"nobody imports {name}"
