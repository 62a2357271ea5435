"""The formats of names, keys and small texts, with Kubernetes' error texts.

    check_dns_label("a.b")      → ["must not contain dots"]
    check_label_key("app")      → []
    name_is_dns_label("web-", True)  → []       a prefix may end in a dash

A check returns a list of texts, empty when the value is good; its caller puts the field in front.
Lengths count bytes of UTF-8. Formats whose errors carry the field themselves are in
`field_checks`, addresses in `addresses`.

Most values are good, so each check first asks a question that costs a fraction of a microsecond:
is any character left when the allowed ones are stripped? Only then is the text of an error made.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

CheckName = Callable[[str, bool], list[str]]
"""(name, whether it is only the prefix of a name): what is wrong with it."""

DNS_LABEL_MAX: Final = 63
DNS_SUBDOMAIN_MAX: Final = 253
LABEL_MAX: Final = 63
PORT_NAME_MAX: Final = 15
_KEYS_REMEMBERED: Final = 4096
_KEY_REMEMBERED_MAX: Final = DNS_SUBDOMAIN_MAX + 1 + LABEL_MAX
CONDITION_REASON_RE: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"

_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_DIGITS: Final = "0123456789"
_LETTERS: Final = _LOWER + _LOWER.upper()
_ALNUM: Final = _LETTERS + _DIGITS
_LOWER_ALNUM: Final = _LOWER + _DIGITS
_LABEL_CHARACTERS: Final = _LOWER_ALNUM + "-"
_SUBDOMAIN_CHARACTERS: Final = _LOWER_ALNUM + "-."
_KEY_CHARACTERS: Final = _ALNUM + "-_."

_LABEL_RE: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_RE: Final = rf"{_LABEL_RE}(\.{_LABEL_RE})*"
_UNDERSCORE_LABEL_RE: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_KEY_RE: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"


def too_long(maximum: int, unit: str = "characters") -> str:
    """Return the text about a value of more than `maximum` bytes; upstream names two units."""
    return f"must be no more than {maximum} {unit}"


def regex_error(message: str, pattern: str, *examples: str) -> str:
    """Return the text about a value that does not match a pattern."""
    if not examples:
        return f"{message} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{each}', " for each in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def between(low: int, high: int) -> str:
    """Return the text about a number that is not in an inclusive range."""
    return f"must be between {low} and {high}, inclusive"


EMPTY: Final = "must be non-empty"
NEGATIVE: Final = "must be greater than or equal to 0"
NOT_POSITIVE: Final = "must be greater than zero"
IMMUTABLE: Final = "field is immutable"

_BAD_LABEL: Final = regex_error(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and"
    " must start and end with an alphanumeric character",
    _LABEL_RE, "my-name", "123-abc",
)  # fmt: skip
_BAD_SUBDOMAIN: Final = regex_error(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character",
    _SUBDOMAIN_RE, "example.com",
)  # fmt: skip
_BAD_CASELESS_SUBDOMAIN: Final = regex_error(
    "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character",
    _SUBDOMAIN_RE, "Example.com",
)  # fmt: skip
_BAD_UNDERSCORE_SUBDOMAIN: Final = regex_error(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or"
    " '.', and must start and end with an alphanumeric character",
    rf"{_UNDERSCORE_LABEL_RE}(\.{_UNDERSCORE_LABEL_RE})*", "example.com",
)  # fmt: skip
_BAD_DNS1035_LABEL: Final = regex_error(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character",
    "[a-z]([-a-z0-9]*[a-z0-9])?", "my-name", "abc-123",
)  # fmt: skip
_BAD_WILDCARD: Final = regex_error(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which"
    " must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric"
    " character",
    rf"\*\.{_SUBDOMAIN_RE}", "*.example.com",
)  # fmt: skip
_KEY_RULE: Final = regex_error(
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
    " alphanumeric character",
    _KEY_RE, "MyName", "my.name", "123-abc",
)  # fmt: skip
_BAD_KEY_NAME: Final = f"name part {_KEY_RULE}"
_BAD_KEY: Final = (
    f"a valid label key {_KEY_RULE} with an optional DNS subdomain prefix and '/'"
    " (e.g. 'example.com/MyName')"
)
_BAD_LABEL_VALUE: Final = regex_error(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character",
    f"({_KEY_RE})?", "MyValue", "my_value", "12345",
)  # fmt: skip
_BAD_CONFIG_KEY: Final = regex_error(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    "[-._a-zA-Z0-9]+", "key.name", "KEY_NAME", "key-name",
)  # fmt: skip
_BAD_IDENTIFIER: Final = regex_error(
    "a valid C identifier must start with alphabetic character or '_', followed by a string of"
    " alphanumeric characters or '_'",
    "[A-Za-z_][A-Za-z0-9_]*", "my_name", "MY_NAME", "MyName",
)  # fmt: skip
_BAD_PERCENT: Final = regex_error(
    "a valid percent string must be a numeric string followed by an ending '%'",
    "[0-9]+%", "1%", "93%",
)  # fmt: skip
_BAD_HEADER_NAME: Final = regex_error(
    "a valid HTTP header must consist of alphanumeric characters or '-'",
    "[-A-Za-z0-9]+", "X-Header-Name",
)  # fmt: skip
_BAD_CONDITION_REASON: Final = regex_error(
    "a condition reason must start with alphabetic character, optionally followed by a string of"
    " alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
    CONDITION_REASON_RE, "my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB",
)  # fmt: skip


def length(value: str) -> int:
    """Return the number of bytes of the text in UTF-8."""
    return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))


def check_dns_label(value: str) -> list[str]:
    """Check a label of DNS as RFC 1123 has it: `my-name`."""
    if _is_label(value) and len(value) <= DNS_LABEL_MAX:
        return []
    errors = _too_long(value, DNS_LABEL_MAX)
    if not _is_label(value):
        errors.append("must not contain dots" if _is_subdomain(value) else _BAD_LABEL)
    return errors


def check_dns_subdomain(value: str) -> list[str]:
    """Check labels of DNS joined by dots, lower case: `example.com`."""
    if _is_subdomain(value) and len(value) <= DNS_SUBDOMAIN_MAX:
        return []
    return _check(value, DNS_SUBDOMAIN_MAX, _is_subdomain, _BAD_SUBDOMAIN)


def check_caseless_dns_subdomain(value: str) -> list[str]:
    """Check labels of DNS joined by dots, in any case, as names of drivers are."""
    errors = _too_long(value, DNS_SUBDOMAIN_MAX, "bytes")
    # Go's (?i) also folds the Kelvin sign and the long s to k and s.
    folded = value.replace("\u212a", "k").replace("\u017f", "s")
    if not (folded.isascii() and _is_subdomain(folded.lower())):
        errors.append(_BAD_CASELESS_SUBDOMAIN)
    return errors


def check_dns_subdomain_with_underscore(value: str) -> list[str]:
    """Check a subdomain whose labels may hold underscores, in front too."""
    return _check(value, DNS_SUBDOMAIN_MAX, _is_underscore_subdomain, _BAD_UNDERSCORE_SUBDOMAIN)


def check_dns1035_label(value: str) -> list[str]:
    """Check a label of DNS as RFC 1035 has it: it begins with a letter."""
    return _check(value, DNS_LABEL_MAX, _is_dns1035_label, _BAD_DNS1035_LABEL)


def check_wildcard_dns_subdomain(value: str) -> list[str]:
    """Check a subdomain below a wildcard: `*.example.com`."""
    return _check(value, DNS_SUBDOMAIN_MAX, _is_wildcard, _BAD_WILDCARD)


def check_label_key(value: str) -> list[str]:
    """Check a key of labels, also called a qualified name: `[prefix/]name`."""
    if len(value) <= _KEY_REMEMBERED_MAX and _is_label_key(value):
        return []
    return _label_key_errors(value)


@lru_cache(_KEYS_REMEMBERED)
def _is_label_key(value: str) -> bool:
    # There are many objects and few keys.
    return not _label_key_errors(value)


def _label_key_errors(value: str) -> list[str]:
    prefix, slash, name = value.rpartition("/")
    if not slash:
        if _is_key_name(value) and len(value) <= LABEL_MAX:
            return []
    elif "/" in prefix:
        return [_BAD_KEY]
    return [*(_check_key_prefix(prefix) if slash else ()), *_check_key_name(name)]


def check_label_value(value: str) -> list[str]:
    """Check a value of labels; it may be empty."""
    if not value or (_is_key_name(value) and len(value) <= LABEL_MAX):
        return []
    return _check(value, LABEL_MAX, _is_key_name, _BAD_LABEL_VALUE, "bytes")


def check_config_key(value: str) -> list[str]:
    """Check a key of the data of a ConfigMap or Secret."""
    errors = _check(value, DNS_SUBDOMAIN_MAX, _is_config_key, _BAD_CONFIG_KEY)
    return errors + _check_no_parent(value)


def check_relaxed_env_name(value: str) -> list[str]:
    """Check the name of an environment variable by the rule pods have: printable, no `=`."""
    if not value:
        return [f"environment variable name {EMPTY}"]
    if value.isascii() and value.isprintable() and "=" not in value:
        return []
    return [
        "a valid environment variable name must consist only of printable ASCII characters other"
        " than '='"
    ]


def check_identifier(value: str) -> list[str]:
    """Check an identifier of C."""
    good = bool(value) and not value.strip(_ALNUM + "_") and value[0] not in _DIGITS
    return [] if good else [_BAD_IDENTIFIER]


def check_port_name(value: str) -> list[str]:
    """Check the name of a port."""
    errors = _too_long(value, PORT_NAME_MAX)
    if not value or value.strip(_LABEL_CHARACTERS):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any(each in _LOWER for each in value):
        errors.append("must contain at least one letter (a-z)")
    if "--" in value:
        errors.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def check_port_number(value: int) -> list[str]:
    """Check the number of a port."""
    return check_range(value, 1, 65535)


def check_user_id(value: int) -> list[str]:
    """Check a numeric user or group of Unix."""
    return check_range(value, 0, 2**31 - 1)


def check_range(value: int, low: int, high: int) -> list[str]:
    """Check a number against an inclusive range."""
    return [] if low <= value <= high else [between(low, high)]


def check_percent(value: str) -> list[str]:
    """Check a percentage: `50%`."""
    number = value[:-1]
    good = value[-1:] == "%" and number != "" and not number.strip(_DIGITS)
    return [] if good else [_BAD_PERCENT]


def check_decimal_integer(value: str) -> list[str]:
    """Check a decimal integer in canonical form: no plus, no leading zero."""
    if not value:
        return [EMPTY]
    digits = value.removeprefix("-")
    good = digits != "" and not digits.strip(_DIGITS) and (digits[0] != "0" or value == "0")
    return [] if good else ["must be a valid decimal integer in canonical form"]


def check_http_header_name(value: str) -> list[str]:
    """Check the name of a header of HTTP."""
    return [] if value and not value.strip(_ALNUM + "-") else [_BAD_HEADER_NAME]


def check_condition_reason(value: str) -> list[str]:
    """Check the reason of a metav1.Condition; the length is not checked here."""
    good = (
        value != ""
        and value[0] in _LETTERS
        and value[-1] not in ",:"
        and not value.strip(_ALNUM + "_,:")
    )
    return [] if good else [_BAD_CONDITION_REASON]


def check_path_segment(value: str) -> list[str]:
    """Check that a name can stand as one segment of a URL's path."""
    if value in {".", ".."}:
        return [f"may not be '{value}'"]
    return check_path_segment_prefix(value)


