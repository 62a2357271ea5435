"""Clusters of either contender as processes: as many members, on one disk, equally durable.

    with clusters(directory, 3) as found:                  both, as `pair` has both servers
        cluster = found["etcd"]
        kvload.run(cluster.leader(), "unary", pids=cluster.pids(), ...)

    with one_cluster(directory, "kvstore", 3) as cluster:  one alone, new each time

All members get the FLAGS of `bench.servers`, and keep the heartbeats and election timeouts that
both have by default (100 ms, 1 s). Members may be placed (slow links are made so): a Place says
where a member's peer port is and in which network namespace its process lives.
"""

import re
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
from typing_extensions import override

from bench.loads.client import Client
from bench.procfs import memory
from bench.reporting.figures import CONTENDERS
from bench.servers import FLAGS, MAKERS, listens
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.servers import Server, free_ports

WAIT_S: Final = 120.0
CALL_S: Final = 10.0
_POLL_S: Final = 0.005
_RECEIVED: Final = re.compile(r"^etcd_network_snapshot_receive_success\{.*\} (\S+)$", re.MULTILINE)


class Host(NamedTuple):
    """Where a member lives: namespace "" is the one that clients are in."""

    client_address: str = "127.0.0.1"
    peer_address: str = "127.0.0.1"
    namespace: str = ""


HERE: Final = Host()


class Member(Server):
    """One member; initial_cluster must be set before it starts."""

    def __init__(
        self, who: str, data_dir: Path, *, extra: Sequence[str] = (), host: Host = HERE
    ) -> None:
        command = MAKERS[who](data_dir).command
        super().__init__(command, data_dir, name=data_dir.name, extra=[*FLAGS, *extra])
        self.host = host
        self.initial_cluster = ""
        self.is_joining = False

    @property
    @override
    def endpoint(self) -> str:
        return f"{self.host.client_address}:{self.client_port}"

    @property
    @override
    def peer_url(self) -> str:
        return f"http://{self.host.peer_address}:{self.peer_port}"

    @override
    def arguments(self) -> list[str]:
        """Return the command line; etcd and ours take the last of what comes twice."""
        inside = ["ip", "netns", "exec", self.host.namespace] if self.host.namespace else []
        state = "existing" if self.is_joining else "new"
        of_cluster = [
            f"--initial-cluster={self.initial_cluster}",
            f"--initial-cluster-state={state}",
        ]
        return [*inside, *super().arguments(), *of_cluster]

    def status(self) -> Any:  # noqa: ANN401  # a StatusResponse
        """Return its status, None if it does not answer now."""
        if not listens(self.endpoint):
            return None
        with Client(self.endpoint) as client:
            try:
                return client.status(CALL_S)
            except grpc.RpcError:
                return None


@dataclass(slots=True)
class Cluster:
    """The members of one contender."""

    who: str
    members: list[Member]

    def leader(self) -> Member:
        """Return the member that leads; wait until there is one."""
        found: list[Member] = []

        def has_one() -> bool:
            found[:] = self._leading()
            return bool(found)

        wait_until(has_one, f"a leader of {self.who}'s")
        return found[0]

    def _leading(self) -> list[Member]:
        statuses = [each.status() for each in self.members]
        named = [each.leader for each in statuses if each is not None and each.leader]
        return [
            member
            for member, status in zip(self.members, statuses, strict=True)
            if status is not None
            and status.header.member_id == status.leader
            and named.count(status.leader) * 2 > len(self.members)
        ]

    def followers(self) -> list[Member]:
        """Return the members that do not lead."""
        leader = self.leader()
        return [each for each in self.members if each is not leader]

    def pids(self, first: Member | None = None) -> list[int]:
        """Return the process ids of all members: of first (None: the leader), then of the rest."""
        begin = first or self.leader()
        return [begin.pid, *(each.pid for each in self.members if each is not begin)]

    def lead_by(self, member: Member) -> None:
        """Hand the leadership to a member."""

        def leads() -> bool:
            leader, status = self.leader(), member.status()
            if leader is not member and status is not None:
                request = pb.MoveLeaderRequest(targetID=status.header.member_id)
                with Client(leader.endpoint) as client:
                    client.call("Maintenance", "MoveLeader", request, CALL_S)
            return leader is member

        wait_until(leads, f"the leadership of {member.name}")

    def wait_equal(self) -> None:
        """Wait until every member has applied what the leader has applied now."""
        status = self.leader().status()
        for member in self.members:
            wait_applied(member, status.raftAppliedIndex)

    def rss_bytes(self) -> int:
        """Return the resident memory of all members."""
        return sum(memory(each.pid).rss_bytes for each in self.members)

    def note_initial(self) -> None:
        """Tell every member who the members are."""
        listed = ",".join(f"{each.name}={each.peer_url}" for each in self.members)
        for each in self.members:
            each.initial_cluster = listed


def wait_until(done: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Ask until it is so; RuntimeError names what did not come."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {timeout_s:g} s")
        time.sleep(_POLL_S)


def wait_applied(member: Member, index: int, timeout_s: float = WAIT_S) -> float:
    """Wait until a member has applied an index; return how long ago it first answered, in s.

    A member that has just been started is waited for. RuntimeError if it ends or takes too long.
    """
    wait_until(lambda: _is_up(member), f"an answer of {member.name}", timeout_s)
    begin = time.perf_counter()
    with Client(member.endpoint) as client:
        wait_until(
            lambda: bool(client.status(timeout_s).raftAppliedIndex >= index),
            f"{member.name} at index {index}",
            timeout_s,
        )
    return time.perf_counter() - begin


def check_received(member: Member) -> None:
    """RuntimeError if its metrics do not say that it got a snapshot from another member."""
    with urllib.request.urlopen(f"{member.client_url}/metrics", timeout=CALL_S) as answer:
        text = answer.read().decode()
    if not sum(float(count) for count in _RECEIVED.findall(text)):
        raise RuntimeError(f"{member.name} caught up, but not by a snapshot")


def _is_up(member: Member) -> bool:
    process = member.process
    if process is None or process.poll() is not None:
        raise RuntimeError(f"{member.name} ended:\n{member.log()}")
    return member.status() is not None


@contextmanager
def one_cluster(
    directory: Path,
    who: str,
    count: int,
    *,
    extra: Sequence[str] = (),
    hosts: Sequence[Host] = (),
) -> Iterator[Cluster]:
    """Run one contender's cluster on a fresh directory; end it whatever happens."""
    directory.mkdir(parents=True, exist_ok=True)
    where = [*hosts, *[HERE] * (count - len(hosts))]
    with ExitStack() as stack:
        members = []
        for number, host in enumerate(where, 1):
            member = Member(who, directory / f"m{number}", extra=extra, host=host)
            stack.callback(end, member)
            members.append(member)
        ports = free_ports(2 * count)
        for number, member in enumerate(members):
            member.client_port, member.peer_port = ports[2 * number : 2 * number + 2]
        found = Cluster(who, members)
        found.note_initial()
        for member in members:
            member.start(wait=False)
        for member in members:
            member.wait_ready(WAIT_S)
        found.leader()
        yield found


@contextmanager
def clusters(
    directory: Path, count: int, *, extra: Sequence[str] = ()
) -> Iterator[dict[str, Cluster]]:
    """Run both contenders' clusters; the one that is not measured idles."""
    with ExitStack() as stack:
        yield {
            who: stack.enter_context(one_cluster(directory / who, who, count, extra=extra))
            for who in CONTENDERS
        }


def end(member: Member) -> None:
    """End a member's process if it runs."""
    if member.process is not None:
        member.kill()
