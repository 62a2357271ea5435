"""The hub: answers as etcd gives them, events exactly once, progress that keeps its word."""

import random

import pytest

from kvstore.batch import AnyDelivery, messages
from kvstore.errors import TOO_MANY_REQUESTS
from kvstore.watch.hub import Hub
from kvstore.watch.request import MALFORMED
from kvstore.watch.stream import WatchLimits
from kvstore.wire.gen.rpc_pb2 import WatchResponse
from tests.support.models.watch_history import (
    PROGRESS,
    MemoryHistory,
    cancel,
    create,
    decode,
    header_of,
)

S = 1_000_000_000
ROWS, BYTES = 10_000, 1 << 24


class Member:
    """A hub with a store behind it and clients in front, driven turn by turn."""

    def __init__(self, limits: WatchLimits | None = None) -> None:
        self.store = MemoryHistory()
        self.limits = limits or WatchLimits()
        self.hub = Hub(self.store, header_of, self.limits, random.Random(1))
        self.now_ns = 0
        self.unread: dict[int, int] = {}  # what clients have not read yet, if they are slow
        self.slow: set[int] = set()
        self.more = False
        for stream_id in (1, 2):
            self.hub.open(stream_id, self.now_ns)

    def turn(
        self,
        *requests: tuple[int, bytes],
        put: bytes | None = None,
        rows: int = ROWS,
    ) -> list[tuple[int, WatchResponse]]:
        """Take requests, put one key, publish it, step; return what was handed out."""
        out: list[AnyDelivery] = []
        for stream_id, body in requests:
            assert self.hub.request(stream_id, body, self.now_ns, out) is None
        if put is not None:
            self.hub.publish(self.store.put(put), out)
        self.more = self.hub.step(self.now_ns, self.unread, rows, BYTES, out)
        for stream_id, head, tail in messages(out):
            if stream_id in self.slow:
                self.unread[stream_id] = self.unread.get(stream_id, 0) + len(head) + len(tail)
        return list(decode(out))

    def read_all(self) -> None:
        self.unread.clear()


def revisions(answers: list[tuple[int, WatchResponse]], watch_id: int | None = None) -> list[int]:
    return [
        event.kv.mod_revision
        for _, answer in answers
        if watch_id is None or answer.watch_id == watch_id
        for event in answer.events
    ]


def only(answers: list[tuple[int, WatchResponse]]) -> WatchResponse:
    assert len(answers) == 1
    return answers[0][1]


# Create and cancel.


def test_created_comes_first_with_the_current_revision() -> None:
    member = Member()
    member.turn(put=b"a")
    created = only(member.turn((1, create(key=b"a"))))
    assert (created.created, created.watch_id, created.header.revision) == (True, 0, 2)
    assert not created.canceled
    event = only(member.turn(put=b"a"))
    assert (event.watch_id, event.header.revision, revisions([(1, event)])) == (0, 3, [3])


def test_a_past_start_is_caught_up_in_one_response_behind_created() -> None:
    member = Member()
    for key in (b"a", b"b", b"a"):
        member.turn(put=key)
    answers = member.turn((1, create(key=b"a", start_revision=2)))
    assert [answer.created for _, answer in answers] == [True, False]
    assert revisions(answers) == [2, 4]
    assert answers[1][1].header.revision == 4
    assert revisions(member.turn(put=b"a")) == [5]


def test_the_revision_of_a_caught_up_response_is_the_current_one() -> None:
    member = Member()
    for key in (b"a", b"b"):
        member.turn(put=key)
    answers = member.turn((1, create(key=b"a", start_revision=1)))
    assert answers[1][1].header.revision == 3


def test_a_future_start_is_sent_nothing_before() -> None:
    member = Member()
    created = only(member.turn((1, create(key=b"a", start_revision=4))))
    assert created.header.revision == 1
    assert member.turn(put=b"a") == []
    assert member.turn(put=b"a") == []
    assert revisions(member.turn(put=b"a")) == [4]


