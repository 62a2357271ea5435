"""Semantic versions: `semver("1.2.3").isLessThan(semver("2.0.0"))`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from typing_extensions import override

from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_uint
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.cel.checker.functions import Functions, declared
from kvstack.cel.errors import CelError

FUNCTIONS: Final[Functions] = declared("""
    semver: (string) -> kubernetes.Semver @ string_to_semver
    semver: (string, bool) -> kubernetes.Semver @ string_bool_to_semver
    isSemver: (string) -> bool @ is_semver_string
    isSemver: (string, bool) -> bool @ is_semver_string_bool
    isGreaterThan: kubernetes.Semver.(kubernetes.Semver) -> bool @ semver_is_greater_than
    isLessThan: kubernetes.Semver.(kubernetes.Semver) -> bool @ semver_is_less_than
    compareTo: kubernetes.Semver.(kubernetes.Semver) -> int @ semver_compare_to
    major: kubernetes.Semver.() -> int @ semver_major
    minor: kubernetes.Semver.() -> int @ semver_minor
    patch: kubernetes.Semver.() -> int @ semver_patch
""")

_DIGITS: Final = frozenset("0123456789")
_LETTERS: Final = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")
_PARTS: Final = ("major", "minor", "patch")


class Semver:
    """A version; the build metadata after a plus is ignored."""

    __slots__ = ("before", "numbers")

    type_name: Final = "kubernetes.Semver"

    def __init__(self, numbers: tuple[int, int, int], before: tuple[int | str, ...]) -> None:
        """Make one; before: the parts of what marks it as a pre-release."""
        self.numbers = numbers
        self.before = before

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and compare(self, other) == 0

    @override
    def __hash__(self) -> int:
        return hash((self.numbers, self.before))


def compare(one: Semver, other: Semver) -> int:
    """Return -1, 0 or 1."""
    left, right = _rank(one), _rank(other)
    return (left > right) - (left < right)


def _rank(version: Semver) -> tuple[object, ...]:
    parts = tuple(
        (0, each, "") if isinstance(each, int) else (1, 0, each) for each in version.before
    )
    return version.numbers, not version.before, parts


def _parse(text: str) -> Semver:
    if not text:
        raise CelError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise CelError("No Major.Minor.Patch elements found")
    patch, plus, build = parts[2].partition("+")
    patch, dash, before = patch.partition("-")
    numbers = tuple(map(_number, (parts[0], parts[1], patch), _PARTS))
    identifiers = tuple(map(_before, before.split("."))) if dash else ()
    for each in build.split(".") if plus else ():
        if not each:
            raise CelError("Build meta data is empty")
        if not _LETTERS.issuperset(each):
            raise CelError(f"Invalid character(s) found in build meta data {quote(each)}")
    return Semver((numbers[0], numbers[1], numbers[2]), identifiers)


def _number(text: str, name: str) -> int:
    if not _DIGITS.issuperset(text):
        raise CelError(f"Invalid character(s) found in {name} number {quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise CelError(f"{name.capitalize()} number must not contain leading zeroes {quote(text)}")
    return _uint(text)


def _uint(text: str) -> int:
    try:
        return parse_uint(text)
    except NumberError as error:
        raise CelError(str(error)) from None


def _before(text: str) -> int | str:
    if not text:
        raise CelError("Prerelease is empty")
    if _DIGITS.issuperset(text):
        if len(text) > 1 and text[0] == "0":
            told = "Numeric PreRelease version must not contain leading zeroes"
            raise CelError(f"{told} {quote(text)}")
        return _uint(text)
    if not _LETTERS.issuperset(text):
        raise CelError(f"Invalid character(s) found in prerelease {quote(text)}")
    return text


def _semver(text: str, normalizes: bool = False) -> Semver:  # noqa: FBT001  # a CEL function
    return _parse(_normalized(text) if normalizes else text)


def _normalized(text: str) -> str:
    """Return a version with three parts, without a `v` and zeros in front."""
    parts = text.removeprefix("v").split(".", 2)
    for position, part in enumerate(parts):
        if len(part) > 1:
            rest = part.lstrip("0")
            parts[position] = rest if rest and rest[0] in _DIGITS else f"0{rest}"
    if len(parts) < 3 and any(each in parts[-1] for each in "+-"):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _is_semver(text: str, normalizes: bool = False) -> bool:  # noqa: FBT001
    try:
        _semver(text, normalizes)
    except CelError:
        return False
    return True


IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "string_to_semver": _semver,
    "string_bool_to_semver": _semver,
    "is_semver_string": _is_semver,
    "is_semver_string_bool": _is_semver,
    "semver_is_greater_than": lambda one, other: compare(one, other) > 0,
    "semver_is_less_than": lambda one, other: compare(one, other) < 0,
    "semver_compare_to": compare,
    "semver_major": lambda version: version.numbers[0],
    "semver_minor": lambda version: version.numbers[1],
    "semver_patch": lambda version: version.numbers[2],
}
