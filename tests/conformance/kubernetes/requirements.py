"""What the conformance tests need on this machine."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from kvstack.agents.kubelet.runtime.cri.image_mounts import image_mount_problem
from tests.conformance.kubernetes.engine import LOOPBACK
from tests.conformance.kubernetes.suite import ConformanceTest, Program

IMAGES: Final = (
    "agnhost", "busybox", "glibc-dns-testing", "ipc-utils", "kitten", "nautilus", "nginx",
    "nonewprivs", "nonroot", "perl", "sample-apiserver", "etcd", "pause",
)  # fmt: skip
"""The images that tests of conformance run, without registry and tag."""
_REGISTRY: Final = "registry.k8s.io/"
_PROGRAMS: Final = {
    "ip": "network namespaces of nodes (Debian: iproute2)",
    "nft": "Services (Debian: nftables)",
    "conntrack": "Services of UDP (Debian: conntrack)",
}
_SCTP: Final = "[Feature:SCTPConnectivity]"
_IMAGE_VOLUMES: Final = "ImageVolume"
_SUB_PATH: Final = "subpath"
_OF_ENGINE: Final = {
    "containerd": "containers (Debian: containerd)",
    "ctr": "images of containers (Debian: containerd)",
    "runc": "containers (Debian: runc)",
}


def missing_programs(program: Program, *, with_engine: bool = False) -> list[str]:
    """Return what cannot be run here, each with what it is for."""
    needed = {**_PROGRAMS, **(_OF_ENGINE if with_engine else {})}
    found = [f"{name}: for {purpose}" for name, purpose in needed.items() if not shutil.which(name)]
    if with_engine and not LOOPBACK.exists():
        found.append(f"{LOOPBACK}: for containers (Debian: containernetworking-plugins)")
    if not program.file.is_file() or not os.access(program.file, os.X_OK):
        found.append(f"{program.file}: the program e2e.test of a release of Kubernetes")
    if os.geteuid() != 0:
        found.append("root: nodes are network namespaces, and pods are processes of this machine")
    return found


def missing_protocols(tests: Iterable[ConformanceTest]) -> list[str]:
    """Return the protocols that tests use and the kernel of this machine lacks."""
    if not any(_SCTP in each.name for each in tests) or _has_sctp():
        return []
    return [f"SCTP in the kernel (`modprobe sctp`): for the tests that are named {_SCTP}"]


def engine_version() -> str:
    """Return the version of containerd that is run here."""
    done = subprocess.run(
        ["containerd", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()[2]


def beyond_engine(tests: Iterable[ConformanceTest], version: str) -> list[str]:
    """Return the tests that a version of containerd is too old for, each with why."""
    return [
        f"{each.name}: {problem}"
        for each in tests
        if _IMAGE_VOLUMES in each.name
        and (
            problem := image_mount_problem(
                "containerd", version, has_sub_path=_SUB_PATH in each.name.lower()
            )
        )
    ]


def _has_sctp() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True


def images_of(program: Program) -> list[str]:
    """Return the images that tests of conformance run."""
    done = subprocess.run(
        [str(program.file), "--list-images"], capture_output=True, text=True, check=True
    )
    return [
        image
        for image in sorted(done.stdout.split())
        if image.startswith(_REGISTRY) and image.rpartition("/")[2].partition(":")[0] in IMAGES
    ]


def missing_images(program: Program, directory: Path) -> list[str]:
    """Return the images that tests run and a directory of the process runtime lacks."""
    return [
        f"{image}: {directory / quote(image, safe=':')}.tar, or the directory of that name"
        for image in images_of(program)
        if not is_there(image, directory)
    ]


def is_there(image: str, directory: Path) -> bool:
    """Whether a directory has an image, as `kvstack up --image-dir` finds it."""
    return path_of(image, directory).exists()


def path_of(image: str, directory: Path) -> Path:
    """Return the directory or the archive of an image, whether or not it is there."""
    name = quote(image, safe=":")
    path = directory / name
    return path if path.is_dir() else directory / f"{name}.tar"
