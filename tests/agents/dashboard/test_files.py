"""The files of the page: what is served, to whom, and what they may not hold."""

import re
from pathlib import Path

import pytest

import kvstack.agents.dashboard
from kvstack.agents.dashboard.contents import HEADERS, contents

STATIC = Path(kvstack.agents.dashboard.__file__).parent / "static"
MARKUP = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")
SCRIPTS = sorted(STATIC.glob("*.js"))


def test_every_file_is_served_and_no_other() -> None:
    assert contents().keys() == {each.name for each in STATIC.iterdir()} | {""}
    assert contents()[""] == contents()["index.html"]


def test_the_policy_lets_no_script_in_but_these_files() -> None:
    policy = dict(HEADERS)["Content-Security-Policy"]
    sources = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert sources["default-src"] == "'none'"
    assert sources["script-src"] == sources["connect-src"] == "'self'"
    assert sources["frame-ancestors"] == sources["base-uri"] == "'none'"


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script.*", page) == [
        '<script src="boot.js"></script>',
        '<script type="module" src="main.js"></script>',
    ]
    assert "<style" not in page
    assert not re.search(r"\s(on\w+|style)=", page)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.name)
def test_no_text_of_the_cluster_becomes_markup(script: Path) -> None:
    text = script.read_text()
    for way in MARKUP:
        assert way not in text, f"{script.name}: {way}"
    # The token ends with the page.
    for store in ("localStorage", "sessionStorage", "document.cookie", "indexedDB"):
        assert store not in text, f"{script.name}: {store}"
    for named in re.findall(r'from "([^"]+)"', text):
        assert (STATIC / named).is_file(), named
