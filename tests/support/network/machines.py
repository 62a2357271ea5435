"""Machines that share a network: namespaces on one bridge, and behind a router if asked for.

    with machines(("one", "two")) as network:
        network.address("one")                        10.203.0.2: all are on link of each other
        network.command("one", "ip", "route")         what is run, in the namespace of a machine

    with machines(("one", "two"), is_routed=True) as network:
        network.address("two")                        10.203.2.2: a router is in between

    with machines(("one", "two"), families=(4, 6)) as network:
        network.address("two", 6)                     fd00:cb::3

Only root has it; elsewhere the test is skipped and says so. Nothing of the real machine's network
is touched, and the namespaces go in the end, as do those of tests that were killed.
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

_PREFIX = "kvm"
_FORWARDS = {4: "net.ipv4.ip_forward=1", 6: "net.ipv6.conf.all.forwarding=1"}
_numbers = itertools.count()


class Machines:
    """The machines of one network."""

    def __init__(
        self, prefix: str, names: Sequence[str], families: Sequence[int], *, is_routed: bool
    ) -> None:
        self._prefix = prefix
        self.families = tuple(families)
        self._names = list(names)
        self._is_routed = is_routed

    def namespace(self, name: str) -> str:
        """Return how `ip netns` knows a machine; "": what is between them."""
        return f"{self._prefix}-{name or 'between'}"

    def address(self, name: str, family: int = 0) -> str:
        """Return the address of a machine; family: 4 or 6; 0: the first that machines have."""
        at = self._names.index(name)
        last = 2 if self._is_routed else at + 2
        return self._address(at, last, family or self.families[0])

    def gateway(self, name: str, family: int) -> str:
        """Return the address of what is between, as a machine sees it."""
        return self._address(self._names.index(name), 1, family)

    def _address(self, at: int, last: int, family: int) -> str:
        third = at + 1 if self._is_routed else 0
        if family == 4:
            return f"10.203.{third}.{last}"
        return f"fd00:cb:0:{third}::{last}" if third else f"fd00:cb::{last}"

    def command(self, name: str, *command: str) -> list[str]:
        """Return a command as it runs on a machine.

        It is not `ip netns exec`, which mounts /sys anew and hides the control groups.
        """
        return ["nsenter", f"--net=/run/netns/{self.namespace(name)}", *command]

    def output(self, name: str, *command: str) -> str:
        """Run a command on a machine; return what it says."""
        return subprocess.run(
            self.command(name, *command), check=True, capture_output=True, text=True, timeout=60
        ).stdout


@contextmanager
def machines(
    names: Sequence[str], *, is_routed: bool = False, families: Sequence[int] = (4,)
) -> Iterator[Machines]:
    """Make machines that reach each other, by addresses of one family or both."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    prefix = f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
    found = Machines(prefix, names, families, is_routed=is_routed)
    with ExitStack() as stack:
        try:
            _remove_left_overs()
            _make(found, names, stack, is_routed=is_routed)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces are to be had: {getattr(error, 'stderr', error)}")
        yield found


def _make(found: Machines, names: Sequence[str], stack: ExitStack, *, is_routed: bool) -> None:
    for name in ("", *names):
        _ip("netns", "add", found.namespace(name))
        stack.callback(_ip, "netns", "delete", found.namespace(name))
        _ip("-n", found.namespace(name), "link", "set", "lo", "up")
    between = found.namespace("")
    if not is_routed:
        _ip("-n", between, "link", "add", "lan", "type", "bridge")
        for family in found.families:
            _add(between, found.gateway(names[0], family), "lan")
        _ip("-n", between, "link", "set", "lan", "up")
    for at, name in enumerate(names):
        own, port = found.namespace(name), f"to{at}"
        _ip("-n", between, "link", "add", port, "type", "veth", "peer", "eth0", "netns", own)
        if not is_routed:
            _ip("-n", between, "link", "set", port, "master", "lan")
        for family in found.families:
            if is_routed:
                _add(between, found.gateway(name, family), port)
            _add(own, found.address(name, family), "eth0")
        _ip("-n", between, "link", "set", port, "up")
        _ip("-n", own, "link", "set", "eth0", "up")
        for family in found.families:
            _ip("-n", own, "route", "add", "default", "via", found.gateway(name, family))
    if is_routed:
        for family in found.families:
            command = found.command("", "sysctl", "-q", "-w", _FORWARDS[family])
            subprocess.run(command, check=True, capture_output=True, text=True)


def _add(namespace: str, address: str, device: str) -> None:
    """Give an interface an address, which is of use at once."""
    suffix, flags = ("/64", ("nodad",)) if ":" in address else ("/24", ())
    _ip("-n", namespace, "address", "add", f"{address}{suffix}", "dev", device, *flags)


def _remove_left_overs() -> None:
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        name = line.split()[0]
        pid = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(subprocess.CalledProcessError):  # another test was faster
                _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
