"""One member behind a slow link: made by the kernel where it can be, by signals where it cannot.

    this side                         a network namespace of its own
    all other members ── veth ══════ veth ── the slow member          tc at both ends

tc's netem gives it delay and a narrow bandwidth; kernels without netem have tbf, which narrows it
and lets the delay come from the queue that builds up. Without namespaces (no root, no `ip`) the
slow member is stopped and continued in bursts, as a machine does whose hypervisor is overcommitted.
"""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from bench.clusters import HERE, Host, Member

_PREFIX: Final = "kvbench"
_NETEM: Final = ("netem", "delay", "50ms", "rate", "1mbit", "limit", "500")
_TBF: Final = ("tbf", "rate", "1mbit", "burst", "16kb", "latency", "200ms")
_STOPPED_S: Final = 0.2
_RUNNING_S: Final = 0.05


class SlowLink(Protocol):
    """What makes one member slow, and how it is called in the notes."""

    how: str
    slow: Host  # of the slow member
    others: Host

    def begin(self, member: Member) -> None:
        """Make the link slow."""

    def end(self, member: Member) -> None:
        """Make it as fast as all others."""


class Cable:
    """A pair of virtual devices, one of them in a namespace."""

    def __init__(self, number: int) -> None:
        pid = os.getpid()
        self._namespace = f"{_PREFIX}-{pid}-{number}"
        self._near, self._far = (f"kvb{pid % 100_000}{end}{number}" for end in "ab")
        net = f"10.{64 + pid % 64}.{pid // 64 % 250}"
        self._near_address, far_address = f"{net}.{4 * number + 1}", f"{net}.{4 * number + 2}"
        self._far_address = far_address
        self.slow = Host(far_address, far_address, self._namespace)
        self.others = Host(peer_address=self._near_address)
        self.how = ""

    def plug(self, stack: ExitStack) -> None:
        """Make devices and namespace; CalledProcessError where that is not to be had."""
        inside = ("-n", self._namespace)
        _run("ip", "netns", "add", self._namespace)
        stack.callback(_run, "ip", "netns", "delete", self._namespace)  # its devices go with it
        peer = ("peer", "name", self._far, "netns", self._namespace)
        _run("ip", "link", "add", self._near, "type", "veth", *peer)
        _run("ip", "address", "add", f"{self._near_address}/30", "dev", self._near)
        _run("ip", *inside, "address", "add", f"{self._far_address}/30", "dev", self._far)
        _run("ip", "link", "set", self._near, "up")
        _run("ip", *inside, "link", "set", "lo", "up")
        _run("ip", *inside, "link", "set", self._far, "up")
        try:
            self._shape(*_NETEM)
            self._shaping = _NETEM
        except subprocess.CalledProcessError:  # a kernel without netem
            self._shape(*_TBF)
            self._shaping = _TBF
        self._unshape()
        self.how = f"tc {' '.join(self._shaping)}, both ways"

    def begin(self, member: Member) -> None:
        """See SlowLink."""
        del member
        self._shape(*self._shaping)

    def end(self, member: Member) -> None:
        """See SlowLink."""
        del member
        self._unshape()

    def _shape(self, *words: str) -> None:
        for command in self._ends():
            _run(*command[:-1], "replace", "dev", command[-1], "root", *words)

    def _unshape(self) -> None:
        for command in self._ends():
            _run(*command[:-1], "delete", "dev", command[-1], "root")

    def _ends(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        far = ("tc", "-n", self._namespace, "qdisc", self._far)
        return (("tc", "qdisc", self._near), far)


class Bursts:
    """A member that is stopped for most of the time."""

    def __init__(self) -> None:
        self.slow = self.others = HERE
        stopped, running = _STOPPED_S * 1000, _RUNNING_S * 1000
        self.how = f"the member stopped for {stopped:g} ms, running for {running:g} ms, in turns"
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, member: Member) -> None:
        """See SlowLink."""
        self._over.clear()
        self._thread = threading.Thread(target=self._alternate, args=(member,), daemon=True)
        self._thread.start()

    def end(self, member: Member) -> None:
        """See SlowLink."""
        del member
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _alternate(self, member: Member) -> None:
        process = member.process
        if process is None:
            raise RuntimeError(f"{member.name} does not run")
        while not self._over.is_set():
            process.send_signal(signal.SIGSTOP)
            self._over.wait(_STOPPED_S)
            process.send_signal(signal.SIGCONT)
            self._over.wait(_RUNNING_S)


@contextmanager
def slow_link(number: int) -> Iterator[SlowLink]:
    """Prepare a link, not slow yet; number tells those of one run apart (0 to 60)."""
    with ExitStack() as stack:
        if shutil.which("ip") is None or shutil.which("tc") is None:
            yield Bursts()
            return
        _remove_left_overs()
        cable = Cable(number)
        try:
            with ExitStack() as plugged:
                cable.plug(plugged)
                stack.push(plugged.pop_all())
        except subprocess.CalledProcessError:  # no right to, or not in this kernel
            yield Bursts()
            return
        yield cable


def _remove_left_overs() -> None:
    """Remove the namespaces of runs that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], check=False, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        name = line.split()[0]
        prefix, _, rest = name.partition("-")
        if prefix == _PREFIX and not Path(f"/proc/{rest.partition('-')[0]}").exists():
            _run("ip", "netns", "delete", name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
