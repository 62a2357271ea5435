"""How calls are counted: at once, late, gone, refused, streamed, and by whom."""

import pytest

from kvstore.batch import Inbox, Outbox
from kvstore.errors import Code
from kvstore.runtime.local_client import CLIENT_IDS_FROM
from kvstore.server.metrics.calls import CallCounters, SlowCalls, columns_of
from kvstore.wire import rpc

SLOW_NS = 100
BEFORE = (1, 2, 3, 4)


class Watched:
    """Calls with a log of what was told to be slow, and a clock that is set by hand."""

    def __init__(self, *, extensive: bool = False) -> None:
        self.slow: list[SlowCalls] = []
        self.calls = CallCounters(SLOW_NS, self.slow.append, extensive=extensive)

    def turn(
        self, inbox: Inbox, out: Outbox | None = None, *, begin_ns: int = 0, end_ns: int = 10
    ) -> None:
        self.calls.count_arrivals(columns_of(inbox), begin_ns, BEFORE)
        self.calls.count_answers(out or Outbox(), end_ns)


def puts(*ids: int) -> list[tuple[int, int, bytes]]:
    return [(each, rpc.PUT, b"abc") for each in ids]


def answers(*ids: int, code: int = 0) -> list[tuple[int, int, bytes]]:
    return [(each, code, b"ok") for each in ids]


def test_a_turn_that_answers_all_it_was_given() -> None:
    watched = Watched()
    watched.turn(Inbox(calls=puts(1, 2, 3)), Outbox(replies=answers(2, 1, 3)))
    calls = watched.calls
    assert calls.started[rpc.PUT] == calls.received[rpc.PUT] == calls.sent[rpc.PUT] == 3
    assert calls.handled == {(rpc.PUT, Code.OK): 3}
    assert (calls.received_bytes, calls.sent_bytes) == (9, 6)
    assert sum(calls.durations[rpc.PUT, True].counts) == 3
    assert calls.open_calls == 0


def test_mixed_methods_in_one_turn() -> None:
    watched = Watched()
    batch = [*puts(1), (2, rpc.RANGE, b""), *puts(3)]
    watched.turn(Inbox(calls=batch), Outbox(replies=answers(1, 2, 3)))
    assert watched.calls.handled == {(rpc.PUT, Code.OK): 2, (rpc.RANGE, Code.OK): 1}
    assert watched.calls.started[rpc.RANGE] == 1


def test_replies_of_later_turns() -> None:
    watched = Watched()
    calls = watched.calls
    watched.turn(Inbox(calls=puts(1, 2)))
    assert (calls.open_calls, calls.handled) == (2, {})
    watched.turn(Inbox(calls=puts(3)), Outbox(replies=answers(1, 3)), begin_ns=20, end_ns=30)
    assert (calls.open_calls, calls.handled) == (1, {(rpc.PUT, Code.OK): 2})
    watched.turn(Inbox(), Outbox(replies=answers(2)), begin_ns=40, end_ns=50)
    assert (calls.open_calls, calls.handled) == (0, {(rpc.PUT, Code.OK): 3})
    assert calls.durations[rpc.PUT, True].total == pytest.approx((30 + 10 + 50) * 1e-9)


def test_refusals_are_counted_by_code() -> None:
    watched = Watched()
    replies = [*answers(1), *answers(2, 3, code=Code.NOT_FOUND)]
    watched.turn(Inbox(calls=puts(1, 2, 3)), Outbox(replies=replies))
    assert watched.calls.handled == {(rpc.PUT, Code.OK): 1, (rpc.PUT, Code.NOT_FOUND): 2}
    assert watched.calls.sent[rpc.PUT] == 3
    assert sum(watched.calls.durations[rpc.PUT, False].counts) == 2


def test_a_call_whose_client_went_away_is_counted_once() -> None:
    watched = Watched()
    watched.turn(Inbox(calls=puts(1, 2)))
    watched.turn(Inbox(gone=[1, 99]))
    assert watched.calls.handled == {(rpc.PUT, Code.CANCELED): 1}
    watched.turn(Inbox(), Outbox(replies=answers(1, 2)))  # nobody takes the first any more
    assert watched.calls.handled == {(rpc.PUT, Code.CANCELED): 1, (rpc.PUT, Code.OK): 1}
    assert watched.calls.open_calls == 0