def test_ids_are_given_in_order_around_chosen_ones() -> None:
    member = Member()
    answers = member.turn(
        *[(1, create(key=b"a", watch_id=each)) for each in (1, 0, 0, -1, 9, 0)],
        (2, create(key=b"a")),
    )
    assert [answer.watch_id for _, answer in answers] == [1, 0, 2, -1, 9, 3, 0]


def test_a_taken_id_is_refused() -> None:
    member = Member()
    _, (_, refused) = member.turn(*[(1, create(key=each, watch_id=7)) for each in (b"a", b"b")])
    assert (refused.watch_id, refused.created, refused.canceled) == (-1, True, True)
    assert refused.cancel_reason == "mvcc: duplicate watch ID provided on the WatchStream"
    assert refused.compact_revision == 0
    assert revisions(member.turn(put=b"b")) == []
    assert revisions(member.turn(put=b"a")) == [3]


def test_a_negative_start_and_an_empty_range_are_refused_and_the_stream_continues() -> None:
    member = Member()
    answers = member.turn(
        (1, create(key=b"a", start_revision=-1, watch_id=5)),
        (1, create(key=b"b", range_end=b"a")),
        (1, create(key=b"a", watch_id=5)),
    )
    assert [(each.watch_id, each.created, each.canceled) for _, each in answers] == [
        (-1, True, True),
        (-1, True, True),
        (5, True, False),
    ]
    assert [each.cancel_reason for _, each in answers] == [
        "etcdserver: mvcc: required revision has been compacted",
        "mvcc: watcher range is empty",
        "",
    ]


def test_cancel_ends_a_watcher_and_frees_its_id() -> None:
    member = Member()
    member.turn((1, create(key=b"a")), (1, create(key=b"a")))
    canceled = only(member.turn((1, cancel(0))))
    assert (canceled.watch_id, canceled.canceled, canceled.created) == (0, True, False)
    assert (canceled.compact_revision, canceled.cancel_reason) == (0, "")
    assert [answer.watch_id for _, answer in member.turn(put=b"a")] == [1]
    assert member.turn((1, cancel(0)), (1, cancel(44))) == []
    assert member.hub.stats().watchers == 1


def test_too_many_watchers_on_a_stream_names_the_limit() -> None:
    member = Member(WatchLimits(watchers_per_stream_max=2))
    answers = member.turn(*[(1, create(key=b"a"))] * 3)
    assert answers[2][1].watch_id == -1
    assert answers[2][1].cancel_reason == "too many watchers on one stream, the limit is 2"
    assert only(member.turn((2, create(key=b"a")))).watch_id == 0


def test_malformed_bytes_are_a_refusal() -> None:
    member = Member()
    out: list[AnyDelivery] = []
    assert member.hub.request(1, b"\xff\xff", 0, out) is MALFORMED
    assert out == []


def test_closing_releases_everything() -> None:
    member = Member()
    for _ in range(3):
        member.turn(put=b"a")
    member.turn(
        (1, create(key=b"a", progress_notify=True)),
        (1, create(key=b"a", range_end=b"b", start_revision=2)),
        (1, create(key=b"a", start_revision=90)),
        (1, PROGRESS),
        rows=0,
    )
    member.hub.close(1)
    member.hub.close(1)
    assert member.hub.request(1, create(key=b"a"), 0, []) is None
    assert member.turn(put=b"a") == []
    stats = member.hub.stats()
    assert (stats.streams, stats.watchers, stats.unsynced, stats.unsent_bytes) == (1, 0, 0, 0)
    assert member.hub.next_due_ns() is None


def test_a_stream_opens_once() -> None:
    with pytest.raises(ValueError, match="1 is open"):
        Member().hub.open(1, 0)


# Compaction.


