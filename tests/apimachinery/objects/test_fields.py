"""Field selectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.fields import (
    FieldSelector,
    FieldSelectorError,
    Requirement,
    parse,
)

names = st.sampled_from(["metadata.name", "status.phase", "type"])
values = st.text(alphabet="ab=,\\!1 ", max_size=4)
selectors = st.lists(st.builds(Requirement, names, st.booleans(), values), max_size=3).map(
    FieldSelector
)


@given(selectors, st.dictionaries(names, values))
def test_a_selector_comes_back_from_its_text(selector: FieldSelector, obj: dict[str, str]) -> None:
    again = parse(str(selector))
    assert sorted(again.requirements) == sorted(selector.requirements)
    expected = all(
        (obj.get(name, "") == value) is is_equal for name, is_equal, value in selector.requirements
    )
    assert selector.matches(obj) is expected
    assert again.matches(obj) is expected


@given(st.text(alphabet="ab=,\\! ", max_size=10))
def test_no_query_is_too_odd(text: str) -> None:
    try:
        selector = parse(text)
    except FieldSelectorError:
        return
    assert parse(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a", "invalid selector: 'a'; can't understand 'a'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ("a=\\q", "invalid field selector: invalid escape sequence: \\q"),
        ("a=\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_what_is_said_of_bad_queries(text: str, message: str) -> None:
    with pytest.raises(FieldSelectorError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_values_that_fields_must_have() -> None:
    selector = parse("b!=x,metadata.name==a\\,b")
    assert selector.exact_value("metadata.name") == "a,b"
    assert selector.exact_value("b") is None
    assert parse("").is_everything
    assert parse("=") == parse("")
