"""The progress line, drawn on a terminal that is a text."""

import io
import sys
from contextlib import suppress

import pytest
from typing_extensions import override

from kvstore.util.progress import ProgressLine, bar, tracked

MIB = 1 << 20


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


def lines_of(text: str) -> list[str]:
    """Return what the line showed, one after the other."""
    return text.split("\r\x1b[K")[1:]


def test_a_line_is_drawn_ten_times_a_second_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    times = iter([10.0, 10.05, 10.5, 10.55, 11.0])
    terminal = Terminal()
    line = ProgressLine("importing", 4 * MIB, terminal, lambda: next(times))
    for _ in range(4):
        line.advance(MIB)
    line.erase()
    assert lines_of(terminal.getvalue()) == [
        "importing   50 %       2.0 of 4.0 MiB  4.0 MiB/s",
        "importing  100 %       4.0 of 4.0 MiB  4.0 MiB/s",
        "",
    ]


@pytest.mark.parametrize("total", [0, 1])
def test_more_than_was_expected_is_all_of_it(total: int) -> None:
    times = iter([0.0, 1.0])
    terminal = Terminal()
    ProgressLine("x", total, terminal, lambda: next(times)).advance(5 * MIB)
    assert "100 %" in terminal.getvalue()


def test_a_narrow_terminal_has_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    times = iter([0.0, 1.0])
    terminal = Terminal()
    ProgressLine("importing", MIB, terminal, lambda: next(times)).advance(MIB)
    (line,) = lines_of(terminal.getvalue())
    assert len(line) == 19


def test_nothing_is_drawn_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with bar("importing", MIB) as advance:
        assert list(tracked([(b"a", b"b")], advance)) == [(b"a", b"b")]
    assert written.getvalue() == ""


def test_rows_are_counted_and_the_line_is_erased_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    rows = [(b"k" * MIB, b"v"), (b"k", b"v")]
    with suppress(ZeroDivisionError), bar("hashing", MIB) as advance:
        assert list(tracked(rows, advance)) == rows
        raise ZeroDivisionError
    assert terminal.getvalue().endswith("\r\x1b[K")
    counted: list[int] = []
    assert list(tracked(rows, counted.append)) == rows
    assert counted == [MIB + 1, 2]
