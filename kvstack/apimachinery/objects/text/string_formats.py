"""Formats of texts that a schema can name, as Kubernetes checks them in custom resources.

    has_format("date", "2026-02-30")   → False
    is_known("date-time", "string")    → True

Dashes in the name of a format do not count. A format that is not known is not checked.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.addresses import parse_cidr, parse_ip
from kvstack.apimachinery.objects.text import go_urls
from kvstack.apimachinery.objects.text.go_patterns import Pattern, compile_pattern, is_match
from kvstack.apimachinery.objects.times import TimeError, parse_time

_HOST_MAX: Final = 255
_LABEL_MAX: Final = 63
_NAME_MAX: Final = 253
_SSN_LENGTH: Final = 11
_INT64_MAX: Final = 2**63 - 1
_OF_NUMBERS: Final = {
    "integer": frozenset(("int32", "int64")),
    "number": frozenset(("double", "float")),
}
_UNITS: Final = (
    (("ns",), "nano"),
    (("us", "µs"), "micro"),
    (("ms",), "milli"),
    (("s",), "sec"),
    (("m",), "min"),
    (("h", "hr"), "hour"),
    (("d",), "day"),
    (("w", "wk"), "week"),
)
"""Of durations in words: texts that are a unit, and one that may go on."""
_AMOUNT: Final = re.compile(r"([0-9]+)[ \t\n\f\r]*([A-Za-zµ]+)")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})\Z")
_HEX: Final = "0123456789abcdefABCDEF"
_MAC_BYTES: Final = (6, 8, 20)
_ATOM_CHARACTERS: Final = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\x{80}-\x{10ffff}-"
_ATOMS: Final = rf"[{_ATOM_CHARACTERS}]+(?:\.[{_ATOM_CHARACTERS}]+)*"
_QUOTED: Final = r'"(?:[^"\\\r\n]|\\.)*"'
_ADDRESS: Final = rf"[ \t]*(?:{_ATOMS}|{_QUOTED})@[ \t]*(?:{_ATOMS}|\[[^\[\]\\]*\])"
_PHRASE: Final = rf"(?:[{_ATOM_CHARACTERS}. \t]|{_QUOTED})*"
_COMMENTS: Final = r"[ \t]*(?:\([^()\\]*\)[ \t]*)*"
_LITERAL: Final = re.compile(r"@[ \t]*\[([^\[\]\\]*)\]")


def is_known(name: str, type_name: str) -> bool:
    """Return whether values of a type (empty: of any) have a format of this name."""
    if type_name in {"", "string"}:
        return _plain(name) in _CHECKS
    return name in _OF_NUMBERS.get(type_name, ())


def is_text_format(name: str) -> bool:
    """Return whether there is a format of texts of this name."""
    return _plain(name) in _CHECKS


def has_format(name: str, text: str) -> bool:
    """Return whether a text has a format of texts that is known."""
    return _CHECKS[_plain(name)](text)


def _plain(name: str) -> str:
    return name.replace("-", "")


def _matches(pattern: str) -> Callable[[str], bool]:
    @cache  # at the first use: some of them take as long as a tenth of a start
    def compiled() -> Pattern:
        return compile_pattern(pattern)

    def check(text: str) -> bool:
        return is_match(compiled(), text)

    return check


def _is_uri(text: str) -> bool:
    if not text:
        return False
    try:
        url = go_urls.parse(text)
    except go_urls.UrlError:
        return False
    # A fragment is no part of what a request asks for, so `#` stands for itself.
    return bool(url.scheme) or text.startswith("/")


_mail_pattern: Final = _matches(rf"^(?s:[ \t]*(?:{_ADDRESS}|{_PHRASE}<{_ADDRESS}>){_COMMENTS})$")


def _is_email(text: str) -> bool:
    literal = _LITERAL.search(text)
    return _mail_pattern(text) and (literal is None or parse_ip(literal[1]) is not None)


_host_pattern: Final = _matches(
    r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}]"
    r"(([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
)


def _is_hostname(text: str) -> bool:
    data = text.encode()
    return (
        len(data) <= _HOST_MAX
        and all(len(each) <= _LABEL_MAX for each in data.split(b"."))
        and _host_pattern(text)
    )


def _is_ipv4(text: str) -> bool:
    return "." in text and parse_ip(text) is not None


def _is_ipv6(text: str) -> bool:
    address = parse_ip(text)
    return address is not None and ":" in text and not address.has_leading_zeros


def _is_cidr(text: str) -> bool:
    return parse_cidr(text) is not None


def _is_mac(text: str) -> bool:
    if len(text) > 4 and text[4] == ".":
        separator, width = ".", 4
    elif len(text) > 2 and text[2] in ":-":
        separator, width = text[2], 2
    else:
        return False
    groups = text.split(separator)
    is_hex = all(len(each) == width and not each.strip(_HEX) for each in groups)
    return is_hex and len(groups) * width // 2 in _MAC_BYTES


def _is_isbn10(text: str) -> bool:
    digits = re.sub(r"[ \t\n\f\r-]+", "", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    values = [10 if each == "X" else int(each) for each in digits]
    return sum(place * value for place, value in enumerate(values, 1)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = re.sub(r"[ \t\n\f\r-]+", "", text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum(int(each) * (3 if place % 2 else 1) for place, each in enumerate(digits)) % 10 == 0


_card_pattern: Final = _matches(
    r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$"
)


def _is_credit_card(text: str) -> bool:
    digits = "".join(each for each in text if each in "0123456789")
    if not _card_pattern(digits):
        return False
    doubled = [int(each) * (1 + place % 2) for place, each in enumerate(reversed(digits))]
    return sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0


_ssn_pattern: Final = _matches(r"^\d{3}[- ]?\d{2}[- ]?\d{4}$")


def _is_ssn(text: str) -> bool:
    return len(text) == _SSN_LENGTH and _ssn_pattern(text)


def _is_date(text: str) -> bool:
    try:
        parse_time(f"{text}T00:00:00Z")
    except TimeError:
        return False
    return len(text) == 10


def _is_datetime(text: str) -> bool:
    date, separator, rest = text.lower().partition("t")
    time = _TIME.match(rest.partition("t")[0])
    if not separator or time is None or not _is_date(date):
        return False
    return time[1] <= "23" and time[2] <= "59" and time[3] <= "59"


def _is_duration(text: str) -> bool:
    try:
        durations.parse(text)
    except durations.DurationError:
        return _is_duration_in_words(text)
    return True


def _is_duration_in_words(text: str) -> bool:
    is_good = False
    for amount, unit in _AMOUNT.findall(text):
        if int(amount) > _INT64_MAX:
            return False
        lower = unit.lower()
        is_good |= any(lower in exact or lower.startswith(long) for exact, long in _UNITS)
    return is_good


def _is_bson_object_id(text: str) -> bool:
    return len(text) == 24 and not text.strip(_HEX)


def _short_name(maximum: int, pattern: str) -> Callable[[str], bool]:
    matches = _matches(pattern)

    def check(text: str) -> bool:
        return len(text) <= maximum and matches(text)

    return check


_UUID: Final = "(?i)^[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{}-?{}-?[0-9a-f]{{12}}$"
_FOUR: Final = "[0-9a-f]{4}"
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_COLOR: Final = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"

_CHECKS: Final[Mapping[str, Callable[[str], bool]]] = {
    "bsonobjectid": _is_bson_object_id,
    "byte": _matches(
        r"^(?:[A-Za-z0-9+\/]{4})*(?:[A-Za-z0-9+\/]{2}==|[A-Za-z0-9+\/]{3}=|[A-Za-z0-9+\/]{4})$"
    ),
    "cidr": _is_cidr,
    "creditcard": _is_credit_card,
    "date": _is_date,
    "datetime": _is_datetime,
    "duration": _is_duration,
    "email": _is_email,
    "hexcolor": _matches("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"),
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8slongname": _short_name(_NAME_MAX, rf"^{_LABEL}(\.{_LABEL})*$"),
    "k8sshortname": _short_name(_LABEL_MAX, f"^{_LABEL}$"),
    "mac": _is_mac,
    "password": lambda _text: True,
    "rgbcolor": _matches(rf"^rgb\({_COLOR},{_COLOR},{_COLOR}\)$"),
    "ssn": _is_ssn,
    "uri": _is_uri,
    "uuid": _matches(_UUID.format(_FOUR, _FOUR)),
    "uuid3": _matches(_UUID.format("3[0-9a-f]{3}", _FOUR)),
    "uuid4": _matches(_UUID.format("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}")),
    "uuid5": _matches(_UUID.format("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}")),
}
"""Checks of formats, by name without dashes."""
