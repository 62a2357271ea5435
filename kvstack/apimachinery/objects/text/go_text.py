"""Values as Go prints them in the texts that clients see.

    quote('a"b\\n')   → "a\\"b\\n"            %q of a string
    go_plain({...})   → map[a:1 b:<nil>]     %v of a value of JSON
    go_json({...})    → compact JSON, `<`, `>` and `&` escaped, members in the given order
    go_value(x)       → what an error about a field prints for x

`go_value` takes str, int, float, bool, None (a nil pointer), and anything JSON can hold. A value of
an internal Go type, whose members have Go's field names, is converted to such a dict by its caller.
"""

from collections.abc import Iterable
from typing import Final

import orjson

from kvstack.apimachinery.objects.text.go_floats import format_float


class JsonText(str):
    """A text of a named type, or behind a pointer: errors print it as JSON, not as %q."""

    __slots__ = ()


_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    '"': '\\"',
    "\\": "\\\\",
}

_HTML_ESCAPES: Final = (
    ("<", "\\u003c"),
    (">", "\\u003e"),
    ("&", "\\u0026"),
    ("\u2028", "\\u2028"),
    ("\u2029", "\\u2029"),
)


def quote(text: str) -> str:
    """Return the text as Go's %q: printable characters as they are, others escaped."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_quoted(each) for each in text) + '"'


def quote_time(text: str) -> str:
    """Return the text quoted as in Go's package time: each byte that is not ASCII separately."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    quoted: list[str] = []
    for byte in text.encode("utf-8", "surrogatepass"):
        if byte < 0x20 or byte >= 0x80:
            quoted.append(f"\\x{byte:02x}")
        else:
            quoted.append(f"\\{chr(byte)}" if byte in b'"\\' else chr(byte))
    return f'"{"".join(quoted)}"'


def go_json(value: object) -> str:
    """Return compact JSON as Go's encoder writes it."""
    return escape_html(orjson.dumps(value).decode())


def escape_html(json_text: str) -> str:
    """Return JSON with the characters escaped that Go's encoder escapes in texts."""
    for character, escape in _HTML_ESCAPES:
        if character in json_text:
            json_text = json_text.replace(character, escape)
    return json_text


def go_value(value: object) -> str:
    """Return what an error about a field prints for the value."""
    if isinstance(value, str):
        return go_json(value) if type(value) is JsonText else quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return format_float(value) if isinstance(value, float) else go_json(value)


def go_plain(value: object) -> str:
    """Return a value of JSON as Go's %v prints it: `map[a:1 b:[x y]]`, maps sorted by key."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        members = " ".join(f"{name}:{go_plain(each)}" for name, each in sorted(value.items()))
        return f"map[{members}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_plain, value))}]"
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_float(value) if isinstance(value, float) else str(value)


def go_quoted_list(texts: Iterable[str]) -> str:
    """Return a list of texts as Go's %q prints it: `["a" "b"]`."""
    return f"[{' '.join(map(quote, texts))}]"


def aggregate(texts: Iterable[str]) -> str:
    """Return messages of errors as one: one as it is, several in brackets, equal ones once."""
    distinct = list(dict.fromkeys(texts))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _quoted(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
