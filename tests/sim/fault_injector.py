"""The faults of a world: each has a name and a weight in the options.

One machine: power cut, now or at a later call of the disk; process killed, stopped gracefully,
paused; failed sync, full disk, slow disk, flipped bits; wall clock set. Network: partitions, both
ways or one way; messages lost, late or twice; slow links; broken snapshot transfers.
"""

import random
from collections import Counter
from typing import Protocol

from tests.sim.checks import SECOND_NS
from tests.sim.member import Clock, Member
from tests.sim.options import MS_NS, Options
from tests.sim.trace import Trace
from tests.sim.violation import demand
from tests.support.cluster.network import Network


class Target(Protocol):
    """A world, as far as faults concern it."""

    rng: random.Random
    options: Options
    trace: Trace
    clock: Clock
    network: Network
    counts: Counter[str]
    members: list[Member]

    def end(self, member: Member, why: str) -> None:
        """End a process, or cut its machine's power."""


class FaultInjector:
    """Injects drawn faults."""

    def __init__(self, world: Target) -> None:
        self._world = world
        self._rng = world.rng
        self._network = world.network
        faults = world.options.faults
        self._names = list(faults)
        self._weights = list(faults.values())

    def inject(self) -> None:
        """Inject one fault."""
        name = self._rng.choices(self._names, self._weights)[0]
        self._world.trace.note("fault", name)
        self._world.counts[f"fault: {name}"] += 1
        running = [member for member in self._world.members if member.node is not None]
        if name in ("partition", "one_way", "isolate", "heal", "lossy", "slow", "snapshots"):
            getattr(self, f"_{name}")()
        elif running:
            getattr(self, f"_{name}")(self._rng.choice(running))

    def stop(self) -> None:
        """End all faults."""
        network = self._network
        for member in self._world.members:
            member.faults.clear()
            member.asleep_until_ns = min(member.asleep_until_ns, self._world.clock.now_ns)
        network.heal()
        network.loss = network.duplication = 0.0
        network.snapshot_loss = network.snapshot_doubt = 0.0
        network.snapshot_byte_ns = 0
        network.slow_ns = {}
        network.delay_ns = (MS_NS // 2, 2 * MS_NS)

    # One machine.

    def _power(self, member: Member) -> None:
        self._world.end(member, "power")

    def _kill(self, member: Member) -> None:
        self._world.end(member, "kill")

    def _stop(self, member: Member) -> None:
        if not member.is_stopping:
            member.begin_stop()

    def _armed(self, member: Member) -> None:
        """Cut the power at a later call of the disk."""
        rng = self._rng
        member.faults.cut_in = 1 + rng.randrange(rng.choice((3, 30, 300)))

    def _sync_fails(self, member: Member) -> None:
        member.faults.sync_fails_in = 1 + self._rng.randrange(10)

    def _full(self, member: Member) -> None:
        member.faults.is_full = True

    def _stall(self, member: Member) -> None:
        member.faults.stall_ns = self._rng.choice((0, 50 * MS_NS, 3 * SECOND_NS))

    def _pause(self, member: Member) -> None:
        """Pause a process, as by SIGSTOP; what arrives waits."""
        timeout_ns = self._world.options.election_ms * MS_NS
        pause_ns = self._rng.choice((timeout_ns // 2, 2 * timeout_ns, 10 * timeout_ns))
        member.asleep_until_ns = self._world.clock.now_ns + pause_ns

    def _wall_clock(self, member: Member) -> None:
        member.clock.wall_offset_ms = self._rng.choice((0, -3_600_000, 250, 86_400_000))

    def _rot(self, member: Member) -> None:
        """Flip a bit of the log while the machine is off."""
        world, rng = self._world, self._rng
        world.counts["rot"] += 1
        world.end(member, "power")
        names = [name for name in member.files.names(member.paths.wal) if name.endswith(".wal")]
        demand(names, "the log is gone")
        path = member.paths.wal / rng.choice(names)
        data = member.files.content(path)
        end = len(data.rstrip(b"\0")) if rng.randrange(4) else len(data)
        if end:
            member.files.rot(path, rng.randrange(end), 1 << rng.randrange(8))

    # Network.

    def _ids(self) -> list[int]:
        return [member.id for member in self._world.members if member.id]

    def _partition(self) -> None:
        ids = self._ids()
        self._rng.shuffle(ids)
        at = self._rng.randrange(len(ids) + 1)
        self._network.partition(ids[:at], ids[at:])

    def _isolate(self) -> None:
        """Isolate the leader, or another member."""
        rng, members = self._rng, self._world.members
        leaders = [each.id for each in members if each.node and each.parts.raft.is_leader]
        one = rng.choice(leaders if leaders and rng.randrange(2) else self._ids() or [0])
        self._network.partition([one], [each for each in self._ids() if each != one])

    def _one_way(self) -> None:
        ids, rng = self._ids(), self._rng
        self._network.cut = {(a, b) for a in ids for b in ids if a != b and rng.random() < 0.3}

    def _heal(self) -> None:
        network = self._network
        network.heal()
        network.loss = network.duplication = 0.0
        network.slow_ns = {}

    def _lossy(self) -> None:
        rng, network = self._rng, self._network
        network.loss, network.duplication = rng.choice((0, 0.05, 0.3)), rng.choice((0, 0.1))
        network.delay_ns = rng.choice((self._world.options.delay_ns, (0, 40 * MS_NS)))

    def _slow(self) -> None:
        """Make messages of one direction between two machines take longer."""
        rng, ids = self._rng, self._ids()
        if len(ids) > 1:
            a, b = rng.sample(ids, 2)
            timeout_ns = self._world.options.election_ms * MS_NS
            self._network.slow_ns[a, b] = rng.choice((10 * MS_NS, timeout_ns // 2, 2 * timeout_ns))

    def _snapshots(self) -> None:
        rng, network = self._rng, self._network
        network.snapshot_loss = rng.choice((0, 0.3, 0.8))
        network.snapshot_doubt = rng.choice((0, 0.3))
        network.snapshot_byte_ns = rng.choice((0, 1000, 100_000))
