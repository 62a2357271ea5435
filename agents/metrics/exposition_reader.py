"""Parses the text format of Prometheus (0.0.4), from untrusted senders.

    for sample in read(text): …      Sample(name, labels, value, time_ms)

    reader = PageReader()            the same in pieces, between which others may have their turn
    for piece in pieces(text):
        for sample in reader.read(piece): …

What is too long, or no sample at all, is a ReadingError that names the line. Comments are passed
over. A NaN is a value like any other.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

LINE_MAX: Final = 16 << 10
LABELS_MAX: Final = 64
SAMPLES_MAX: Final = 200_000
LINES_MAX: Final = 2 * SAMPLES_MAX
"""With comments and empty lines."""
PIECE_CHARS: Final = 32 << 10
"""The size of a step, which takes some milliseconds for any contents."""

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,?)')
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n"}
_SHOWN: Final = 80


class ReadingError(Exception):
    """The text cannot be parsed."""


class Sample(NamedTuple):
    """One value of a metric."""

    name: str
    labels: dict[str, str]
    value: float
    time_ms: int | None
    """Since 1970; None: it was measured when it was read."""


def read(text: str, names: frozenset[str] | None = None) -> Iterator[Sample]:
    """Give the samples of a page; names: the names that count, None: all. Raises ReadingError."""
    reader = PageReader(names)
    for piece in pieces(text):
        yield from reader.read(piece)


def pieces(text: str) -> Iterator[str]:
    """Give a page in pieces of whole lines."""
    at = 0
    while at < len(text):
        end = text.find("\n", at + PIECE_CHARS) + 1 or len(text)
        yield text[at:end]
        at = end


class PageReader:
    """Reads one page, a piece after the other."""

    def __init__(self, names: frozenset[str] | None = None) -> None:
        """names: the names that count; None: all."""
        self._names = names
        self._lines = 0
        self._samples = 0

    def read(self, piece: str) -> Iterator[Sample]:
        """Give the samples of some lines; raises ReadingError."""
        names = self._names
        for line in piece.removesuffix("\n").split("\n"):
            self._lines += 1
            if self._lines > LINES_MAX:
                raise ReadingError(f"there are more than {LINES_MAX} lines")
            if not line or line[0] == "#" or line.isspace():
                continue
            number = self._lines
            if len(line) > LINE_MAX:
                text = f"line {number} has {len(line)} characters, more than {LINE_MAX}"
                raise ReadingError(text)
            self._samples += 1
            if self._samples > SAMPLES_MAX:
                raise ReadingError(f"there are more than {SAMPLES_MAX} samples")
            found = _NAME.match(line)
            if found is None:
                raise _error(number, line)
            if names is None or found[0] in names:
                yield _sample(number, line, found)


def _sample(number: int, line: str, name: re.Match[str]) -> Sample:
    labels: dict[str, str] = {}
    at = name.end()
    if line[at : at + 1] == "{":
        labels, at = _labels(number, line, at + 1)
    parts = line[at:].split()
    if len(parts) not in (1, 2):
        raise _error(number, line)
    try:
        value = float(parts[0])
        time_ms = int(parts[1]) if len(parts) == 2 else None
    except ValueError:
        raise _error(number, line) from None
    return Sample(name[0], labels, value, time_ms)


def _labels(number: int, line: str, at: int) -> tuple[dict[str, str], int]:
    """Return the labels, and where they end."""
    labels: dict[str, str] = {}
    is_next = True
    while line[at : at + 1] != "}":
        label = _LABEL.match(line, at) if is_next else None
        if label is None:
            if is_next and line[at:].lstrip().startswith("}"):  # a comma may come last
                at = line.index("}", at)
                break
            raise _error(number, line)
        if len(labels) == LABELS_MAX:
            raise ReadingError(f"line {number} has more than {LABELS_MAX} labels")
        text = label[2]
        labels[label[1]] = _ESCAPE.sub(_unescaped, text) if "\\" in text else text
        at, is_next = label.end(), bool(label[3])
    return labels, at + 1


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[1], found[1])


def _error(number: int, line: str) -> ReadingError:
    return ReadingError(f"line {number} is not a sample: {line[:_SHOWN]!r}")
