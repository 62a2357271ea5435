"""URLs as Go's net/url takes them apart, with its errors.

    parse("https://u:p@host:443/a?b=c#d")
    → Url("https", user="u:p", host="host:443", path="/a", query="b=c", fragment="d")
    parse("100%")   → UrlError: parse "100%": invalid URL escape "%"

Paths, names of users and fragments are unescaped; a query and an opaque part stay as they are.
"""

import ipaddress
import re
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes

from kvstack.apimachinery.objects.text.go_text import quote

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PORT: Final = re.compile(r"(:[0-9]*)?")
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")
_ALPHANUMERIC: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_HOST_BYTES: Final = frozenset(_ALPHANUMERIC + b"-_.~!$&'()*+,;=:[]<>\"")
"""Characters that need no escape in a host name."""
_ZONE_BYTES: Final = _HOST_BYTES | {0x20}
"""Characters that may be escaped in a zone."""
_USER_BYTES: Final = "$&+,;="
"""Characters that need no escape in user info, besides letters, digits and `-_.~`."""


class UrlError(ValueError):
    """The text is not a URL; the message is Go's."""


class Url(NamedTuple):
    """The parts of a URL; those that are not there are empty."""

    scheme: str = ""
    user: str | None = None
    """User and password, escaped; None: there is no `@`."""
    host: str = ""
    """The host with its port, if any."""
    path: str = ""
    query: str = ""
    fragment: str = ""
    opaque: str = ""
    """The opaque part: what follows the scheme, if it is not a path."""


def parse(text: str) -> Url:
    """Return the parts of a URL, absolute or relative; raises UrlError."""
    before, _, fragment = text.partition("#")
    try:
        url = _parse(before)
    except UrlError as error:
        raise UrlError(f"parse {quote(before)}: {error}") from None
    try:
        return url._replace(fragment=_unescaped(fragment)) if fragment else url
    except UrlError as error:
        raise UrlError(f"parse {quote(text)}: {error}") from None


def _parse(text: str) -> Url:
    if _CONTROL.search(text):
        raise UrlError("net/url: invalid control character in URL")
    if text == "*":
        return Url(path="*")
    if text.startswith(":"):
        raise UrlError("missing protocol scheme")
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    rest, _, query = (text[match.end() :] if match else text).partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, query=query, opaque=rest)
        if ":" in rest.partition("/")[0]:
            raise UrlError("first path segment in URL cannot contain colon")
    user, host = None, ""
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, tail = rest[2:].partition("/")
        rest = slash + tail
        user, host = _authority(scheme, authority)
    return Url(scheme, user, host, _unescaped(rest), query)


def _authority(scheme: str, authority: str) -> tuple[str | None, str]:
    """Return user and host."""
    user, at, host = authority.rpartition("@")
    host = _host(scheme, host)
    if not at:
        return None, host
    if not _USER.fullmatch(user):
        raise UrlError("net/url: invalid userinfo")
    parts = user.split(":", 1)
    escaped = (quote_from_bytes(_bytes(each), safe=_USER_BYTES) for each in parts)
    return ":".join(escaped), host


def _host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise UrlError("invalid IP-literal")
    if bracket == 0:
        return _address(host)
    colon = host.find(":")
    if colon >= 0:
        # Only these two hold to one colon; databases have lists of hosts.
        if scheme not in {"http", "https"}:
            colon = host.rfind(":")
        _check_port(host[colon:])
    return _unescaped_host(host)


def _address(host: str) -> str:
    """Return a host that is an address in brackets."""
    end = host.rfind("]")
    if end < 0:
        raise UrlError("missing ']' in host")
    port = host[end + 1 :]
    _check_port(port)
    name, mark, zone = host[1:end].partition("%25")
    address, zone = _unescaped_host(name), _unescaped_host(mark + zone, is_zone=True)
    try:
        is_old = ipaddress.ip_address(address).version == 4
    except ValueError:
        text = f"invalid host: ParseAddr({quote(address + zone)}): unable to parse IP"
        raise UrlError(text) from None
    if is_old:
        raise UrlError("invalid IP-literal")
    return f"[{address}{zone}]{port}"


def _check_port(text: str) -> None:
    if not _PORT.fullmatch(text):
        raise UrlError(f"invalid port {quote(text)} after host")


def _unescaped(text: str) -> str:
    return _bytes(text).decode("utf-8", "replace")


def _unescaped_host(text: str, *, is_zone: bool = False) -> str:
    """Return the name of a host, where only what is not ASCII may be escaped, or of a zone."""
    data = text.encode()
    for position, byte in enumerate(data):
        if byte == ord("%"):
            escape = data[position : position + 3]
            _check_escape(escape)
            value = int(escape[1:], 16)
            is_fine = value in _ZONE_BYTES if is_zone else value >= 0x80
            if not is_fine and escape != b"%25":
                raise _bad_escape(escape)
        elif byte < 0x80 and byte not in _HOST_BYTES:
            raise UrlError(f"invalid character {quote(chr(byte))} in host name")
    return _unescaped(text)


def _bytes(text: str) -> bytes:
    """Return a text with its escapes decoded."""
    data = text.encode()
    if b"%" not in data:
        return data
    pieces: list[bytes] = []
    start = 0
    while (mark := data.find(b"%", start)) >= 0:
        _check_escape(data[mark : mark + 3])
        pieces += data[start:mark], bytes([int(data[mark + 1 : mark + 3], 16)])
        start = mark + 3
    return b"".join(pieces) + data[start:]


def _check_escape(escape: bytes) -> None:
    if len(escape) < 3 or not _HEX.issuperset(escape[1:]):
        raise _bad_escape(escape)


def _bad_escape(escape: bytes) -> UrlError:
    return UrlError(f"invalid URL escape {_quoted(escape)}")


def _quoted(data: bytes) -> str:
    """Return bytes as %q prints them, which may be cut within a character."""
    text = data.decode("utf-8", "surrogateescape")
    pieces = (
        f"\\x{ord(each) - 0xDC00:02x}" if "\udc80" <= each <= "\udcff" else quote(each)[1:-1]
        for each in text
    )
    return f'"{"".join(pieces)}"'
