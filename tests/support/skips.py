"""The budget of skips: which reasons a run may have for skipping, and what must lack for each.

A skip that no row allows fails the run (`tests/conftest.py`), and so does one whose row says that
the machine has what is said to be missing. Reasons are patterns of the whole text; what a group
`name` matches is looked for.
"""

import os
import re
import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from tests.support import lacking
from tests.support.lacking import Lacks, by, program


class Allowed(NamedTuple):
    """A reason, and when it may be given."""

    pattern: str
    lacks: Lacks
    """Whether what a test of this reason needs is missing here."""


NOT_FOR_THIS_PARAMETER: Final = (
    "100 \\(Continue\\) over HTTP/2 .*",
    "HTTP/1.1 has one request at a time",
    "Python's ssl verifies every certificate itself",
    "another process has none",
    "asks what the tests' own node answers",
    "engines are given paths",
    "engines before 2.1 cannot do it",
    "etcd 3.5.1 answers .*",
    "got empty parameter set for \\(case\\)",  # seeds.txt has none
    "grpcio does not say that a stream was refused",
    "grpcio sends GOAWAY only when it stops",
    "grpcio takes it for an answer",
    "it ends with its process",
    "nothing limits devices",
    "nothing runs in hollow containers",
    "the client of the test sends text",
    "the peer does not survive this",
    "the peer is 3.7 itself",
    "this runtime cannot do it",
)
"""One case of a test for several programs or protocols does not apply."""
ONLY_TRIALS_SHOW: Final = (
    "no image of Python can be pulled, and debootstrap failed: .*",
    "pip cannot fetch packages here: .*",
)
"""What a registry answered."""
CRATE: Final = (
    "no crate: .*",
    "the (native transport|native crate|crate) (is|was) (not built|needed).*",
    "needs the native transport",
    "grpcio says nothing of handshakes; .*",
    "pages beside gRPC: the native transport is not built",
    "(TLS is|the store has TLS by) the crate.*",
)
ALLOWED: Final = (
    *(Allowed(each, lacking.nothing) for each in (*NOT_FOR_THIS_PARAMETER, *ONLY_TRIALS_SHOW)),
    *(Allowed(each, by(lacking.crate)) for each in CRATE),
    # Programs and packages.
    Allowed(".*(?P<name>/[\\w/.+-]+\\.h) is not installed", lacking.named_program),
    Allowed("the program (?P<name>nft|ip6?tables(-\\w+)?) is not installed", lacking.named_program),
    Allowed("there is no (?!cargo|chromium)(?P<name>/.*|[a-z][a-z0-9.-]*)", lacking.named_program),
    Allowed("needs the shell (?P<name>.*)", lacking.named_program),
    Allowed("needs (?P<name>systemd-analyze)", lacking.named_program),
    Allowed("docker is not installed", program("docker")),
    Allowed("docker has no Compose", by(lacking.compose)),
    Allowed("no engine of docker can be reached", by(lacking.engine)),
    Allowed("the engine is on another machine, .*", lambda _: bool(os.environ.get("DOCKER_HOST"))),
    Allowed("no image of Python can be pulled, and debootstrap with root is not there",
            lambda _: lacking.root() or not shutil.which("debootstrap")),
    Allowed("containerd is not installed", program("containerd", "runc")),
    Allowed("the plugins of CNI are not installed", lambda _: not Path("/usr/lib/cni").exists()),
    Allowed("a static busybox is not installed", by(lacking.static_busybox)),
    Allowed("(needs|there is no) chromium.*", by(lacking.chromium)),
    Allowed("there is no Go", program("go")),
    Allowed("there is no cargo( .*)?|kvload needs a Rust toolchain .*", by(lacking.cargo)),
    Allowed("there is no cargo-fuzz", lambda _: lacking.fails("cargo", "fuzz", "--version")),
    Allowed("there is no nightly toolchain for cargo-fuzz",
            lambda _: lacking.fails("cargo", "+nightly", "--version")),
    Allowed("wheels for other systems need cargo and rustup", program("cargo", "rustup")),
    Allowed("h2load is not installed.*", program("h2load")),
    Allowed("(the openssl command is needed to make|openssl makes the) certificates",
            program("openssl")),
    Allowed("this openssl makes no certificates of version 1", by(lacking.old_certificates)),
    Allowed("the library makes no such certificate", by(lacking.empty_user_ids)),
    Allowed("no kubectl: a plan of one of its commands", program("kubectl")),
    Allowed("no kubectl: (?!a plan of ).*|.* could not be fetched:.*", lacking.clients),
    Allowed("could not import '(?P<name>\\w+)'.*", lacking.named_package),
    Allowed("needs the package kubernetes-validate",
            lambda _: not find_spec("kubernetes_validate")),
    Allowed("no .*: (?P<name>KVSTACK_TEST_[A-Z0-9_]+) names none", lacking.named_variable),
    # Who runs the tests.
    Allowed("(containers|mounts|networks of pods|network namespaces) need root", by(lacking.root)),
    Allowed("programs for the kernel need root", by(lacking.root)),
    Allowed("only root may become somebody else", by(lacking.root)),
    Allowed("only root may change the rules of the machine", by(lacking.root)),
    Allowed("processes of containers are killed by root alone", by(lacking.root)),
    Allowed("root may write anywhere|root writes where it may not", by(lacking.no_root)),
    Allowed("locking memory needs root or a higher `ulimit -l`", by(lacking.locked_memory)),
    Allowed("it needs root|needs root and namespaces", by(lacking.namespaces)),
    Allowed("(a node of processes|[a-z ]+) needs? root and namespaces", by(lacking.namespaces)),
    Allowed("needs root and user namespaces: .*",
            lambda _: lacking.namespaces() or lacking.user_namespaces()),
    Allowed("needs user namespaces: the user has other ids than this test is about",
            by(lacking.root)),
    Allowed("needs user namespaces: .*", by(lacking.user_namespaces)),
    # The kernel.
    Allowed("control groups cannot be made here", by(lacking.groups)),
    Allowed("control groups of version 2 are not mounted", by(lacking.groups_of_version_2)),
    Allowed("devices cannot be limited \\(by (?P<name>\\w+)\\): .*", lacking.named_way_to_limit),
    Allowed("the kernel takes no such program: .*", by(lacking.device_programs)),
    Allowed("networks cannot be made here", by(lacking.networks_of_pods)),
    Allowed("no network namespaces are to be had: .*", by(lacking.networks)),
    Allowed("no network namespaces with TUN devices are to be had: .*", by(lacking.tun)),
    Allowed("no tmpfs can be mounted: .*", by(lacking.memory_file_systems)),
    Allowed("no (?P<name>\\w+)(?P<quotas> with quotas)? can be mounted from a file: .*",
            lacking.named_file_system),
    Allowed("the file system cannot reserve blocks: .*", lambda match: "[Errno 95]" in match[0]),
    Allowed("this machine has no loop devices: .*", by(lacking.loop_devices)),
    Allowed("this machine has no block device that can be opened", by(lacking.block_devices)),
    Allowed("this C library has no (?P<name>\\w+).*", lacking.named_function),
    Allowed("this kernel has no openat2", by(lacking.openat2)),
    Allowed("waiting for a processor is not measured", by(lacking.processor_waits)),
    Allowed("needs /usr/bin/python3 and the numbers of x86_64", by(lacking.python_and_x86_64)),
    # Addresses.
    Allowed("Python has no IPv6", by(lacking.ipv6_of_python)),
    Allowed("this machine has no IPv6", by(lacking.ipv6)),
    Allowed("this machine has no address ::1", by(lacking.loopback_of_ipv6)),
    Allowed("this machine has no address but loopback.*", by(lacking.own_address)),
)  # fmt: skip


def is_allowed(reason: str, rows: Iterable[Allowed] = ALLOWED) -> bool:
    """Return whether a test may be skipped for a reason on this machine."""
    text = reason.removeprefix("Skipped: ")
    found = ((each, re.fullmatch(each.pattern, text, re.DOTALL)) for each in rows)
    return any(match is not None and each.lacks(match) for each, match in found)


def is_known(reason: str) -> bool:
    """Return whether a test may be skipped for a reason on some machine."""
    return any(re.fullmatch(each.pattern, reason, re.DOTALL) for each in ALLOWED)