def check_path_segment_prefix(value: str) -> list[str]:
    """Check that a name that begins so can stand as one segment of a URL's path."""
    return [f"may not contain '{each}'" for each in "/%" if each in value]


def name_is_dns_label(name: str, is_prefix: bool) -> list[str]:  # noqa: FBT001  # a CheckName
    """Check the name of a kind whose names are labels of DNS."""
    return check_dns_label(_without_trailing_dash(name) if is_prefix else name)


def name_is_dns_subdomain(name: str, is_prefix: bool) -> list[str]:  # noqa: FBT001
    """Check the name of a kind whose names are subdomains of DNS, as most are."""
    return check_dns_subdomain(_without_trailing_dash(name) if is_prefix else name)


def name_is_dns1035_label(name: str, is_prefix: bool) -> list[str]:  # noqa: FBT001
    """Check the name of a kind whose names begin with a letter."""
    return check_dns1035_label(_without_trailing_dash(name) if is_prefix else name)


def name_is_path_segment(name: str, is_prefix: bool) -> list[str]:  # noqa: FBT001
    """Check the name of a kind whose names need only fit into a URL, as roles do."""
    return check_path_segment_prefix(name) if is_prefix else check_path_segment(name)


def _without_trailing_dash(prefix: str) -> str:
    # Upstream cuts two characters for the dash; what it accepts depends on it.
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix[-1] == "-" else prefix


