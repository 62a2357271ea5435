"""The data directory and the ports of `kvstack up`: whether they can be used, and the disk's speed.

Nothing is left behind: the disk is measured with a file without a name, and a port is bound and
given back.
"""

import errno
import os
import shutil
import socket
import stat
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvstack.agents.standalone.doctor.findings import Finding, Level

_MIB: Final = 1 << 20
_FREE_MIN_MIB: Final = 512
_SYNCS: Final = 32
_SYNC_BYTES: Final = 4096
_SYNCS_S: Final = 1.0
_SLOW_US: Final = 10_000
_NETWORK_KINDS: Final = frozenset(("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph"))
_LOCK: Final = Path("member", "lmdb.lock")
"""The file that a server locks while it runs."""


def data_directory(path: Path, owner: int = 0) -> list[Finding]:
    """Return whether the directory can be used, its file system, and what a sync takes.

    owner: the process that works on it; 0: none does.
    """
    existing = nearest(path)
    is_there = existing == path.absolute()
    path_text = str(path) if is_there else f"{path} (to be made in {existing})"
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "not a directory" if not existing.is_dir() else "not writable"
        return [Finding("data directory", path_text, Level.ERROR, f"{existing} is {why}")]
    in_use = f", in use by process {owner}" if owner else ""
    findings = [Finding("data directory", path_text + in_use)]
    if is_there and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
        findings[0] = Finding(
            "data directory",
            f"{path_text}, mode {mode:04o}",
            Level.LIMITED,
            f"other users may look into it: chmod 700 {path}",
        )
    return [*findings, _file_system(existing), _disk(existing)]


def _file_system(path: Path) -> Finding:
    kind = kind_of(path)
    free_mib = shutil.disk_usage(path).free // _MIB
    finding = Finding("file system", f"{kind}, {free_mib:,} MiB free")
    if kind in _NETWORK_KINDS:
        return finding._replace(
            level=Level.ERROR,
            consequence="LMDB needs a local file system: its memory map is shared",
        )
    if free_mib < _FREE_MIN_MIB:
        return finding._replace(
            level=Level.LIMITED, consequence="the store refuses writes when the disk is full"
        )
    return finding


def kind_of(path: Path) -> str:
    """Return the kind of the file system that a path is on."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    return "unknown"


def _disk(path: Path) -> Finding:
    try:
        times_us = _sync_times_us(path)
    except OSError as error:
        why = "no data can be stored"
        return Finding("fdatasync", f"{path}: {error.strerror}", Level.ERROR, why)
    median_us = statistics.median(times_us)
    found = Finding("fdatasync", f"{median_us:,.0f} µs (median of {len(times_us)})")
    if median_us < _SLOW_US:
        return found
    return found._replace(
        level=Level.LIMITED, consequence="every write waits for it; a local SSD takes 100 to 1,000"
    )


def _sync_times_us(path: Path) -> list[float]:
    times_us: list[float] = []
    end_s = time.monotonic() + _SYNCS_S
    with tempfile.TemporaryFile(dir=path, buffering=0) as file:
        while len(times_us) < _SYNCS and (not times_us or time.monotonic() < end_s):
            file.write(bytes(_SYNC_BYTES))
            begin_ns = time.perf_counter_ns()
            os.fdatasync(file.fileno())
            times_us.append((time.perf_counter_ns() - begin_ns) / 1000)
    return times_us


def nearest(path: Path) -> Path:
    """Return the path, or the nearest directory above it that is there."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def owner_of(data_dir: Path) -> int:
    """Return the process id of the server that works on a data directory; 0: none does.

    Read from the kernel's table of locks: to try the lock could make a server's start fail.
    """
    try:
        lock = (data_dir / _LOCK).stat()
    except OSError:
        return 0
    wanted = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fd:00:131 0 EOF
        if wanted in fields[1:]:
            return int(fields[fields.index(wanted) - 1])
    return 0


def ports(addresses: Sequence[tuple[str, int]], *, is_in_use: bool) -> list[Finding]:
    """Return whether the ports can be bound; is_in_use: the cluster itself runs, and has them."""
    return [_port(host, port, is_in_use=is_in_use) for host, port in addresses]


def _port(host: str, port: int, *, is_in_use: bool) -> Finding:
    host_and_port = f"{host}:{port}"
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        if is_in_use and error.errno == errno.EADDRINUSE:
            return Finding("port", f"{host_and_port}, in use by this cluster")
        why = (error.strerror or str(error)).lower()
        return Finding("port", host_and_port, Level.ERROR, f"cannot listen: {why}")
    return Finding("port", f"{host_and_port}, free")
