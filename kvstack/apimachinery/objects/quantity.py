"""Quantities of resources: `500m`, `1.5Gi`, `12e6`.

    canonical("1.5Gi")   → "1536Mi"        canonical("0.1") → "100m"
    parse("1500m").value()       → 2       rounded up
    parse("1500m").milli_value() → 1500

A quantity is a whole number times a power of ten, exact, and the family of suffixes it was written
in; its canonical text has the largest suffix that needs no fraction. What is finer than nano rounds
up. Objects hold the text; `parse` remembers the quantities of texts seen lately.

All is as upstream, its corners included: a text that already looks canonical is kept as it stands
(`1E3`, but `01` too), what has no suffix that large loses it (`1000E` prints `1`), and numbers
beyond 64 bits come out of `value` as its two ways of keeping a number make them. Where upstream
would write out billions of zeros, this does not: numbers of more than 1,000 digits are refused, and
of two that lie further apart the smaller one counts as nothing in their sum.
"""

from functools import lru_cache
from typing import Final

from typing_extensions import override

DECIMAL_SI: Final = "DecimalSI"
BINARY_SI: Final = "BinarySI"
DECIMAL_EXPONENT: Final = "DecimalExponent"

NANO: Final = -9
MILLI: Final = -3

_INT64_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 1000
_SMALL_DIGITS: Final = 18
"""Digits that upstream always keeps in a machine word."""
_WRAPPING_SHIFTS: Final = frozenset((1, 2, 3, 6, 9))
"""Powers of ten for which upstream's overflow shows; for others it answers zero."""
_ALIGN_MAX: Final = 1000
"""Powers of ten that two numbers may lie apart and still be added exactly."""
_CACHED_TEXT_MAX: Final = 64
"""Characters of a text that is worth remembering."""

_DIGITS: Final = frozenset("0123456789")
_SUFFIX_LETTERS: Final = "eEinumkKMGTP"

_DECIMAL_SUFFIXES: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES: Final = {exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()} | {0: ""}


class QuantityError(ValueError):
    """The text is not a quantity; the message is upstream's."""


_BAD_FORM: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_BAD_NUMBER: Final = "unable to parse numeric part of quantity"
_BAD_SUFFIX: Final = "unable to parse quantity's suffix"


