"""What the machine and its Python provide: transport, limits, memory, clock.

Each function makes one finding or a few, only reads, and takes a few milliseconds.
"""

import ctypes
import os
import platform
import resource
import time
from pathlib import Path
from typing import Final

from kvstack.agents.standalone.doctor.findings import Finding, Level, short
from kvstack.component.clock import SystemClock
from kvstack.component.logger import Logger

DESCRIPTORS_MIN: Final = 4096
MEMORY_MIN_MIB: Final = 256
_INOTIFY: Final = Path("/proc/sys/fs/inotify")
_INSTANCES_MIN: Final = 128
_MIB: Final = 1 << 20
_TIMEX_BYTES: Final = 512
"""struct timex has 208 bytes on 64-bit Linux; the rest is never written."""
_UNSYNCHRONIZED: Final = 5
"""TIME_ERROR: what adjtimex returns while nothing keeps the clock right."""


def findings(pki: Path) -> list[Finding]:
    """Return all of them; pki: where certificates of earlier starts are."""
    return [system(), python(), transport(), *limits(), clock(pki)]


def log_in_short(pki: Path, logger: Logger) -> None:
    """Write the findings that are not ok into the log, in one line."""
    logger.info("this machine is limited: see kvstack doctor", limited=short(findings(pki)))


def system() -> Finding:
    """Return the kernel, the architecture and the user."""
    user = "root" if os.geteuid() == 0 else f"uid {os.geteuid()}"
    cores = len(os.sched_getaffinity(0))
    found = f"{platform.system()} {platform.release()}, {platform.machine()}, {cores} CPUs, {user}"
    return Finding("system", found)


def python() -> Finding:
    """Return version and build of the interpreter."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return Finding("python", f"{name}, {platform.python_compiler()}")


def transport() -> Finding:
    """Return what serves the ports."""
    from kvstack.component import crate  # loads a library

    if crate.is_available():
        return Finding("transport", "native")
    return Finding(
        "transport",
        "portable (grpcio and h11): the native one is not built",
        Level.LIMITED,
        "fewer requests per second; install cargo and make again, or use a wheel",
    )


def limits() -> list[Finding]:
    """Return limits of the process and the kernel."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    descriptors = Finding("descriptors", f"{soft:,}, raised to {shown} at start")
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_MIN:
        descriptors = descriptors._replace(
            level=Level.LIMITED,
            consequence=f"at most {hard:,} connections and files; ulimit -Hn raises the limit",
        )
    return [descriptors, _inotify(), _memory()]


def _inotify() -> Finding:
    try:
        instances = int((_INOTIFY / "max_user_instances").read_text())
        watches = int((_INOTIFY / "max_user_watches").read_text())
    except OSError:
        return Finding("inotify", "not there", Level.LIMITED, "programs in pods cannot watch files")
    found = Finding("inotify", f"{instances:,} instances, {watches:,} watches per user")
    if instances >= _INSTANCES_MIN:
        return found
    return found._replace(
        level=Level.LIMITED,
        consequence="programs in many pods share them; sysctl fs.inotify.max_user_instances",
    )


def _memory() -> Finding:
    pages = os.sysconf("SC_AVPHYS_PAGES")
    free_mib = pages * os.sysconf("SC_PAGE_SIZE") // _MIB
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            free_mib = int(line.split()[1]) // 1024
    found = Finding("memory", f"{free_mib:,} MiB available")
    if free_mib >= MEMORY_MIN_MIB:
        return found
    return found._replace(
        level=Level.LIMITED, consequence=f"a cluster alone takes about {MEMORY_MIN_MIB} MiB"
    )


def clock(pki: Path) -> Finding:
    """Return whether the clock can be trusted; pki: where certificates of earlier starts are."""
    now_s = SystemClock().unix_ms() / 1000
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now_s))
    made_s = _newest_certificate_s(pki)
    if made_s > now_s:
        return Finding(
            "clock",
            text,
            Level.ERROR,
            f"it is behind the certificates in {pki}, which are not valid yet",
        )
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # mode 0: nothing is set
    if ctypes.CDLL(None, use_errno=True).adjtimex(buffer) == _UNSYNCHRONIZED:
        return Finding(
            "clock",
            f"{text}, not synchronized",
            Level.LIMITED,
            "certificates and leases of several machines need clocks that agree (NTP)",
        )
    return Finding("clock", f"{text}, synchronized")


def _newest_certificate_s(pki: Path) -> float:
    """Return the latest time at which a certificate becomes valid; 0: there is none."""
    from cryptography import x509  # takes 20 ms to load

    begins = [0.0]
    for file in pki.glob("*.crt"):
        certificates = x509.load_pem_x509_certificates(file.read_bytes())
        begins += [each.not_valid_before_utc.timestamp() for each in certificates]
    return max(begins)
