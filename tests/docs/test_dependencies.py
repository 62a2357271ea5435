"""docs/dependencies.md has what pyproject.toml asks for, locks have it, the code imports it."""

import ast
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from kvstore.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "dependencies.md"
NOT_IMPORTED = {
    "tzdata",  # read by zoneinfo
    "kubernetes-validate",  # its files are read
}


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _name(requirement: str) -> str:
    """Return `pyjwt` of `PyJWT[crypto]>=2`."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def _extras() -> dict[str, set[str]]:
    """Return the packages of each extra for users."""
    extras = _project()["optional-dependencies"]
    return {
        extra: {_name(each) for each in packages}
        for extra, packages in extras.items()
        if extra not in ("all", "dev")
    }


def _table(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_has_a_row_with_a_reason_for_each_dependency() -> None:
    rows = _table("Always")
    names = [_name(name) for name, _ in rows]
    assert names == sorted(names)
    assert set(names) == {_name(each) for each in _project()["dependencies"]}
    assert all(len(reason.split()) > 2 for _, reason in rows)


def test_the_page_has_a_row_for_each_package_of_an_extra() -> None:
    rows = _table("Extras")
    shown = {extra: {name for each, name, _ in rows if each == extra} for extra, _, _ in rows}
    assert shown == _extras()
    assert all(len(reason.split()) > 2 for _, _, reason in rows)


def test_the_extra_all_is_all_of_them_and_dev_has_it() -> None:
    extras = _project()["optional-dependencies"]
    assert extras["all"] == [f"kvstack[{','.join(sorted(_extras()))}]"]
    assert "kvstack[all]" in extras["dev"]
    assert EXTRAS.keys() == _extras().keys() - {"explain"}


def test_the_locks_have_all_of_it() -> None:
    wanted = {_name(each) for each in _project()["dependencies"]}.union(*_extras().values())
    for lock in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / lock).read_text()
        locked = {_name(line) for line in text.splitlines() if re.match(r"\w", line)}
        assert wanted - locked == set(), lock


def test_each_dependency_is_imported() -> None:
    distributions = packages_distributions()
    imported: set[str] = set()
    for folder in ("kvstore", "kvstack", "apiserver", "agents"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Import):
                    imported |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    imported.add(node.module)
    tops = {name.split(".")[0] for name in imported} - {"google"}
    found = {_name(each) for top in tops for each in distributions.get(top, [])}
    found |= {"protobuf"} if any(name.startswith("google.protobuf") for name in imported) else set()
    found |= {"opentelemetry-exporter-otlp-proto-grpc", "opentelemetry-sdk"} & {
        f"opentelemetry-{'-'.join(name.split('.')[1:length])}".replace("_", "-")
        for name in imported
        if name.startswith("opentelemetry.")
        for length in (2, 5)
    }
    wanted = {_name(each) for each in _project()["dependencies"]}.union(*_extras().values())
    assert wanted - NOT_IMPORTED - found == set()