class Quantity:
    """An exact number and its format; immutable."""

    __slots__ = ("_text", "form", "is_large", "scale", "unscaled")

    def __init__(
        self, unscaled: int, scale: int = 0, form: str = DECIMAL_SI, *, is_large: bool = False
    ) -> None:
        """Make `unscaled` times ten to the power of `scale`, written with suffixes of `form`."""
        self.unscaled: Final = unscaled
        self.scale: Final = scale
        self.form: Final = form
        self.is_large: Final = is_large or not -_INT64_MAX - 1 <= unscaled <= _INT64_MAX
        """Whether upstream keeps it as a number of any size; it decides what overflow gives."""
        self._text = ""

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    @override
    def __str__(self) -> str:
        """Return the canonical text."""
        if not self._text:
            self._text = _write(self)
        return self._text

    @override
    def __repr__(self) -> str:
        """Return the number as it is kept."""
        return f"Quantity({self.unscaled}, {self.scale}, {self.form!r})"

    @override
    def __eq__(self, other: object) -> bool:
        """Return whether the numbers are equal, however they are written."""
        return isinstance(other, Quantity) and compare(self, other) == 0

    @override
    def __hash__(self) -> int:
        """Return the same for equal numbers."""
        return hash(_reduced(self.unscaled, self.scale, 10))

    def __lt__(self, other: "Quantity") -> bool:
        """Return whether this number is smaller."""
        return compare(self, other) < 0

    def __le__(self, other: "Quantity") -> bool:
        """Return whether this number is not larger."""
        return compare(self, other) <= 0

    def __gt__(self, other: "Quantity") -> bool:
        """Return whether this number is larger."""
        return compare(self, other) > 0

    def __ge__(self, other: "Quantity") -> bool:
        """Return whether this number is not smaller."""
        return compare(self, other) >= 0

    def __add__(self, other: "Quantity") -> "Quantity":
        """Return the sum, written as this one, or as the other if this one is zero."""
        form = self.form if self.unscaled else other.form
        is_large = self.is_large or other.is_large
        if self.scale == other.scale:
            return Quantity(self.unscaled + other.unscaled, self.scale, form, is_large=is_large)
        if not is_large and not (self.unscaled and other.unscaled):
            one = self if self.unscaled or not other.unscaled else other
            return Quantity(one.unscaled, one.scale, form)
        left, right, scale = _aligned(self, other)
        is_large = is_large or max(abs(left), abs(right)) > _INT64_MAX
        return Quantity(left + right, scale, form, is_large=is_large)

    def __sub__(self, other: "Quantity") -> "Quantity":
        """Return the difference, written as this one, or as the other if this one is zero."""
        return self + -other

    def __neg__(self) -> "Quantity":
        """Return the negative."""
        return Quantity(-self.unscaled, self.scale, self.form, is_large=self.is_large)

    def __mul__(self, factor: int) -> "Quantity":
        """Return the product with a whole number."""
        return Quantity(self.unscaled * factor, self.scale, self.form, is_large=self.is_large)

    def value(self) -> int:
        """Return the number rounded up to a whole one, in 64 bits."""
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """Return the number times 1000, rounded up to a whole one, in 64 bits."""
        return self.scaled_value(MILLI)

    def scaled_value(self, scale: int) -> int:
        """Return how many times ten to the power of `scale` it is, rounded up, in 64 bits."""
        shift = self.scale - scale
        if self.is_large:
            return _large_scaled(self.unscaled, shift)
        if shift < 0:
            return _divide_away(self.unscaled, -shift)[0]
        number: int = self.unscaled * 10 ** min(shift, 19)
        if -_INT64_MAX <= number <= _INT64_MAX:
            return number
        return _wrapped(number, 64) if shift in _WRAPPING_SHIFTS else 0

    def as_int(self) -> int | None:
        """Return the number if it is whole, small, and known to be without a division."""
        if self.is_large or self.scale < 0:
            return None
        if self.unscaled == 0 or self.scale == 0:
            return self.unscaled
        number: int = self.unscaled * 10 ** min(self.scale, 19)
        return number if -_INT64_MAX <= number <= _INT64_MAX else None

    def as_float(self) -> float:
        """Return the nearest float, or an infinity."""
        return float(f"{self.unscaled}e{self.scale}")

    def round_up(self, scale: int) -> "Quantity":
        """Return the number without what is finer than ten to the power of `scale`."""
        if self.scale >= scale:
            return self
        rounded, _ = _divide_away(self.unscaled, scale - self.scale)
        return Quantity(rounded, scale, self.form, is_large=self.is_large)

    def is_whole(self) -> bool:
        """Return whether the number has no fraction."""
        return self.scale >= 0 or _divide_away(self.unscaled, -self.scale)[1]


ZERO: Final = Quantity(0)


def parse(text: str | float) -> Quantity:
    """Return the quantity of a text or of a number of JSON; raises QuantityError."""
    written = text if isinstance(text, str) else str(text)
    return _cached(written) if len(written) <= _CACHED_TEXT_MAX else _parse(written)


def canonical(text: str | float) -> str:
    """Return the canonical text of a quantity as JSON has it; raises QuantityError."""
    written = text if isinstance(text, str) else str(text)
    return _canonical(written) if len(written) <= _CACHED_TEXT_MAX else str(_parse(written))


def compare(left: Quantity, right: Quantity) -> int:
    """Return -1, 0 or 1, as left is smaller, equal or larger."""
    if left.scale == right.scale:
        return (left.unscaled > right.unscaled) - (left.unscaled < right.unscaled)
    if left.sign != right.sign or left.sign == 0:
        return (left.sign > right.sign) - (left.sign < right.sign)
    # Numbers of very different size are compared without writing out their zeros.
    distance = _digits(left.unscaled) + left.scale - _digits(right.unscaled) - right.scale
    if abs(distance) > 2:
        return left.sign if distance > 0 else -left.sign
    left_number, right_number, _ = _aligned(left, right)
    return (left_number > right_number) - (left_number < right_number)


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    return str(_cached(text))


@lru_cache(maxsize=4096)
def _cached(text: str) -> Quantity:
    return _parse(text)


