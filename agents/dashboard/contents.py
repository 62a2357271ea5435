"""The files of the page at `/ui/`, and the headers that go with them."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    ),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def contents() -> Mapping[str, tuple[str, bytes]]:
    """Return the media type and the bytes of every file, by its name; "" is the page itself."""
    found = {}
    for each in files(__package__).joinpath("static").iterdir():
        suffix = each.name[each.name.rfind(".") :]
        if suffix in TYPES:
            found[each.name] = TYPES[suffix], each.read_bytes()
    found[""] = found["index.html"]
    return found
