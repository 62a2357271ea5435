"""Clusters of real processes: ours and real etcd in any mix, on loopback or in namespaces.

    with cluster(tmp_path, "ooe") as members:                   o: ours, e: etcd 3.5.1
    with namespaces(3) as network, cluster(tmp_path, "ooo", network=network) as members:
        members.leader().kill()

Every process is ended by its own id, also when the test fails.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from typing_extensions import override

from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import pausing
from tests.support.network.namespaces import Host, Network
from tests.support.rpc_client import Client
from tests.support.servers import Server, etcd, free_ports, ours
from tests.support.waiting import wait_for as wait_for

WAIT_S: Final = 60.0
POLL_S: Final = 0.02
CALL_S: Final = 2.0
MAKERS: Final[dict[str, Callable[..., Server]]] = {"o": ours, "e": etcd}
OURS_ALONE: Final = "--snapshot-catchup-entries="  # a flag etcd 3.5.1 does not have
# Half of etcd's timeouts: elections cost the tests less, and busy machines still keep them.
FLAGS: Final = ("--heartbeat-interval=50", "--election-timeout=500")


class Member(Server):
    """One member: a server that knows its cluster, perhaps in a namespace of its own."""

    def __init__(self, kind: str, data_dir: Path, *, host: Host, extra: Sequence[str]) -> None:
        made = MAKERS[kind](data_dir)
        super().__init__(made.command, data_dir, name=data_dir.name, extra=extra)
        self.kind = kind
        self.host = host
        self.initial_cluster = ""
        self.is_joining = False
        self.is_stopped = False  # by SIGSTOP

    @override
    @property
    def endpoint(self) -> str:
        return f"{self.host.address}:{self.client_port}"

    @override
    @property
    def peer_url(self) -> str:
        return f"http://{self.host.address}:{self.peer_port}"

    def become(self, kind: str) -> None:
        """Be the other program from the next start on."""
        self.kind, self.command = kind, MAKERS[kind](self.data_dir).command

    @override
    def arguments(self) -> list[str]:
        inside = ["ip", "netns", "exec", self.host.namespace] if self.host.namespace else []
        state = "existing" if self.is_joining else "new"
        flags = super().arguments()
        if self.kind == "e":
            flags = [each for each in flags if not each.startswith(OURS_ALONE)]
        return [
            *inside,
            *flags,
            f"--initial-cluster={self.initial_cluster}",
            f"--initial-cluster-state={state}",
        ]

    def pause(self) -> None:
        """Stop the process where it stands."""
        assert self.process is not None
        pausing.pause(self.process.pid)
        self.is_stopped = True

    def resume(self) -> None:
        """Let the process go on."""
        assert self.process is not None
        pausing.resume(self.process.pid)
        self.is_stopped = False

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def status(self, timeout_s: float = CALL_S) -> Any:
        """Return its StatusResponse, None if it does not answer."""
        if not self.is_running or self.is_stopped:
            return None
        with Client(self.endpoint) as client:
            try:
                return client.call(rpc.STATUS, pb.StatusRequest(), timeout_s)
            except grpc.RpcError:
                return None


@dataclass(slots=True)
class Cluster:
    """The members, running or not."""

    directory: Path
    stack: ExitStack
    flags: Sequence[str]
    network: Network | None = None
    members: list[Member] = field(default_factory=list)
    made: int = 0

    def __getitem__(self, number: int) -> Member:
        return self.members[number]

    @property
    def endpoints(self) -> list[str]:
        return [each.endpoint for each in self.members]

    def make(self, kind: str, data_dir: Path | None = None) -> Member:
        """Make a member that is in no cluster yet; it is ended with this one."""
        at = self.made
        self.made += 1
        host = self.network.hosts[at] if self.network else Host("", "127.0.0.1")
        directory = data_dir or self.directory / f"m{at + 1}"
        member = Member(kind, directory, host=host, extra=self.flags)
        member.log_path = self.directory / f"m{at + 1}.log"  # not on a disk that a test fills
        self.stack.callback(_end, member)
        return member

    def leader(self, timeout_s: float = WAIT_S) -> Member:
        """Return the leader most members name, as soon as they do and it says the same."""
        found: list[Member] = []

        def has_one() -> bool:
            found.clear()
            told = [each.status() for each in self.members]
            names = [each.leader for each in told if each is not None and each.leader]
            if not names:
                return False
            most = max(names, key=names.count)
            if names.count(most) * 2 <= len(self.members):
                return False
            for member, status in zip(self.members, told, strict=True):
                if status is not None and status.header.member_id == most == status.leader:
                    found.append(member)
            return bool(found)

        wait_for(has_one, "a leader", timeout_s)
        return found[0]

    def followers(self) -> list[Member]:
        """Return the running members that do not lead."""
        leader = self.leader()
        return [each for each in self.members if each is not leader and each.is_running]

    def id_of(self, member: Member) -> int:
        """Return a running member's id."""
        status = member.status()
        assert status is not None, member.log()
        return int(status.header.member_id)

    def move_leader(self, target: Member) -> None:
        """Hand the leadership over to a member."""

        def is_moved() -> bool:
            leader = self.leader()
            if leader is target:
                return True
            request = pb.MoveLeaderRequest(targetID=self.id_of(target))
            with Client(leader.endpoint) as client:
                try:
                    client.call(rpc.MOVE_LEADER, request, 5.0)
                except grpc.RpcError:
                    return False
            return False

        wait_for(is_moved, f"{target.name} leads")

    def ask(self, method: int, request: Any, what: str) -> Any:
        """Ask the members one after another until one grants it."""
        told = ""
        answer: list[Any] = []

        def is_granted() -> bool:
            nonlocal told
            for member in self.members:
                if not member.is_running or member.is_stopped:
                    continue
                with Client(member.endpoint) as client:
                    try:
                        answer.append(client.call(method, request, 5.0))
                    except grpc.RpcError as error:
                        told = str(error)
                    else:
                        return True
            return False

        try:
            wait_for(is_granted, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {told}") from None
        return answer[0]

    def join(self, member: Member, *, is_learner: bool = False) -> int:
        """Announce a member, start it, wait until it serves; return its id."""
        request = pb.MemberAddRequest(peerURLs=[member.peer_url], isLearner=is_learner)
        added = self.ask(rpc.MEMBER_ADD, request, "a member is added")
        member.initial_cluster = _named([*self.members, member])
        member.is_joining = True
        self.members.append(member)
        member.start(wait=False)
        member.wait_ready()
        return int(added.member.ID)

    def promote(self, member_id: int) -> None:
        """Make a learner a voter, as soon as it has caught up."""
        self.ask(rpc.MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=member_id), "the promotion")

    def remove(self, member: Member) -> None:
        """Remove a member and wait until its process has ended."""
        member_id = self.id_of(member)
        self.members.remove(member)
        self.ask(rpc.MEMBER_REMOVE, pb.MemberRemoveRequest(ID=member_id), "the removal")
        process = member.process
        assert process is not None
        wait_for(lambda: process.poll() is not None, "the end of the removed member")
        member.process = None

    def wait_equal(self) -> int:
        """Wait until all members have applied the same; return the revision they stand at."""
        told: list[tuple[int, int]] = []

        def is_equal() -> bool:
            found = [each.status() for each in self.members]
            told[:] = [(each.raftAppliedIndex, each.header.revision) for each in found if each]
            return len(told) == len(self.members) and len(set(told)) == 1

        try:
            wait_for(is_equal, "members that stand at the same index")
        except AssertionError as error:
            raise AssertionError(f"{error}: {told}") from None
        return told[0][1]

    def hashes(self) -> dict[str, tuple[int, int]]:
        """Return each member's (HashKV, compact revision) at the revision where all stand."""
        revision = self.wait_equal()
        return {each.name: _hash(each, revision) for each in self.members}


