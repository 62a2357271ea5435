"""A few real Nodes turned by hand, one after another, with messages handed over in between.

    group = Group(tmp_path, ["a", "b", "c"])
    group.run_until(lambda: group.leader is not None)
    response = group.call("b", rpc.MEMBER_ADD, request)
    group.join("d", urls); group.stop("a"); group.cuts.add("b")

Log and snapshot files are real; the state is in memory, or in LMDB beside them. Links lose nothing
unless they are cut and carry no snapshots. Questions to other members are answered in the next
rounds, by the node asked.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import Message as Proto
from typing_extensions import override

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.backend import Backend
from kvstore.batch import Inbox, OffloadedTask, Outbox, TaskKind, TaskResult
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.node.turn import Node
from kvstore.peers.http_client import PeerRequestError
from kvstore.peers.questions import RemoteCluster, Versions
from kvstore.raft.model import Message, Role
from kvstore.server.boot.assemble import build
from kvstore.server.boot.bootstrap import Founding, boot
from kvstore.server.boot.data_dir import prepare
from kvstore.server.boot.state import snapshot_files
from kvstore.storage.files import UnsyncedFiles
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.types import SERVER_VERSION
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.members import Member, encode_member
from tests.support.node.harness import CallError, FakeClock

TURN_NS = 20_000_000
IDLE_NS = 250_000_000  # a few heartbeats: nobody misses the leader
ROUNDS_MAX = 5_000
CONNECTED_NS = 1


class Links:
    """The links of one member: what it sends lands in the others' next inbox."""

    def __init__(self, group: "Group", name: str) -> None:
        self._group = group
        self._name = name
        self.known: dict[int, list[str]] = {}
        self.active_since: dict[int, int | None] = {}

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._group.carry(self._name, message)

    def send_snapshot(self, message: Message) -> None:
        self._group.members[self._name].inbox.snapshots_sent.append((message.to, False))

    def set_members(self, peers: Mapping[int, Sequence[str]]) -> None:
        self.known = {each: list(urls) for each, urls in peers.items()}

    def defer_wakeups(self, for_ns: int) -> None:
        """See PeerLinks; messages come when they come."""

    def active_since_ns(self, member_id: int) -> int | None:
        if member_id in self.active_since:
            return self.active_since[member_id]
        other = self._group.by_id(member_id)
        is_up = other is not None and member_id in self.known and other.name not in self._group.cuts
        return CONNECTED_NS if is_up else None