def test_a_stray_reply_is_not_taken_for_another_call() -> None:
    watched = Watched()
    watched.turn(Inbox(calls=puts(1)))
    watched.turn(Inbox(gone=[1]))
    watched.turn(Inbox(calls=[(2, rpc.SNAPSHOT, b"")]), Outbox(replies=answers(1)))
    assert watched.calls.handled == {(rpc.PUT, Code.CANCELED): 1}
    assert watched.calls.open_streams == 1


def test_the_process_own_calls_are_not_counted() -> None:
    watched = Watched()
    inbox = Inbox(calls=[*puts(1), (-1, rpc.RANGE, b"xyz")], metadata={-1: {"token": "t"}})
    watched.turn(inbox, Outbox(replies=answers(1)))
    watched.turn(Inbox(calls=[(-2, rpc.RANGE, b"xyz")], opened=[(-3, rpc.WATCH)]))
    calls = watched.calls
    assert calls.started[rpc.RANGE] == calls.started[rpc.WATCH] == 0
    assert calls.received_bytes == 3
    assert calls.handled == {(rpc.PUT, Code.OK): 1}
    assert calls.versions == {("unknown", True): 1}


def test_streams() -> None:
    watched = Watched(extensive=True)
    calls = watched.calls
    inbox = Inbox(
        calls=[(3, rpc.RANGE_STREAM, b"12")],
        opened=[(1, rpc.WATCH), (2, rpc.LEASE_KEEP_ALIVE)],
        frames=[(1, b"1234"), (2, b"1"), (1, b""), (9, b"not known")],
    )
    out = Outbox(
        deliveries=[(1, b"12", b"345"), (2, b"1", b""), (1, b"", b""), (3, b"1", b"2")],
        ends=[(3, 0, b"")],
    )
    watched.turn(inbox, out)
    assert calls.started[rpc.WATCH] == calls.started[rpc.RANGE_STREAM] == 1
    assert calls.received[rpc.WATCH] == calls.sent[rpc.WATCH] == 2
    assert calls.received[rpc.LEASE_KEEP_ALIVE] == calls.sent[rpc.LEASE_KEEP_ALIVE] == 1
    assert calls.sent[rpc.RANGE_STREAM] == 1
    assert (calls.received_bytes, calls.sent_bytes) == (2 + 4 + 1, 5 + 1 + 2)
    assert calls.handled == {(rpc.RANGE_STREAM, Code.OK): 1}
    watched.turn(Inbox(gone=[1]), Outbox(ends=[(2, int(Code.UNAVAILABLE), b"no leader")]))
    assert calls.handled[rpc.WATCH, Code.CANCELED] == 1
    assert calls.handled[rpc.LEASE_KEEP_ALIVE, Code.UNAVAILABLE] == 1
    assert calls.open_streams == 0
    assert calls.handling is not None
    assert sum(calls.handling[rpc.WATCH].counts) == 1


def test_a_fan_out_is_as_many_messages_as_it_has_middles() -> None:
    watched = Watched()
    out = Outbox(deliveries=[(1, b"12", b"345", (b"a", b"", b"bc")), (1, b"1", b"2")])
    watched.turn(Inbox(opened=[(1, rpc.WATCH)]), out)
    assert (watched.calls.sent[rpc.WATCH], watched.calls.sent_bytes) == (4, 3 * 5 + 3 + 2)


def test_a_slow_turn_is_reported_once_for_all_its_calls() -> None:
    watched = Watched()
    watched.turn(Inbox(calls=puts(1, 2, 3)), Outbox(replies=answers(1, 2, 3)), end_ns=500)
    (slow,) = watched.slow
    assert (slow.method, slow.count, slow.took_ns) == (rpc.PUT, 3, 500)
    assert (slow.in_one_turn, slow.before) == (True, BEFORE)
    assert (slow.request, slow.response) == (b"abc", b"ok")
    assert watched.calls.handled == {(rpc.PUT, Code.OK): 3}


