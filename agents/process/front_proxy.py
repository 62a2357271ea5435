"""Users that an API server passes in headers, because it forwards their requests.

    proxy = FrontProxy.of_config_map(found["data"], ca_file)

    X-Remote-User: bob      X-Remote-Group: devs      X-Remote-Extra-Scopes: view

Who may say so shows a certificate of an authority for that alone, and has one of the names. API
servers publish which these are in ConfigMap kube-system/extension-apiserver-authentication.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

import orjson

from kvstack.component.errors import ConfigError
from kvstack.component.http.serving.request import Request

AUTHORITY: Final = "front-proxies"
"""The name of its authorities at a listener."""
CONFIG_MAP: Final = ("kube-system", "extension-apiserver-authentication")
CA_KEY: Final = "requestheader-client-ca-file"
CLIENT_CA_KEY: Final = "client-ca-file"


class FrontProxyUser(NamedTuple):
    """A user from headers."""

    name: str
    groups: tuple[str, ...]
    uid: str
    extra: tuple[tuple[str, tuple[str, ...]], ...]


class FrontProxy(NamedTuple):
    """Who may pass users, and in which headers; their names are in lower case."""

    names: frozenset[str] = frozenset()
    """Common names of the certificates; empty: any."""
    user_headers: tuple[str, ...] = ("x-remote-user",)
    uid_headers: tuple[str, ...] = ("x-remote-uid",)
    group_headers: tuple[str, ...] = ("x-remote-group",)
    extra_prefixes: tuple[str, ...] = ("x-remote-extra-",)

    @classmethod
    def of_config_map(cls, data: Mapping[str, str]) -> "FrontProxy":
        """Read a ConfigMap; raises ConfigError."""

        def listed(name: str) -> tuple[str, ...]:
            key = f"requestheader-{name}"
            try:
                found = orjson.loads(data.get(key) or "[]")
            except ValueError as error:
                raise ConfigError(f"{key} of ConfigMap {'/'.join(CONFIG_MAP)}: {error}") from None
            if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
                raise ConfigError(f"{key} of ConfigMap {'/'.join(CONFIG_MAP)}: a list of texts")
            return tuple(found)

        return cls(
            frozenset(listed("allowed-names")),
            _lower(listed("username-headers")),
            _lower(listed("uid-headers")),
            _lower(listed("group-headers")),
            _lower(listed("extra-headers-prefix")),
        )

    def user(self, request: Request, common_name: str) -> FrontProxyUser | None:
        """Return the user whom a proxy with this name passes; None: none, or it may not."""
        if self.names and common_name not in self.names:
            return None
        name = next((found for each in self.user_headers if (found := request.header(each))), "")
        if not name:
            return None
        groups = [value for each in self.group_headers for value in request.header_values(each)]
        uid = next((found for each in self.uid_headers if (found := request.header(each))), "")
        extra: dict[str, list[str]] = {}
        for header, value in request.headers:
            for prefix in self.extra_prefixes:
                if prefix and header.startswith(prefix):
                    extra.setdefault(unquote(header[len(prefix) :]), []).append(value)
        return FrontProxyUser(
            name, tuple(groups), uid, tuple((key, tuple(each)) for key, each in extra.items())
        )


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(each.lower() for each in names)
