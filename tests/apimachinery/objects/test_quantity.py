"""Quantities against exact decimal numbers."""

from decimal import ROUND_CEILING, ROUND_UP, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects import quantity
from kvstack.apimachinery.objects.quantity import MILLI, Quantity, QuantityError, canonical, parse

SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "e2": 2, "E-4": -4}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}

numbers = st.from_regex(r"[1-9][0-9]{0,7}(\.[0-9]{1,4})?", fullmatch=True)
texts = st.builds(str.__add__, numbers, st.sampled_from([*SUFFIXES, *BINARY]))


def exact(text: str) -> Decimal:
    """Return the number of a text, what is finer than nano rounded up."""
    with localcontext() as context:
        context.prec = 80
        digits = text.rstrip("numkMGTKi") if "e" not in text.lower() else text[:-2]
        digits = digits.removesuffix("E")
        suffix = text.removeprefix(digits)
        if suffix in BINARY:
            number = Decimal(digits) * 2 ** BINARY[suffix]
        else:
            number = Decimal(digits).scaleb(SUFFIXES[suffix])
        return number.quantize(Decimal("1e-9"), ROUND_UP)


@given(texts)
def test_a_text_means_its_number(text: str) -> None:
    number = exact(text)
    parsed = parse(text)
    assert Decimal(parsed.unscaled).scaleb(parsed.scale) == number
    if number < 2**63 // 1000:
        assert parsed.value() == number.to_integral_value(ROUND_CEILING)
        assert parsed.milli_value() == (number * 1000).to_integral_value(ROUND_CEILING)


@given(texts)
def test_the_canonical_text_means_the_same_and_stays(text: str) -> None:
    written = canonical(text)
    assert parse(written) == parse(text)
    assert canonical(str(parse(text) * -1)) == str(-parse(text))
    assert str(parse(written) + quantity.ZERO) == str(parse(text) + quantity.ZERO)


@given(texts, texts)
def test_order_and_sums(left: str, right: str) -> None:
    one, other = parse(left), parse(right)
    assert (one < other) is (exact(left) < exact(right))
    assert (one == other) is (exact(left) == exact(right))
    if one == other:
        assert hash(one) == hash(other)
    total = one + other
    assert Decimal(total.unscaled).scaleb(total.scale) == exact(left) + exact(right)
    assert total - other == one


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP _", max_size=12))
def test_no_text_is_too_odd(text: str) -> None:
    try:
        written = canonical(text)
    except QuantityError:
        return
    assert isinstance(written, str)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1000m", "1"), ("0.1", "100m"), ("1.5", "1500m"), ("1000", "1k"), ("2000k", "2M"),
        ("1e3", "1e3"), ("1E3", "1E3"), ("12e2", "1200"), ("1e4", "10e3"), ("0.5e3", "500"),
        ("0.5Ki", "512"), ("0.5Gi", "512Mi"), ("1.5Gi", "1536Mi"), ("1024Mi", "1Gi"),
        ("2048Ki", "2Mi"), ("0", "0"), ("0.0", "0"), ("-0", "0"), ("0.0000000001", "1n"),
        (".", "0"), ("01", "01"), ("1.500", "1.500"), ("1000E", "1"), (" 5 ", "5"),
        ("9Ei", "9223372036854775807"),
    ],
)  # fmt: skip
def test_canonical_texts(text: str, written: str) -> None:
    assert canonical(text) == written


def test_numbers_of_json() -> None:
    assert canonical(1) == "1"
    assert canonical(0.5) == "500m"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "quantities must match the regular expression"),
        ("abc", "quantities must match the regular expression"),
        ("1.1.1", "quantities must match the regular expression"),
        ("1e", "unable to parse quantity's suffix"),
        ("1Kii", "unable to parse quantity's suffix"),
        ("1e99999999999999999999", "unable to parse quantity's suffix"),
        ("Ei", "unable to parse numeric part of quantity"),
        ("9" * 1001, "unable to parse numeric part of quantity"),
    ],
)
def test_texts_that_are_no_quantities(text: str, message: str) -> None:
    with pytest.raises(QuantityError, match=message):
        parse(text)


def test_rounding_up() -> None:
    assert str(parse("1.0001").round_up(MILLI)) == "1001m"
    assert str(parse("100u").round_up(MILLI)) == "1m"
    assert str(parse("-1.5").round_up(0)) == "-2"
    assert parse("1k").round_up(MILLI) is parse("1k")


def test_a_sum_is_written_like_its_first_part() -> None:
    assert str(parse("1Gi") + parse("1M")) == str(Quantity(2**30 + 10**6, 0, "BinarySI"))
    assert str(parse("0") + parse("1Gi")) == "1Gi"
    assert str(parse("1Gi") * 3) == "3Gi"


def test_whole_numbers() -> None:
    assert parse("2k").as_int() == 2000
    assert parse("1500m").as_int() is None
    assert parse("2000m").is_whole()
    assert not parse("1m").is_whole()
    assert parse("1500m").as_float() == 1.5


def test_endless_numbers_cost_nothing() -> None:
    huge, tiny = parse("1e2147483647"), parse("1e-2147483648")
    assert str(tiny) == "1e-9"
    assert huge > parse("5")
    assert huge + parse("5") == huge
    assert str(huge) == "10e2147483646"
    assert huge.value() == 0
    assert huge.as_float() == float("inf")
    assert parse("0e2147483647") == quantity.ZERO
    assert str(parse("1Gi") + huge) != ""
