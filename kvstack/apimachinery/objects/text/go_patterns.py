"""Regular expressions as Go's regexp has them, with its errors.

    compile_pattern("^[a-z]+$").search("abc")   → a match
    is_match(pattern, "abc")   → True
    compile_pattern("(?=a)")   → PatternError: error parsing regexp: invalid or unsupported Perl
                                 syntax: `(?=`

Matching takes time that grows with the length of the text alone, whatever the pattern.
"""

from functools import lru_cache
from typing import Final, Protocol

import re2

_CACHED_PATTERNS: Final = 4096
_WORDS: Final = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
}
"""Go's words for errors, by those of RE2; the others are the same."""
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False


class PatternError(ValueError):
    """The text is not a valid pattern; the message is Go's."""


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str | bytes) -> object | None:
        """Return something if the pattern matches anywhere in the text."""
        ...


def is_match(pattern: Pattern, text: str) -> bool:
    """Return whether a pattern matches anywhere in a text."""
    # With bytes RE2 need not convert the position of a match.
    return pattern.search(text.encode()) is not None


@lru_cache(maxsize=_CACHED_PATTERNS)
def compile_pattern(text: str) -> Pattern:
    """Return the pattern of a text; raises PatternError."""
    try:
        pattern: Pattern = re2.compile(text, _OPTIONS)
    except re2.error as error:
        raise PatternError(_message(error.args[0].decode("utf-8", "replace"))) from None
    return pattern


def _message(text: str) -> str:
    """Return Go's message for one of RE2, `what is wrong: part of the pattern`."""
    words, _, part = text.partition(": ")
    return f"error parsing regexp: {_WORDS.get(words, words)}: `{part}`"
