"""The cable between network namespaces, as a process: packets of TUN devices, passed on by rules.

    stdin   {"rules": [["10.213.7.1", "10.213.7.2", {"loss": 0.1, "delay_ms": 20}], ...]}
    stdout  {"carried": 1234, "lost": 17}            once the rules are in force

A rule is of one direction; what no rule names passes at once. Packets of one direction keep their
order. This is done here and not by tc and iptables because few kernels of test machines have netem,
and because it needs nothing but /dev/net/tun. It ends when stdin does, so that no cable outlives
its test; the devices end with it.
"""

import heapq
import ipaddress
import json
import os
import random
import selectors
import sys
import time
from typing import NamedTuple

PACKET_BYTES_MAX = 65_536
WAITING_MAX = 20_000  # packets under way; a cable that is fuller drops, as any does
IPV4 = 4


class Rule(NamedTuple):
    """What happens to the packets of one direction."""

    loss: float = 0.0  # share, 1: all
    delay_ms: float = 0.0


class Switch:
    """The devices by address, the rules, and what is under way."""

    def __init__(self, devices: dict[str, int], seed: int) -> None:
        self.devices = {ipaddress.ip_address(name).packed: fd for name, fd in devices.items()}
        self.rules: dict[tuple[bytes, bytes], Rule] = {}
        self.carried = 0
        self.lost = 0
        self._rng = random.Random(seed)
        self._waiting: list[tuple[float, int, int, bytes]] = []  # (due, order, device, packet)
        self._order = 0

    def set_rules(self, rows: list[tuple[str, str, dict[str, float]]]) -> None:
        """Replace all rules."""
        self.rules = {
            (ipaddress.ip_address(a).packed, ipaddress.ip_address(b).packed): Rule(**rule)
            for a, b, rule in rows
        }

    def receive(self, fd: int) -> None:
        """Take what a device has."""
        while True:
            try:
                packet = os.read(fd, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            self._take(packet)

    def _take(self, packet: bytes) -> None:
        if packet[0] >> 4 != IPV4:
            return  # the kernel's own chatter
        source, target = packet[12:16], packet[16:20]
        device = self.devices.get(target)
        if device is None:
            return
        rule = self.rules.get((source, target))
        if rule is None:
            self._pass(device, packet)
        elif self._rng.random() < rule.loss or len(self._waiting) >= WAITING_MAX:
            self.lost += 1
        elif not rule.delay_ms:
            self._pass(device, packet)
        else:
            self._order += 1
            due = time.monotonic() + rule.delay_ms / 1000
            heapq.heappush(self._waiting, (due, self._order, device, packet))

    def _pass(self, device: int, packet: bytes) -> None:
        try:
            os.write(device, packet)
        except OSError:  # the device is down or its queue is full: a packet is lost
            self.lost += 1
        else:
            self.carried += 1

    def deliver(self) -> float | None:
        """Pass on what is due; return the seconds until the next is, None if nothing waits."""
        waiting = self._waiting
        while waiting:
            left_s = waiting[0][0] - time.monotonic()
            if left_s > 0:
                return left_s
            _, _, device, packet = heapq.heappop(waiting)
            self._pass(device, packet)
        return None


def main() -> None:
    """Carry packets; arguments: the seed, then an address=descriptor for each device."""
    devices = dict(each.split("=") for each in sys.argv[2:])
    switch = Switch({name: int(fd) for name, fd in devices.items()}, int(sys.argv[1]))
    with selectors.DefaultSelector() as selector:
        for fd in switch.devices.values():
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ)
        commands = sys.stdin.fileno()
        selector.register(commands, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select(switch.deliver()):
                if key.fd != commands:
                    switch.receive(key.fd)
                    continue
                line = sys.stdin.readline()
                if not line:
                    return
                switch.set_rules(json.loads(line)["rules"])
                counts = {"carried": switch.carried, "lost": switch.lost}
                print(json.dumps(counts), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
