"""One machine of a world: the real Node between its starts and its ends, and the disk.

    start ─► boot, build, turns ─► turn … ─► stop | kill | cut the power
                 └──────────── the disk: files, and the database's last commit ◄──┘

Only the ports are replaced: disk, clock, links, offloaded tasks, and the log, whose writes are
reported to the checkers. Each machine has its own clock: its monotonic time begins at a random
value at each start, and its wall clock may be set.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import override

from kvstack.component import clock
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.apply.membership import Membership
from kvstore.auth.tokens import LETTERS, PREFIX_LETTERS, SignedTokens, SimpleTokens
from kvstore.backend import Backend
from kvstore.batch import Inbox, Outbox
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.node.parts import Parts
from kvstore.node.ports import SnapshotKeeper
from kvstore.node.turn import Node
from kvstore.raft.model import Entry, HardState, Snapshot, SnapshotMetadata
from kvstore.server.boot.assemble import build
from kvstore.server.boot.bootstrap import Boot, Founding, boot
from kvstore.server.boot.data_dir import DataDir
from kvstore.server.boot.state import snapshot_files
from kvstore.storage.memory_log import MemoryLog
from kvstore.storage.wal.wal import Wal
from tests.sim.access.auth_model import AuthState, Permission, User
from tests.sim.checks import Checker
from tests.sim.disk import SimBackend, SimFiles
from tests.sim.disk_faults import DiskFaults
from tests.sim.options import Options
from tests.sim.peers import PeerPort, SimLinks, compare_members
from tests.sim.raft_checks import RaftChecker
from tests.sim.token_keys import SimTokenKeys
from tests.sim.trace import Trace
from tests.sim.violation import demand
from tests.support.cluster.network import Network

if TYPE_CHECKING:
    from collections.abc import Mapping


_IDLE_TURNS_MAX = 1000


class Clock(clock.Clock):
    """The world's time; wall time is derived from it."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    @override
    def monotonic_ns(self) -> int:
        return self.now_ns

    @override
    def unix_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ns // 1_000_000


class MemberClock(clock.Clock):
    """What one machine's clocks show."""

    def __init__(self, world: Clock) -> None:
        self._world = world
        self.offset_ns = 0  # of the monotonic clock
        self.wall_offset_ms = 0

    @override
    def monotonic_ns(self) -> int:
        return self._world.now_ns + self.offset_ns

    @override
    def unix_ms(self) -> int:
        return self._world.unix_ms() + self.wall_offset_ms


class Checkers(NamedTuple):
    """The checkers of a world."""

    store: Checker
    raft: RaftChecker