def test_a_start_below_the_compacted_revision_is_created_then_canceled() -> None:
    member = Member()
    for _ in range(5):
        member.turn(put=b"a")
    member.store.compact(4)
    answers = member.turn((1, create(key=b"a", start_revision=3)), (1, create(key=b"a")))
    (_, created), (_, other), (_, canceled) = answers
    assert (created.created, created.canceled, created.header.revision) == (True, False, 6)
    assert other.watch_id == 1
    assert (canceled.watch_id, canceled.created, canceled.canceled) == (0, False, True)
    assert (canceled.compact_revision, canceled.cancel_reason) == (4, "")
    assert canceled.header.revision == 0
    assert canceled.header.cluster_id == 1
    assert [answer.watch_id for _, answer in member.turn(put=b"a")] == [1]


def test_a_start_at_the_compacted_revision_is_served() -> None:
    member = Member()
    for _ in range(5):
        member.turn(put=b"a")
    member.store.compact(4)
    assert revisions(member.turn((1, create(key=b"a", start_revision=4)))) == [4, 5, 6]


def test_after_a_compaction_cancel_the_id_is_taken_until_canceled_and_progress_works() -> None:
    member = Member()
    for _ in range(5):
        member.turn(put=b"a")
    member.store.compact(4)
    member.turn((1, create(key=b"a", start_revision=3, watch_id=4)))
    refused = only(member.turn((1, create(key=b"a", watch_id=4))))
    assert refused.cancel_reason == "mvcc: duplicate watch ID provided on the WatchStream"
    member.turn((1, create(key=b"b")))
    assert only(member.turn((1, PROGRESS))).watch_id == -1
    assert only(member.turn((1, cancel(4)))).canceled
    assert member.turn((1, cancel(4))) == []
    assert only(member.turn((1, create(key=b"a", watch_id=4)))).created


def test_a_watcher_whose_events_are_compacted_while_paused_is_canceled() -> None:
    member = slow_member()
    overflow(member)
    member.turn(put=b"a")
    member.store.compact(member.store.revision)
    member.read_all()
    canceled = only(member.turn())
    assert canceled.canceled
    assert canceled.compact_revision == member.store.compacted


# Catching up.


def test_no_event_is_lost_or_doubled_at_the_border() -> None:
    member = Member()
    for _ in range(600):
        member.store.put(b"a")
    member.hub = Hub(member.store, header_of, member.limits, random.Random(1))
    member.hub.open(1, 0)
    answers = member.turn((1, create(key=b"a", start_revision=2)), rows=256)
    assert member.more
    assert member.hub.backlog(1).behind_revisions == 600 - 256
    while member.more:
        answers += member.turn(put=b"a", rows=256)
    answers += member.turn(put=b"a", rows=256)
    assert revisions(answers) == list(range(2, member.store.revision + 1))
    headers = [answer.header.revision for _, answer in answers[1:]]
    assert headers == sorted(headers)
    assert member.hub.backlog(1).behind_revisions == 0


def test_a_stream_far_behind_does_not_make_another_wait() -> None:
    member = Member()
    for _ in range(5000):
        member.store.put(b"a")
    member.hub = Hub(member.store, header_of, member.limits, random.Random(1))
    member.hub.open(1, 0)
    member.hub.open(2, 0)
    member.turn((1, create(key=b"a", start_revision=2)), rows=512)
    near = member.turn((2, create(key=b"a", start_revision=5000)), rows=512)
    assert member.hub.backlog(1).behind_revisions > 3000
    assert revisions([each for each in near if each[0] == 2]) == [5000, 5001]


def test_watchers_near_each_other_share_the_reading() -> None:
    member = Member()
    for _ in range(100):
        member.store.put(b"a")
    member.hub = Hub(member.store, header_of, member.limits, random.Random(1))
    member.hub.open(1, 0)
    answers = member.turn(*[(1, create(key=b"a", start_revision=start)) for start in range(2, 102)])
    assert member.store.reads == 1
    for watch_id in range(100):
        assert revisions(answers, watch_id) == list(range(2 + watch_id, 102))


