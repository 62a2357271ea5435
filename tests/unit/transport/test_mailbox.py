"""The mailbox alone: what one take hands out, what it leaves, and when it waits."""

import threading
import time

import pytest

from kvstore.batch import Inbox
from kvstore.transport.mailbox import Mailbox, MailboxLimits, ReadAhead

WAIT_S = 10.0


class Resumed:
    """Counts how often readers were let go on."""

    count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def resumed() -> Resumed:
    return Resumed()


def box(resumed: Resumed, **limits: float) -> Mailbox:
    return Mailbox(MailboxLimits(**limits), resumed)  # type: ignore[arg-type]


def test_a_take_hands_out_everything_and_leaves_nothing(resumed: Resumed) -> None:
    mailbox = box(resumed)
    mailbox.add_call(1, 2, b"body", {"token": "t"})
    mailbox.add_opened(3, 4, None)
    mailbox.add_frame(3, b"frame", ReadAhead())
    mailbox.add_half_closed(3)
    mailbox.add_gone(1)
    assert mailbox.take(0.0) == Inbox(
        calls=[(1, 2, b"body")],
        opened=[(3, 4)],
        frames=[(3, b"frame")],
        half_closed=[3],
        gone=[1],
        metadata={1: {"token": "t"}},
    )
    assert mailbox.take(0.0) == Inbox()
    assert resumed.count == 0


def test_what_is_over_the_limits_stays_with_all_that_belongs_to_it(resumed: Resumed) -> None:
    mailbox = box(resumed, calls_max=2)
    for call_id in range(5):
        mailbox.add_call(call_id, 0, b"", {"n": str(call_id)})
    for gone in (4, 0):
        mailbox.add_gone(gone)
    takes = [mailbox.take(0.0) for _ in range(3)]
    assert [[call[0] for call in take.calls] for take in takes] == [[0, 1], [2, 3], [4]]
    assert [take.gone for take in takes] == [[0], [], [4]]
    assert [sorted(take.metadata) for take in takes] == [[0, 1], [2, 3], [4]]


def test_frames_left_behind_keep_their_end_and_their_readers_waiting(resumed: Resumed) -> None:
    mailbox = box(resumed, bytes_max=10, stream_frames_max=2)
    ahead = ReadAhead()
    assert mailbox.add_frame(1, b"x" * 8, ahead)
    assert not mailbox.add_frame(1, b"x" * 8, ahead)
    mailbox.add_half_closed(1)
    first = mailbox.take(0.0)
    assert (len(first.frames), first.half_closed, resumed.count) == (1, [], 0)
    second = mailbox.take(0.0)
    assert (len(second.frames), second.half_closed, resumed.count) == (1, [1], 1)
    assert mailbox.add_frame(1, b"x", ahead)


def test_one_item_above_every_limit_still_gets_through(resumed: Resumed) -> None:
    mailbox = box(resumed, bytes_max=1)
    mailbox.add_call(1, 0, b"x" * 100, None)
    mailbox.add_frame(2, b"x" * 100, ReadAhead())
    taken = mailbox.take(0.0)
    assert (len(taken.calls), len(taken.frames)) == (1, 1)


def test_too_many_waiting_calls_are_refused(resumed: Resumed) -> None:
    mailbox = box(resumed, waiting_calls_max=2)
    assert [mailbox.add_call(n, 0, b"", None) for n in range(3)] == [True, True, False]
    assert [mailbox.add_opened(n, 0, None) for n in range(3)] == [True, True, False]
    mailbox.take(0.0)
    assert mailbox.add_call(4, 0, b"", None)


def test_there_is_no_room_until_the_bytes_are_taken(resumed: Resumed) -> None:
    mailbox = box(resumed, waiting_bytes_max=10)
    assert mailbox.has_room()
    mailbox.add_call(1, 0, b"x" * 10, None)
    assert not mailbox.has_room()
    mailbox.take(0.0)
    assert (mailbox.has_room(), resumed.count) == (True, 1)


def test_an_arrival_ends_a_wait(resumed: Resumed) -> None:
    mailbox = box(resumed)
    timer = threading.Timer(0.02, mailbox.add_gone, [7])
    timer.start()
    begin = time.monotonic()
    assert mailbox.take(WAIT_S).gone == [7]
    assert time.monotonic() - begin < WAIT_S / 2
    timer.join()


def test_after_a_large_take_the_next_one_gathers_and_a_small_one_ends_that(
    resumed: Resumed,
) -> None:
    mailbox = box(resumed, gather_from=2, gather_s=WAIT_S)
    for call_id in (1, 2):
        mailbox.add_call(call_id, 0, b"", None)
    mailbox.take(WAIT_S)
    mailbox.add_call(3, 0, b"", None)

    def more() -> None:
        mailbox.add_call(4, 0, b"", None)
        mailbox.wake()

    timer = threading.Timer(0.01, more)
    timer.start()
    assert [call[0] for call in mailbox.take(WAIT_S).calls] == [3, 4]
    timer.join()
    mailbox.add_call(5, 0, b"", None)
    mailbox.take(WAIT_S)
    begin = time.monotonic()
    mailbox.add_call(6, 0, b"", None)
    mailbox.take(WAIT_S)
    assert time.monotonic() - begin < WAIT_S / 2


def test_wake_ends_the_gathering_too(resumed: Resumed) -> None:
    mailbox = box(resumed, gather_from=1, gather_s=WAIT_S)
    mailbox.add_gone(1)
    mailbox.add_call(1, 0, b"", None)
    mailbox.take(0.0)
    timer = threading.Timer(0.02, mailbox.wake)
    timer.start()
    begin = time.monotonic()
    mailbox.take(WAIT_S)
    assert time.monotonic() - begin < WAIT_S / 2
    timer.join()