class ListLog(LineLogger):
    """A log that is kept as rows."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        super().__init__([], "debug")
        self.rows: list[dict[str, object]] = []

    @override
    def _emit(self, level: int, msg: str, fields: Mapping[str, object]) -> None:
        self.rows.append({"level": level, "msg": msg, **fields})


class RunningMembers:
    """The answers of running members to one that starts (see founding.Questions)."""

    def __init__(self, group: "Group") -> None:
        self._group = group

    def members(self, urls: Sequence[str], timeout_s: float) -> RemoteCluster:
        some = self._first(urls, timeout_s)
        return RemoteCluster(some.parts.cluster_id, some.parts.state.membership.sorted_members())

    def version(self, urls: Sequence[str], timeout_s: float) -> Versions:
        some = self._first(urls, timeout_s)
        return Versions(
            some.version, some.parts.state.membership.cluster_version or "not_decided", ""
        )

    def downgrade_enabled(self, urls: Sequence[str], timeout_s: float) -> bool:
        return self._first(urls, timeout_s).parts.state.membership.downgrade_target is not None

    def _first(self, urls: Sequence[str], timeout_s: float) -> "GroupMember":
        for member in self._group.members.values():
            if set(self._group.urls[member.name]) & set(urls):
                return member
        raise PeerRequestError(f"nobody of {urls} answers in {timeout_s} s")


class GroupMember:
    """One member while it runs."""

    def __init__(self, group: "Group", name: str, data_dir: Path, flags: Sequence[str]) -> None:
        self.name = name
        self.inbox = Inbox()
        self.clock = group.clock
        self.answers: dict[int, tuple[int, bytes]] = {}
        self.tasks: list[OffloadedTask] = []
        self.log = ListLog()
        self.version = SERVER_VERSION
        config = configure(
            read_command_line([f"--data-dir={data_dir}", f"--name={name}", *flags]),
            {},
        )
        logger = self.log
        paths = prepare(data_dir, None, logger)
        self.booted = boot(
            paths,
            Founding(
                name,
                lambda: dict(group.urls),
                "tok",
                name not in group.joiners,
                RunningMembers(group),
                str,
                learners_max=group.learners_max,
                force_new_cluster=config.force_new_cluster,
            ),
            logger,
            files=UnsyncedFiles(),
            open_backend=lambda path: group.open_backend(name, path),
            segment_bytes=1 << 20,
        )
        self.parts = build(
            config,
            self.booted,
            snapshot_files(config, self.booted, paths, logger, UnsyncedFiles()),
            self.clock,
            logger,
        )
        self.links = self.parts.replication.peers = Links(group, name)
        self.node = Node(self.parts)

    @property
    def id(self) -> int:
        return self.parts.member_id

    def logged(self, msg: str) -> list[dict[str, object]]:
        """Return the lines of the log with this message."""
        return [line for line in self.log.rows if line["msg"] == msg]

    def turn(self) -> Outbox:
        inbox, self.inbox = self.inbox, Inbox()
        inbox.now_ns, inbox.wall_ms = self.clock.now_ns, self.clock.unix_ms()
        out = self.node.turn(inbox)
        for call_id, code, body in out.replies:
            assert call_id not in self.answers, f"call {call_id} was answered twice"
            self.answers[call_id] = (code, body)
        self.tasks += out.tasks
        return out


Question = tuple[GroupMember, OffloadedTask, GroupMember, int]


class Group:
    """The members, the links between them, and one clock."""

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        flags: Sequence[str] = (),
        *,
        urls: Mapping[str, Sequence[str]] | None = None,
        in_memory: bool = True,
    ) -> None:
        """Start members with data under directory; urls: their peer URLs, if these matter."""
        self._directory = directory
        self._in_memory = in_memory
        self._flags = flags
        self._next_id = 0
        self._questions: list[Question] = []
        self.clock = FakeClock()
        self.members: dict[str, GroupMember] = {}
        self.backends: dict[str, MemoryBackend] = {}
        self.learners_max = 1
        self.joiners: set[str] = set()
        self.cuts: set[str] = set()
        self.refusing: set[str] = set()  # members whose peer port does not answer questions
        self.urls = {name: [f"http://10.0.0.{at}:2380"] for at, name in enumerate(names, 1)}
        self.urls |= {name: list(each) for name, each in (urls or {}).items()}
        for name in names:
            self.start(name)

    # The members.

    def open_backend(self, name: str, path: Path) -> Backend:
        """Return a member's state, as it left it."""
        if not self._in_memory:
            return LmdbBackend(path)
        return self.backends.setdefault(name, MemoryBackend())

    def start(self, name: str, *flags: str) -> GroupMember:
        """Start a member, for the first time or again."""
        data_dir = self._directory / name
        member = GroupMember(self, name, data_dir, [*self._flags, *flags])
        self.members[name] = member
        return member

    def join(self, name: str, urls: Sequence[str], *flags: str) -> GroupMember:
        """Start a member that was added to the running ones, once they all know it."""
        self.run_for(0.3)
        self.urls[name] = list(urls)
        self.joiners.add(name)
        return self.start(name, *flags)

    def stop(self, name: str) -> None:
        """Stop a member gracefully."""
        member = self.members.pop(name)
        member.node.close(self.clock.now_ns)
        if not self._in_memory:
            member.parts.state.backend.close()
        member.booted.wal.close()

    def close(self) -> None:
        """End all of them."""
        for name in list(self.members):
            self.stop(name)

    def by_id(self, member_id: int) -> GroupMember | None:
        return next((each for each in self.members.values() if each.id == member_id), None)

    @property
    def leader(self) -> GroupMember | None:
        """Who leads in the newest term, if somebody does."""
        leaders = [m for m in self.members.values() if m.parts.raft.role is Role.LEADER]
        return max(leaders, key=lambda m: m.parts.raft.term, default=None)

    # Rounds.

    def carry(self, sender: str, message: Message) -> None:
        to = self.by_id(message.to)
        if to is not None and sender not in self.cuts and to.name not in self.cuts:
            to.inbox.messages.append(message)

    def round(self, turn_ns: int = TURN_NS) -> None:
        """Let a turn's time pass and every member take one."""
        self.clock.now_ns += turn_ns
        for member in list(self.members.values()):
            self._answer_tasks(member)
            member.turn()

    def run_until(self, done: Callable[[], bool], what: str = "it") -> None:
        """Go on until done() holds."""
        for _ in range(ROUNDS_MAX):
            if done():
                return
            self.round()
        raise AssertionError(f"{what} does not happen in {ROUNDS_MAX} rounds")

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(int(seconds * 1e9 / TURN_NS)):
            self.round()

    def idle_for(self, seconds: float) -> None:
        """Let time pass in large steps, as it does where nothing happens."""
        for _ in range(int(seconds * 1e9 / IDLE_NS) + 1):
            self.round(IDLE_NS)

    def settle(self) -> None:
        """Go on until there is a leader that everybody follows, and all have joined."""
        self.run_until(lambda: all(m.node.is_ready for m in self.members.values()), "joining")
        self.run_until(
            lambda: len({m.parts.raft.applied for m in self.members.values()}) == 1,
            "agreement",
        )

    # Calls.

    def begin(
        self, name: str, method: int, request: Proto, metadata: Mapping[str, str] | None = None
    ) -> int:
        """Let a call arrive; return its id."""
        self._next_id += 1
        member = self.members[name]
        member.inbox.calls.append((self._next_id, method, request.SerializeToString()))
        if metadata:
            member.inbox.metadata[self._next_id] = metadata
        return self._next_id

    def wait(self, name: str, call_id: int) -> bytes:
        """Go on until a call is answered; CallError if with an error."""
        member = self.members[name]
        self.run_until(lambda: call_id in member.answers, f"an answer to call {call_id}")
        code, body = member.answers.pop(call_id)
        if code:
            raise CallError(code, body.decode())
        return body

    def call(
        self, name: str, method: int, request: Proto, metadata: Mapping[str, str] | None = None
    ) -> Any:
        """Make a call and wait for its response."""
        body = self.wait(name, self.begin(name, method, request, metadata))
        return rpc.METHODS[method].response.FromString(body)

    def put(self, name: str, key: bytes, value: bytes) -> None:
        """Write a key through a member."""
        self.call(name, rpc.PUT, pb.PutRequest(key=key, value=value))

    # What the peer ports answer.

    def _answer_tasks(self, member: GroupMember) -> None:
        tasks, member.tasks = member.tasks, []
        for task in tasks:
            other = self.by_id(int(task.args[0], 16))
            if other is None or other.name in self.refusing | self.cuts or member.name in self.cuts:
                self._tell(member, TaskResult(task.id, "connection refused", b""))
            elif task.args[1] == b"/version":
                row = {"etcdserver": other.version}
                self._tell(member, TaskResult(task.id, "", json.dumps(row).encode()))
            else:
                self._questions.append(self._pass_on(member, task, other))
        for question in list(self._questions):
            asker, task, other, call_id = question
            if call_id in other.answers:
                self._questions.remove(question)
                self._tell(asker, _answer_of(task, *other.answers.pop(call_id)))

    def _pass_on(self, member: GroupMember, task: OffloadedTask, other: GroupMember) -> Question:
        path = task.args[1].decode()
        if path == "/members/hashkv":
            revision = json.loads(task.args[2]).get("revision", 0)
            call_id = self.begin(other.name, rpc.HASH_KV, pb.HashKVRequest(revision=revision))
        else:
            assert task.kind is TaskKind.POST_PEER, task
            assert path.startswith("/members/promote/"), task
            request = pb.MemberPromoteRequest(ID=int(path.rpartition("/")[2]))
            call_id = self.begin(other.name, rpc.MEMBER_PROMOTE, request)
        return member, task, other, call_id

    def _tell(self, member: GroupMember, result: TaskResult) -> None:
        member.inbox.task_results.append(result)


def _answer_of(task: OffloadedTask, code: int, body: bytes) -> TaskResult:
    """Return what the peer port makes of a call's answer."""
    if code:
        text = body.decode("utf-8", "replace")
        if "member not found" in text:
            text = "membership: ID not found"
        return TaskResult(task.id, "HTTP 400", text.encode())
    if task.kind is TaskKind.GET_PEER:
        answer = pb.HashKVResponse.FromString(body)
        row = {
            "header": {"revision": answer.header.revision},
            "hash": answer.hash,
            "compact_revision": answer.compact_revision,
            "hash_revision": answer.hash_revision,
        }
        return TaskResult(task.id, "", json.dumps(row).encode())
    members = pb.MemberPromoteResponse.FromString(body).members
    rows = [
        encode_member(
            Member(m.ID, m.name, list(m.peerURLs), list(m.clientURLs), is_learner=m.isLearner)
        )
        for m in members
    ]
    return TaskResult(task.id, "", b"[%b]\n" % b",".join(rows))