def _hash(member: Member, revision: int) -> tuple[int, int]:
    with Client(member.endpoint) as client:
        told = client.hash_kv(revision)
    return int(told.hash), int(told.compact_revision)


def _named(members: Sequence[Member]) -> str:
    return ",".join(f"{each.name}={each.peer_url}" for each in members)


def _end(member: Member) -> None:
    if member.process is not None:
        member.kill()


@contextmanager
def cluster(
    directory: Path,
    kinds: str,
    *,
    network: Network | None = None,
    extra: Sequence[str] = (),
    data_dirs: dict[int, Path] | None = None,
) -> Iterator[Cluster]:
    """Start a cluster of a member a letter and wait until it has a leader."""
    with ExitStack() as stack:
        made = Cluster(directory, stack, [*FLAGS, *extra], network)
        for at, kind in enumerate(kinds):
            made.members.append(made.make(kind, (data_dirs or {}).get(at)))
        # One call each: ports given one by one could come twice.
        ports = free_ports(2 * len(kinds))
        for at, member in enumerate(made.members):
            member.client_port, member.peer_port = ports[2 * at : 2 * at + 2]
        for member in made.members:
            member.initial_cluster = _named(made.members)
            member.start(wait=False)
        for member in made.members:
            member.wait_ready()
        made.leader()
        yield made
