"""Patterns match and fail as Go's do."""

import pytest

from kvstack.apimachinery.objects.text.go_patterns import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "abc\n", False),
        ("b", "abc", True),
        (r"^\d$", "٣", False),
        (r"^\p{L}$", "ü", True),
        ("(?i)^ABC$", "abc", True),
        ("(a+)+$", "a" * 5000 + "b", False),
    ],
)
def test_matching(pattern: str, text: str, *, matches: bool) -> None:
    """Somewhere in the text; in time that grows with the text alone."""
    assert (compile_pattern(pattern).search(text) is not None) is matches


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("*a", "missing argument to repetition operator: `*`"),
        ("[a", "missing closing ]: `[a`"),
        ("(a", "missing closing ): `(a`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2000}", "invalid repeat count: `{2000}`"),
        ("[b-a]", "invalid character class range: `b-a`"),
        (r"\8", r"invalid escape sequence: `\8`"),
    ],
)
def test_errors(pattern: str, message: str) -> None:
    """They are told in Go's words."""
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert str(caught.value) == f"error parsing regexp: {message}"
