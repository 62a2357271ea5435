"""Several real Nodes in one process: virtual time, a network and disks in memory, no chance but a
seed's.

    with_three = Cluster(3); with_three.start()
    leader = with_three.leader()
    with_three.put(b"k", b"v", via=follower)
    leader.kill(); with_three.run_until(...)

    a step   the clock jumps to the next message or the next turn somebody asked for; every member
             with something to do takes a turn

Only the ports are replaced: disk, clock, links, and what runs offloaded tasks, which here are
answered by the other members' nodes as their peer ports would.
"""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import Message
from typing_extensions import override

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.backend import Backend
from kvstore.batch import AS_PEER, Inbox, Metadata, OffloadedTask, Outbox, TaskResult, messages
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.node.parts import Parts
from kvstore.node.turn import Node
from kvstore.peers.http_client import PeerRequestError
from kvstore.peers.questions import RemoteCluster, Versions
from kvstore.server.boot.assemble import build
from kvstore.server.boot.bootstrap import Boot, Founding, boot
from kvstore.server.boot.data_dir import DataDir
from kvstore.server.boot.state import snapshot_files
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.sim.disk import SimBackend, SimFiles
from tests.sim.disk_faults import DiskFaults
from tests.sim.member import Clock
from tests.support.cluster.network import MS, Links, Network
from tests.support.node.harness import CallError

SECOND: Final = 1000 * MS
_STEPS_MAX: Final = 200_000
_TOKEN: Final = "cluster"
_SEGMENT_BYTES: Final = 1 << 20


