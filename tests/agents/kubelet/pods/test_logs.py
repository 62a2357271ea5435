"""Lines of logs, written and read."""

from hypothesis import given
from hypothesis import strategies as st

from kvstack.agents.kubelet.pods.logs import Reader, Selection, tail
from kvstack.agents.kubelet.runtime.process.shim.log_file import PIECE_BYTES_MAX, Splitter

NOW_NS = 1_700_000_000_123_456_789
STAMP = b"2023-11-14T22:13:20.123456789Z"


def entries(*texts: bytes) -> list[bytes]:
    splitter = Splitter(1)
    out = b"".join(splitter.feed(text, NOW_NS) for text in texts) + splitter.end(NOW_NS)
    return out.split(b"\n")[:-1]


def test_lines_are_whole_entries() -> None:
    assert entries(b"a\nb", b"c\n") == [STAMP + b" stdout F a", STAMP + b" stdout F bc"]
    assert entries(b"rest") == [STAMP + b" stdout P rest"]
    assert Splitter(2).feed(b"\n", NOW_NS) == STAMP + b" stderr F \n"


def test_long_lines_are_cut() -> None:
    found = entries(b"x" * (PIECE_BYTES_MAX + 1), b"y\n")
    assert [each.split(b" ")[2] for each in found] == [b"P", b"F"]
    assert found[1].endswith(b" F xy")


@given(st.lists(st.binary(max_size=40_000), max_size=4))
def test_what_is_read_is_what_was_written(texts: list[bytes]) -> None:
    assert Reader(Selection()).read(entries(*texts)) == b"".join(texts)


def test_selections() -> None:
    lines = entries(b"one\ntwo\nthree\n")
    assert Reader(Selection()).read(tail(lines, 2)) == b"two\nthree\n"
    assert Reader(Selection()).read(tail(lines, 0)) == b""
    assert Reader(Selection(limit_bytes=5)).read(lines) == b"one\nt"
    assert Reader(Selection(since_ns=NOW_NS + 1)).read(lines) == b""
    assert Reader(Selection(since_ns=NOW_NS)).read(lines) == b"one\ntwo\nthree\n"
    assert Reader(Selection(has_timestamps=True)).read(lines[:1]) == STAMP + b" one\n"
