"""A simulated cluster: members, clients, time, network and faults, all of it drawn from one seed.

    step      a fault, or none ─► clients send requests ─► time passes: messages arrive, members
              take turns, machines start again; all that is saved, sent and answered is checked
    the end   faults stop; all calls are answered, watchers see all events, leases end, members are
              equal and each serves, in bounded time

A broken promise is a Violation, an exception; the same seed repeats it. Time goes from event to
event. A turn takes some time, so that a member that is always busy does not stop the others. Which
faults there are is in fault_injector.py.
"""

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kvstack.component.errors import ConfigError
from kvstore.backend import Table
from kvstore.batch import Inbox
from kvstore.errors import CorruptionError, DataDirError, StorageFatalError
from kvstore.raft.model import Message
from kvstore.server.boot.bootstrap import Founding
from tests.sim import options as drawn_options
from tests.sim.checks import SECOND_NS, Checker
from tests.sim.clients import Clients
from tests.sim.disk_faults import PowerCut
from tests.sim.fault_injector import FaultInjector
from tests.sim.member import Checkers, Clock, Member
from tests.sim.model import StoreModel
from tests.sim.options import MS_NS
from tests.sim.peers import JoinQuestions, OffloadedTasks
from tests.sim.raft_checks import RaftChecker
from tests.sim.roster import Roster
from tests.sim.trace import Trace
from tests.sim.violation import demand
from tests.sim.watches import Watches
from tests.support.cluster.network import Network

_EVENTS_MAX = 2_000_000
_STARTS_MAX = 200  # of one machine, in a row, that fail
_TOKEN = "sim"


class Report(NamedTuple):
    """The result of one seed."""

    seed: int
    members: int
    steps: int
    virtual_ns: int
    operations: int
    answers: int
    events: int
    crashes: int
    terms: int
    trace: str


def _append_message(message: Message, inbox: Inbox) -> None:
    inbox.messages.append(message)


