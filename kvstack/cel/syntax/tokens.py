"""The tokens of an expression.

    tokenize("a.b > 1")  → IDENT a, '.', IDENT b, '>', NUM_INT 1, EOF

Text that is not a token is reported and skipped, as in the grammar's own lexer.
"""

import re
from typing import Final, NamedTuple

from kvstack.cel.errors import Issue

EOF: Final = "<EOF>"
IDENTIFIER: Final = "IDENTIFIER"
ESC_IDENTIFIER: Final = "ESC_IDENTIFIER"
NUM_FLOAT: Final = "NUM_FLOAT"
NUM_INT: Final = "NUM_INT"
NUM_UINT: Final = "NUM_UINT"
STRING: Final = "STRING"
BYTES: Final = "BYTES"
KEYWORDS: Final = frozenset(("in", "true", "false", "null"))


class Token(NamedTuple):
    """A token: its kind (itself for operators and keywords), its text and where it begins."""

    kind: str
    text: str
    offset: int


_ESCAPE: Final = (
    r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7][0-7])"
)
_TEXT: Final = (
    rf"\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf"|\"(?:{_ESCAPE}|[^\\\"\n\r])*\"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
    r"|[rR]\"\"\"(?:.|\n)*?\"\"\"|[rR]'''(?:.|\n)*?'''|[rR]\"[^\"\n\r]*\"|[rR]'[^'\n\r]*'"
)
_TOKEN: Final = re.compile(
    r"(?P<SPACE>[\t \r\n\f]+|//[^\n]*)"
    rf"|(?P<BYTES>[bB](?:{_TEXT}))|(?P<STRING>{_TEXT})"
    r"|(?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
    r"|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<NUM_UINT>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])|(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)"
    r"|(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)|(?P<ESC_IDENTIFIER>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<OPERATOR>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])"
)
_OPEN_TEXT: Final = re.compile(rf"[bB]?(?:\"(?:{_ESCAPE}|[^\\\"\n\r])*|'(?:{_ESCAPE}|[^\\'\n\r])*)")
_OPEN_NAME: Final = re.compile(r"`[A-Za-z0-9_.\-/ ]*")
_PAIRED: Final = frozenset("=&|")


def tokenize(source: str, issues: list[Issue]) -> list[Token]:
    """Return the tokens, including the end; invalid text is added to the issues."""
    tokens: list[Token] = []
    position, end = 0, len(source)
    while position < end:
        match = _TOKEN.match(source, position)
        if match is None:
            position = _skip(source, position, issues)
            continue
        kind, text = match.lastgroup or "", match.group()
        if kind == "OPERATOR" or (kind == IDENTIFIER and text in KEYWORDS):
            kind = text
        if kind != "SPACE":
            tokens.append(Token(kind, text, position))
        position = match.end()
    tokens.append(Token(EOF, EOF, end))
    return tokens


def _skip(source: str, start: int, issues: list[Issue]) -> int:
    """Report text that begins no token; return where the next may begin."""
    character = source[start]
    failing = start
    if character in _PAIRED:
        failing = start + 1
    elif character in "\"'":
        match = _OPEN_TEXT.match(source, start)
        failing = start + 1 if match is None else match.end()
        failing = _end_of_escape(source, failing)
    elif character == "`":
        match = _OPEN_NAME.match(source, start)
        failing = start + 1 if match is None else match.end()
    text = source[start : failing + 1]
    shown = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    issues.append(Issue(start, f"Syntax error: token recognition error at: '{shown}'"))
    return failing + 1


_DIGITS_OF: Final = {"x": 2, "X": 2, "u": 4, "U": 8}


def _end_of_escape(source: str, start: int) -> int:
    """Return the position of the error in an invalid escape."""
    if source[start : start + 1] != "\\":
        return start
    wanted = _DIGITS_OF.get(source[start + 1 : start + 2], 0)
    position = start + 1
    while wanted and source[position + 1 : position + 2] in set("0123456789abcdefABCDEF"):
        position, wanted = position + 1, wanted - 1
    return position + 1 if source[start + 1 : start + 2] in _DIGITS_OF else position