def _parse(text: str) -> Quantity:
    stripped = text.strip()
    if not stripped:
        raise QuantityError(_BAD_FORM)
    sign, whole, fraction, suffix = _split(stripped)
    form, exponent = _interpret(suffix)
    if len(whole) + len(fraction) > _DIGITS_MAX:
        raise QuantityError(_BAD_NUMBER)
    shifted = whole + fraction
    number = int(shifted or "0")
    if form == BINARY_SI:
        quantity = _binary(sign * number, len(fraction), exponent, len(whole))
        keeps = not quantity.is_large and number & 7 != 0
    else:
        quantity = _decimal(sign * number, exponent - len(fraction), form, len(shifted))
        keeps = (
            not quantity.is_large
            and quantity.scale % 3 == 0
            and not shifted.endswith("000")
            and shifted[0] != "0"
        )
    if quantity.is_large and not fraction and stripped.lstrip("+-")[0] not in _DIGITS:
        raise QuantityError(_BAD_NUMBER)
    if keeps:
        quantity._text = stripped  # noqa: SLF001  # just made here
    return quantity


def _split(text: str) -> tuple[int, str, str, str]:
    """Return the sign, the digits before and after the point, and the suffix."""
    position = 1 if text[0] in "+-" else 0
    sign = -1 if text[0] == "-" else 1
    end = len(text)
    while position < end and text[position] == "0":
        position += 1
    if position == end:
        return sign, "0", "", ""
    start, position = position, _skip_digits(text, position)
    whole, fraction = text[start:position] or "0", ""
    if position < end and text[position] == ".":
        start, position = position + 1, _skip_digits(text, position + 1)
        fraction = text[start:position]
    number_end = position
    while position < end and text[position] in _SUFFIX_LETTERS:
        position += 1
    if position < end and text[position] in "+-":
        position += 1
    if _skip_digits(text, position) != end:
        raise QuantityError(_BAD_FORM)
    return sign, whole, fraction, text[number_end:]


def _skip_digits(text: str, position: int) -> int:
    while position < len(text) and text[position] in _DIGITS:
        position += 1
    return position


def _interpret(suffix: str) -> tuple[str, int]:
    """Return the family of a suffix and its exponent, of two or of ten."""
    if suffix in _DECIMAL_SUFFIXES:
        return DECIMAL_SI, _DECIMAL_SUFFIXES[suffix]
    if suffix in _BINARY_SUFFIXES:
        return BINARY_SI, _BINARY_SUFFIXES[suffix]
    digits = suffix[2:] if suffix[1:2] in {"+", "-"} else suffix[1:]
    if suffix[0] not in "eE" or not digits or not _DIGITS.issuperset(digits):
        raise QuantityError(_BAD_SUFFIX)
    significant = digits.lstrip("0")
    if len(significant) > 19:
        raise QuantityError(_BAD_SUFFIX)
    exponent = int(significant or "0") * (-1 if suffix[1] == "-" else 1)
    if not -_INT64_MAX - 1 <= exponent <= _INT64_MAX:
        raise QuantityError(_BAD_SUFFIX)
    return DECIMAL_EXPONENT, _wrapped(exponent, 32)


def _decimal(number: int, scale: int, form: str, digits: int) -> Quantity:
    """Return a number of a decimal family, finer parts than nano rounded up."""
    if digits <= _SMALL_DIGITS and scale >= NANO:
        return Quantity(number, scale, form)
    number, scale = _in_nano(number, scale)
    return Quantity(number, scale, form, is_large=True)


def _in_nano(number: int, scale: int) -> tuple[int, int]:
    """Return a large number at the scale upstream keeps it: nano, what is finer rounded up."""
    if number == 0 or scale - NANO > _ALIGN_MAX:
        return number, scale
    if scale < NANO:
        return _divide_away(number, NANO - scale)[0], NANO
    return number * 10 ** (scale - NANO), NANO


def _binary(number: int, fraction: int, exponent: int, digits: int) -> Quantity:
    """Return a number of the binary family, capped at 64 bits."""
    if not fraction and digits <= 14 - exponent * 3 // 10:
        return Quantity(number << exponent, 0, BINARY_SI)
    number, scale = _in_nano(number << exponent, -fraction)
    one: int = 10**-scale
    form = DECIMAL_SI if 0 < abs(number) < one else BINARY_SI
    if abs(number) > _INT64_MAX * one:
        number = _INT64_MAX if number > 0 else -_INT64_MAX
        scale = 0
    return Quantity(number, scale, form, is_large=True)


