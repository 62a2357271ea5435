"""One member turned by hand, whose calls carry tokens and whose password work is done at once.

member = AuthMember(tmp_path)
member.set_up()                                   users root and alice, role r, auth on
token = member.login("alice")
member.call(rpc.PUT, pb.PutRequest(key=b"a"), token)
assert member.refused(rpc.PUT, pb.PutRequest(key=b"z"), token) == PERMISSION_DENIED
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from typing_extensions import override

from kvstore.auth.tokens import TokenKeys
from kvstore.batch import Inbox, Outbox
from kvstore.errors import Refusal
from kvstore.node.ports import LogFile
from kvstore.raft.model import Entry, HardState
from kvstore.server.auth.password_tasks import PasswordTasks
from kvstore.server.auth.tokens import keys_of
from kvstore.wire import rpc
from kvstore.wire.gen import auth_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.gen.raft_internal_pb2 import InternalRaftRequest
from kvstore.wire.internal import unwrap
from tests.support.node.harness import CallError, Disk, Harness

READ, WRITE, BOTH = 0, 1, 2


class LogCopy:
    """The log, and a list of what is written to it."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self.entries: list[Entry] = []

    def save(self, hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        self.entries += entries
        self._log.save(hard_state, entries, sync=sync)

    def start_save(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        self.entries += entries
        self._log.start_save(hard_state, entries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def requests(self, field: int | None = None) -> list[InternalRaftRequest]:
        """Return the requests in the log, or those of one kind."""
        datas = [each.data for each in self.entries if each.data]
        return [
            InternalRaftRequest.FromString(data)
            for data in datas
            if field is None or unwrap(data)[0] == field
        ]


class AuthMember(Harness):
    """A member with `--bcrypt-cost=4`."""

    def __init__(self, tmp_path: Path, *flags: str, disk: Disk | None = None) -> None:
        self._tasks: PasswordTasks | None = None
        self.is_slow = False  # what is done off the turn is not handed over
        super().__init__(
            tmp_path / "data", disk or Disk(in_memory=True), ["--bcrypt-cost=4", *flags]
        )
        self._tasks = PasswordTasks(lambda: None, self.keys)
        self.parts.replication.log = self.log = LogCopy(self.parts.replication.log)

    @property
    def keys(self) -> TokenKeys | None:
        return keys_of(self.parts.state.auth.tokens)

    @override
    def turn(self, inbox: Inbox | None = None) -> Outbox:
        inbox = inbox or Inbox()
        if self._tasks is not None and not self.is_slow:
            self._tasks.fill(inbox)
        out = super().turn(inbox)
        if self._tasks is not None:
            for task in out.tasks:
                self._tasks._run(task)
        return out

    def pass_time(self, seconds: float) -> None:
        """Let time go by without turns; leases and tokens grow old, nothing is answered."""
        self.clock.now_ns += int(seconds * 1_000_000_000)

    def ask(self, method: int, request: Message, token: str | Mapping[str, str] = "") -> int:
        """Let a call arrive; return its id. token: that, or all of the call's metadata."""
        call_id = self.take_id()
        metadata = token if isinstance(token, Mapping) else {"token": token} if token else None
        inbox = Inbox(calls=[(call_id, method, request.SerializeToString())])
        if metadata is not None:
            inbox.metadata[call_id] = metadata
        self.turn(inbox)
        return call_id

    @override
    def call(self, method: int, request: Message, token: str | Mapping[str, str] = "") -> Any:
        body = self.wait(self.ask(method, request, token))
        return rpc.METHODS[method].response.FromString(body)

    def refused(
        self, method: int, request: Message, token: str | Mapping[str, str] = ""
    ) -> Refusal:
        """Make a call that must be refused; return why."""
        try:
            answer = self.call(method, request, token)
        except CallError as error:
            return Refusal(error.code, error.text)
        raise AssertionError(f"it was answered: {answer}")

    def ended_stream(self, method: int, request: Message, token: str = "") -> tuple[int, str]:
        """Make a call with a stream of answers; return how it ended."""
        call_id = self.ask(method, request, token)
        for _ in range(100):
            if call_id in self.ended:
                return self.ended[call_id]
            self.turn()
        raise AssertionError("the stream does not end")

    def put(self, key: bytes, value: bytes = b"v", token: str = "", lease: int = 0) -> int:
        """Put; return the revision."""
        answer = self.call(rpc.PUT, pb.PutRequest(key=key, value=value, lease=lease), token)
        return answer.header.revision

    def open_with(self, method: int, token: str = "") -> int:
        """Open a stream of messages whose opening carries a token."""
        stream_id = self.take_id()
        inbox = Inbox(opened=[(stream_id, method)])
        if token:
            inbox.metadata[stream_id] = {"token": token}
        self.turn(inbox)
        return stream_id

    def watch(self, token: str, key: bytes, end: bytes = b"", **fields: Any) -> int:
        """Open a watch stream with one watcher; return the stream's id."""
        stream_id = self.open_with(rpc.WATCH, token)
        create = pb.WatchCreateRequest(key=key, range_end=end, **fields)
        self.send(stream_id, pb.WatchRequest(create_request=create))
        return stream_id

    def watched(self, stream_id: int) -> list[pb.WatchResponse]:
        """Return what a watch stream was sent so far."""
        return [pb.WatchResponse.FromString(each) for each in self.delivered.get(stream_id, [])]

    # Users.

    def add_user(self, name: str, password: str = "pw", *roles: str, token: str = "") -> None:
        self.call(rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name=name, password=password), token)
        for role in roles:
            self.grant(name, role, token)

    def grant(self, user: str, role: str, token: str = "") -> None:
        request = pb.AuthUserGrantRoleRequest(user=user, role=role)
        self.call(rpc.AUTH_USER_GRANT_ROLE, request, token)

    def add_role(self, name: str, *ranges: tuple[int, bytes, bytes], token: str = "") -> None:
        self.call(rpc.AUTH_ROLE_ADD, pb.AuthRoleAddRequest(name=name), token)
        for kind, key, end in ranges:
            self.permit(name, kind, key, end, token)

    def permit(self, role: str, kind: int, key: bytes, end: bytes, token: str = "") -> None:
        perm = auth_pb2.Permission(permType=kind, key=key, range_end=end)  # type: ignore[arg-type]
        request = pb.AuthRoleGrantPermissionRequest(name=role, perm=perm)
        self.call(rpc.AUTH_ROLE_GRANT_PERMISSION, request, token)

    def revoke(self, role: str, key: bytes, end: bytes, token: str = "") -> None:
        request = pb.AuthRoleRevokePermissionRequest(role=role, key=key, range_end=end)
        self.call(rpc.AUTH_ROLE_REVOKE_PERMISSION, request, token)

    def enable(self, token: str = "") -> None:
        self.call(rpc.AUTH_ENABLE, pb.AuthEnableRequest(), token)

    def login(self, name: str, password: str = "pw") -> str:
        """Return a token."""
        request = pb.AuthenticateRequest(name=name, password=password)
        return self.call(rpc.AUTHENTICATE, request).token

    def set_up(self, *ranges: tuple[int, bytes, bytes]) -> str:
        """Make users root and alice, whose role r has the ranges; turn auth on, log root in."""
        self.add_user("root", "pw", "root")
        self.add_role("r", *ranges)
        self.add_user("alice", "pw", "r")
        self.enable()
        return self.login("root")