class _LogTap:
    """A log that reports each write to the checkers, and after its sync that it is durable."""

    def __init__(self, wal: Wal | MemoryLog, member: "Member") -> None:
        self._wal = wal
        self._member = member

    def save(self, hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        member = self._member
        checkers = member.checkers
        checkers.store.proposed(entries)
        checkers.raft.saving(member.id, hard_state, entries, sync=sync)
        self._wal.save(hard_state, entries, sync=sync)
        if sync:
            checkers.raft.synced(member.id)

    def start_save(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        member = self._member
        member.checkers.store.proposed(entries)
        member.checkers.raft.saving(member.id, hard_state, entries, sync=True)
        self._wal.start_save(hard_state, entries)

    def finish_save(self) -> None:
        self._wal.finish_save()
        self._member.checkers.raft.synced(self._member.id)


class _SnapshotTap:
    """Snapshots that are reported to the checkers."""

    def __init__(self, keeper: SnapshotKeeper, member: "Member") -> None:
        self._keeper = keeper
        self._member = member

    def save(self, metadata: SnapshotMetadata, membership: Membership) -> bool:
        return self._keeper.save(metadata, membership)

    def describe(self, membership: Membership) -> bytes:
        return self._keeper.describe(membership)

    def record(self, snapshot: Snapshot) -> None:
        self._keeper.record(snapshot)
        member, about = self._member, snapshot.metadata
        member.report_applied()
        member.checkers.raft.recorded(member.id, about.index, about.term)

    def install(self, index: int) -> None:
        member = self._member
        self._keeper.install(index)
        member.checkers.store.jump(member.number, index)
        member.checkers.store.access.lost_before[member.number] = index
        member.has_installed = True

    def drop_received(self, up_to_index: int) -> None:
        self._keeper.drop_received(up_to_index)

    def purge(self) -> None:
        self._keeper.purge()


class _Logger(LineLogger):
    """A logger whose lines go into the trace."""

    def __init__(self, member: "Member", trace: Trace) -> None:
        super().__init__([], "info")
        self._member = member
        self._trace = trace

    def _say(self, level: str, msg: str, fields: dict[str, object]) -> None:
        self._trace.log(self._member.number, self._member.now_ns, level, msg, fields)

    @override
    def info(self, msg: str, **fields: object) -> None:
        self._say("info", msg, fields)

    @override
    def warning(self, msg: str, **fields: object) -> None:
        self._say("warning", msg, fields)

    @override
    def error(self, msg: str, **fields: object) -> None:
        self._say("error", msg, fields)


class Member:
    """One machine; `node` is None while its process does not run."""

    files_type: type[SimFiles] = SimFiles
    backend_type: type[SimBackend] = SimBackend

    def __init__(
        self,
        number: int,
        rng: random.Random,
        options: Options,
        checkers: Checkers,
        trace: Trace,
        world_clock: Clock,
        network: Network,
    ) -> None:
        self.number = number
        self.name = f"m{number}"
        self.urls = [f"http://10.0.0.{number}:2380"]
        self.clock = MemberClock(world_clock)
        self.faults = DiskFaults(rng)
        self.files = self.files_type(self.faults)
        self.backend = self.backend_type(self.faults)
        self.checkers = checkers
        self.id = 0  # raft's, once it has started
        self.life = 0  # how often it has started
        self.node: Node | None = None
        self.port: PeerPort | None = None
        self.is_serving = False  # it has joined and serves clients
        self.is_stopping = False
        self.knows_of_removal = False  # it has learnt that it was removed
        self.has_installed = False  # a snapshot, since its state was last compared
        self.asleep_until_ns = 0  # its process is stopped
        self._idle_turns = 0  # in a row, each requested by the one before
        self.rng = rng
        self._options = options
        self._trace = trace
        self._world_clock = world_clock
        self._network = network
        self._parts: Parts | None = None
        self._booted: Boot | None = None
        self._links: SimLinks | None = None
        self._inbox = Inbox()
        self._is_busy = False
        root = Path(f"/sim/{number}/member")
        self.paths = DataDir(root, root / "wal", root / "snap", root / "lmdb", root / "tmp")
        self.files.make_directory(self.paths.snap)
        for path in (*root.parents, root):
            self.files.sync_directory(path)

    @property
    def now_ns(self) -> int:
        """The world's time."""
        return self._world_clock.now_ns

    @property
    def parts(self) -> Parts:
        """The parts of the running node."""
        assert self._parts is not None
        return self._parts

    def open_backend(self, _directory: Path) -> Backend:
        """Open the state."""
        return self.backend

    # Start.

    def start(self, founding: Founding) -> None:
        """Start from what is on disk; the caller takes the first turn."""
        config = configure(read_command_line([*self._options.flags, f"--name={self.name}"]), {})
        self.clock.offset_ns = self.rng.randrange(1 << 50)
        logger = _Logger(self, self._trace)
        self._booted = booted = boot(
            self.paths,
            founding,
            logger,
            files=self.files,
            open_backend=self.open_backend,
            segment_bytes=self._options.segment_bytes,
        )
        self.id = booted.member_id
        self._report_found(booted)
        self._parts = parts = build(
            config,
            booted,
            snapshot_files(config, booted, self.paths, logger, self.files),
            self.clock,
            logger,
        )
        for name, value in self._options.limits.items():
            setattr(parts.limits, name, value)
        for name, value in self._options.raft_limits.items():
            setattr(parts.raft._state.config, name, value)
        parts.state.hub._limits = replace(parts.state.hub._limits, **self._options.watch_limits)
        self._set_tokens(parts)
        parts.replication.log = _LogTap(booted.wal, self)
        parts.replication.snapshots = _SnapshotTap(parts.replication.snapshots, self)
        self._links = SimLinks(
            self._network, self.id, self.checkers.raft.sent, lambda: self.clock.offset_ns
        )
        self._links.rows = self.backend
        parts.replication.peers = self._links
        self.wire(parts)
        self._inbox, self._is_busy = Inbox(), True
        self.is_serving = self.is_stopping = False
        self.asleep_until_ns = 0
        self.life += 1
        self._network.set_down(self.id, is_down=False)
        self.node = Node(parts)
        self.port = PeerPort(self, parts)
        self.compare()

    def _report_found(self, booted: Boot) -> None:
        found = booted.raft
        snapshot = found.snapshot_index, found.snapshot_term
        self.checkers.raft.restarted(self.id, found.hard_state, snapshot, found.entries)
        store = self.checkers.store
        untold = [e for e in found.entries if store.index < e.index <= found.applied]
        store.jump(self.number, min(found.applied, store.index))
        store.advance(self.number, untold, self.now_ns)  # applied just before a crash
        store.access.lost_before[self.number] = found.applied

    def _set_tokens(self, parts: Parts) -> None:
        options, rng = self._options, self.rng
        parts.limits.client_cert_auth = options.certificates
        parts.state.auth.tokens = (
            SignedTokens(SimTokenKeys())
            if options.signed_tokens
            else SimpleTokens(
                options.token_ttl_s, lambda: "".join(rng.choices(LETTERS, k=PREFIX_LETTERS))
            )
        )

    def wire(self, parts: Parts) -> None:
        """Change the parts before the node is made; canaries override this."""

    # Turns.

    def add_to_inbox(self, add: Callable[[Inbox], None]) -> None:
        """Add to the next inbox; the turn is due at once."""
        add(self._inbox)
        self._is_busy = True

    @property
    def due_ns(self) -> int | None:
        """When it takes its next turn, in the world's time; None: it does not run."""
        if self.node is None:
            return None
        assert self._links is not None
        is_busy = self._is_busy or self._links.snapshots_sent
        at_ns = 0 if is_busy else self.node.wake_ns - self.clock.offset_ns
        return max(at_ns, self.asleep_until_ns)

    def turn(self, backlog: "Mapping[int, int]") -> Iterator[Outbox]:
        """Take a turn with all that has arrived; yield the outbox of each part when it is sent."""
        inbox = self._take_inbox()
        inbox.backlog.update(backlog)
        out = self.answer(inbox)
        yield out
        yield self.save(inbox)
        yield self.settle(inbox)
        self._check_idleness(inbox, out)
        stalled_ns, self.faults.stalled_ns = self.faults.stalled_ns, 0
        self.asleep_until_ns = self.now_ns + self._options.turn_ns + stalled_ns
        if stalled_ns:
            self.checkers.store.note_pause(self.now_ns, self.asleep_until_ns)

    def _check_idleness(self, inbox: Inbox, out: Outbox) -> None:
        """Check that it does not take turns at full speed with nothing to do."""
        assert self.node is not None
        works = self.parts.state.store.compaction_pending or self.node._jobs._running
        said = inbox.calls or inbox.frames or inbox.messages or out.replies or out.deliveries
        is_idle = not (works or said or self.node.wake_ns > self.clock.monotonic_ns())
        self._idle_turns = self._idle_turns + 1 if is_idle else 0
        demand(
            self._idle_turns < _IDLE_TURNS_MAX,
            self.name,
            "takes turn after turn with nothing to do",
        )

    def _take_inbox(self) -> Inbox:
        links = self._links
        assert links is not None
        inbox, self._inbox, self._is_busy = self._inbox, Inbox(), False
        inbox.now_ns, inbox.wall_ms = self.clock.monotonic_ns(), self.clock.unix_ms()
        removed = self.parts.state.membership.removed
        if removed:
            inbox.messages = [each for each in inbox.messages if each.from_ not in removed]
        inbox.unreachable, links.unreachable = links.unreachable, []
        inbox.snapshots_sent, links.snapshots_sent = links.snapshots_sent, []
        return inbox

    def answer(self, inbox: Inbox) -> Outbox:
        """Take the first part of a turn."""
        assert self.node is not None
        assert self.port is not None
        self._trace.inbox(self.number, inbox)
        with self._reporting():
            out = self.node.answer(inbox)
        self._trace.outbox(self.number, out)
        self.port.take(out)
        self.is_serving |= self.node.is_ready
        if self.has_installed or self.rng.randrange(500) == 0:
            self.compare()
        return out

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report to the checkers what a part of a turn has committed and applied."""
        raft = self.parts.raft
        voters = [raft.conf_state.voters]
        yield
        self.report_applied()
        voters.append(raft.conf_state.voters)
        self.checkers.raft.after_turn(self.id, raft, voters)

    def report_applied(self) -> None:
        """Report to the checker what was applied since the last report."""
        store, view = self.checkers.store, self.checkers.raft.view(self.id)
        entries = view.entries
        first, last = store.applied[self.number] + 1, self.parts.raft.applied
        applied = [entries.pop(index, None) for index in range(first, last + 1)]
        demand(None not in applied, self.name, "applied what it did not save:", first, last)
        store.advance(self.number, applied, self.now_ns)  # type: ignore[arg-type]

    def save(self, inbox: Inbox) -> Outbox:
        """Take the second part of a turn."""
        assert self.node is not None
        assert self.port is not None
        late = Outbox()
        with self._reporting():
            self.node.save(inbox, late)
        self._trace.outbox(self.number, late)
        self.port.take(late)
        return late

    def settle(self, inbox: Inbox) -> Outbox:
        """Take the rest of the turn."""
        assert self.node is not None
        late = Outbox()
        self.node.settle(inbox, late)
        assert self.port is not None
        self._trace.outbox(self.number, late)
        self.port.take(late)
        if late.snapshots:
            demand(not self.backend.pending_ops(), "a snapshot of rows that are not committed")
        return late

    # Ends.

    def begin_stop(self) -> None:
        """Begin a graceful stop: leadership is transferred first."""
        assert self.node is not None
        self.is_stopping = True
        self.node.transfer_leadership(self.clock.monotonic_ns())

    @property
    def may_stop(self) -> bool:
        """Whether the process may end: no leader transfer is under way."""
        return (
            self.is_stopping and self.node is not None and not self.node.is_transferring_leadership
        )

    def stop(self) -> None:
        """End a graceful stop."""
        assert self.node is not None
        assert self._booted is not None
        self.node.close(self.clock.monotonic_ns())
        self._booted.backend.close()
        self._booted.wal.close()
        self._end()

    def kill(self) -> None:
        """End the process."""
        self._end()

    def cut_power(self) -> None:
        """End the process and lose what was not synced."""
        self._end()
        self.files.power_cut()

    def _end(self) -> None:
        if self.port is not None:
            self.port.close()
        self.files.kill()
        self.backend = self.backend.survive()
        self.node = self.port = self._parts = self._booted = None
        self.is_serving = False
        self.faults.stalled_ns = 0
        if self.id:
            self._network.set_down(self.id, is_down=True)

    # Looking inside.

    def compare(self) -> None:
        """Compare the whole state with the model's at its applied index."""
        self.has_installed = False
        checker, parts = self.checkers.store, self.parts
        model, mark = checker.model, checker.mark_of(self.number)
        store, lessor = parts.state.store, parts.state.lessor
        demand(store.revision == mark.revision, self.name, "revision", store.revision, mark)
        demand(store.compacted == mark.compacted, self.name, "compacted", store.compacted, mark)
        found = store.range(b"\0", b"\0")
        kvs = [kv.SerializeToString() for kv in model.live(b"\0", b"\0", mark.revision)]
        demand(getattr(found, "kvs", None) == kvs, self.name, "differs from the model in its keys")
        leases = {
            lease: (lessor._leases[lease].ttl_s, tuple(lessor.keys(lease)))
            for lease in lessor.leases()
        }
        wanted: Mapping[int, object] = checker.lease_states[mark.leases]
        demand(leases == wanted, self.name, "leases", leases, "instead of", wanted)
        alarms = {member for member, _ in parts.state.alarms.raised()}
        demand(alarms == mark.alarms, self.name, "alarms", alarms, "instead of", mark)
        self._compare_auth(checker.auth.states[mark.auth])
        compare_members(
            self.number, parts.state.membership.members, checker.roster.states[mark.roster]
        )

    def _compare_auth(self, expected: AuthState) -> None:
        auth = self.parts.state.auth
        users = {name: auth.user(name) for name in auth.user_names()}
        roles = {name: auth.role(name) for name in auth.role_names()}
        found = AuthState(
            auth.enabled,
            auth.revision,
            {
                name: User(
                    None if each.options.no_password else each.password, frozenset(each.roles)
                )
                for name, each in users.items()
                if each is not None
            },
            {
                name: tuple(
                    Permission(one.key, one.range_end, int(one.permType))
                    for one in each.keyPermission
                )
                for name, each in roles.items()
                if each is not None
            },
        )
        demand(found == expected, self.name, "auth", found, "instead of", expected)
