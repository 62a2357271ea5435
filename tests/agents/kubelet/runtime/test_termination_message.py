"""What a container said last, if the end of its log stands in for its message."""

from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.termination_message import termination_message

STAMP = "2026-11-22T12:00:00.123456789Z"


def log_of(directory: Path, *entries: str) -> Path:
    log = directory / "0.log"
    log.write_text("".join(f"{STAMP} {each}\n" for each in entries))
    return log


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (("stdout F one", "stderr F two"), "one\ntwo\n"),
        (("stdout P DO", "stdout P NE"), "DONE"),
        (("stdout P begun ", "stdout F and ended"), "begun and ended\n"),
        (("stderr F ",), "\n"),
        ((), ""),
    ],
)
def test_a_newline_only_where_the_container_wrote_one(
    tmp_path: Path, entries: tuple[str, ...], expected: str
) -> None:
    """P: the line goes on in the next entry, or nowhere."""
    log = log_of(tmp_path, *entries)
    assert termination_message(None, log, falls_back=True) == expected
    assert not termination_message(None, log, falls_back=False)


def test_the_last_lines_and_bytes(tmp_path: Path) -> None:
    many = log_of(tmp_path, *(f"stdout F {number}" for number in range(100)))
    assert termination_message(None, many, falls_back=True).split() == [*map(str, range(20, 100))]
    long = log_of(tmp_path, "stdout F " + "x" * 3000, "stdout P end")
    assert termination_message(None, long, falls_back=True) == "x" * 2044 + "\nend"


def test_a_message_counts_first(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("said")
    log = log_of(tmp_path, "stdout F logged")
    assert termination_message(message, log, falls_back=True) == "said"
    message.write_text("")
    assert termination_message(message, log, falls_back=True) == "logged\n"