def test_events_that_were_not_published_are_read_from_history() -> None:
    member = Member()
    member.turn((1, create(key=b"a")), (1, create(key=b"a", start_revision=6)))
    for _ in range(3):
        member.store.put(b"a")
    assert revisions(member.turn()) == [2, 3, 4]
    member.store.put(b"a")
    answers = member.turn(put=b"a")
    assert revisions(answers, 0) == [5, 6]
    assert revisions(answers, 1) == [6]
    assert revisions(member.turn(put=b"a")) == [7, 7]


def test_published_twice_is_sent_once() -> None:
    member = Member()
    member.turn((1, create(key=b"a")))
    events = member.store.put(b"a")
    out: list[AnyDelivery] = []
    member.hub.publish(events, out)
    member.hub.publish(events + member.store.put(b"a"), out)
    assert revisions(list(decode(out))) == [2, 3]


def test_the_tail_is_shared_between_watchers() -> None:
    member = Member()
    member.turn((1, create(key=b"a")), (1, create(key=b"a", watch_id=300)), (2, create(key=b"a")))
    member.turn((2, create(key=b"", range_end=b"\0")), (2, create(key=b"a", prev_kv=True)))
    member.turn(put=b"a")
    out: list[AnyDelivery] = []
    member.hub.publish(member.store.put(b"a") + member.store.put(b"a"), out)
    plain = [tail for _, _, tail in messages(out) if tail is out[0][2]]
    assert (len(plain), len(list(messages(out)))) == (4, 5)
    assert {answer.watch_id for _, answer in decode(out)} == {0, 300, 1, 2}


def published(member: Member, puts: int = 1) -> list[AnyDelivery]:
    out: list[AnyDelivery] = []
    member.hub.publish([event for _ in range(puts) for event in member.store.put(b"a")], out)
    return out


def shapes(deliveries: list[AnyDelivery]) -> list[tuple[int, int]]:
    """Return (stream, how many messages) of each."""
    return [(each[0], len(list(messages([each])))) for each in deliveries]


def test_watchers_of_a_stream_are_one_fan_out_and_streams_share_its_parts() -> None:
    member = Member()
    for stream_id in (1, 2):
        member.turn(*[(stream_id, create(key=b"a")) for _ in range(3)])
    member.turn((2, create(key=b"a", prev_kv=True)))
    member.turn(put=b"a")
    out = published(member, puts=2)
    assert shapes(out) == [(1, 3), (2, 3), (2, 1)]
    assert all(mine is other for mine, other in zip(out[0][1:], out[1][1:], strict=True))
    assert [answer.watch_id for _, answer in decode(out)] == [0, 1, 2, 0, 1, 2, 3]
    assert revisions(list(decode(out)), 0) == [3, 4, 3, 4]
    member.turn((1, cancel(1)), (2, create(key=b"a")))
    assert shapes(published(member)) == [(1, 2), (2, 4), (2, 1)]
    member.hub.close(2)
    assert shapes(published(member)) == [(1, 2)]


def test_a_watcher_of_the_future_waits_among_those_of_the_present() -> None:
    member = Member()
    future = member.store.revision + 3
    member.turn((1, create(key=b"a")), (1, create(key=b"a", start_revision=future)))
    sent = [revisions(list(decode(published(member)))) for _ in range(3)]
    assert sent == [[future - 2], [future - 1], [future, future]]
    assert shapes(published(member)) == [(1, 2)]


def test_a_fan_out_counts_as_idle_progress_for_none_of_its_watchers() -> None:
    member = Member(WatchLimits(progress_interval_ns=1000))
    watch = create(key=b"a", progress_notify=True)
    member.turn((1, watch), (1, watch))
    member.now_ns = 1200
    assert len(member.turn()) == 2  # both were idle
    member.turn(put=b"a")
    member.now_ns = 2400
    assert member.turn() == []
    member.now_ns = 3600
    assert len(member.turn()) == 2


