"""The files of the page at `/ui/`, and the headers that go with them."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

POLICY: Final = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "object-src": "'none'",
    # No text becomes markup or script, whatever a module may try.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}
HEADERS: Final = (
    ("Content-Security-Policy", "; ".join(f"{name} {value}" for name, value in POLICY.items())),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=()"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
TRANSPORT_SECURITY: Final = ("Strict-Transport-Security", "max-age=31536000")
"""HSTS, for answers over TLS at a host name; browsers ignore it for addresses."""
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def contents() -> Mapping[str, tuple[str, bytes]]:
    """Return the media type and the bytes of every file, by its path; "" is the page itself."""
    found = dict(_below(files(__package__).joinpath("static"), ""))
    found[""] = found["index.html"]
    return found


def _below(directory: Traversable, prefix: str) -> Iterator[tuple[str, tuple[str, bytes]]]:
    for each in directory.iterdir():
        suffix = each.name[each.name.rfind(".") :]
        if each.is_dir():
            yield from _below(each, f"{prefix}{each.name}/")
        elif suffix in TYPES:
            yield f"{prefix}{each.name}", (TYPES[suffix], each.read_bytes())
