"""The checkers find what they are for."""

import pytest

from tests.apiserver.consistency.history import Event, History, Read, Write, faults_of


def sound() -> History:
    history = History()
    history.begin("watcher", {})
    for value in (1, 2, 3):
        history.add(Write("a", value, 10 * value, value, value + 0.5))
        history.add(Read("lister", 10 * value, {"a": value}, value + 0.6))
        history.add(Event("watcher", "a", value, 10 * value))
    return history


def test_a_sound_history_has_no_fault() -> None:
    assert faults_of(sound(), {"a": 3}) == []


def test_an_unknown_outcome_may_have_happened_or_not() -> None:
    history = sound()
    history.add(Write("a", 4, 0, 4.0, 4.5))
    assert faults_of(history, {"a": 3}) == []
    history.add(Event("watcher", "a", 4, 40))
    assert faults_of(history, {"a": 4}) == []


@pytest.mark.parametrize(
    ("seen", "final", "words"),
    [
        (Write("a", 3, 40, 4.0, 4.5), 3, "values of acknowledged writes"),
        (Write("a", 5, 50, 4.0, 4.5), 3, "but 5 was acknowledged"),
        (Read("lister", 29, {"a": 3}, 9.0), 3, "read 29 after 30"),
        (Read("other", 20, {"a": 2}, 9.0), 3, "read a = 2 at 20, but 3"),
        (Event("watcher", "a", 3, 40), 3, "went from 3 to 3"),
        (Event("watcher", "a", 5, 50), 5, "went from 3 to 5"),
        (Event("watcher", "a", 4, 30), 4, "revision 30 after 30"),
    ],
)
def test_a_fault_is_found(seen: Write | Read | Event, final: int, words: str) -> None:
    history = sound()
    history.add(seen)
    assert any(words in fault for fault in faults_of(history, {"a": final}))


def test_a_lost_update_is_found() -> None:
    history = sound()
    assert any("nobody wrote [4]" in fault for fault in faults_of(history, {"a": 4}))


def test_a_lost_event_is_found() -> None:
    history = sound()
    history.events.pop()
    assert any("ended with" in fault for fault in faults_of(history, {"a": 3}))