def test_a_fan_out_stops_where_the_stream_is_paused() -> None:
    watchers = 5
    member = Member(WatchLimits(backlog_high_bytes=100, backlog_low_bytes=20))
    member.turn(*[(1, create(key=b"a")) for _ in range(watchers)])
    member.turn()
    sent = list(decode(published(member)))
    assert 0 < len(sent) < watchers
    for _ in range(2 * watchers):
        sent += member.turn()
    events = [(answer.watch_id, answer.events[0].kv.mod_revision) for _, answer in sent]
    assert sorted(events) == [(each, member.store.revision) for each in range(watchers)]


# Back-pressure.


def slow_member() -> Member:
    """A member with a client on stream 1 that watches a, and reads nothing by itself."""
    member = Member(WatchLimits(backlog_high_bytes=1000, backlog_low_bytes=100))
    member.turn((1, create(key=b"a")), (2, create(key=b"a")))
    member.slow.add(1)
    return member


def overflow(member: Member) -> list[int]:
    """Put until stream 1 gets nothing more; return the revisions it got."""
    got: list[int] = []
    while True:
        answers = [each for each in member.turn(put=b"a") if each[0] == 1]
        if not answers:
            return got
        got += revisions(answers)


def test_the_stream_of_a_client_that_does_not_read_is_paused_and_then_caught_up() -> None:
    member = slow_member()
    got = overflow(member)
    assert member.unread[1] < 1100
    assert member.hub.stats().paused_streams == 1
    missed_from = member.store.revision
    for _ in range(100):
        assert {stream_id for stream_id, _ in member.turn(put=b"a")} == {2}
    assert not member.more
    assert member.hub.backlog(1).paused
    assert member.hub.backlog(1).behind_revisions == member.store.revision + 1 - missed_from
    member.unread[1] = 101
    assert member.turn() == []
    member.unread[1] = 100
    answers = member.turn()
    assert {stream_id for stream_id, _ in answers} == {1}
    got += revisions(answers)
    assert got == list(range(2, member.store.revision + 1))


def test_catching_up_stops_when_the_client_does_not_keep_up() -> None:
    member = slow_member()
    member.turn((1, create(key=b"a", range_end=b"b")))
    got = overflow(member)
    for _ in range(20):
        member.turn(put=b"a", rows=0)
    member.read_all()
    answers = member.turn(rows=5)
    assert sum(answer.ByteSize() for _, answer in answers) < 3000
    while member.hub.stats().unsynced:
        member.read_all()
        answers += member.turn(rows=5)
    first = sorted(revisions(answers, 0))
    assert first == revisions(answers, 0)
    assert len(first) == len(set(first))
    assert first[-1] == member.store.revision
    assert revisions(answers, 1) == sorted(set(revisions(answers, 1)))
    assert got


def test_a_paused_stream_whose_watchers_missed_nothing_stays_synced() -> None:
    member = slow_member()
    member.turn((1, create(key=b"quiet")))
    overflow(member)
    assert member.hub.stats().unsynced == 1
    member.turn(put=b"quiet")
    assert member.hub.stats().unsynced == 2


def test_a_client_that_sends_requests_and_never_reads_is_ended() -> None:
    member = Member(
        WatchLimits(backlog_high_bytes=1000, backlog_low_bytes=100, backlog_max_bytes=5000)
    )
    member.slow.add(1)
    refused = None
    for number in range(1000):
        out: list[AnyDelivery] = []
        refused = member.hub.request(1, create(key=b"a", watch_id=number + 1), 0, out)
        if refused:
            break
        member.hub.step(0, member.unread, ROWS, BYTES, out)
        member.unread[1] = member.unread.get(1, 0) + sum(len(head) for _, head, _ in messages(out))
    assert refused == TOO_MANY_REQUESTS
    assert 5000 < member.unread[1] < 5100


# Progress.


def test_requested_progress_has_the_current_revision_after_the_events() -> None:
    member = Member()
    member.turn((1, create(key=b"a")), (1, create(key=b"b")))
    (_, event), (_, progress) = member.turn((1, PROGRESS), put=b"a")
    assert event.events
    assert (progress.watch_id, progress.header.revision) == (-1, 2)
    assert not progress.events
    assert not progress.created
    assert member.turn() == []


