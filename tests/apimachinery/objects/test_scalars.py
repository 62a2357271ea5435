"""Numbers, percentages, names of groups, lists of resources, values as Go prints them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects import int_or_string, resources
from kvstack.apimachinery.objects.groups import (
    GroupKind,
    GroupResource,
    GroupVersion,
    GroupVersionKind,
    parse_group_version,
)
from kvstack.apimachinery.objects.text import go_floats, go_numbers
from kvstack.apimachinery.objects.text.go_text import go_plain, quote_time


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_come_back(number: int) -> None:
    assert go_numbers.parse_int(str(number)) == number
    assert go_numbers.atoi(f"{number:+}") == number


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'strconv.ParseInt: parsing "": invalid syntax'),
        ("1_0", 'strconv.ParseInt: parsing "1_0": invalid syntax'),
        ("\u0661", 'strconv.ParseInt: parsing "\u0661": invalid syntax'),
        ("9223372036854775808", "value out of range"),
        ("9" * 5000, "value out of range"),
    ],
)
def test_texts_that_are_no_integers(text: str, message: str) -> None:
    with pytest.raises(go_numbers.NumberError) as caught:
        go_numbers.parse_int(text)
    assert message in str(caught.value)


def test_unsigned_integers_and_booleans() -> None:
    assert go_numbers.parse_uint("18446744073709551615") == 2**64 - 1
    with pytest.raises(go_numbers.NumberError, match=r"ParseUint.*invalid syntax"):
        go_numbers.parse_uint("-1")
    assert go_numbers.parse_bool("T") is True
    assert go_numbers.parse_bool("0") is False
    with pytest.raises(go_numbers.NumberError, match="ParseBool"):
        go_numbers.parse_bool("yes")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_come_back(number: float) -> None:
    assert float(go_floats.format_float(number)) == number
    assert float(go_floats.format_json_float(number)) == number


@pytest.mark.parametrize(
    ("number", "general", "json"),
    [
        (1.0, "1", "1"), (1e6, "1e+06", "1000000"), (1e21, "1e+21", "1e+21"), (-0.0, "-0", "-0"),
        (1e-7, "1e-07", "1e-7"), (0.0001, "0.0001", "0.0001"), (1234567.5, "1.2345675e+06",
        "1234567.5"), (123456.5, "123456.5", "123456.5"), (1e-10, "1e-10", "1e-10"),
    ],
)  # fmt: skip
def test_floats(number: float, general: str, json: str) -> None:
    assert go_floats.format_float(number) == general
    assert go_floats.format_json_float(number) == json


def test_floats_that_are_no_numbers() -> None:
    assert go_floats.format_float(float("-inf")) == "-Inf"
    with pytest.raises(ValueError, match="json: unsupported value: NaN"):
        go_floats.format_json_float(float("nan"))
    assert go_floats.format_float(0.1, 32) == "0.1"
    assert go_floats.format_float(16777217.0, 32) == "1.6777216e+07"


def test_values_as_go_prints_them() -> None:
    value = {"b": [1, "x", None, 2.5], "a": {"t": True}}
    assert go_plain(value) == "map[a:map[t:true] b:[1 x <nil> 2.5]]"
    assert go_plain(1e20) == "1e+20"
    assert quote_time('a"\u00e9\n') == r'"a\"\xc3\xa9\x0a"'


def test_percentages() -> None:
    assert int_or_string.scaled("25%", 10, round_up=True) == 3
    assert int_or_string.scaled("25%", 10, round_up=False) == 2
    assert int_or_string.scaled(7, 10, round_up=True) == 7
    assert int_or_string.int_value("http") == 0
    with pytest.raises(int_or_string.IntOrStringError, match="string is not a percentage"):
        int_or_string.scaled("5", 10, round_up=True)
    with pytest.raises(int_or_string.IntOrStringError, match=r"strconv\.Atoi: parsing"):
        int_or_string.scaled("x%", 10, round_up=True)


def test_names_of_groups() -> None:
    assert str(GroupResource("apps", "deployments")) == "deployments.apps"
    assert str(GroupResource("", "pods")) == "pods"
    assert str(GroupKind("", "Pod")) == "Pod"
    assert str(GroupVersion("", "v1")) == "v1"
    assert str(GroupVersionKind("", "v1", "Event")) == "/v1, Kind=Event"
    assert parse_group_version("apps/v1") == ("apps", "v1")
    assert parse_group_version("/") == ("", "")
    with pytest.raises(ValueError, match="unexpected GroupVersion string: a/b/c"):
        parse_group_version("a/b/c")


def test_lists_of_resources() -> None:
    left, right = {"cpu": "500m", "memory": "1Gi"}, {"cpu": "1", "pods": "2"}
    assert resources.add(left, right) == {"cpu": "1500m", "memory": "1Gi", "pods": "2"}
    assert resources.subtract(left, right) == {"cpu": "-500m", "memory": "1Gi", "pods": "-2"}
    assert resources.subtract_to_zero(left, right) == {"cpu": "0", "memory": "1Gi", "pods": "0"}
    assert resources.maximum(left, right) == {"cpu": "1", "memory": "1Gi", "pods": "2"}
    assert resources.exceeds({"cpu": "2", "pods": "1"}, right) == ["cpu"]
    assert resources.equal({"cpu": "1000m"}, {"cpu": "1"})
    assert not resources.equal({"cpu": "1"}, {})
    assert resources.mask(left, ["cpu"]) == {"cpu": "500m"}
    assert resources.negative({"cpu": "-1", "pods": "0"}) == ["cpu"]
    assert resources.is_zero({"cpu": "0"})
