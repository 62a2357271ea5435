"""Network namespaces with a cable between them that a test can cut, slow down and make lossy.

    with namespaces(3) as network:
        network.hosts[0]             its namespace and its address
        network.isolate(0)           from the other hosts, both ways; clients still reach it
        network.cut(0, 1)            one way
        network.link(0, 1, loss=0.1, delay_ms=20)
        network.heal()

Each namespace has one TUN device; all packets pass `wire_switch`, a process of its own. The test's
own side has a device, too, by which clients reach every host; no rule touches it. The namespaces
are named after the process that made them, and those of processes that are gone are removed.
Where namespaces or TUN devices are not to be had, the test is skipped and says so.
"""

import contextlib
import fcntl
import itertools
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

TUN: Final = Path("/dev/net/tun")
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001
_PREFIX: Final = "kvtest"
_MTU: Final = 9000
_SWITCH: Final = Path(__file__).with_name("wire_switch.py")
_numbers = itertools.count()


class Host(NamedTuple):
    """One end of the cable; namespace "": the test's own."""

    namespace: str
    address: str


class Network:
    """The hosts and the rules between them."""

    def __init__(self, hosts: list[Host], switch: "subprocess.Popen[str]") -> None:
        self.hosts = hosts
        self._switch = switch
        self._rules: dict[tuple[int, int], dict[str, float]] = {}

    def cut(self, source: int, target: int) -> None:
        """Let nothing pass one way."""
        self.link(source, target, loss=1.0)

    def isolate(self, one: int) -> None:
        """Cut one host off from all other hosts, both ways."""
        for other in range(len(self.hosts)):
            if other != one:
                self._rules[one, other] = self._rules[other, one] = {"loss": 1.0}
        self._tell()

    def link(self, source: int, target: int, **rule: float) -> None:
        """Set loss (a share) and delay_ms of one way."""
        self._rules[source, target] = rule
        self._tell()

    def everywhere(self, **rule: float) -> None:
        """Set loss (a share) and delay_ms of all ways between hosts."""
        pairs = itertools.permutations(range(len(self.hosts)), 2)
        self._rules = dict.fromkeys(pairs, rule)
        self._tell()

    def heal(self) -> dict[str, int]:
        """Let everything pass; return how many packets were carried and lost so far."""
        self._rules = {}
        return self._tell()

    def _tell(self) -> dict[str, int]:
        rows: list[Any] = [
            [self.hosts[source].address, self.hosts[target].address, rule]
            for (source, target), rule in self._rules.items()
        ]
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(json.dumps({"rules": rows}) + "\n")
        self._switch.stdin.flush()
        counts: dict[str, int] = json.loads(self._switch.stdout.readline())
        return counts


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _remove_left_overs() -> None:
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        name = line.split()[0]
        prefix, _, rest = name.partition("-")
        if prefix == _PREFIX and not Path(f"/proc/{rest.partition('-')[0]}").exists():
            with contextlib.suppress(subprocess.CalledProcessError):  # another test was faster
                _run("ip", "netns", "delete", name)


def _device(stack: ExitStack, name: str) -> int:
    device = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
    stack.callback(os.close, device)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN_NO_PI))
    return device


def _plug(stack: ExitStack, host: Host, device_name: str) -> int:
    """Make a device, put it into its host's namespace, give it the address; its descriptor."""
    device = _device(stack, device_name)
    where: list[str] = []
    if host.namespace:
        _run("ip", "netns", "add", host.namespace)
        stack.callback(_run, "ip", "netns", "delete", host.namespace)
        _run("ip", "link", "set", device_name, "netns", host.namespace)
        where = ["-n", host.namespace]
        _run("ip", *where, "link", "set", "lo", "up")
    _run("ip", *where, "address", "add", f"{host.address}/24", "dev", device_name)
    _run("ip", *where, "link", "set", device_name, "up", "mtu", str(_MTU))
    return device


@contextmanager
def namespaces(count: int, *, seed: int = 1) -> Iterator[Network]:
    """Make hosts in namespaces of their own, all reachable; everything is gone in the end."""
    pid, number = os.getpid(), next(_numbers)
    net = f"10.{128 + pid % 100}.{(pid // 100 + number) % 250}"
    hosts = [Host(f"{_PREFIX}-{pid}-{number}-{at}", f"{net}.{at + 1}") for at in range(count)]
    clients = Host("", f"{net}.254")
    with ExitStack() as stack:
        try:
            _remove_left_overs()
            devices = [
                _plug(stack, host, f"kv{pid % 100_000}x{number}x{at}")
                for at, host in enumerate([*hosts, clients])
            ]
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", "") or error
            pytest.skip(f"no network namespaces with TUN devices are to be had: {why}")
        named = zip([*hosts, clients], devices, strict=True)
        arguments = [f"{host.address}={device}" for host, device in named]
        switch = stack.enter_context(
            subprocess.Popen(
                [sys.executable, str(_SWITCH), str(seed), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=devices,
            )
        )
        stack.callback(_end, switch)
        yield Network(hosts, switch)


def _end(switch: "subprocess.Popen[str]") -> None:
    assert switch.stdin is not None
    switch.stdin.close()
    try:
        switch.wait(5)
    except subprocess.TimeoutExpired:
        switch.kill()
        switch.wait()
        raise
