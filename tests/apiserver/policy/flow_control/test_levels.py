from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.policy.flow_control.allocation import Limits
from kvstack.apiserver.policy.flow_control.levels import (
    Flow,
    FlowCounts,
    Level,
    Queuing,
    Ticket,
    dealt,
)

MS = 1_000_000
QUEUING = Queuing(16, 4, 50)


def level_of(limit: int, queuing: Queuing | None = QUEUING, *, is_exempt: bool = False) -> Level:
    level = Level("l", "u", 0)
    level.configure("u", Limits(limit, limit, limit), queuing, is_exempt=is_exempt)
    level.resize(limit, 0)
    return level


def flow_of(level: Level, name: str) -> Flow:
    return Flow("s", name, level, FlowCounts())


def test_a_free_seat_is_taken_at_once() -> None:
    level = level_of(2)
    flow = flow_of(level, "a")
    tickets = [level.enter(flow, 1, 0) for _ in range(3)]
    assert [each is not None and each.is_started for each in tickets] == [True, True, False]
    assert (level.in_use, level.waiting, flow.counts.waiting_seats) == (2, 1, 1)
    first, _, third = tickets
    assert first is not None
    assert third is not None
    told: list[str] = []
    third.on_start = lambda: told.append("started")
    level.leave(first, 5 * MS)
    level.leave(first, 5 * MS)
    assert (third.is_started, told, level.in_use, level.waiting) == (True, ["started"], 2, 0)
    assert sum(flow.counts.waited.counts) == 1
    assert flow.counts.executions.counts[1] == 1


def test_without_queues_there_is_no_waiting() -> None:
    level = level_of(1, None)
    flow = flow_of(level, "a")
    assert level.enter(flow, 1, 0) is not None
    assert level.enter(flow, 1, 0) is None
    assert flow.counts.rejected == {"concurrency-limit": 1}


def test_answers_that_are_not_read_hold_back_their_own_flow() -> None:
    """Half of the seats at most; others pass, and reading lets the flow go on."""
    level = level_of(4)
    slow, quick = flow_of(level, "slow"), flow_of(level, "quick")
    written = []
    for _ in range(2):
        ticket = level.enter(slow, 1, 0)
        assert ticket is not None
        level.note_writing(ticket, 0)
        level.note_writing(ticket, 0)
        written.append(ticket)
    held_back = level.enter(slow, 1, 0)
    assert held_back is not None
    assert not held_back.is_started
    for _ in range(20):
        other = level.enter(quick, 1, 0)
        assert other is not None
        assert other.is_started
        level.leave(other, MS)
    assert not held_back.is_started
    level.leave(written[0], MS)
    assert held_back.is_started
    level.leave(held_back, MS)
    level.leave(written[1], MS)
    assert level.is_idle
    assert slow.writing == 0


def test_a_flow_that_does_not_read_keeps_half_of_the_seats() -> None:
    """Also if all its requests were let in before the first was answered."""
    level = level_of(4)
    slow = flow_of(level, "slow")
    tickets = [level.enter(slow, 1, 0) for _ in range(4)]
    assert level.in_use == 4
    for ticket in tickets:
        assert ticket is not None
        level.note_writing(ticket, MS)
    assert (level.in_use, slow.writing) == (2, 2)
    for ticket in tickets:
        assert ticket is not None
        level.leave(ticket, 2 * MS)
    assert (level.in_use, slow.writing, level.is_idle) == (0, 0, True)


def test_a_large_request_waits_for_none_but_its_own() -> None:
    level = level_of(4)
    flow = flow_of(level, "a")
    first = level.enter(flow, 4, 0)
    assert first is not None
    assert first.is_started
    level.note_writing(first, 0)
    second = level.enter(flow, 4, 0)
    assert second is not None
    assert not second.is_started
    level.leave(first, MS)
    assert second.is_started


def test_without_queues_a_flow_that_does_not_read_is_refused() -> None:
    level = level_of(4, None)
    flow = flow_of(level, "a")
    for _ in range(2):
        ticket = level.enter(flow, 1, 0)
        assert ticket is not None
        level.note_writing(ticket, 0)
    assert level.enter(flow, 1, 0) is None
    assert level.enter(flow_of(level, "b"), 1, 0) is not None


def test_a_level_may_be_exempt() -> None:
    level = level_of(0, None, is_exempt=True)
    flow = flow_of(level, "a")
    for _ in range(1000):
        ticket = level.enter(flow, 1, 0)
        assert ticket is not None
        assert ticket.is_started


