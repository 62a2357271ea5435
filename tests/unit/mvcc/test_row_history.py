"""The checker of calls through proxies sees a stale read, and nothing wrong in a clean life."""

from tests.support.models.row_history import Held, Seen, trouble

KEY = b"k"
NOTHING: Held = (0, b"")
# Put at 5 and 7, deleted at 9.
TRUTH = {KEY: [(0, NOTHING), (5, (5, b"a")), (7, (7, b"b")), (9, NOTHING)]}


def call(began_s: float, ended_s: float, held: Held | None = None, wrote: int = 0) -> Seen:
    return Seen(KEY, began_s, ended_s, "who", held, wrote)


def test_a_life_in_order_is_clean() -> None:
    assert not trouble(
        [
            call(0, 1, NOTHING),
            call(1, 3, wrote=5),
            call(2, 4, NOTHING),  # began before the write had ended
            call(4, 5, (5, b"a")),
            call(5, 9, (5, b"a")),  # overlaps the next write
            call(6, 7, wrote=7),
            call(8, 9, (7, b"b")),
            call(10, 11, wrote=9),
            call(12, 13, NOTHING),
        ],
        TRUTH,
    )


def test_a_read_older_than_an_ended_write_is_seen() -> None:
    assert trouble([call(0, 1, wrote=7), call(2, 3, (5, b"a"))], TRUTH)
    assert trouble([call(0, 1, wrote=9), call(2, 3, (7, b"b"))], TRUTH)


def test_a_read_older_than_an_ended_read_is_seen() -> None:
    assert trouble([call(0, 1, (7, b"b")), call(2, 3, (5, b"a"))], TRUTH)
    assert trouble([call(0, 1, (5, b"a")), call(2, 3, NOTHING), call(4, 5, (7, b"b"))], TRUTH)


def test_what_never_was_is_seen() -> None:
    assert trouble([call(0, 1, (5, b"other"))], TRUTH)
