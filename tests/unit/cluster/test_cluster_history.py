"""The checker of recorded histories sees what it is there for: each breach, planted, is found."""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message

from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.gen.kv_pb2 import Event
from kvstore.wire.internal import Field
from tests.sim.model import StoreModel
from tests.support.cluster.history import Call, Checker, History, Seen

KEYS = (b"a", b"b")


class Recording:
    """A sound history: three writes, reads between them, a lease that ended, one watcher."""

    def __init__(self) -> None:
        self.history = History()
        self.model = StoreModel(1)
        self.now_s = 0.0
        self.first = self.write(pb.PutRequest(key=b"a", value=b"1"))
        self.read_first = self.read()
        self.second = self.write(pb.PutRequest(key=b"a", value=b"2", prev_kv=True))
        self.third = self.write(pb.DeleteRangeRequest(key=b"a", prev_kv=True))
        self.grant = self.write(pb.LeaseGrantRequest(ID=7, TTL=10))
        self.history.promise(7, self.grant.begin_s, 10)
        self.leased = self.write(pb.PutRequest(key=b"b", value=b"3", lease=7))
        self.lost = self.write(pb.PutRequest(key=b"a", value=b"4"))
        self.lost.response = None  # it was done and not answered
        self.read_last = self.read()
        self.now_s += 20
        self.apply(pb.LeaseRevokeRequest(ID=7), Field.LEASE_REVOKE)
        self.events = [self._event(row) for row in self.model.rows]
        self.seen = Seen(b"a", b"c", 2, [(self.now_s + 1, [event]) for event in self.events])
        self.history.watchers.append(self.seen)

    def apply(self, request: Message, field: int) -> Any:
        return self.model.apply(field, request.SerializeToString())

    def write(self, request: Message) -> Call:
        fields: dict[type, int] = {
            pb.PutRequest: Field.PUT,
            pb.DeleteRangeRequest: Field.DELETE_RANGE,
            pb.LeaseGrantRequest: Field.LEASE_GRANT,
        }
        return self._call(request, lambda: self.apply(request, fields[type(request)]))

    def read(self) -> Call:
        request = pb.RangeRequest(key=b"a", range_end=b"c")
        return self._call(request, lambda: self.model.range(request, self.model.revision))

    def _call(self, request: Message, do: Callable[[], Any]) -> Call:
        call = Call(request, "m1", self.now_s)
        call.response = do()
        self.now_s += 1
        call.end_s = self.now_s
        self.now_s += 1
        self.history.calls.append(call)
        return call

    def _event(self, row: Any) -> Event:
        event = Event(type=Event.DELETE if row.tombstone else Event.PUT)
        event.kv.ParseFromString(row.kv)
        event.kv.mod_revision = row.main
        return event

    def check(self) -> None:
        Checker(self.history, self.events, 1).check()


def lose(recording: Recording) -> None:
    """An acknowledged write of which the cluster shows nothing."""
    recording.first.response.header.revision = 9


def forget_the_last(recording: Recording) -> None:
    """The end of the history is cut off."""
    del recording.events[-2:]
    del recording.seen.responses[-2:]


def do_twice(recording: Recording) -> None:
    again = Event()
    again.CopyFrom(recording.events[0])
    again.kv.mod_revision = recording.events[-1].kv.mod_revision + 1
    recording.events.append(again)


def apply_what_was_refused(recording: Recording) -> None:
    recording.lost.is_refused = True


def read_what_is_stale(recording: Recording) -> None:
    first = recording.read_first
    late = Call(first.request, "m2", recording.now_s, recording.now_s + 1, first.response)
    recording.history.calls.append(late)


def read_what_is_wrong(recording: Recording) -> None:
    recording.read_last.response.kvs[0].value = b"?"


def write_before_it_was_asked(recording: Recording) -> None:
    recording.lost.begin_s = recording.now_s + 5


def answer_wrongly(recording: Recording) -> None:
    recording.second.response.prev_kv.value = b"?"


def end_a_lease_early(recording: Recording) -> None:
    recording.history.promise(7, recording.now_s, 10)


def skip_an_event(recording: Recording) -> None:
    del recording.seen.responses[1]


def repeat_an_event(recording: Recording) -> None:
    recording.seen.responses.insert(1, recording.seen.responses[0])


def swap_events(recording: Recording) -> None:
    responses = recording.seen.responses
    responses[0], responses[1] = responses[1], responses[0]


def test_a_correct_history() -> None:
    recording = Recording()
    assert len(recording.events) == 6
    recording.check()


@pytest.mark.parametrize(
    "breach",
    [
        lose,
        forget_the_last,
        do_twice,
        apply_what_was_refused,
        read_what_is_stale,
        read_what_is_wrong,
        write_before_it_was_asked,
        answer_wrongly,
        end_a_lease_early,
        skip_an_event,
        repeat_an_event,
        swap_events,
    ],
)
def test_a_breach_is_found(breach: Callable[[Recording], None]) -> None:
    recording = Recording()
    breach(recording)
    with pytest.raises(AssertionError):
        recording.check()
