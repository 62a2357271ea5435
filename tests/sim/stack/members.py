"""Members of the store in a world of coroutines: the real nodes, disks and links of tests/sim.

    channel ─► add(member, …) ─► inbox ─► turn ─► outbox ─► on_answers(member, outbox)

Turns are taken when the loop's time has come to them. What the store promises is checked by its own
simulation; here it only has faults: members are killed, lose power, freeze, and lose each other.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from typing_extensions import override

from kvstore.batch import Inbox, Outbox
from kvstore.raft.model import Entry, Message
from kvstore.server.boot.bootstrap import Founding
from tests.sim.member import Checkers, Clock, Member
from tests.sim.options import MS_NS, Options, draw
from tests.sim.peers import OffloadedTasks
from tests.sim.trace import Trace
from tests.sim.violation import demand
from tests.support.cluster.network import Network

if TYPE_CHECKING:
    from tests.sim.checks import Checker
    from tests.sim.raft_checks import RaftChecker

_TOKEN: Final = "stack"
_TIMEOUT_NS: Final = 7_000 * MS_NS
_HEARTBEAT_MS: Final = 200
_ELECTION_MS: Final = 2000

OnAnswers = Callable[[int, Outbox], None]
OnEnd = Callable[[int], None]


class _Access:
    """What a member tells the checker of permissions."""

    def __init__(self) -> None:
        self.lost_before: dict[int, int] = {}


class _NoStoreChecks:
    """In place of the store's checker: it only remembers how far each member is."""

    def __init__(self) -> None:
        self.access = _Access()
        self.applied: dict[int, int] = defaultdict(int)
        self.index = 0

    def proposed(self, entries: Sequence[Entry]) -> None:
        pass

    def jump(self, member: int, index: int) -> None:
        self.advance_to(member, index)

    def advance_to(self, member: int, index: int) -> None:
        self.applied[member] = index
        self.index = max(self.index, index)

    def note_pause(self, since_ns: int, until_ns: int) -> None:
        pass


class _NoRaftChecks:
    """In place of the checker of the log."""

    def saving(self, *_: object, **__: object) -> None:
        pass

    synced = recorded = restarted = sent = after_turn = saving


class _QuietTrace(Trace):
    """A trace without what goes into nodes and out of them: channels tell of that."""

    @override
    def inbox(self, member: int, inbox: Inbox) -> None:
        pass

    @override
    def outbox(self, member: int, out: Outbox) -> None:
        pass


class _Member(Member):
    """A member whose state is not compared with a model."""

    @override
    def compare(self) -> None:
        self.has_installed = False

    @override
    def _report_found(self, booted: Any) -> None:
        pass

    @override
    def report_applied(self) -> None:
        store = cast("Any", self.checkers.store)
        store.advance_to(self.number, self.parts.raft.applied)


