"""The budget of skips: which reasons a run may have for skipping, and what must lack for each.

A skip that no row allows fails the run (`tests/conftest.py`), and so does one whose row says that
the machine has what is said to be missing. Reasons are patterns of the whole text.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kvstore.transport import native


class Allowed(NamedTuple):
    """A reason, and when it may be given."""

    pattern: str
    lacks: Callable[[], bool]
    """Whether what a test of this reason needs is missing here."""


def _always() -> bool:
    return True


def _no_crate() -> bool:
    return not native.is_available()


def _no_root() -> bool:
    return os.geteuid() != 0


def _root() -> bool:
    return os.geteuid() == 0


def _without(program: str) -> Callable[[], bool]:
    return lambda: shutil.which(program) is None


NOT_FOR_THIS_PARAMETER: Final = (
    "100 \\(Continue\\) over HTTP/2 .*",
    "HTTP/1.1 has one request at a time",
    "Python's ssl verifies every certificate itself",
    "another process has none",
    "asks what the tests' own node answers",
    "engines are given paths",
    "engines before 2.1 cannot do it",
    "etcd 3.5.1 answers .*",
    "got empty parameter set for .*",
    "grpcio does not say that a stream was refused",
    "grpcio sends GOAWAY only when it stops",
    "grpcio takes it for an answer",
    "it ends with its process",
    "nothing limits devices",
    "nothing runs in hollow containers",
    "openssl makes the certificates",
    "the client of the test sends text",
    "the engine is on another machine, .*",
    "the peer does not survive this",
    "the peer is 3.7 itself",
    "this runtime cannot do it",
    "waiting for a processor is not measured",
)
"""One case of a test for several programs or protocols does not apply."""
KERNEL_AND_SYSTEM: Final = (
    "Python has no IPv6",
    "a static busybox is not installed",
    "control groups cannot be made here",
    "control groups of version 2 are not mounted",
    "devices cannot be limited so: .*",
    "locking memory needs root or a higher `ulimit -l`",
    "networks cannot be made here",
    "(interfaces|networks|networks of pods) need root and namespaces",
    "(a node of processes|containers|sandboxes) needs? root and namespaces",
    "needs root and namespaces",
    "needs (root and )?user namespaces: .*",
    "needs /usr/bin/python3 and the numbers of x86_64",
    "no .* can be mounted from a file: .*",
    "no network namespaces are to be had: .*",
    "no network namespaces with TUN devices are to be had: .*",
    "no tmpfs can be mounted: .*",
    "the file system cannot reserve blocks: .*",
    "the kernel takes no such program: .*",
    "no other (kube-proxy|API server): KVSTACK_TEST_KUBE_(PROXY|APISERVER) names none",
    "no (e2e.test|metrics-server|coredns): KVSTACK_TEST_(E2E|METRICS_SERVER|COREDNS) names none",
    "the library makes no such certificate",
    "the plugins of CNI are not installed",
    "there is no (?!cargo|chromium).*",
    "this C library has no .*",
    "this kernel has no openat2",
    "this machine has no .*",
    "this openssl makes no certificates of version 1",
    ".*\\.h is not installed",
)
"""What only a trial shows."""
FETCHED: Final = (
    "no kubectl: .*",
    ".* could not be fetched:.*",
    "no image of Python can be pulled, .*",
    "pip cannot fetch packages here: .*",
    "could not import '(kopf|kubernetes|kubernetes_asyncio|kr8s|lightkube)': .*",
    "needs the package kubernetes-validate",
)
"""What comes from a registry, where none can be reached."""
CRATE: Final = (
    "no crate: .*",
    "the (native transport|native crate|crate) (is|was) (not built|needed).*",
    "needs the native transport",
    "grpcio says nothing of handshakes; .*",
    "pages beside gRPC: the native transport is not built",
    "(TLS is|the store has TLS by) the crate.*",
    "there is no cargo to build the native transport",
)
ROOT_NEEDED: Final = (
    "(containers|mounts|programs for the kernel) need root",
    "it needs root",
    "network namespaces need root",
    "networks of pods need root",
    "only root may become somebody else",
    "processes of containers are killed by root alone",
)
NOT_AS_ROOT: Final = ("root may write anywhere", "root writes where it may not")
ALLOWED: Final = (
    *(Allowed(each, _always) for each in NOT_FOR_THIS_PARAMETER),
    *(Allowed(each, _always) for each in KERNEL_AND_SYSTEM),
    *(Allowed(each, _always) for each in FETCHED),
    *(Allowed(each, _no_crate) for each in CRATE),
    *(Allowed(each, _no_root) for each in ROOT_NEEDED),
    *(Allowed(each, _root) for each in NOT_AS_ROOT),
    Allowed("containerd is not installed", _without("containerd")),
    Allowed("docker has no Compose|no engine of docker can be reached", _always),
    Allowed(".*h2load.*|.*load generator.*|.*cargo.*", _always),
    Allowed("the program nft is not installed|addresses are translated by nft", _without("nft")),
    Allowed("docker is not installed", _without("docker")),
    Allowed("needs the shell .*", lambda: not all(map(shutil.which, ("bash", "zsh", "fish")))),
    Allowed("needs systemd-analyze", _without("systemd-analyze")),
    Allowed("(needs|there is no) chromium.*", _without("chromium")),
    Allowed("the openssl command is needed to make certificates", _without("openssl")),
)


def is_allowed(reason: str, rows: Iterable[Allowed] = ALLOWED) -> bool:
    """Return whether a test may be skipped for a reason on this machine."""
    text = reason.removeprefix("Skipped: ")
    return any(re.fullmatch(each.pattern, text, re.DOTALL) and each.lacks() for each in rows)


def is_known(reason: str) -> bool:
    """Return whether a test may be skipped for a reason on some machine."""
    return any(re.fullmatch(each.pattern, reason, re.DOTALL) for each in ALLOWED)