class World:
    """The world of one seed."""

    member_type = Member

    def __init__(
        self,
        seed: int,
        *,
        members: int | None = None,
        auth: bool | None = None,
        often: Sequence[str] = (),
        keep_lines: bool = False,
    ) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.options = options = drawn_options.draw(rng, members, auth=auth, often=often)
        min_ttl_s = -(-3 * options.election_ms // 2000)
        roster = Roster(options.learners_max)
        checker = Checker(
            StoreModel(min_ttl_s),
            roster,
            has_quota=options.quota_bytes > 0,
            compacts=options.compacts,
            token_ttl_ns=options.token_ttl_s * SECOND_NS,
        )
        checker.auth.are_signed = options.signed_tokens
        checker.may_fail = options.members > 1 or "member_add" in options.weights
        checker.timeout_ns = timeout_ns = (5000 + 2 * options.election_ms) * MS_NS
        self.checkers = Checkers(checker, RaftChecker())
        self.trace = Trace(keep_lines=keep_lines)
        self.watches = Watches(checker)
        self.clients = Clients(rng, options, checker, self.watches)
        self.clock = Clock()
        self.network = Network(rng)
        self.network.keeps_sent = False
        self.network.now_ns = self.clock.now_ns
        self.network.delay_ns = options.delay_ns
        self.network.is_ordered = options.is_ordered
        self.tasks: OffloadedTasks[Member] = OffloadedTasks(self.network, timeout_ns)
        self.counts: Counter[str] = Counter()  # ends of members by reason, faults, and other events
        self.members: list[Member] = []
        self.due_starts: dict[int, int] = {}  # machine → when it starts again
        self._tries: Counter[int] = Counter()  # failed starts since the last good one
        for number in range(1, options.members + 1):
            self._add_machine(number)
        self._founders = list(self.members)
        self.fault_injector = FaultInjector(self)
        self.steps = 0
        self._events = 0
        self._began_ns = self.clock.now_ns

    def _add_machine(self, number: int) -> None:
        member = self.member_type(
            number,
            self.rng,
            self.options,
            self.checkers,
            self.trace,
            self.clock,
            self.network,
        )
        self.members.append(member)
        self.due_starts[number] = self.clock.now_ns

    # The run.

    def run(self, steps: int) -> Report:
        """Take so many steps, then stop all faults and check the final state."""
        for _ in range(steps):
            self.step()
        self.finish()
        return Report(
            seed=self.seed,
            members=self.options.members,
            steps=steps,
            virtual_ns=self.clock.now_ns - self._began_ns,
            operations=self.clients.operations,
            answers=self.checkers.store.answered,
            events=self.watches.events,
            crashes=sum(self.counts[each] for each in ("power", "kill", "died")),
            terms=max(self.checkers.raft.leaders, default=0),
            trace=self.trace.hexdigest(),
        )

    def step(self) -> None:
        """Inject a fault by chance, let requests arrive, and let time pass."""
        rng, options = self.rng, self.options
        self.steps += 1
        self.operate()
        if rng.random() < options.fault_rate and any(options.faults.values()):
            self.fault_injector.inject()
        for member in self.members:
            if member.is_serving and rng.random() < 2 / len(self.members):
                self._ask(member)
        chance = rng.random()
        if chance < options.big_steps:
            self._stand_still(rng.choice((1, 5, 60)) * SECOND_NS)
        elif chance < options.big_steps + options.patience:
            self.run_for(rng.randrange(3 * options.election_ms) * MS_NS)
        else:
            self.run_for(rng.randrange(30 * MS_NS))

    def _ask(self, member: Member) -> None:
        member.add_to_inbox(partial(self.clients.ask, member.number, self.clock.now_ns))

    # Time.

    def _stand_still(self, duration_ns: int) -> None:
        """Let time pass while all machines are suspended."""
        since_ns = self.clock.now_ns
        self.network.now_ns = self.clock.now_ns = since_ns + duration_ns
        self.checkers.store.note_pause(since_ns, self.clock.now_ns)

    def run_for(self, duration_ns: int) -> None:
        """Handle all events of a span of time."""
        until_ns = self.clock.now_ns + duration_ns
        while self._next(until_ns):
            pass

    def _next(self, until_ns: int) -> bool:
        """Handle the next event; False: there is none before until_ns, which is now."""
        self._events += 1
        demand(self._events < _EVENTS_MAX, "more than", _EVENTS_MAX, "events")
        due = [(member.due_ns, member) for member in self.members if member.node is not None]
        times = [self.network.next_ns(), self.tasks.next_ns(), *self.due_starts.values()]
        times += [due_ns for due_ns, _ in due]
        at_ns = min((each for each in times if each is not None), default=until_ns)
        self.clock.now_ns = max(self.clock.now_ns, min(at_ns, until_ns))
        self.network.now_ns = self.clock.now_ns
        if at_ns >= until_ns:
            return False
        self._deliver()
        self.tasks.step()
        now_ns = self.clock.now_ns
        for member in list(self.members):
            if self.due_starts.get(member.number, now_ns + 1) <= now_ns:
                self._start(member)
        for member in list(self.members):
            due_ns = member.due_ns
            if due_ns is not None and due_ns <= now_ns:
                self._turn(member)
        return True

    def _deliver(self) -> None:
        by_id = self.tasks.members
        for _, to, message, rows in self.network.arrived():
            target = by_id.get(to)
            if target is None or target.node is None:
                continue
            if rows is not None:
                assert message.snapshot is not None
                target.backend.receive(message.snapshot.metadata.index, rows)
                self.counts["snapshots"] += 1
            target.add_to_inbox(partial(_append_message, message))

    def _turn(self, member: Member) -> None:
        try:
            for out in member.turn(self.clients.backlog(member.number)):
                self.clients.take(member.number, self.clock.now_ns, out)
                for task in out.tasks:
                    self.tasks.run(member, task)
            assert member.node is not None
            if member.node.is_removed or member.knows_of_removal:
                self.counts["removed"] += 1
                self._stop(member)
            elif member.may_stop:
                self.counts["stop"] += 1
                self._stop(member)
        except PowerCut:
            self.end(member, "power")
        except StorageFatalError as error:
            self.died(member, error)

    def _stop(self, member: Member) -> None:
        self.trace.note("stop", member.number)
        member.stop()
        self._is_down(member)

    # Ends and starts.

    def died(self, member: Member, error: Exception) -> None:
        """End a process that failed: only an injected fault may be the reason."""
        demand(member.faults.has_failed, "a healthy disk, and", repr(error))
        self.end(member, "died", with_power=self.rng.randrange(2) == 0)

    def end(self, member: Member, why: str, *, with_power: bool | None = None) -> None:
        """End a process, or cut its machine's power."""
        self.counts[why] += 1
        self.trace.note("end", member.number, why, with_power)
        if with_power or (with_power is None and why != "kill"):
            member.cut_power()
        else:
            member.kill()
        self._is_down(member)

    def _is_down(self, member: Member) -> None:
        self.clients.crashed(member.number)
        if member.id in self.checkers.store.roster.removed:
            member.knows_of_removal = True  # it is never started again
        else:
            self.due_starts[member.number] = self.clock.now_ns + self.rng.choice(
                self.options.down_ns
            )

    def _start(self, member: Member) -> None:
        """Start a machine; a start that a fault makes fail is tried again later."""
        number, files = member.number, member.files
        del self.due_starts[number]
        if member not in self._founders and not member.id and not self._is_member(member):
            member.knows_of_removal = True  # removed before its first start
        if member.node is not None or member.knows_of_removal:
            return
        self._tries[number] += 1
        demand(self._tries[number] < _STARTS_MAX, "machine", number, "never starts")
        if self._tries[number] > 4:
            member.faults.clear()
        try:
            member.start(self._founding(member))
        except PowerCut:
            self._failed(member, "power at start")
            files.power_cut()
        except CorruptionError as error:
            demand(files.heal(), "a healthy disk, and", error)
            self._failed(member, "corrupt", error)
        except ConfigError as error:
            is_joining = member not in self._founders and self.checkers.store.may_fail
            demand(is_joining, "a founder, and", error)
            self._failed(member, "could not join", error)
        except (StorageFatalError, DataDirError) as error:
            healed = files.heal()
            removed = "was removed" in str(error)
            demand(
                healed or removed or member.faults.has_failed, "a healthy disk, and", repr(error)
            )
            member.knows_of_removal |= removed
            self._failed(member, "died at start", error)
        else:
            self._started(member)
        member.faults.is_full = False

    def _failed(self, member: Member, why: str, error: object = "") -> None:
        self.counts[why] += 1
        self.trace.note("no start", member.number, why, str(error))
        member.kill()
        self.due_starts[member.number] = self.clock.now_ns + 100 * MS_NS

    def _started(self, member: Member) -> None:
        member.files.heal()
        if not member.faults.cut_in:
            member.faults.has_failed = False
        self._tries[member.number] = 0
        self.tasks.members = {each.id: each for each in self.members if each.id}
        names = member.files.names(member.paths.wal)
        self.counts["torn"] += sum(name.endswith(".broken") for name in names)

    def _founding(self, member: Member) -> Founding:
        """Return what its flags would give: founders know each other, others ask a member."""
        if member in self._founders:
            urls = {each.name: each.urls for each in self._founders}
            learners_max = self.options.learners_max
            return Founding(
                member.name, lambda: urls, _TOKEN, is_new=True, learners_max=learners_max
            )
        asked = self._one_to_ask(member)

        def named() -> dict[str, list[str]]:
            if asked is None:
                return {member.name: member.urls}
            known = asked.parts.state.membership.members
            return {
                member.name if member.urls[0] in who.peer_urls else f"{each:x}": who.peer_urls
                for each, who in known.items()
            }

        return Founding(
            member.name,
            named,
            _TOKEN,
            is_new=False,
            questions=JoinQuestions(asked),
            resolve=lambda url: url,
            learners_max=self.options.learners_max,
        )

    def _one_to_ask(self, member: Member) -> Member | None:
        def knows(other: Member) -> bool:
            known = other.parts.state.membership.members.values()
            return any(member.urls[0] in each.peer_urls for each in known)

        having = [each for each in self.members if each.node is not None and knows(each)]
        return self.rng.choice(having) if having else None

    def _is_member(self, member: Member) -> bool:
        members = self.checkers.store.roster.members.values()
        return any(member.urls[0] in each.peer_urls for each in members)

    def operate(self) -> None:
        """Set up the machines of members that were added, as an operator would.

        A removed member learns of its removal from any member that it reaches, as by its links.
        """
        known = {url for member in self.members for url in member.urls}
        for each in self.checkers.store.roster.members.values():
            url = min(each.peer_urls)
            if url not in known:
                self._add_machine(int(url.split(".")[3].split(":")[0]))
        for member in self._running():
            if member.id in self.checkers.store.roster.removed:
                member.knows_of_removal = member.knows_of_removal or any(
                    member.id in other.parts.state.membership.removed
                    and self.network.is_up(member.id, other.id)
                    for other in self._running()
                    if other is not member
                )

    # The end.

    def finish(self) -> None:
        """Stop all faults; everything under way must end, and the final state must be right."""
        self.fault_injector.stop()
        self.run_for(3 * self.options.election_ms * MS_NS)
        self._settle_all()
        self._probe()
        self._end_leases()
        self._settle_all()
        self._compare_all()
        for member in self.members:
            if member.node is not None:
                member.begin_stop()
        self.run_for(SECOND_NS)
        self._settle_all()
        self._probe()
        self._compare_all()

    def _limit_ns(self) -> int:
        """Return how long a cluster without faults may take for anything."""
        return 60 * SECOND_NS + 20 * self.options.election_ms * MS_NS

    def _settle_all(self) -> None:
        """Continue what is under way until nothing is left."""
        until_ns = self.clock.now_ns + self._limit_ns()
        waiting = ["anything"]
        while waiting:
            demand(self.clock.now_ns < until_ns, "does not end in time:", *waiting)
            self.operate()
            for member in self.members:
                if member.node is not None:
                    limits = member.parts.limits  # slices of one row would take too long
                    limits.hash_rows = limits.compaction_rows = limits.catch_up_rows = 1000
                    limits.catch_up_bytes = 1 << 20
                if member.is_serving:
                    self._continue_streams(member)
            self.run_for(50 * MS_NS)
            waiting = self._waiting()

    def _waiting(self) -> list[str]:
        """Return what is still under way."""
        waiting = self.clients.waiting()
        roster, running = self.checkers.store.roster, self._running()
        waiting += [f"machine {each} starts" for each in self.due_starts]
        waiting += ["watchers to be made again"] * bool(self.watches.again)
        ids = {member.id for member in running}
        waiting += [f"member {each:x}" for each in roster.members if each not in ids]
        waiting += [f"removed member {each.id:x}" for each in running if each.id in roster.removed]
        leaders = {(member.parts.raft.lead, member.parts.raft.term) for member in running}
        if len(leaders) != 1 or next(iter(leaders))[0] not in ids:
            waiting.append(f"leaders {sorted(leaders)}")
        for member in running:
            raft = member.parts.raft
            if not member.is_serving or member.is_stopping:
                waiting.append(f"{member.name} serves")
            if raft.applied != self.checkers.store.index or raft.last_index != raft.applied:
                waiting.append(f"{member.name} is at {raft.applied} of {raft.last_index}")
            if member.parts.state.store.compaction_pending:
                waiting.append(f"{member.name} compacts")
        return waiting or self.watches.behind()

    def _running(self) -> list[Member]:
        return [member for member in self.members if member.node is not None]

    def _continue_streams(self, member: Member) -> None:
        learns = self._learns(member)
        asking = partial(
            self.clients.continue_streams, member.number, self.clock.now_ns, learns=learns
        )
        member.add_to_inbox(asking)

    def _learns(self, member: Member) -> bool:
        known = self.checkers.store.roster.members.get(member.id)
        return known is not None and known.is_learner

    def _probe(self) -> None:
        """Check that every member serves."""
        for member in self._running():
            learns = self._learns(member)
            probe = partial(self.clients.probe, member.number, self.clock.now_ns, learns=learns)
            member.add_to_inbox(probe)
        self._settle_all()

    def _end_leases(self) -> None:
        """Let time pass until every lease must have ended."""
        model, limit_ns = self.checkers.store.model, self._limit_ns()
        longest_s = max((lease.ttl_s for lease in model.leases.values()), default=0)
        until_ns = self.clock.now_ns + longest_s * SECOND_NS + limit_ns
        while model.leases:
            demand(self.clock.now_ns < until_ns, "leases that do not end:", list(model.leases))
            self.run_for(100 * MS_NS)

    def _compare_all(self) -> None:
        """Compare every row of every member with the model."""
        wanted = [(row.revkey, row.kv) for row in self.checkers.store.model.left()]
        for member in self._running():
            member.compare()
            member.parts.state.store.flush()
            found = member.backend.scan(Table.KEY, b"", None, 1 << 30)
            demand(found == wanted, member.name, "differs from the model in its rows")