def _options(rng: random.Random, count: int) -> Options:
    """Return the options of members without odd limits, so that they cost little."""
    return replace(
        draw(rng, count, auth=False),
        flags=[
            f"--heartbeat-interval={_HEARTBEAT_MS}",
            f"--election-timeout={_ELECTION_MS}",
            f"--snapshot-count={rng.choice((50, 500, 10_000))}",
            f"--snapshot-catchup-entries={rng.choice((10, 5000))}",
        ],
        limits={},
        watch_limits={},
        raft_limits={},
        compacts=False,
        quota_bytes=0,
        segment_bytes=1 << 20,
        election_ms=_ELECTION_MS,
        turn_ns=MS_NS,
        delay_ns=(MS_NS // 2, 2 * MS_NS),
        is_ordered=True,
        certificates=False,
        signed_tokens=False,
    )


def _deliver(message: Message, inbox: Inbox) -> None:
    inbox.messages.append(message)


class StoreMembers:
    """The members of one cluster; all of it belongs to the running loop."""

    def __init__(self, rng: random.Random, count: int) -> None:
        """Found a cluster; it starts with `start`."""
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._options = _options(rng, count)
        self.clock = Clock()
        self._base_ns = self.clock.now_ns - round(self._loop.time() * 1e9)
        self.network = network = Network(rng)
        network.keeps_sent = False
        network.now_ns = self.clock.now_ns
        network.delay_ns = self._options.delay_ns
        network.is_ordered = True
        self._tasks: OffloadedTasks[Member] = OffloadedTasks(network, _TIMEOUT_NS)
        checkers = Checkers(cast("Checker", _NoStoreChecks()), cast("RaftChecker", _NoRaftChecks()))
        self.members: Final = [
            _Member(number, rng, self._options, checkers, _QuietTrace(), self.clock, network)
            for number in range(1, count + 1)
        ]
        self._due_starts: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._last_id = 0
        self._revision = 0
        self.on_answers: list[OnAnswers] = []
        self.on_end: list[OnEnd] = []
        """Told of the number of a member whose process has ended."""

    def take_id(self) -> int:
        """Return an id for a call or stream, which no other has."""
        self._last_id += 1
        return self._last_id

    def start(self) -> None:
        """Start all members."""
        for member in self.members:
            self._due_starts[member.number] = self._now_ns()
        self._schedule()

    async def ready(self) -> None:
        """Wait until some member leads and serves."""
        while not self._leads():  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.05)

    def _leads(self) -> bool:
        return any(each.is_serving and each.parts.raft.is_leader for each in self.members)

    def stop(self) -> None:
        """Take no more turns."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        for member in self.members:
            if member.node is not None:
                member.kill()

    def is_serving(self, number: int) -> bool:
        """Whether a member takes requests; it may have no leader."""
        return self.members[number - 1].is_serving

    def add(self, number: int, what: Callable[[Inbox], None]) -> None:
        """Add something to a member's inbox."""
        self.members[number - 1].add_to_inbox(what)
        self._schedule()

    def leader(self) -> int:
        """Return the number of the member that leads; 0: none."""
        for member in self.members:
            if member.node is not None and member.parts.raft.is_leader:
                return member.number
        return 0

    def revision(self) -> int:
        """Return the newest revision that any member has ever applied."""
        return self._revision

    # Faults.

    def crash(self, number: int, down_s: float, *, with_power: bool) -> None:
        """End a member's process, or its machine's power, for so long."""
        member = self.members[number - 1]
        if member.node is None:
            return
        if with_power:
            member.cut_power()
        else:
            member.kill()
        self._due_starts[number] = self._now_ns() + round(down_s * 1e9)
        for told in self.on_end:
            told(number)
        self._schedule()

    def pause(self, number: int, for_s: float) -> None:
        """Freeze a member's process."""
        self.members[number - 1].asleep_until_ns = self._now_ns() + round(for_s * 1e9)

    def isolate(self, number: int) -> None:
        """Cut a member off from the others."""
        ids = [each.id for each in self.members if each.id]
        one = self.members[number - 1].id
        self.network.now_ns = self._now_ns()
        self.network.partition([one], [each for each in ids if each != one])

    def heal(self) -> None:
        """End all faults of the network, and let all be awake."""
        network = self.network
        network.now_ns = self._now_ns()
        network.heal()
        network.loss = network.duplication = 0.0
        for member in self.members:
            member.asleep_until_ns = min(member.asleep_until_ns, self._now_ns())
        self._schedule()

    def disturb(self, loss: float, duplication: float) -> None:
        """Lose and double messages among members."""
        self.network.loss, self.network.duplication = loss, duplication

    # Time.

    def _now_ns(self) -> int:
        return self._base_ns + round(self._loop.time() * 1e9)

    def _next_ns(self) -> int | None:
        times = [self.network.next_ns(), self._tasks.next_ns(), *self._due_starts.values()]
        times += [each.due_ns for each in self.members if each.node is not None]
        return min((each for each in times if each is not None), default=None)

    def _schedule(self) -> None:
        at_ns = self._next_ns()
        if at_ns is None:
            return
        at_ns = max(at_ns, self._now_ns())
        if self._timer is not None:
            if self._timer_ns <= at_ns:
                return
            self._timer.cancel()
        self._timer_ns = at_ns
        self._timer = self._loop.call_at((at_ns - self._base_ns) / 1e9, self._step)

    def _step(self) -> None:
        """Do everything that is due."""
        self._timer = None
        now_ns = max(self._now_ns(), self.clock.now_ns)
        self.clock.now_ns = self.network.now_ns = now_ns
        for _, to, message, rows in self.network.arrived():
            target = self._tasks.members.get(to)
            if target is not None and target.node is not None:
                if rows is not None and message.snapshot is not None:
                    target.backend.receive(message.snapshot.metadata.index, rows)
                target.add_to_inbox(partial(_deliver, message))
        self._tasks.step()
        for member in self.members:
            if self._due_starts.get(member.number, now_ns + 1) <= now_ns:
                self._begin(member)
            due_ns = member.due_ns
            if due_ns is not None and due_ns <= now_ns:
                self._turn(member)
        self._schedule()

    def _begin(self, member: Member) -> None:
        del self._due_starts[member.number]
        urls = {each.name: each.urls for each in self.members}
        member.start(Founding(member.name, lambda: urls, _TOKEN, is_new=True))
        self._tasks.members = {each.id: each for each in self.members if each.id}

    def _turn(self, member: Member) -> None:
        for out in member.turn({}):
            for told in self.on_answers:
                told(member.number, out)
            for task in out.tasks:
                self._tasks.run(member, task)
        demand(member.node is not None, member.name, "ended by itself")
        self._revision = max(self._revision, member.parts.state.store.revision)