def _check(
    value: str, maximum: int, is_good: Callable[[str], bool], message: str, unit: str = "characters"
) -> list[str]:
    errors = _too_long(value, maximum, unit)
    if not is_good(value):
        errors.append(message)
    return errors


def _too_long(value: str, maximum: int, unit: str = "characters") -> list[str]:
    return [too_long(maximum, unit)] if length(value) > maximum else []


def _check_no_parent(value: str) -> list[str]:
    if not value.startswith("."):
        return []
    if value in {".", ".."}:
        return [f"must not be '{value}'"]
    return ["must not start with '..'"] if value.startswith("..") else []


def _check_key_prefix(prefix: str) -> list[str]:
    if not prefix:
        return [f"prefix part {EMPTY}"]
    if _is_subdomain(prefix) and len(prefix) <= DNS_SUBDOMAIN_MAX:
        return []
    return [
        f"prefix part {each}"
        for each in _check(prefix, DNS_SUBDOMAIN_MAX, _is_subdomain, _BAD_SUBDOMAIN, "bytes")
    ]


def _check_key_name(name: str) -> list[str]:
    if not name:
        return [f"name part {EMPTY}", _BAD_KEY_NAME]
    errors = [f"name part {each}" for each in _too_long(name, LABEL_MAX, "bytes")]
    if not _is_key_name(name):
        errors.append(_BAD_KEY_NAME)
    return errors


