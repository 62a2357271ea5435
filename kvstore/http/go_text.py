"""Text as Go quotes it, because Go's libraries make etcd's error bodies.

quote(b'a"b\\xff') == '"a\\\\"b\\\\xff"'        strconv.Quote
quote_byte(0x27) == "'\\\\''"                  the byte named in a JSON syntax error
"""

from typing import Final

_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quote(text: bytes | str) -> str:
    """Quote as %q does; bytes that are not UTF-8 become \\x escapes."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return '"' + "".join([_escaped(char) for char in text]) + '"'


def quote_byte(byte: int) -> str:
    """Quote one byte as encoding/json does in its syntax errors."""
    if byte == ord("'"):
        return r"'\''"
    if byte == ord('"'):
        return "'\"'"
    return f"'{_escaped(chr(byte))}'"


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
