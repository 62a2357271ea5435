"""Texts: charAt, indexOf, split, join, matches and what else is done with them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvstack.apimachinery.objects.text.go_patterns import (
    Pattern,
    PatternError,
    compile_pattern,
    is_match,
)
from kvstack.cel.checker.functions import Functions, declared
from kvstack.cel.errors import CelError, CostError
from kvstack.cel.library.formatting import format_text

FUNCTIONS: Final[Functions] = declared("""
    charAt: string.(int) -> string @ string_char_at_int
    indexOf: string.(string) -> int @ string_index_of_string
    indexOf: string.(string, int) -> int @ string_index_of_string_int
    lastIndexOf: string.(string) -> int @ string_last_index_of_string
    lastIndexOf: string.(string, int) -> int @ string_last_index_of_string_int
    lowerAscii: string.() -> string @ string_lower_ascii
    upperAscii: string.() -> string @ string_upper_ascii
    replace: string.(string, string) -> string @ string_replace_string_string
    replace: string.(string, string, int) -> string @ string_replace_string_string_int
    split: string.(string) -> list(string) @ string_split_string
    split: string.(string, int) -> list(string) @ string_split_string_int
    substring: string.(int) -> string @ string_substring_int
    substring: string.(int, int) -> string @ string_substring_int_int
    trim: string.() -> string @ string_trim
    format: string.(list(dyn)) -> string @ string_format
    strings.quote: (string) -> string @ strings_quote
    join: list(string).() -> string @ list_join
    join: list(string).(string) -> string @ list_join_string
    contains: string.(string) -> bool @ contains_string
    endsWith: string.(string) -> bool @ ends_with_string
    startsWith: string.(string) -> bool @ starts_with_string
    matches: (string, string) -> bool @ matches
    matches: string.(string) -> bool @ matches_string
    find: string.(string) -> string @ string_find_string
    findAll: string.(string) -> list(string) @ string_find_all_string
    findAll: string.(string, int) -> list(string) @ string_find_all_string_int
    jsonpatch.escapeKey: (string) -> string @ string_jsonpatch_escapeKey_string
""")

_TEXT_MAX: Final = 32 * 1024 * 1024
"""Limit on a text that is made by replacing short parts by long ones."""
_SPACES: Final = (
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
_ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code + 32: code for code in range(ord("A"), ord("Z") + 1)}


def _out_of_range(position: int) -> CelError:
    return CelError(f"index out of range: {position}")


def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _out_of_range(position)
    return text[position : position + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.find(part, start)


def _last_index_of(text: str, part: str) -> int:
    if not part:
        return len(text)
    if len(text.encode()) < len(part.encode()):
        return -1
    return _last_index_from(text, part, len(text) - 1)


def _last_index_from(text: str, part: str, start: int) -> int:
    if start < 0:
        raise _out_of_range(start)
    if not part:
        return min(start, len(text))
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    if len(new) > len(old):
        found = text.count(old) if count < 0 else min(count, text.count(old))
        if len(text) + found * (len(new) - len(old)) > _TEXT_MAX:
            raise CostError
    return text.replace(old, new, count)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def _substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for each in (start, end):
        if not 0 <= each <= len(text):
            raise _out_of_range(each)
    return text[start:end]


def _join(texts: list[Any], separator: str = "") -> str:
    for each in texts:
        if type(each) is not str:
            raise CelError(f"join: invalid input: {each}")
    return separator.join(texts)


def _quote(text: str) -> str:
    return f'"{"".join(_ESCAPES.get(each, each) for each in text)}"'


def _matches(text: str, pattern: str) -> bool:
    try:
        return is_match(compile_pattern(pattern), text)
    except PatternError as error:
        raise CelError(str(error)) from None


def _pattern(pattern: str) -> Pattern:
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        raise CelError(f"Illegal regex: {error}") from None


def _find(text: str, pattern: str) -> str:
    found: Any = _pattern(pattern).search(text)
    return "" if found is None else found.group()


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    compiled: Any = _pattern(pattern)
    if limit == 0:
        return []
    found: list[str] = []
    for match in compiled.finditer(text):
        found.append(match.group())
        if len(found) == limit:
            break
    return found


IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "string_char_at_int": _char_at,
    "string_index_of_string": _index_of,
    "string_index_of_string_int": _index_of,
    "string_last_index_of_string": _last_index_of,
    "string_last_index_of_string_int": _last_index_from,
    "string_lower_ascii": lambda text: text.translate(_LOWER),
    "string_upper_ascii": lambda text: text.translate(_UPPER),
    "string_replace_string_string": _replace,
    "string_replace_string_string_int": _replace,
    "string_split_string": _split,
    "string_split_string_int": _split,
    "string_substring_int": _substring,
    "string_substring_int_int": _substring_range,
    "string_trim": lambda text: text.strip(_SPACES),
    "string_format": format_text,
    "strings_quote": _quote,
    "list_join": _join,
    "list_join_string": _join,
    "contains_string": lambda text, part: part in text,
    "ends_with_string": lambda text, part: text.endswith(part),
    "starts_with_string": lambda text, part: text.startswith(part),
    "matches": _matches,
    "matches_string": _matches,
    "string_find_string": _find,
    "string_find_all_string": _find_all,
    "string_find_all_string_int": _find_all,
    "string_jsonpatch_escapeKey_string": lambda text: text.replace("~", "~0").replace("/", "~1"),
}
