"""Calls as plain data: a method's name and its request as a dict, revisions relative.

    ("Range", {"key": b"a", "range_end": b"c", "revision": Now(-2)})

The same list of calls can be played on any server at any time: what depends on the moment is a
symbol (`Now`, `Base`, `Self`), put in place when the call is made. A failing list that Hypothesis
prints can be pasted into a test as it stands.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.message import Message
from typing_extensions import override

from kvstore.wire.gen import health_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc

TIMEOUT_S: Final = 20.0
CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
)

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Now:
    """The revision at the time of the call, plus offset."""

    offset: int = 0


@dataclass(frozen=True)
class Base:
    """The revision the example began with, plus offset."""

    offset: int = 0


@dataclass(frozen=True)
class Self:
    """The id of the member that is asked."""


@dataclass(frozen=True)
class Moment:
    """What the symbols stand for when a call is made."""

    base: int
    now: int
    member_id: int

    def put_in(self, value: Any) -> Any:
        """Return value, all symbols in it replaced."""
        match value:
            case Now(offset):
                return self.now + offset
            case Base(offset):
                return self.base + offset
            case Self():
                return self.member_id
            case Mapping():
                return {name: self.put_in(each) for name, each in value.items()}
            case list() | tuple():
                return [self.put_in(each) for each in value]
            case _:
                return value


@dataclass(frozen=True)
class Method:
    path: str
    request: type[Message]
    response: type[Message]


def _methods(service: str, *names: str, **others: str) -> dict[str, Method]:
    found = {}
    for name, stem in {**{name: name for name in names}, **others}.items():
        found[name] = Method(
            f"/etcdserverpb.{service}/{name}",
            getattr(pb, f"{stem}Request"),
            getattr(pb, f"{stem}Response"),
        )
    return found


METHODS: Final[dict[str, Method]] = {
    **_methods("KV", "Range", "Put", "DeleteRange", "Txn", Compact="Compaction"),
    **_methods("Lease", "LeaseGrant", "LeaseRevoke", "LeaseTimeToLive", "LeaseLeases"),
    **_methods("Cluster", "MemberList"),
    **_methods("Maintenance", "Alarm", "Status", "Defragment", "HashKV"),
    "HealthCheck": Method(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest,
        health_pb2.HealthCheckResponse,
    ),
}
RANGE_STREAM: Final = "/etcdserverpb.KV/RangeStream"
KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"


@dataclass(frozen=True)
class Outcome:
    """What a call came to: a code and its text, or OK and the messages received."""

    code: str
    text: str = ""
    messages: tuple[Any, ...] = ()

    @property
    def message(self) -> Any:
        assert self.code == "OK", self
        return self.messages[0]

    @override
    def __str__(self) -> str:
        if self.code != "OK" and not self.messages:
            return f"{self.code}: {self.text}"
        body = "\n---\n".join(str(message) for message in self.messages)
        return f"{self.code} {self.text}\n{_shortened(body)}"


def _shortened(text: str, chars_max: int = 4000) -> str:
    return text if len(text) <= chars_max else f"{text[:chars_max]}… ({len(text)} characters)"


def failure(error: grpc.RpcError, messages: tuple[Any, ...] = ()) -> Outcome:
    """Return the outcome of a call that ended with an error."""
    return Outcome(error.code().name, error.details() or "", messages)


def start_unary(
    channel: grpc.Channel, path: str, body: bytes, parse: Callable[[bytes], Any]
) -> Callable[[], Outcome]:
    """Begin a call; the function returned waits for its outcome."""
    pending = raw_grpc.unary(channel, path).future(body, timeout=TIMEOUT_S)

    def wait() -> Outcome:
        try:
            return Outcome("OK", messages=(parse(pending.result()),))
        except grpc.RpcError as error:
            return failure(error)

    return wait


def server_stream(
    channel: grpc.Channel, path: str, body: bytes, parse: Callable[[bytes], Any]
) -> Outcome:
    """Make a call that is answered by a stream of messages."""
    messages: list[Any] = []
    try:
        messages.extend(map(parse, raw_grpc.unary_stream(channel, path)(body, timeout=TIMEOUT_S)))
    except grpc.RpcError as error:
        return failure(error, tuple(messages))
    return Outcome("OK", messages=tuple(messages))


def keep_alive(channel: grpc.Channel, leases: list[int]) -> Outcome:
    """Renew leases on one stream, one after the other."""
    bodies = [pb.LeaseKeepAliveRequest(ID=lease).SerializeToString() for lease in leases]
    messages: list[Any] = []
    try:
        answers = raw_grpc.stream(channel, KEEP_ALIVE)(iter(bodies), timeout=TIMEOUT_S)
        messages.extend(map(pb.LeaseKeepAliveResponse.FromString, answers))
    except grpc.RpcError as error:
        return failure(error, tuple(messages))
    return Outcome("OK", messages=tuple(messages))
