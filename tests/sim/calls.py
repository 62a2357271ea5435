"""A call of a simulated client, who makes it, and the state after each entry of the log."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from google.protobuf.message import Message

from kvstore.batch import Metadata
from tests.sim.model import Answer


class CallerKind(Enum):
    """By what a caller is known."""

    NOBODY = auto()
    TOKEN = auto()
    CERTIFICATE = auto()
    PROCESS = auto()  # the server itself, with root's permission


class Caller(NamedTuple):
    """Who makes a call; user: "" for nobody, and for a token that was never given out."""

    kind: CallerKind
    user: str = ""
    token: str = ""
    metadata: Metadata | None = None


NOBODY: Final = Caller(CallerKind.NOBODY)


@dataclass(slots=True)
class Call:
    """One call under way."""

    id: int
    method: int
    request: Message
    body: bytes
    refusal: str = ""  # what admission must answer
    reads_only: bool = True
    serializable: bool = False
    must_succeed: bool = False
    caller: Caller = NOBODY
    member: int = 0  # that got the call
    asked_ns: int = 0
    local: int = 0  # the index that member had applied when the call was made
    floor: int = 0  # the highest index applied by any member then
    low: int = 0  # the lowest
    starts: int = 0  # how many starts of members there were before
    answer: Answer | None = None  # the model's, of an applied write
    index: int = 0  # where it was applied; 0: nowhere
    gone: bool = False  # the client has left


class Mark(NamedTuple):
    """The state after one entry of the log."""

    revision: int
    compacted: int
    leases: int  # which of lease_states
    roster: int  # which of roster.states
    alarms: frozenset[int]
    auth: int  # which of auth.states