def test_a_call_that_waited_over_turns_is_slow_by_itself() -> None:
    watched = Watched()
    watched.turn(Inbox(calls=[*puts(1), (2, rpc.RANGE, b"r")]))
    out = Outbox(replies=[*answers(7), (2, int(Code.UNAVAILABLE), b"text"), *answers(1)])
    watched.turn(Inbox(calls=puts(7)), out, begin_ns=400, end_ns=450)
    assert [(each.method, each.request, each.response) for each in watched.slow] == [
        (rpc.RANGE, b"r", None),
        (rpc.PUT, b"abc", b"ok"),
    ]
    assert not any(each.in_one_turn for each in watched.slow)


def test_versions_of_clients() -> None:
    watched = Watched()
    version = {"client-api-version": "3.5"}
    watched.turn(Inbox(calls=puts(1, 2), metadata={1: version, 2: version}))
    watched.turn(Inbox(calls=puts(3, 4), metadata={3: {"token": "x"}}))
    watched.turn(Inbox(calls=puts(5), opened=[(6, rpc.WATCH)], metadata={6: version}))
    assert watched.calls.versions == {
        ("3.5", True): 2,
        ("unknown", True): 3,
        ("3.5", False): 1,
    }


def test_clients_cannot_make_versions_without_end() -> None:
    watched = Watched()
    for each in range(1, 200):
        version = {"client-api-version": f"v{each}"}
        watched.turn(
            Inbox(calls=puts(each), metadata={each: version}), Outbox(replies=answers(each))
        )
    assert len(watched.calls.versions) <= 34
    assert sum(watched.calls.versions.values()) == 199
    assert watched.calls.versions["other", True] > 100


def test_what_the_gateway_asks_for_clients_counts_and_the_process_itself_does_not() -> None:
    watched = Watched()
    calls = watched.calls
    gateway, own = CLIENT_IDS_FROM - 1, -2
    watched.turn(
        Inbox(calls=puts(1, gateway, own)), Outbox(replies=answers(1, gateway, own, code=0))
    )
    assert calls.started[rpc.PUT] == calls.sent[rpc.PUT] == 2
    assert calls.handled == {(rpc.PUT, Code.OK): 2}
    assert (calls.received_bytes, calls.sent_bytes) == (6, 4)
    watched.turn(Inbox(), Outbox(replies=answers(own)))
    assert calls.handled == {(rpc.PUT, Code.OK): 2}
    assert calls.open_calls == 0


def test_the_gateways_streams_count_once_and_not_as_the_page_they_are_answered_on() -> None:
    watched = Watched()
    calls = watched.calls
    page, gateway, own = 7, CLIENT_IDS_FROM - 3, -4
    watched.turn(
        Inbox(opened=[(gateway, rpc.WATCH), (own, rpc.WATCH)], frames=[(gateway, b"abc")]),
        Outbox(deliveries=[(gateway, b"created", b""), (own, b"created", b"")]),
    )
    watched.turn(
        Inbox(),
        Outbox(responses=[(page, 200, [], None)], deliveries=[(page, b"{}", b"")]),
    )
    assert (calls.started[rpc.WATCH], calls.received[rpc.WATCH], calls.sent[rpc.WATCH]) == (1, 1, 1)
    assert (calls.received_bytes, calls.sent_bytes) == (3, 7)
    watched.turn(Inbox(gone=[gateway]), Outbox(ends=[(page, 0, b"")]))
    assert calls.handled == {(rpc.WATCH, Code.CANCELED): 1}


def test_what_is_open_by_method() -> None:
    watched = Watched()
    watched.turn(Inbox(calls=puts(1, 2), opened=[(3, rpc.WATCH)]), begin_ns=5)
    watched.turn(Inbox(calls=puts(4)), Outbox(replies=answers(2)), begin_ns=20, end_ns=30)
    assert watched.calls.open_by_method(45) == [(rpc.PUT, 2, 40), (rpc.WATCH, 1, 40)]
    watched.turn(Inbox(gone=[3]), Outbox(replies=answers(1, 4)), begin_ns=50, end_ns=60)
    assert watched.calls.open_by_method(70) == []