class ClusterMember:
    """One member; `node` is None while its process does not run."""

    def __init__(self, cluster: "Cluster", number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.name = f"m{number}"
        self.urls = [f"http://10.0.0.{number}:2380"]
        self.faults = DiskFaults(random.Random(number))
        self.files = SimFiles(self.faults)
        self.backend = SimBackend(self.faults)
        self.node: Node | None = None
        self.id = 0
        self.flags: list[str] = []
        self.limits: dict[str, object] = {}
        self.joins = False
        self.log: list[tuple[str, dict[str, object]]] = []
        self._parts: Parts | None = None
        self._booted: Boot | None = None
        self._links: Links | None = None
        self._inbox = Inbox()
        self._is_busy = False
        root = Path(f"/sim/{number}/member")
        self.paths = DataDir(root, root / "wal", root / "snap", root / "lmdb", root / "tmp")
        self.files.make_directory(self.paths.snap)
        for path in (*root.parents, root):
            self.files.sync_directory(path)

    @property
    def parts(self) -> Parts:
        """The parts of the running node."""
        assert self._parts is not None, f"{self.name} does not run"
        return self._parts

    @property
    def links(self) -> Links:
        """The links of the running node."""
        assert self._links is not None, f"{self.name} does not run"
        return self._links

    @property
    def is_leader(self) -> bool:
        """Whether it runs and leads."""
        return self.node is not None and self.parts.raft.is_leader

    def start(self) -> None:
        """Start from what is on disk."""
        cluster = self.cluster
        flags = [f"--name={self.name}", *cluster.flags, *self.flags]
        config = configure(read_command_line(flags), {})
        founding = Founding(
            self.name,
            lambda: {each.name: each.urls for each in cluster.founders(self)},
            _TOKEN,
            is_new=not self.joins,
            questions=_Questions(cluster) if self.joins else None,
            resolve=lambda url: url,
        )
        logger = _Logger(self.log)
        self._inbox = Inbox()
        self._booted = booted = boot(
            self.paths,
            founding,
            logger,
            files=self.files,
            open_backend=self._open_backend,
            segment_bytes=_SEGMENT_BYTES,
        )
        self.id = booted.member_id
        self._parts = parts = build(
            config,
            booted,
            snapshot_files(config, booted, self.paths, logger, self.files),
            cluster.clock,
            logger,
        )
        for name, value in {**cluster.limits, **self.limits}.items():
            setattr(parts.limits, name, value)
        self._links = Links(cluster.network, self.id)
        self._links.rows = self.backend
        parts.replication.peers = self._links
        cluster.network.set_down(self.id, is_down=False)
        self.node = Node(parts)
        self.turn()

    def _open_backend(self, _directory: Path) -> Backend:
        return self.backend

    # Turns.

    def add_to_inbox(self, what: Callable[[Inbox], None]) -> None:
        """Put something into the next inbox; the turn comes at once."""
        what(self._inbox)
        self._is_busy = True

    @property
    def due_ns(self) -> int | None:
        """When it has something to do; None: it does not run."""
        if self.node is None:
            return None
        return 0 if self._is_busy else self.node.wake_ns

    def turn(self) -> None:
        """Take a turn with all that has arrived."""
        assert self.node is not None
        assert self._links is not None
        now_ns = self.cluster.clock.now_ns
        inbox, self._inbox, self._is_busy = self._inbox, Inbox(), False
        inbox.now_ns, inbox.wall_ms = now_ns, self.cluster.clock.unix_ms()
        inbox.unreachable, self._links.unreachable = self._links.unreachable, []
        inbox.snapshots_sent, self._links.snapshots_sent = self._links.snapshots_sent, []
        out = self.node.answer(inbox)
        self.cluster.take(self, out)
        late = Outbox()
        self.node.save(inbox, late)
        self.node.settle(inbox, late)
        self.cluster.take(self, late)
        if self.node.is_removed:
            self.stop()

    # Ends.

    def stop(self) -> None:
        """End a graceful stop."""
        assert self.node is not None
        assert self._booted is not None
        self.node.close(self.cluster.clock.now_ns)
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
        self.files.kill()
        self.faults.clear()
        self.backend = self.backend.survive()
        self.node = self._parts = self._booted = None
        self.cluster.network.set_down(self.id, is_down=True)

    # Looking inside.

    def view(self) -> tuple[object, ...]:
        """Return everything applied entries have made of the state."""
        parts = self.parts
        store, lessor = parts.state.store, parts.state.lessor
        found = store.range(b"\0", b"\0")
        return (
            parts.raft.applied,
            store.revision,
            store.compacted,
            getattr(found, "kvs", None),
            {each: lessor.keys(each) for each in sorted(lessor.leases())},
            parts.state.alarms.raised(),
            parts.state.membership.sorted_members(),
            sorted(parts.state.membership.removed),
            parts.state.membership.cluster_version,
        )


class Cluster:
    """The members, the network between them, and one client that may call any."""

    def __init__(
        self, size: int, *, seed: int = 1, flags: Sequence[str] = (), **limits: object
    ) -> None:
        """Make members that have never run; limits are set on every node's Limits."""
        self.clock = Clock()
        self.rng = random.Random(seed)
        self.network = Network(self.rng)
        self.network.now_ns = self.clock.now_ns
        self.flags = list(flags)
        self.limits = limits
        self.members = [ClusterMember(self, number) for number in range(1, size + 1)]
        self._first = list(self.members)
        self._next_id = 1
        self._next_own_id = -1
        self.answers: dict[int, tuple[int, bytes]] = {}  # call id → (code, body)
        self.delivered: dict[int, list[bytes]] = {}
        self.ended: dict[int, tuple[int, str]] = {}
        self._tasks: dict[int, Callable[[int, bytes], None]] = {}  # own call id → what to do

    # Members.

    def start(self) -> None:
        """Start all members and wait until all of them have joined."""
        for member in self.members:
            if member.node is None:
                member.start()
        self.run_until(self.is_calm)

    def add(self, *, flags: Sequence[str] = ()) -> ClusterMember:
        """Make a member that is to join; its addition is the caller's affair."""
        member = ClusterMember(self, len(self.members) + 1)
        member.joins = True
        member.flags = list(flags)
        self.members.append(member)
        return member

    def founders(self, member: ClusterMember) -> list[ClusterMember]:
        """Return whom a member's flags name."""
        if not member.joins:
            return self._first
        known = self.running[0].parts.state.membership.members.values()
        urls = {url for each in known for url in each.peer_urls}
        return [each for each in self.members if urls.intersection(each.urls)]

    @property
    def running(self) -> list[ClusterMember]:
        """The members whose process runs."""
        return [member for member in self.members if member.node is not None]

    def by_id(self, member_id: int) -> ClusterMember:
        """Return a member by its raft id."""
        return next(member for member in self.members if member.id == member_id)

    def leader(self) -> ClusterMember:
        """Return the leader of the highest term, waiting for one that has committed in it."""

        def elected() -> ClusterMember | None:
            leaders = [each for each in self.running if each.is_leader]
            best = max(leaders, key=lambda each: each.parts.raft.term, default=None)
            if best is None or not best.parts.state.lessor.is_primary:
                return None
            return best

        self.run_until(lambda: elected() is not None)
        leader = elected()
        assert leader is not None
        return leader

    def followers(self) -> list[ClusterMember]:
        """Return all running members but the leader."""
        leader = self.leader()
        return [member for member in self.running if member is not leader]

    def is_calm(self) -> bool:
        """Tell whether all running members are ready, and have applied the same."""
        running = self.running
        return all(each.node is not None and each.node.is_ready for each in running) and (
            len({(each.parts.raft.applied, each.parts.raft.last_index) for each in running}) == 1
        )

    def settle(self) -> None:
        """Wait until the running members agree, and hold their states against each other."""
        self.run_until(self.is_calm)
        first, *others = self.running
        for other in others:
            assert other.view() == first.view(), f"{other.name} differs from {first.name}"

    # Time.

    def step(self) -> None:
        """Let the next thing happen."""
        due = [each.due_ns for each in self.running]
        times = [at for at in (*due, self.network.next_ns()) if at is not None]
        now_ns = self.clock.now_ns
        self.clock.now_ns = self.network.now_ns = max(now_ns, min(times, default=now_ns))
        for _, to, message, rows in self.network.arrived():
            member = self.by_id(to)
            if member.node is None:
                continue
            if rows is not None:
                assert message.snapshot is not None
                member.backend.receive(message.snapshot.metadata.index, rows)
            member.add_to_inbox(lambda inbox, message=message: inbox.messages.append(message))  # type: ignore[misc]
        for member in list(self.running):
            due_ns = member.due_ns
            if due_ns is not None and due_ns <= self.clock.now_ns:
                self.turn(member)

    def turn(self, member: ClusterMember) -> None:
        """Let a member take its turn; for those who expect it not to come to its end."""
        member.turn()

    def run_for(self, duration_ns: int) -> None:
        """Let time pass."""
        until_ns = self.clock.now_ns + duration_ns
        for _ in range(_STEPS_MAX):
            times = [each.due_ns for each in self.running] + [self.network.next_ns()]
            if min((at for at in times if at is not None), default=until_ns) >= until_ns:
                self.clock.now_ns = self.network.now_ns = until_ns
                return
            self.step()
        raise AssertionError("time does not pass")

    def run_until(self, is_done: Callable[[], bool], within_ns: int = 60 * SECOND) -> None:
        """Let things happen until is_done."""
        until_ns = self.clock.now_ns + within_ns
        for _ in range(_STEPS_MAX):
            if is_done():
                return
            assert self.clock.now_ns < until_ns, f"not done within {within_ns / SECOND} s"
            self.step()
        raise AssertionError("not done within the steps there are")

    # The client.

    def send(
        self,
        member: ClusterMember,
        method: int,
        request: Message,
        metadata: Metadata | None = None,
    ) -> int:
        """Make a call and return its id; the answer comes to `answers` in time."""
        call_id, self._next_id = self._next_id, self._next_id + 1
        body = request.SerializeToString()

        def add(inbox: Inbox) -> None:
            inbox.calls.append((call_id, method, body))
            if metadata:
                inbox.metadata[call_id] = metadata

        member.add_to_inbox(add)
        return call_id

    def wait(self, call_id: int, within_ns: int = 20 * SECOND) -> bytes:
        """Wait for an answer; CallError if it is a refusal."""
        self.run_until(lambda: call_id in self.answers or call_id in self.ended, within_ns)
        if call_id in self.ended:
            raise CallError(*self.ended[call_id])
        code, body = self.answers[call_id]
        if code:
            raise CallError(code, body.decode())
        return body

    def call(
        self,
        member: ClusterMember,
        method: int,
        request: Message,
        metadata: Metadata | None = None,
    ) -> Any:
        """Make a call and return its response."""
        body = self.wait(self.send(member, method, request, metadata))
        return rpc.METHODS[method].response.FromString(body)

    def put(self, member: ClusterMember, key: bytes, value: bytes, lease: int = 0) -> Any:
        """Put a key through a member."""
        return self.call(member, rpc.PUT, pb.PutRequest(key=key, value=value, lease=lease))

    def get(self, member: ClusterMember, key: bytes, *, serializable: bool = False) -> bytes | None:
        """Read a key through a member."""
        request = pb.RangeRequest(key=key, serializable=serializable)
        found = self.call(member, rpc.RANGE, request)
        return found.kvs[0].value if found.kvs else None

    def open(self, member: ClusterMember, method: int, metadata: Metadata | None = None) -> int:
        """Open a stream and return its id."""
        stream_id, self._next_id = self._next_id, self._next_id + 1
        self._open(member, stream_id, method, metadata)
        return stream_id

    def _open(
        self, member: ClusterMember, stream_id: int, method: int, metadata: Metadata | None
    ) -> None:
        def add(inbox: Inbox) -> None:
            inbox.opened.append((stream_id, method))
            if metadata:
                inbox.metadata[stream_id] = metadata

        self.delivered[stream_id] = []
        member.add_to_inbox(add)

    def say(self, member: ClusterMember, stream_id: int, request: Message) -> None:
        """Send a message on a stream."""
        body = request.SerializeToString()
        member.add_to_inbox(lambda inbox: inbox.frames.append((stream_id, body)))

    # What leaves a node.

    def take(self, member: ClusterMember, out: Outbox) -> None:
        """Take what a node said."""
        for call_id, code, body in out.replies:
            if call_id < 0:
                self._tasks.pop(call_id)(code, body)
            else:
                assert call_id not in self.answers, f"call {call_id} is answered twice"
                self.answers[call_id] = (code, body)
        for stream_id, head, tail in messages(out.deliveries):
            if stream_id < 0:
                self._tasks.pop(stream_id)(0, head + tail)
            else:
                self.delivered.setdefault(stream_id, []).append(head + tail)
        for stream_id, code, text in out.ends:
            if stream_id < 0:
                then = self._tasks.pop(stream_id, None)
                if then is not None:
                    then(code, text)
            else:
                self.ended[stream_id] = (code, text.decode())
        for task in out.tasks:
            self._run_task(member, task)

    def _run_task(self, member: ClusterMember, task: OffloadedTask) -> None:
        """Do what the peer port of the asked member would do."""
        target_id, path = int(task.args[0], 16), task.args[1].decode()

        def end(error: str, body: bytes = b"") -> None:
            result = TaskResult(task.id, error, body)
            if member.node is not None:
                member.add_to_inbox(lambda inbox: inbox.task_results.append(result))

        if not self.network.is_up(member.id, target_id):
            end("connection refused")
            return
        target = self.by_id(target_id)
        own_id, self._next_own_id = self._next_own_id, self._next_own_id - 1

        def answered(code: int, body: bytes) -> None:
            text = body.decode(errors="replace")
            if not self.network.is_up(member.id, target_id):
                end("connection lost")
            elif code:
                end("HTTP 404" if "lease not found" in text else "HTTP 500", body)
            else:
                end("", body)

        if path == "/version":
            version = target.parts.state.membership.cluster_version or "not_decided"
            versions = {"etcdserver": "3.7.1", "etcdcluster": version, "storage": "3.7.0"}
            end("", json.dumps(versions).encode())
        elif path == "/leases":
            self._tasks[own_id] = lambda code, body: answered(code, _without_header(body, code))
            self._open(target, own_id, rpc.LEASE_KEEP_ALIVE, AS_PEER)
            target.add_to_inbox(lambda inbox: inbox.frames.append((own_id, task.args[2])))
        elif path == "/leases/internal":
            self._tasks[own_id] = lambda code, body: answered(code, _wrapped(body, code))
            request = task.args[2][2:]

            def add(inbox: Inbox) -> None:
                inbox.calls.append((own_id, rpc.LEASE_TIME_TO_LIVE, request))
                inbox.metadata[own_id] = AS_PEER

            target.add_to_inbox(add)
        else:
            end("HTTP 404")


def _without_header(body: bytes, code: int) -> bytes:
    if code:
        return body
    found = pb.LeaseKeepAliveResponse.FromString(body)
    found.ClearField("header")
    return found.SerializeToString()


def _wrapped(body: bytes, code: int) -> bytes:
    return body if code else b"\x0a" + len(body).to_bytes(1, "big") + body


class _Logger(LineLogger):
    """A log that keeps its lines for the test to look at."""

    def __init__(self, lines: list[tuple[str, dict[str, object]]]) -> None:
        super().__init__([], "info")
        self._kept = lines

    @override
    def info(self, msg: str, **fields: object) -> None:
        self._kept.append((msg, fields))

    @override
    def warning(self, msg: str, **fields: object) -> None:
        self._kept.append((msg, fields))


class _Questions:
    """What a joining member asks, answered by the cluster itself."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def members(self, urls: Sequence[str], timeout_s: float) -> RemoteCluster:
        """See Questions."""
        del urls, timeout_s
        for member in self._cluster.running:
            if member.parts.state.membership.members:
                parts = member.parts
                return RemoteCluster(parts.cluster_id, parts.state.membership.sorted_members())
        raise PeerRequestError("nobody is up")

    def version(self, urls: Sequence[str], timeout_s: float) -> Versions:
        """See Questions."""
        del urls, timeout_s
        return Versions("3.7.1", "3.7.0", "3.7.0")

    def downgrade_enabled(self, urls: Sequence[str], timeout_s: float) -> bool:
        """See Questions."""
        del urls, timeout_s
        return False