def _write(quantity: Quantity) -> str:
    if quantity.unscaled == 0:
        return "0"
    if quantity.form == BINARY_SI and not -1024 < _approximate(quantity) < 1024:
        number, exponent = _whole_binary(quantity)
        if number is not None:
            return f"{number}{_BINARY_NAMES.get(exponent * 10, '')}"
    number, exponent = _reduced(quantity.unscaled, quantity.scale, 10)
    number *= 10 ** (exponent % 3)
    exponent -= exponent % 3
    if quantity.form == DECIMAL_EXPONENT:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_DECIMAL_NAMES.get(exponent, '')}"


def _approximate(quantity: Quantity) -> int:
    """Return the number without its fraction, or one as far from 1024."""
    if quantity.scale > 4 or _digits(quantity.unscaled) + quantity.scale > 6:
        return quantity.sign * 10_000
    if quantity.scale >= 0:
        number: int = quantity.unscaled * 10**quantity.scale
        return number
    if _digits(quantity.unscaled) + quantity.scale < 0:
        return 0
    divisor: int = 10**-quantity.scale
    return quantity.sign * (abs(quantity.unscaled) // divisor)


def _whole_binary(quantity: Quantity) -> tuple[int | None, int]:
    """Return the number as one times a power of 1024; None if it has a fraction, or is endless."""
    if quantity.scale > _ALIGN_MAX:
        return None, 0
    if quantity.scale >= 0:
        whole = quantity.unscaled * 10**quantity.scale
    else:
        whole, is_exact = _divide_away(quantity.unscaled, -quantity.scale)
        if not is_exact:
            return None, 0
    return _reduced(whole, 0, 1024)


def _reduced(number: int, exponent: int, base: int) -> tuple[int, int]:
    """Return the number without its factors of `base`, and the exponent raised for them."""
    if number == 0:
        return 0, 0
    while number % base == 0:
        number //= base
        exponent += 1
    return number, exponent


def _aligned(left: Quantity, right: Quantity) -> tuple[int, int, int]:
    """Return both numbers at the finer of the two scales, and that scale.

    Of two that lie too far apart to be written out, the finer one counts as nothing.
    """
    scale = min(left.scale, right.scale)
    apart = max(left.scale, right.scale) - scale
    if apart > _ALIGN_MAX:
        if left.scale > scale:
            return (left.unscaled, 0, left.scale) if left.unscaled else (0, right.unscaled, scale)
        return (0, right.unscaled, right.scale) if right.unscaled else (left.unscaled, 0, scale)
    return (
        left.unscaled * 10 ** (left.scale - scale),
        right.unscaled * 10 ** (right.scale - scale),
        scale,
    )


def _divide_away(number: int, digits: int) -> tuple[int, bool]:
    """Return the number without its last digits, rounded away from zero; and whether exactly."""
    if digits > _digits(number):
        return (number > 0) - (number < 0), number == 0
    quotient, rest = divmod(abs(number), 10**digits)
    quotient += rest != 0
    return (quotient if number >= 0 else -quotient), rest == 0


def _large_scaled(number: int, shift: int) -> int:
    """Return a large number shifted by digits, in 64 bits, rounded and wrapped as upstream."""
    if shift >= 0:
        return _wrapped(number * pow(10, shift, 1 << 64), 64)
    if -shift > _digits(number):
        return int(number != 0 and (number > 0 or -shift < 19))
    divisor: int = 10**-shift
    if number < _INT64_MAX and -shift < 19:
        number = _wrapped(number, 64)
        quotient = abs(number) // divisor * (1 if number > 0 else -1)
    else:
        quotient = number // divisor
    return _wrapped(quotient + (number % divisor != 0), 64)


def _wrapped(number: int, bits: int) -> int:
    """Return the number as a signed one of so many bits."""
    half: int = 1 << (bits - 1)
    return (number + half) % (2 * half) - half


def _digits(number: int) -> int:
    """Return the number of decimal digits, or one more."""
    return number.bit_length() * 30103 // 100000 + 1
