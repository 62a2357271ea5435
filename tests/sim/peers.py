"""Requests of members to each other over HTTP, and the links of one member, without sockets.

    task ─► the network ─► the target's real PeerQuestions ─► its node, called as by its local
    client (ids below 0) ─► the network ─► inbox.task_results

PeerQuestions consists of coroutines. No loop runs them here: each is suspended at an `_Answer`
until the node answers its id, and is resumed in the same turn. When a process ends, its coroutines
end, and the caller's connection breaks.
"""

import heapq
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, cast

from typing_extensions import override

from kvstore.batch import Inbox, Metadata, OffloadedTask, Outbox, TaskResult, messages
from kvstore.node.parts import Parts
from kvstore.peers.http_client import PeerRequestError
from kvstore.peers.listener import PeerRequest, Reply
from kvstore.peers.questions import RemoteCluster, Versions
from kvstore.raft.model import Message
from kvstore.runtime.local_client import CallRefusedError, LocalClient
from kvstore.server.peering.questions import Facts, PeerQuestions
from tests.sim.options import MS_NS
from tests.sim.token_keys import PASSWORD_KINDS, do_password_work
from tests.sim.violation import demand
from tests.support.cluster.network import Links, Network

Callback = Callable[[Reply | None], None]


class Host(Protocol):
    """A member, as far as its peer port and its tasks use it."""

    id: int
    life: int
    port: "PeerPort | None"

    @property
    def parts(self) -> Parts:
        """The parts of its node, which runs."""

    def add_to_inbox(self, add: Callable[[Inbox], None]) -> None:
        """Let add change the inbox of the next turn."""


H = TypeVar("H", bound=Host)


class SimLinks(Links):
    """Links that report messages to the checker, and use their member's clock."""

    def __init__(
        self,
        network: Network,
        member_id: int,
        report_sent: Callable[[int, Message], None],
        offset_ns: Callable[[], int],
    ) -> None:
        super().__init__(network, member_id)
        self._member_id = member_id
        self._report_sent = report_sent
        self._offset_ns = offset_ns

    @override
    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._report_sent(self._member_id, message)
        super().send(messages)

    @override
    def active_since_ns(self, member_id: int) -> int | None:
        since_ns = super().active_since_ns(member_id)
        return None if since_ns is None else since_ns + self._offset_ns()


class _Answer:
    """What a coroutine awaits: the answer to call or stream `id`."""

    def __init__(self, own_id: int) -> None:
        self.id = own_id

    def __await__(self) -> Generator["_Answer", tuple[int, bytes], tuple[int, bytes]]:
        return (yield self)


class _Stream:
    """LocalStream, as far as PeerQuestions uses it."""

    def __init__(self, client: "_Client", own_id: int) -> None:
        self._client = client
        self._id = own_id

    async def send(self, message: bytes) -> None:
        frame = (self._id, message)
        self._client.member.add_to_inbox(lambda inbox: inbox.frames.append(frame))

    async def __anext__(self) -> bytes:
        code, body = await _Answer(self._id)
        if code == 0 and not body:
            raise StopAsyncIteration
        if code:
            raise CallRefusedError(code, body.decode())
        return body

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        own_id = self._id
        self._client.member.add_to_inbox(lambda inbox: inbox.gone.append(own_id))


class _Client:
    """LocalClient, as far as PeerQuestions uses it."""

    def __init__(self, member: Host) -> None:
        self.member = member
        self._last_id = 0

    def _take_id(self) -> int:
        self._last_id -= 1
        return self._last_id

    async def call(
        self,
        method_id: int,
        body: bytes,
        metadata: Metadata | None = None,
        timeout_s: float | None = None,
    ) -> bytes:
        del timeout_s  # the caller has its own time limit
        own_id = self._take_id()

        def add(inbox: Inbox) -> None:
            inbox.calls.append((own_id, method_id, body))
            if metadata is not None:
                inbox.metadata[own_id] = metadata

        self.member.add_to_inbox(add)
        code, answer = await _Answer(own_id)
        if code:
            raise CallRefusedError(code, answer.decode())
        return answer

    def open(self, method_id: int, metadata: Metadata | None = None) -> _Stream:
        own_id = self._take_id()

        def add(inbox: Inbox) -> None:
            inbox.opened.append((own_id, method_id))
            if metadata is not None:
                inbox.metadata[own_id] = metadata

        self.member.add_to_inbox(add)
        return _Stream(self, own_id)


class PeerPort:
    """The peer port of a running member: it answers other members."""

    def __init__(self, member: Host, parts: Parts) -> None:
        membership = parts.state.membership
        facts = Facts(
            parts.cluster_id,
            lambda: membership.cluster_version,
            lambda: bool(membership.downgrade_target),
        )
        client = cast("LocalClient", _Client(member))
        self._questions = PeerQuestions(client, _not_used, facts)
        self._suspended: dict[int, tuple[Coroutine[Any, Any, Reply], Callback]] = {}
        self._ended: set[int] = set()  # streams whose one message has been taken

    def ask(self, path: str, body: bytes, callback: Callback) -> None:
        """Answer a request; callback gets None if this process ends first."""
        request = PeerRequest("POST", path, "", {}, "")
        self._resume(self._questions.answer(request, body), None, callback)

    def _resume(
        self, work: Coroutine[Any, Any, Reply], value: tuple[int, bytes] | None, callback: Callback
    ) -> None:
        try:
            awaited = work.send(value)
        except StopIteration as done:
            callback(done.value)
            return
        assert isinstance(awaited, _Answer)
        self._suspended[awaited.id] = (work, callback)

    def take(self, out: Outbox) -> None:
        """Take the answers to ids below 0 out of an outbox."""
        said = [(each, code, body) for each, code, body in out.replies if each < 0]
        said += [
            (each, 0, head + tail) for each, head, tail in messages(out.deliveries) if each < 0
        ]
        said += [(each, code, text) for each, code, text in out.ends if each < 0]
        if not said:
            return
        out.replies = [each for each in out.replies if each[0] > 0]
        out.deliveries = [each for each in out.deliveries if each[0] > 0]
        out.ends = [each for each in out.ends if each[0] > 0]
        for own_id, code, body in said:
            suspended = self._suspended.pop(own_id, None)
            if suspended is not None:
                self._resume(suspended[0], (code, body), suspended[1])

    def close(self) -> None:
        """End with the process."""
        suspended, self._suspended = self._suspended, {}
        for work, callback in suspended.values():
            work.close()
            callback(None)


