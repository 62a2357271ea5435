"""The machine and the programs behind a result: numbers mean nothing without them."""

import os
import platform
import re
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

import grpc

from tests.support.servers import peer

_SYNCS: Final = 200
_SYNC_BYTES: Final = 4096


def fingerprint(directory: Path) -> dict[str, Any]:
    """Describe this machine, the disk under directory and the etcd that is compared with.

    Takes about a second.
    """
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_mib": _memory_mib(),
        "kernel": platform.release(),
        "disk": _disk(directory),
        "fdatasync_ms": round(sync_latency_s(directory) * 1000, 3),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "etcd": _first_line([str(peer()), "--version"]).removeprefix("etcd Version: "),
        "commit": _first_line(["git", "rev-parse", "--short", "HEAD"]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def sync_latency_s(directory: Path) -> float:
    """Return the median time of appending 4 KiB to a file under directory and syncing it."""
    path = directory / "sync-probe"
    times_s = []
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        for _ in range(_SYNCS):
            begin = time.perf_counter()
            os.write(descriptor, bytes(_SYNC_BYTES))
            os.fdatasync(descriptor)
            times_s.append(time.perf_counter() - begin)
    finally:
        os.close(descriptor)
        path.unlink()
    return median(times_s)


def _cpu_model() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _memory_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


def _disk(directory: Path) -> str:
    """Return file system and device of directory: "ext4 on /dev/vda"."""
    listed = _first_line(["findmnt", "-no", "FSTYPE,SOURCE", "-T", str(directory)]).split()
    return " on ".join(listed) or "unknown"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({type(error).__name__})"
    return done.stdout.partition("\n")[0].strip()
