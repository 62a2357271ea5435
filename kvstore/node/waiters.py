"""Proposals under way: one by one, or plain writes that follow one another in the log as columns.

    entries  7 8 9 10 11      a run of 5, first_index 7
    applied  7 8 9            split(3) returns the first three; what is left begins at 10

A run is what `plain_calls` recognized in one turn. It is applied and answered as a whole where that
is possible; where each of its calls must be treated on its own, `waiters` returns them.

The parsed request stays with the waiter, so applying does not parse it again.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from google.protobuf.message import Message

from kvstore.auth.tokens import NO_CREDENTIAL, Credential
from kvstore.batch import Outbox
from kvstore.errors import Refusal

if TYPE_CHECKING:
    from kvstore.apply.compare_and_put import Swap

INTERNAL: int = 0  # the call id of the server's own proposals

ResultCallback = Callable[[bytes | Refusal, Outbox], None]
"""Called with the result of an entry, or with the reason why there is none."""


class Waiter(NamedTuple):
    """One proposal under way."""

    call_id: int  # INTERNAL: there is no call to answer
    field: int  # its number in InternalRaftRequest
    request: Message | None  # parsed, where the applier uses that
    body: bytes
    verdict: Refusal | None = None  # sent instead of the result (a refusal that raised an alarm)
    credential: Credential = NO_CREDENTIAL  # in the entry's header
    callback: ResultCallback | None = None


class PlainRun:
    """Plain writes of one kind whose entries follow one another; columns in step."""

    __slots__ = (
        "bodies",
        "call_ids",
        "field",
        "first_index",
        "keys",
        "since_ns",
        "term",
        "values",
    )

    def __init__(
        self,
        field: int,
        call_ids: list[int],
        bodies: list[bytes],
        keys: "list[bytes] | list[Swap]",
        values: list[bytes],
    ) -> None:
        """See plain_calls.RunColumns."""
        self.field = field
        self.call_ids = call_ids
        self.bodies = bodies
        self.keys = keys
        self.values = values
        # Where it is in the log, since when; set when raft has taken it.
        self.first_index = 0
        self.term = 0
        self.since_ns = 0

    def __len__(self) -> int:
        return len(self.call_ids)

    @property
    def end_index(self) -> int:
        """The index after its last entry."""
        return self.first_index + len(self.call_ids)

    def split(self, count: int) -> "PlainRun":
        """Split off and return the first count entries."""
        first = PlainRun(
            self.field,
            self.call_ids[:count],
            self.bodies[:count],
            self.keys[:count],
            self.values[:count],
        )
        first.first_index, first.term, first.since_ns = self.first_index, self.term, self.since_ns
        del self.call_ids[:count], self.bodies[:count], self.keys[:count], self.values[:count]
        self.first_index += count
        return first

    def waiters(self) -> list[Waiter]:
        """Return the waiters one by one."""
        field = self.field
        calls = zip(self.call_ids, self.bodies, strict=True)
        return [Waiter(call_id, field, None, body) for call_id, body in calls]


Proposed: TypeAlias = Waiter | PlainRun


def each_waiter(proposed: Iterable[Proposed]) -> list[Waiter]:
    """Return the waiters of proposals, those of runs one by one."""
    waiters: list[Waiter] = []
    for each in proposed:
        if isinstance(each, PlainRun):
            waiters += each.waiters()
        else:
            waiters.append(each)
    return waiters