def test_a_queue_has_an_end() -> None:
    level = level_of(1, Queuing(4, 2, 3))
    flow = flow_of(level, "a")
    found = [level.enter(flow, 1, 0) for _ in range(10)]
    assert sum(each is not None for each in found) == 1 + 2 * 3
    assert flow.counts.rejected == {"queue-full": 3}
    other = next(
        each
        for each in (flow_of(level, f"b{n}") for n in range(99))
        if not {*each.hand} & {*flow.hand}
    )
    assert level.enter(other, 1, 0) is not None, "a flow filled the queues of another one"


def test_what_is_larger_than_all_seats_runs_alone() -> None:
    level = level_of(2)
    flow = flow_of(level, "a")
    small = level.enter(flow, 1, 0)
    large = level.enter(flow, 5, 0)
    later = level.enter(flow, 1, 0)
    assert small is not None
    assert large is not None
    assert later is not None
    assert not large.is_started
    level.leave(small, MS)
    assert any(each.is_started for each in (large, later))
    for _ in range(2):
        for each in (large, later):
            if each.is_started:
                level.leave(each, 2 * MS)
    assert level.is_idle
    assert level.in_use == 0


def test_who_waits_may_give_up() -> None:
    level = level_of(1)
    flow = flow_of(level, "a")
    level.enter(flow, 1, 0)
    waiting = level.enter(flow, 1, 0)
    assert waiting is not None
    level.give_up(waiting, 7 * MS)
    level.give_up(waiting, 7 * MS)
    assert (level.waiting, flow.counts.rejected) == (0, {"time-out": 1})
    level.leave(waiting, 9 * MS)
    assert level.executing == 1


def test_fewer_and_more_seats() -> None:
    level = level_of(2)
    flow = flow_of(level, "a")
    tickets = [level.enter(flow, 1, 0) for _ in range(4)]
    level.resize(4, MS)
    assert all(each is not None and each.is_started for each in tickets)


def test_hands_have_different_queues() -> None:
    hand = dealt("x", Queuing(64, 6, 50))
    assert len(set(hand)) == 6
    assert max(hand) < 64
    assert dealt("x", Queuing(2, 6, 50)) in ((0, 1), (1, 0))


def serve(level: Level, started: deque[Ticket], now_ns: int, count: Counter[str]) -> None:
    ticket = started.popleft()
    count[ticket.flow.distinguisher] += 1
    level.leave(ticket, now_ns)


def test_a_flood_does_not_keep_others_waiting() -> None:
    level = level_of(10, Queuing(128, 6, 50))
    flood, quiet = flow_of(level, "flood"), flow_of(level, "quiet")
    now, started = 0, deque[Ticket]()

    def enter(flow: Flow) -> Ticket | None:
        ticket = level.enter(flow, 1, now)
        if ticket is not None:
            if ticket.is_started:
                started.append(ticket)
            else:
                ticket.on_start = lambda: started.append(ticket)
        return ticket

    waits: list[int] = []
    served: Counter[str] = Counter()
    for step in range(2000):
        now += MS
        for _ in range(3):
            enter(flood)
        if step % 10 == 0:
            arrived = now
            ticket = enter(quiet)
            assert ticket is not None, "the quiet flow was refused"
            while not ticket.is_started:
                now += MS
                serve(level, started, now, served)
            waits.append(now - arrived)
        if len(started) == 10:
            serve(level, started, now, served)
    assert flood.counts.rejected["queue-full"] > 1000
    assert max(waits) <= 15 * MS


ARRIVALS = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(1, 4), st.integers(0, 3), st.booleans()),
    max_size=120,
)


@given(ARRIVALS)
def test_no_seat_is_lost_or_given_twice(arrivals: list[tuple[str, int, int, bool]]) -> None:
    level = level_of(5, Queuing(8, 3, 4))
    flows = {name: flow_of(level, name) for name in "abcde"}
    tickets: list[Ticket] = []
    now = 0
    for name, seats, ends, gives_up in arrivals:
        now += MS
        found = level.enter(flows[name], seats, now)
        if found is not None:
            tickets.append(found)
        for _ in range(ends):
            each = next((t for t in tickets if t.is_started and not t.is_over), None)
            if each is not None:
                level.leave(each, now)
        if gives_up:
            waiting = next((t for t in tickets if not t.is_started and not t.is_over), None)
            if waiting is not None:
                level.give_up(waiting, now)
        in_use = sum(t.seats for t in tickets if t.is_started and not t.is_over)
        assert level.in_use == in_use <= 5
        assert level.waiting == sum(not t.is_started and not t.is_over for t in tickets)
        if level.waiting:
            assert level.in_use + min(t.seats for t in tickets if not t.is_over) > 1
    while any(not each.is_over for each in tickets):
        running = [t for t in tickets if t.is_started and not t.is_over]
        assert running, "who waits is never started"
        level.leave(running[0], now)
    assert level.is_idle
    assert (level.in_use, level.waiting_seats, level.demand.value) == (0, 0, 0)
