"""Users that an authenticating front proxy names in headers.

    X-Remote-User: bob    X-Remote-Group: devs    X-Remote-Extra-Acme.com%2Fproject: a

The headers count only if the connection is the proxy's: its certificate is signed by a front proxy
CA, and its name is among the allowed ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.policy.authentication.certificates import Authorities
from kvstack.apiserver.policy.authentication.results import AuthenticationError
from kvstack.apiserver.policy.credentials import Credentials

Headers = Sequence[tuple[str, str]]

STANDARD_EXTRA_PREFIX: Final = "x-remote-extra-"


@dataclass(frozen=True, slots=True)
class FrontProxySettings:
    """Headers that a proxy sends, and trusted proxies; header names in lower case."""

    allowed_names: tuple[str, ...] = ()
    """CNs of certificates; none: any that the CAs signed."""
    user_headers: tuple[str, ...] = field(default=("x-remote-user",))
    uid_headers: tuple[str, ...] = field(default=("x-remote-uid",))
    group_headers: tuple[str, ...] = field(default=("x-remote-group",))
    extra_prefixes: tuple[str, ...] = field(default=(STANDARD_EXTRA_PREFIX,))


class FrontProxy:
    """Authenticates the user that a proxy names."""

    def __init__(self, authorities: Authorities, settings: FrontProxySettings) -> None:
        self.authorities: Final = authorities
        self.settings: Final = settings

    def authenticate(self, credentials: Credentials) -> User | None:
        """Return the user; None: none is named. Raises AuthenticationError."""
        settings = self.settings
        proxy = self.authorities.verify(credentials.certificates)
        if settings.allowed_names and proxy.common_name not in settings.allowed_names:
            raise AuthenticationError(
                f"x509: subject with cn={proxy.common_name} is not in the allowed list"
            )
        headers = credentials.headers()
        name = _first(headers, settings.user_headers)
        if not name:
            return None
        return User(
            name,
            _first(headers, settings.uid_headers),
            tuple(_all(headers, settings.group_headers)),
            _extra(headers, settings.extra_prefixes),
        )


def extra_key(rest: str) -> str:
    """Return the key of extra for the rest of a header's name."""
    return unescape(rest.lower())


def unescape(text: str) -> str:
    """Return a text with its %-escapes decoded, or unchanged if one is invalid."""
    position = text.find("%")
    while position >= 0:
        escape = text[position + 1 : position + 3]
        if len(escape) < 2 or any(each not in "0123456789abcdefABCDEF" for each in escape):
            return text
        position = text.find("%", position + 3)
    return (
        unquote(text, errors="surrogateescape")
        .encode("utf-8", "surrogateescape")
        .decode("utf-8", "replace")
    )


def _first(headers: Headers, names: Sequence[str]) -> str:
    for wanted in names:
        # Of several headers of one name the first counts, even if it is empty.
        value = next((value for name, value in headers if name == wanted), "")
        if value:
            return value
    return ""


def _all(headers: Headers, names: Sequence[str]) -> list[str]:
    return [value for wanted in names for name, value in headers if name == wanted and value]


def _extra(headers: Headers, prefixes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    extra: dict[str, list[str]] = {}
    for prefix in prefixes:
        for name, value in headers:
            if name.startswith(prefix):
                extra.setdefault(extra_key(name[len(prefix) :]), []).append(value)
    return {key: tuple(values) for key, values in extra.items()}
