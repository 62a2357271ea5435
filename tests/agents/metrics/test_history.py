"""The ring of the last quarter of an hour."""

from kvstack.agents.metrics.history import History, Point


def test_the_last_steps_are_kept_in_their_order() -> None:
    history = History(steps=3)
    for step in range(5):
        history.begin(100.0 + step)
        history.note("d/p", step, 1024 * step)
    assert history.of("d/p") == [
        Point(102.0, 2.0, 2048.0),
        Point(103.0, 3.0, 3072.0),
        Point(104.0, 4.0, 4096.0),
    ]
    assert history.of("d/other") == []


def test_a_step_in_which_nothing_was_noted_is_left_out() -> None:
    history = History(steps=3)
    for step in (0, 1, 2):
        history.begin(step)
        if step != 1:
            history.note("n", 1, 1)
    assert [each.time_s for each in history.of("n")] == [0.0, 2.0]


def test_what_is_gone_for_a_round_takes_no_room() -> None:
    history = History(steps=3, series_max=1)
    history.begin(0)
    history.note("a", 1, 1)
    history.note("b", 1, 1)
    assert (len(history), history.refused) == (1, 1)
    for step in (1, 2):
        history.begin(step)
    assert len(history.of("a")) == 1
    history.begin(3)
    assert len(history) == 0
    history.note("b", 1, 1)
    assert (len(history), history.refused) == (1, 0)


def test_what_has_gone_is_forgotten_at_once() -> None:
    """Its graph cannot be asked for; a thousand pods that come and go leave nothing behind."""
    history = History(steps=3)
    history.begin(0)
    for name in ("d/stays", "d/goes"):
        history.note(name, 1, 1)
    history.keep({"d/stays", "d/other"})
    assert len(history) == 1
    assert [each.time_s for each in history.of("d/stays")] == [0.0]
    assert history.of("d/goes") == []
