"""Names of fields as expressions spell them.

escaped("a-b")        → "a__dash__b"
escaped("namespace")  → "__namespace__"
escaped("a b")        → None: no expression can name it
"""

from typing import Final

RESERVED: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package", "namespace", "return", "var"),
        *("void", "while"),
    )
)
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/")
_ESCAPES: Final = (
    ("__", "__underscores__"),
    (".", "__dot__"),
    ("-", "__dash__"),
    ("/", "__slash__"),
)


def escaped(name: str) -> str | None:
    """Return the name as an expression spells it; None: it cannot."""
    if not name or name[0] in "0123456789" or not _LETTERS.issuperset(name):
        return None
    if name in RESERVED:
        return f"__{name}__"
    for part, escape in _ESCAPES:
        if part in name:
            name = name.replace(part, escape)
    return name
