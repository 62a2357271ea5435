"""`make wheels`: wheels with the native transport for glibc and musl, and one without it."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from kvstack.component.version import VERSION
from tests.e2e.install.conftest import ROOT, copy_sources

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
BUILD_S = 7000
CRATE = "kvstack/component/_native.abi3.so"


@pytest.mark.skipif(
    not shutil.which("cargo") or not shutil.which("rustup"),
    reason="wheels for other systems need cargo and rustup",
)
def test_wheels_for_every_libc(tmp_path: Path) -> None:
    source = copy_sources(tmp_path / "source")
    for name in ("Makefile", "requirements.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, source / name)
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    done = subprocess.run(
        ["make", "wheels"],
        check=False,
        cwd=source,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, done.stdout.decode()
    wheels = {wheel.name: wheel for wheel in (source / "dist").glob("*.whl")}
    assert set(wheels) == {
        f"kvstack-{VERSION}-cp311-abi3-manylinux_2_28_x86_64.whl",
        f"kvstack-{VERSION}-cp311-abi3-musllinux_1_2_x86_64.whl",
        f"kvstack-{VERSION}-py3-none-any.whl",
    }
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            assert (CRATE in archive.namelist()) == (not name.endswith("none-any.whl")), name
