"""Named formats: `format.dns1123Label().validate("my-name")`, absent if nothing is wrong."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvstack.apimachinery.objects import names
from kvstack.apimachinery.objects.text.string_formats import has_format
from kvstack.cel.checker.functions import Functions, declared, merged
from kvstack.cel.library.urls import request_problem
from kvstack.cel.values import NONE, Optional

FORMAT_SIZE_MAX: Final = 64
"""The longest name of a format, as costs have it."""
NAME_PATTERN_SIZE: Final = 128
"""The size of the patterns of names, as costs that are foreseen have it."""


class Format:
    """A named format."""

    __slots__ = ("check", "name", "pattern_size")

    type_name: Final = "kubernetes.NamedFormat"

    def __init__(self, name: str, check: Callable[[str], list[str]], pattern_size: int) -> None:
        """Make one; pattern_size: that of a pattern which would check the same, for costs."""
        self.name = name
        self.check = check
        self.pattern_size = pattern_size


def _of_name(check: Callable[[str, bool], list[str]], *, is_prefix: bool = False) -> Any:  # noqa: ANN401
    return lambda text: check(text, is_prefix)


def _of_text(name: str, message: str) -> Callable[[str], list[str]]:
    return lambda text: [] if has_format(name, text) else [message]


def _uri(text: str) -> list[str]:
    problem = request_problem(text)
    return [problem] if problem else []


_FORMATS: Final = {
    "dns1123Label": Format("DNS1123Label", _of_name(names.name_is_dns_label), 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", _of_name(names.name_is_dns_subdomain), 60),
    "dns1035Label": Format("DNS1035Label", _of_name(names.name_is_dns1035_label), 30),
    "qualifiedName": Format("QualifiedName", names.check_label_key, 60),
    "dns1123LabelPrefix": Format(
        "DNS1123LabelPrefix", _of_name(names.name_is_dns_label, is_prefix=True), 30
    ),
    "dns1123SubdomainPrefix": Format(
        "DNS1123SubdomainPrefix", _of_name(names.name_is_dns_subdomain, is_prefix=True), 60
    ),
    "dns1035LabelPrefix": Format(
        "DNS1035LabelPrefix", _of_name(names.name_is_dns1035_label, is_prefix=True), 30
    ),
    "labelValue": Format("LabelValue", names.check_label_value, 40),
    "uri": Format("URI", _uri, 1103),
    "uuid": Format("uuid", _of_text("uuid", "does not match the UUID format"), 65),
    "byte": Format("byte", _of_text("byte", "invalid base64"), 84),
    "date": Format("date", _of_text("date", "invalid date"), 139),
    "datetime": Format("datetime", _of_text("datetime", "invalid datetime"), 139),
}

FUNCTIONS: Final[Functions] = merged(
    declared("""
        validate: kubernetes.NamedFormat.(string) -> optional(list(string)) @ format-validate
        format.named: (string) -> optional(kubernetes.NamedFormat) @ format-named
    """),
    declared(
        "\n".join(
            f"format.{each}: () -> kubernetes.NamedFormat @ format.{each}" for each in _FORMATS
        )
    ),
)


def _validate(format_: Format, text: str) -> Optional:
    problems = format_.check(text)
    return Optional(problems) if problems else NONE


def _named(name: str) -> Optional:
    found = _FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _constant(format_: Format) -> Callable[[], Format]:
    return lambda: format_


IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "format-validate": _validate,
    "format-named": _named,
    **{f"format.{name}": _constant(found) for name, found in _FORMATS.items()},
}