def _is_label(value: str) -> bool:
    return (
        value != "" and not value.strip(_LABEL_CHARACTERS) and value[0] != "-" and value[-1] != "-"
    )


def _is_dns1035_label(value: str) -> bool:
    return _is_label(value) and value[0] not in _DIGITS


def _is_subdomain(value: str) -> bool:
    if value == "" or value.strip(_SUBDOMAIN_CHARACTERS):
        return False
    if value[0] in "-." or value[-1] in "-.":
        return False
    return "." not in value or not (".." in value or ".-" in value or "-." in value)


def _is_underscore_subdomain(value: str) -> bool:
    return all(_is_underscore_label(each) for each in value.split("."))


def _is_underscore_label(value: str) -> bool:
    core = value.removeprefix("_")
    return (
        core != ""
        and not core.strip(_LOWER_ALNUM + "-_")
        and core[0] in _LOWER_ALNUM
        and core[-1] in _LOWER_ALNUM
    )


def _is_wildcard(value: str) -> bool:
    return value.startswith("*.") and _is_subdomain(value[2:])


def _is_key_name(value: str) -> bool:
    return (
        value != ""
        and not value.strip(_KEY_CHARACTERS)
        and value[0] in _ALNUM
        and value[-1] in _ALNUM
    )


def _is_config_key(value: str) -> bool:
    return value != "" and not value.strip(_KEY_CHARACTERS)
