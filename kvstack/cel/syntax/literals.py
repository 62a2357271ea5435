"""The values of literals: texts with escapes, numbers."""

from typing import Final

_SIMPLE: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_HEX_DIGITS: Final = {"x": 2, "X": 2, "u": 4, "U": 8}
_SURROGATES: Final = range(0xD800, 0xE000)
_CODE_MAX: Final = 0x10FFFF


def unquoted_text(literal: str) -> str:
    """Return the text of a literal; ValueError for an invalid code point."""
    content, is_raw = _content(literal)
    if is_raw or "\\" not in content:
        return content
    text: list[str] = []
    for code, is_byte in _codes(content, is_bytes=False):
        if is_byte:
            raise ValueError("unable to unescape string")
        if code in _SURROGATES or code > _CODE_MAX:
            raise ValueError("invalid unicode code point")
        text.append(chr(code))
    return "".join(text)


def unquoted_bytes(literal: str) -> bytes:
    """Return the bytes of a literal, which begins with b; ValueError: an escape of a character."""
    content, is_raw = _content(literal[1:])
    if is_raw or "\\" not in content:
        return content.encode()
    data = bytearray()
    for code, is_byte in _codes(content, is_bytes=True):
        data += bytes((code,)) if is_byte else chr(code).encode()
    return bytes(data)


def _content(literal: str) -> tuple[str, bool]:
    literal = literal.replace("\r\n", "\n").replace("\r", "\n")
    is_raw = literal[0] in "rR"
    if is_raw:
        literal = literal[1:]
    quotes = 3 if len(literal) >= 6 and literal[:3] in {"'''", '"""'} else 1
    return literal[quotes:-quotes], is_raw


def _codes(content: str, *, is_bytes: bool) -> list[tuple[int, bool]]:
    """Return characters, or bytes where an escape denotes one."""
    codes: list[tuple[int, bool]] = []
    position = 0
    while position < len(content):
        character = content[position]
        if character != "\\":
            codes.append((ord(character), False))
            position += 1
            continue
        letter = content[position + 1]
        position += 2
        if letter in _SIMPLE:
            codes.append((ord(_SIMPLE[letter]), False))
        elif letter in _HEX_DIGITS:
            digits = _HEX_DIGITS[letter]
            if is_bytes and digits > 2:
                raise ValueError("unable to unescape string")
            codes.append((int(content[position : position + digits], 16), is_bytes))
            position += digits
        else:
            codes.append((int(letter + content[position : position + 2], 8), is_bytes))
            position += 2
    return codes
