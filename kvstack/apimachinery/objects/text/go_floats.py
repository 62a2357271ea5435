"""Floats as Go prints them: as few digits as identify the number, and when with an exponent.

format_float(1234567.5)          → "1.2345675e+06"
format_json_float(1234567.5)     → "1234567.5"
format_json_float(1e-7)          → "1e-7"
"""

import math
import struct


def format_float(number: float, bits: int = 64) -> str:
    """Return the shortest text of a float as Go's 'g' format and %v have it; bits: 32 or 64."""
    if not math.isfinite(number):
        return {float("inf"): "+Inf", float("-inf"): "-Inf"}.get(number, "NaN")
    if bits == 32 and not _fits_single(number):
        return "+Inf" if number > 0 else "-Inf"
    sign, digits, exponent = _shortest(number, bits)
    if -4 <= exponent < 6:
        return sign + _positional(digits, exponent)
    return sign + _exponential(digits, exponent)


def format_json_float(number: float) -> str:
    """Return the text of a float as Go's JSON encoder writes it; raises ValueError as it does."""
    if not math.isfinite(number):
        raise ValueError(f"json: unsupported value: {format_float(number)}")
    sign, digits, exponent = _shortest(number, 64)
    if number == 0 or -6 <= exponent < 21:
        return sign + _positional(digits, exponent)
    return sign + _exponential(digits, exponent).replace("e-0", "e-")


def _shortest(number: float, bits: int) -> tuple[str, str, int]:
    """Return the sign, the fewest digits that identify the number, and the first one's exponent."""
    text = repr(number) if bits == 64 else _shortest_single(number)
    mantissa, _, power = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or "0") + len(whole) - 1 - (len(whole + fraction) - len(digits))
    sign = "-" if text.startswith("-") else ""
    return (sign, digits.rstrip("0"), exponent) if digits else (sign, "0", 0)


def _fits_single(number: float) -> bool:
    """Return whether a float is not infinite in 32 bits."""
    try:
        struct.pack("<f", number)
    except OverflowError:
        return False
    return True


def _shortest_single(number: float) -> str:
    """Return the fewest digits that a float of 32 bits comes back from."""
    wanted = struct.pack("f", number)
    (number,) = struct.unpack("f", wanted)
    for precision in range(1, 10):
        text = f"{number:.{precision}g}"
        if struct.pack("f", float(text)) == wanted:
            return text
    return repr(number)


def _positional(digits: str, exponent: int) -> str:
    if exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{digits}"
    if len(digits) <= exponent + 1:
        return digits.ljust(exponent + 1, "0")
    return f"{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _exponential(digits: str, exponent: int) -> str:
    mantissa = f"{digits[0]}.{digits[1:]}" if len(digits) > 1 else digits
    return f"{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
