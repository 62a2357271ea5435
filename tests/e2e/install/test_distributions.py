"""What a wheel and a source distribution contain: real files, all of them, and nothing else."""

import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from kvstack.component.version import VERSION
from tests.e2e.install.conftest import ROOT, Distributions

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("install")]

PACKAGES = {
    "kvstore": "kvstore",
    "kvstack": "kvstack",  # rglob does not follow the links in it
    "kvstack/agents": "agents",
    "kvstack/apiserver": "apiserver",
}


def modules() -> dict[str, bytes]:
    """Return the source of each module by its path in a distribution."""
    found: dict[str, bytes] = {}
    for package, folder in PACKAGES.items():
        for path in (ROOT / folder).rglob("*.py"):
            found[f"{package}/{path.relative_to(ROOT / folder)}"] = path.read_bytes()
    return found


def data_files() -> set[str]:
    """Return the paths of the files beside modules that programs read, in folders of any depth."""
    folders = (
        "agents/dashboard/static",
        "apimachinery/schema/data",
        "apiserver/policy/data",
        "apiserver/server/data",
    )
    return {
        f"kvstack/{path.relative_to(ROOT / 'kvstack')}"
        for folder in folders
        for path in (ROOT / "kvstack" / folder).rglob("*")
        if path.is_file()
    } | {"kvstore/server/ui/page.html", "kvstack/py.typed", "kvstore/py.typed"}


@pytest.mark.parametrize("name", ["agents", "apiserver"])
def test_packages_of_kvstack_are_links(name: str) -> None:
    """A link that became a file or a copy would be a second home of the same modules."""
    link = ROOT / "kvstack" / name
    assert link.is_symlink(), f"kvstack/{name} has to be a symbolic link to ../{name}"
    assert link.readlink() == Path("..", name)


@pytest.mark.parametrize("name", ["agents", "apiserver"])
def test_a_link_that_became_a_file_is_not_built(name: str, tmp_path: Path) -> None:
    """As a checkout without symbolic links has it: a text with the path."""
    (tmp_path / "setup.py").write_bytes((ROOT / "setup.py").read_bytes())
    for each in ("agents", "apiserver"):
        (tmp_path / "kvstack" / each).mkdir(parents=True)
        (tmp_path / "kvstack" / each / "__init__.py").touch()
    (tmp_path / "kvstack" / name / "__init__.py").unlink()
    (tmp_path / "kvstack" / name).rmdir()
    (tmp_path / "kvstack" / name).write_text(f"../{name}")
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"kvstack/{name} is neither a symbolic link to ../{name} nor a package" in done.stderr


def test_a_wheel_has_all_modules_and_data_as_real_files(distributions: Distributions) -> None:
    # One without the native transport is for any system.
    assert distributions.wheel.name == f"kvstack-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(distributions.wheel) as archive:
        entries = {each.filename: each for each in archive.infolist()}
        assert not [name for name, each in entries.items() if each.external_attr >> 28 == 0o12]
        sources = modules()
        assert {name for name in entries if name.endswith(".py")} == sources.keys()
        assert all(archive.read(name) == source for name, source in sources.items())
        assert data_files() <= entries.keys()
        assert not [name for name in entries if "/native/" in name or name.endswith(".rs")]
        (info,) = (name for name in entries if name.endswith(".dist-info/METADATA"))
        head = HeaderParser().parsestr(archive.read(info).decode())
        licenses = Path(info).with_name("licenses")
        for name in ("LICENSE", "NOTICE"):
            assert archive.read(str(licenses / name)) == (ROOT / name).read_bytes()
    assert (head["Name"], head["Version"]) == ("kvstack", VERSION)
    assert head["License-Expression"] == "Apache-2.0"
    assert head["Author"] == "The kvstack authors"
    assert {"explain", "tracing"} <= set(head.get_all("Provides-Extra", []))


def test_a_source_distribution_can_build_everything(distributions: Distributions) -> None:
    crate = ROOT / "kvstore" / "native"
    wanted = {
        "LICENSE", "NOTICE", "README.md", "pyproject.toml", "setup.py",
        "packaging/crate.py", "packaging/crate-licenses.sh",
        "kvstore/native/Cargo.toml", "kvstore/native/Cargo.lock",
        *(f"kvstore/native/{path.relative_to(crate)}" for path in (crate / "src").rglob("*.rs")),
        *modules(), *data_files(),
    }  # fmt: skip
    with tarfile.open(distributions.sdist) as archive:
        members = archive.getmembers()
    names = {member.name.partition("/")[2] for member in members}
    assert not [member.name for member in members if member.issym() or member.islnk()]
    assert wanted - names == set()
    assert not [name for name in names if name.startswith(("agents/", "apiserver/", "tests/"))]
    assert not [name for name in names if name.endswith(".so") or "/target/" in name]