def test_progress_on_request_waits_for_the_slowest_watcher_of_the_stream() -> None:
    member = Member()
    for _ in range(600):
        member.store.put(b"a")
    member.hub = Hub(member.store, header_of, member.limits, random.Random(1))
    member.hub.open(1, 0)
    answers = member.turn(
        (1, create(key=b"b")), (1, create(key=b"a", start_revision=2)), (1, PROGRESS), rows=256
    )
    while member.more:
        assert all(answer.watch_id != -1 for _, answer in answers)
        answers = member.turn(rows=256)
    assert answers[-2][1].events[-1].kv.mod_revision == 601
    assert (answers[-1][1].watch_id, answers[-1][1].header.revision) == (-1, 601)


def test_requested_progress_is_ignored_before_a_future_start() -> None:
    member = Member()
    member.turn((1, create(key=b"x")), (1, create(key=b"b", start_revision=4)), (1, PROGRESS))
    assert [member.turn(put=b"a") for _ in range(3)] == [[], [], []]
    progress = only(member.turn((1, PROGRESS)))
    assert (progress.watch_id, progress.header.revision) == (-1, 4)


def test_progress_on_a_stream_without_watchers_is_no_answer() -> None:
    member = Member()
    assert only(member.turn((1, PROGRESS), (1, create(key=b"a")))).created


def test_a_paused_stream_gets_its_progress_once_it_has_read() -> None:
    member = slow_member()
    overflow(member)
    assert member.turn((1, PROGRESS)) == []
    member.read_all()
    answers = member.turn()
    assert [answer.watch_id for _, answer in answers] == [0, -1]


def test_periodic_progress_only_if_requested_and_without_events() -> None:
    member = Member(WatchLimits(progress_interval_ns=10 * S))
    member.turn(
        (1, create(key=b"a", progress_notify=True)),
        (1, create(key=b"b", progress_notify=True)),
        (1, create(key=b"b")),
        (1, create(key=b"c", progress_notify=True, start_revision=100)),
    )
    due_ns = member.hub.next_due_ns()
    assert due_ns is not None
    assert 10 * S <= due_ns < 11 * S
    member.turn(put=b"a")
    member.now_ns = due_ns - 1
    assert member.turn() == []
    member.now_ns = due_ns
    progress = only(member.turn())
    assert (progress.watch_id, progress.header.revision) == (1, 2)
    assert not progress.events
    assert member.turn() == []
    next_ns = member.hub.next_due_ns()
    assert next_ns == 2 * due_ns
    member.now_ns = next_ns
    assert [answer.watch_id for _, answer in member.turn()] == [0, 1]


def test_the_period_counts_from_the_opening_and_late_ticks_are_not_made_up_for() -> None:
    member = Member(WatchLimits(progress_interval_ns=10 * S))
    member.now_ns = 100 * S
    member.turn((1, create(key=b"a", progress_notify=True)))
    due_ns = member.hub.next_due_ns()
    assert due_ns is not None
    assert 100 * S < due_ns <= 111 * S
    member.now_ns = 1000 * S
    assert only(member.turn()).watch_id == 0
    assert member.turn() == []
    member.turn((1, cancel(0)))
    assert member.hub.next_due_ns() is None


def test_no_periodic_progress_for_a_watcher_that_is_behind() -> None:
    member = Member(WatchLimits(progress_interval_ns=10 * S))
    for _ in range(600):
        member.store.put(b"a")
    member.hub = Hub(member.store, header_of, member.limits, random.Random(1))
    member.hub.open(1, 0)
    member.turn((1, create(key=b"zz", start_revision=2, progress_notify=True)), rows=256)
    member.now_ns = 11 * S
    assert member.turn(rows=256) == []
    member.now_ns = 22 * S
    assert only(member.turn(rows=256)).header.revision == 601
