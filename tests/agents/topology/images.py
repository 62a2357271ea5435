"""The images that compose.yaml is built from, where no registry can be reached.

    python, rust = base_images(docker, directory)      names, for PYTHON_IMAGE and RUST_IMAGE

Taken is what compose.yaml names, if the engine has it or can pull it. Else Python's is made by
debootstrap, with the certificates that this machine trusts, and Rust's is one whose `cargo` gives
the crate that this tree has already. Both stay in the engine as `kvstack-test-…`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import kvstack.component
from tests.support.compose import read_compose

Docker = Callable[..., subprocess.CompletedProcess[str]]

PYTHON_MADE: Final = "kvstack-test-python"
RUST_MADE: Final = "kvstack-test-rust"
CRATE: Final = Path(kvstack.component.__file__).with_name("_native.abi3.so")
AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
PACKAGES: Final = "python3,python3-venv,python3-pip,ca-certificates"
DEBOOTSTRAP_S: Final = 900.0

_STAND_IN: Final = """\
FROM {python}
COPY crate.so /crate.so
COPY cargo /usr/local/bin/cargo
"""
_CARGO: Final = """\
#!/bin/sh
mkdir -p target/release && cp /crate.so target/release/libkvstore_native.so
"""


def base_images(docker: Docker, directory: Path) -> tuple[str, str]:
    """Return the images of Python and of Rust; skips where they can neither be had nor made."""
    arguments = read_compose()["x-image"]["build"]["args"]
    python, rust = arguments["PYTHON_IMAGE"], arguments["RUST_IMAGE"]
    if not _is_had(docker, python):
        python = _made_python(docker, python.rpartition("-")[2], directory)
    if not _is_had(docker, rust):
        rust = _made_rust(docker, python, directory)
    return python, rust


def _is_had(docker: Docker, image: str) -> bool:
    return _is_there(docker, image) or docker("pull", "--quiet", image, check=False).returncode == 0


def _is_there(docker: Docker, image: str) -> bool:
    return docker("image", "inspect", image, check=False).returncode == 0


def _made_python(docker: Docker, suite: str, directory: Path) -> str:
    image = f"{PYTHON_MADE}:{suite}"
    if _is_there(docker, image):
        return image
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("no image of Python can be pulled, and debootstrap with root is not there")
    root = directory / "root"
    command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, str(root)]
    made = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=DEBOOTSTRAP_S
    )
    if made.returncode:
        pytest.skip(
            f"no image of Python can be pulled, and debootstrap failed: {made.stdout[-300:]}"
        )
    if AUTHORITIES.exists():
        shutil.copyfile(AUTHORITIES, root / AUTHORITIES.relative_to("/"))
    archive = directory / "root.tar"
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    docker("import", "--change", f"ENV PIP_CERT={AUTHORITIES}", str(archive), image)
    shutil.rmtree(root)
    archive.unlink()
    return image


def _made_rust(docker: Docker, python: str, directory: Path) -> str:
    context = directory / "rust"
    context.mkdir()
    shutil.copyfile(CRATE, context / "crate.so")
    (context / "cargo").write_text(_CARGO)
    (context / "cargo").chmod(0o755)
    (context / "Dockerfile").write_text(_STAND_IN.format(python=python))
    docker("build", "--quiet", "--tag", RUST_MADE, str(context))
    return RUST_MADE