def _not_used(_work: Coroutine[Any, Any, Reply]) -> Any:
    raise AssertionError("requests are answered by ask")


class OffloadedTasks(Generic[H]):
    """Runs the offloaded tasks of all members."""

    def __init__(self, network: Network, timeout_ns: int) -> None:
        self._network = network
        self._timeout_ns = timeout_ns
        self.members: Mapping[int, H] = {}  # by raft id
        self._due: list[tuple[int, int, Callable[[], None]]] = []  # a heap
        self._count = 0
        self.done = 0

    def next_ns(self) -> int | None:
        """Return when something arrives next."""
        return self._due[0][0] if self._due else None

    def step(self) -> None:
        """Deliver what is due."""
        while self._due and self._due[0][0] <= self._network.now_ns:
            heapq.heappop(self._due)[2]()

    def _later(self, by_ns: int, operation: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self._network.now_ns + by_ns, self._count, operation))

    def run(self, member: Host, task: OffloadedTask) -> None:
        """Run a task of a member; it ends with an answer or a timeout, unless the member ends."""
        if task.kind in PASSWORD_KINDS:
            self._run_here(member, task)
            return
        network, life = self._network, member.life
        target_id, path = int(task.args[0], 16), task.args[1].decode()
        is_over = False

        def end(error: str, body: bytes = b"") -> None:
            nonlocal is_over
            if is_over or member.life != life:
                return
            is_over = True
            self.done += 1
            result = TaskResult(task.id, error, body)
            member.add_to_inbox(lambda inbox: inbox.task_results.append(result))

        def lose(what: str) -> None:
            self._later(network.rng.randrange(1, self._timeout_ns), lambda: end(what))

        def answered(reply: Reply | None) -> None:
            if reply is None or not self._gets_through(member.id, target_id):
                lose("the connection broke")
                return
            error = "" if reply.status == 200 else f"HTTP {reply.status}"
            self._later(self._delay_ns(target_id, member.id), lambda: end(error, reply.body))

        def arrive() -> None:
            target = self.members.get(target_id)
            port = None if target is None else target.port
            if port is None or not self._gets_through(member.id, target_id):
                lose("the connection was refused")
            else:
                port.ask(path, task.args[2], answered)

        self._later(self._timeout_ns, lambda: end("timed out"))
        self._later(self._delay_ns(member.id, target_id), arrive)

    def _run_here(self, member: Host, task: OffloadedTask) -> None:
        """Run a task that needs no other member; others overtake it now and then."""
        life = member.life

        def end() -> None:
            if member.life == life:
                self.done += 1
                result = TaskResult(task.id, *do_password_work(task))
                member.add_to_inbox(lambda inbox: inbox.task_results.append(result))

        self._later(self._network.rng.choice((0, 1, 50)) * MS_NS, end)

    def _gets_through(self, a: int, b: int) -> bool:
        network = self._network
        return network.is_up(a, b) and network.rng.random() >= network.loss

    def _delay_ns(self, from_: int, to: int) -> int:
        network = self._network
        return network.slow_ns.get((from_, to), 0) + network.rng.randint(*network.delay_ns)


class JoinQuestions:
    """The requests of a member that has not joined yet, answered by one that runs."""

    def __init__(self, asked: Host | None) -> None:
        self._asked = asked

    def _parts(self) -> Parts:
        if self._asked is None:
            raise PeerRequestError("no member runs")
        return self._asked.parts

    def members(self, urls: Sequence[str], timeout_s: float) -> RemoteCluster:
        """See Questions."""
        del urls, timeout_s
        parts = self._parts()
        return RemoteCluster(parts.cluster_id, parts.state.membership.sorted_members())

    def version(self, urls: Sequence[str], timeout_s: float) -> Versions:
        """See Questions."""
        del urls, timeout_s
        version = self._parts().state.membership.cluster_version
        if version is None:
            raise PeerRequestError("not decided yet")
        return Versions("3.7.1", version, "3.7.0")

    def downgrade_enabled(self, urls: Sequence[str], timeout_s: float) -> bool:
        """See Questions."""
        del urls, timeout_s
        return False


def compare_members(member: int, found: Mapping[int, Any], expected: Mapping[int, Any]) -> None:
    """Compare a member's list of members with the roster's."""
    told = {each: (tuple(who.peer_urls), who.is_learner, who.name) for each, who in found.items()}
    demand(told == {each: tuple(who) for each, who in expected.items()}, member, told, expected)
