"""Formats of names: what is good, and what is said of the rest."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects import names

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
PATTERNS = {
    "dns_label": LABEL,
    "dns_subdomain": rf"{LABEL}(\.{LABEL})*",
    "dns1035_label": "[a-z]([-a-z0-9]*[a-z0-9])?",
    "wildcard_dns_subdomain": rf"\*\.{LABEL}(\.{LABEL})*",
    "label_value": f"({KEY})?",
    "config_key": r"(?!\.\.)(?!\.$)[-._a-zA-Z0-9]+",
    "identifier": "[A-Za-z_][A-Za-z0-9_]*",
    "percent": "[0-9]+%",
    "http_header_name": "[-A-Za-z0-9]+",
    "condition_reason": names.CONDITION_REASON_RE,
    "decimal_integer": "0|-?[1-9][0-9]*",
}


@pytest.mark.parametrize("function", sorted(PATTERNS))
@given(text=st.text(alphabet="ab1B-._*%:,\n é", max_size=8))
def test_a_check_agrees_with_its_pattern(function: str, text: str) -> None:
    errors = getattr(names, f"check_{function}")(text)
    assert (errors == []) is (re.fullmatch(PATTERNS[function], text) is not None)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (names.check_dns_label, 63, 64),
        (names.check_dns_subdomain, 253, 254),
        (names.check_label_value, 63, 64),
        (names.check_config_key, 253, 254),
        (names.check_port_name, 15, 16),
    ],
)
def test_too_long(check: Callable[[str], list[str]], good: int, bad: int) -> None:
    unit = "bytes" if check is names.check_label_value else "characters"
    assert check("a" * good) == []
    assert check("a" * bad) == [f"must be no more than {good} {unit}"]


def test_a_length_is_counted_in_bytes() -> None:
    assert "must be no more than 63 bytes" in names.check_label_value("é" * 32)
    assert names.length("é\ud800") == 5


def test_only_dots_are_wrong_with_a_label() -> None:
    assert names.check_dns_label("a.b") == ["must not contain dots"]


def test_what_is_said_shows_examples() -> None:
    assert names.check_percent("x") == [
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',"
        "  or '93%', regex used for validation is '[0-9]+%')"
    ]
    assert names.regex_error("bad", "x+") == "bad (regex used for validation is 'x+')"


@pytest.mark.parametrize(
    ("key", "starts"),
    [
        ("a", []),
        ("example.com/a", []),
        ("/a", ["prefix part must be non-empty"]),
        ("A.com/a", ["prefix part a lowercase RFC 1123 subdomain"]),
        ("a/", ["name part must be non-empty", "name part must consist of"]),
        ("a/b/c", ["a valid label key must consist of"]),
        ("a" * 64, ["name part must be no more than 63 bytes"]),
    ],
)
def test_label_keys(key: str, starts: list[str]) -> None:
    found = names.check_label_key(key)
    assert len(found) == len(starts)
    assert all(text.startswith(start) for text, start in zip(found, starts, strict=True))


@pytest.mark.parametrize(
    ("prefix", "is_good"),
    [
        ("web-", True),
        ("-", False),
        ("a-", True),
        ("A-b-", False),
        ("a.-", True),
        ("we!-", True),
        ("web", True),
    ],
)
def test_a_prefix_may_end_in_a_dash(prefix: str, is_good: bool) -> None:  # noqa: FBT001
    # Upstream cuts two characters for the dash, so "we!-" passes as "wea".
    assert (names.name_is_dns_label(prefix, True) == []) is is_good


def test_names_that_only_have_to_fit_into_a_path() -> None:
    assert names.name_is_path_segment("system:x", False) == []
    assert names.name_is_path_segment("..", False) == ["may not be '..'"]
    assert names.name_is_path_segment("..", True) == []
    assert names.check_path_segment("a/b%") == ["may not contain '/'", "may not contain '%'"]


def test_numbers_in_ranges() -> None:
    assert names.check_port_number(65535) == []
    assert names.check_port_number(0) == ["must be between 1 and 65535, inclusive"]
    assert names.check_user_id(-1) == ["must be between 0 and 2147483647, inclusive"]


def test_environment_variables() -> None:
    assert names.check_relaxed_env_name("any thing!") == []
    assert names.check_relaxed_env_name("a=b") != []
    assert names.check_relaxed_env_name("") == ["environment variable name must be non-empty"]
