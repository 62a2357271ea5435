"""The queue of deadlines: order, moves, drops, and that it does not grow without end."""

from kvstore.deadlines import Deadlines


def drain(queue: Deadlines, now_ns: int) -> list[int]:
    out = []
    while (item := queue.pop_due(now_ns)) is not None:
        out.append(item)
    return out


def test_due_items_come_in_order_of_their_deadlines() -> None:
    queue = Deadlines()
    for item, at_ns in ((1, 30), (2, 10), (3, 20), (4, 31)):
        queue.set(item, at_ns)
    assert queue.next_ns() == 10
    assert drain(queue, 30) == [2, 3, 1]
    assert queue.next_ns() == 31
    assert len(queue) == 1


def test_a_moved_deadline_counts_once() -> None:
    queue = Deadlines()
    queue.set(1, 10)
    queue.set(1, 20)
    queue.set(2, 15)
    queue.set(2, 5)
    assert drain(queue, 12) == [2]
    assert drain(queue, 100) == [1]


def test_dropped_items_never_come() -> None:
    queue = Deadlines()
    queue.set(1, 10)
    queue.drop(1)
    queue.drop(2)
    assert 1 not in queue
    assert queue.next_ns() is None
    assert drain(queue, 100) == []


def test_moving_without_end_keeps_the_heap_small() -> None:
    queue = Deadlines()
    for at_ns in range(100_000):
        queue.set(at_ns % 10, 10**9 + at_ns)
    assert len(queue._heap) < 3000
    assert sorted(drain(queue, 2 * 10**9)) == list(range(10))
