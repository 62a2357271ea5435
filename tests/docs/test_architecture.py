"""ARCHITECTURE.md: every module, class, function and file that it names exists."""

import re
from functools import cache

from tests.docs.pages import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text()
FOLDERS = ("kvstore", "kvstack", "apiserver", "agents", "tests")
BASES = ("", "kvstore", "apiserver", "agents", "kvstack", "agents/kubelet", "kvstore/node")
NAME = re.compile(r"[A-Za-z_][\w]*(?:[./][A-Za-z_][\w]*)*(?:\.\*)?")
WALKS = (
    "kubectl apply",
    "Watch event",
    "Deployment to ReplicaSet",
    "Pod to binding",
    "Pod to process",
)


@cache
def words() -> frozenset[str]:
    """Return the names of modules and folders, and every identifier of the sources."""
    found: set[str] = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            found.update(path.relative_to(ROOT).with_suffix("").parts)
            found.update(re.findall(r"[A-Za-z_]\w*", path.read_text()))
    return frozenset(found)


def names() -> list[str]:
    """Return what stands in code spans and looks like a name, without signatures."""
    spans = [re.split(r"[( ]", each)[0] for each in re.findall(r"`([^`\n]+)`", TEXT)]
    return sorted({each for each in spans if NAME.fullmatch(each)})


def _is_path(name: str) -> bool:
    for base in BASES:
        path = ROOT / base / name
        if path.exists() or path.with_name(f"{path.name}.py").exists():
            return True
    return False


def _exists(name: str) -> bool:
    if _is_path(name):
        return True
    if "/" in name:
        return False
    return set(re.split(r"[.]", name.removesuffix(".*"))) <= words()


def test_every_name_exists() -> None:
    found = names()
    assert len(found) > 100
    assert not [each for each in found if not _exists(each)]


def test_the_walks_are_there() -> None:
    for walk in WALKS:
        assert f"**{walk}.**" in TEXT
