"""Authenticators as flags and a configuration file configure them.

    authenticators = Authenticators(options, parts)     raises ConfigError
    authenticators.requests                             see `policy.interfaces.Authenticator`
    authenticators.reload()                             files may have changed

The configuration file may change the token issuers while the server runs, but not the rules for
anonymous requests. An invalid file changes nothing and is logged.
"""

import asyncio
import dataclasses
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from cryptography import x509

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.policy.authentication.bootstrap_tokens import BootstrapTokens
from kvstack.apiserver.policy.authentication.certificates import Authorities, CertificateUsers
from kvstack.apiserver.policy.authentication.configuration import (
    AnonymousSettings,
    AuthenticationSettings,
    Means,
    check_issuer,
    read_authentication,
)
from kvstack.apiserver.policy.authentication.front_proxy import FrontProxy
from kvstack.apiserver.policy.authentication.jwt.authenticator import JwtTokens
from kvstack.apiserver.policy.authentication.jwt.distributed import ClaimResolver
from kvstack.apiserver.policy.authentication.jwt.issuers import Issuers
from kvstack.apiserver.policy.authentication.jwt.keys import IssuerKeys
from kvstack.apiserver.policy.authentication.jwt.settings import JwtSettings, Source
from kvstack.apiserver.policy.authentication.legacy_tokens import LegacyTokens
from kvstack.apiserver.policy.authentication.local_tokens import LocalTokens
from kvstack.apiserver.policy.authentication.requests import Anonymous, RequestAuthenticator
from kvstack.apiserver.policy.authentication.results import AuthenticationError, TokenAuthenticator
from kvstack.apiserver.policy.authentication.service_account_tokens import (
    ServiceAccountTokens,
    TokenVerifier,
)
from kvstack.apiserver.policy.authentication.token_chain import TokenChain
from kvstack.apiserver.policy.authentication.token_file import StaticTokens, read_token_file
from kvstack.apiserver.policy.authentication.webhook_tokens import WebhookTokens
from kvstack.apiserver.policy.configured_expressions import compile_about
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView
from kvstack.apiserver.policy.metrics import ReloadMetrics, certificate_readings, token_readings
from kvstack.apiserver.policy.remote.connection import Connection
from kvstack.apiserver.policy.remote.kubeconfig import Target, TargetTls, read_kubeconfig
from kvstack.apiserver.policy.remote.webhook import Webhook
from kvstack.apiserver.policy.service_accounts.claims import LEGACY_ISSUER
from kvstack.apiserver.server.settings.authentication_options import (
    AuthenticationOptions,
    OidcOptions,
    TokenWebhookOptions,
)
from kvstack.component.certs.kubeconfig_reader import Pem
from kvstack.component.certs.service_account_keys import KeyRing, PublicKey, public_keys
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import FamilySamples

_WEBHOOK_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class AuthenticatorParts:
    """What authenticators need."""

    view: ObjectView
    live: LiveObjects
    clock: Clock
    random: Callable[[], float]
    """Returns a number from 0 to 1."""
    logger: Logger
    allows_all: bool = False
    """Whether every request is allowed, in which case anonymous requests are not."""


class Authenticators:
    """All authenticators of a server."""

    def __init__(self, options: AuthenticationOptions, parts: AuthenticatorParts) -> None:
        """Read files and make the authenticators; raises ConfigError."""
        self._given: Final = options
        self._parts: Final = parts
        accounts = options.accounts
        self.audiences: Final = options.api_audiences or accounts.issuers[:1]
        self.keys: Final = tuple(key for path in accounts.key_files for key in _keys(path))
        self.legacy_tokens: LegacyTokens | None = None
        self._account_tokens: ServiceAccountTokens | None = None
        self.local_tokens: Final = LocalTokens(self.audiences, partial(secrets.token_urlsafe, 32))
        self._means: Final = Means(compile_about, _ca_problem, accounts.issuers)
        self.reload_metrics: Final = ReloadMetrics("authentication")
        self._data = b""
        self._settings = self._read()
        self._issuers: Final = Issuers()
        self._issuers.replace(map(self._jwt_tokens, self._settings.issuers))
        self._webhook: Connection | None = None
        members = [self.local_tokens, *self._static(), *self._accounts(), *self._others()]
        self.tokens: Final = TokenChain(members, parts.clock)
        self.client_authorities: Final = _authorities(options.client_ca_file, parts.clock)
        self.proxy_authorities: Final = _authorities(options.proxy_ca_file, parts.clock)
        clients = self.client_authorities
        self._certificates: Final = None if clients is None else CertificateUsers(clients)
        self.requests: Final = self._requests()

    async def reload(self) -> None:
        """Read the configuration file again, and start fetching keys of issuers."""
        await self._reload_issuers()
        for each in self._issuers.all:
            if each.keys.problem:
                await self._fetch_keys(each)

    async def _fetch_keys(self, tokens: JwtTokens) -> None:
        issuer, problem = tokens.settings.issuer, tokens.keys.problem
        try:
            await tokens.keys.refresh()
        except AuthenticationError as error:
            if tokens.keys.problem != problem:
                self._parts.logger.warning("no keys", issuer=issuer, error=str(error))

    def reload_authorities(self) -> None:
        """Read the client CA files again; errors are logged."""
        given = self._given
        for authorities, path in (
            (self.client_authorities, given.client_ca_file),
            (self.proxy_authorities, given.proxy_ca_file),
        ):
            if authorities is None:
                continue
            try:
                authorities.replace(Path(path).read_bytes())
            except (OSError, ValueError) as error:
                logger = self._parts.logger
                logger.error("failed to read client CAs", file=path, error=str(error))

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families of metrics."""
        yield from self.reload_metrics.readings()
        yield from self.tokens.metrics.readings()
        if self._certificates is not None:
            yield from certificate_readings(self._certificates.left)
        if self._account_tokens is not None and self.legacy_tokens is not None:
            yield from token_readings(self._account_tokens.uses, self.legacy_tokens.uses)

    async def close(self) -> None:
        """Close connections."""
        for each in self._issuers.all:
            await each.close()
        if self._webhook is not None:
            await self._webhook.close()

    async def _reload_issuers(self) -> None:
        path, logger = self._given.config_file, self._parts.logger
        if not path:
            return
        try:
            data = await asyncio.to_thread(Path(path).read_bytes)
            if data == self._data:
                return
            self._data = data
            settings = self._changed(data)
        except (OSError, DocumentError) as error:
            logger.error("failed to reload the token issuers", file=path, error=str(error))
            self.reload_metrics.add(self._parts.clock.unix_ms(), is_taken=False)
            return
        if settings == self._settings:
            return
        self._settings = settings
        # Issuers that did not change keep their keys.
        known = {each.settings.issuer: each for each in self._issuers.all}
        members = [
            old
            if (old := known.get(each.issuer)) is not None and old.settings == each
            else self._jwt_tokens(each)
            for each in settings.issuers
        ]
        gone = self._issuers.replace(members)
        self.tokens.forget()
        self.reload_metrics.add(self._parts.clock.unix_ms(), is_taken=True)
        logger.info("reloaded the token issuers", issuers=[e.issuer for e in settings.issuers])
        for each in gone:
            await each.close()

    def _changed(self, data: bytes) -> AuthenticationSettings:
        settings = read_authentication(data, self._means)
        if settings.anonymous != self._settings.anonymous:
            raise DocumentError("anonymous: changed from initial configuration file")
        return settings

    def _read(self) -> AuthenticationSettings:
        options = self._given
        if options.config_file:
            try:
                self._data = Path(options.config_file).read_bytes()
                settings = read_authentication(self._data, self._means)
            except (OSError, DocumentError) as error:
                raise ConfigError(
                    "failed to load authentication configuration from file"
                    f' "{options.config_file}": {error}'
                ) from None
            if settings.anonymous is not None and options.is_anonymous_given:
                raise ConfigError(
                    "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field"
                    " is configured in authentication configuration file"
                )
            return settings
        if options.oidc is None:
            return AuthenticationSettings()
        settings_of_flags = _of_flags(options.oidc)
        try:
            check_issuer(settings_of_flags, self._means)
        except DocumentError as error:
            raise ConfigError(f"oidc: {error}") from None
        return AuthenticationSettings((settings_of_flags,))

    def _jwt_tokens(self, settings: JwtSettings) -> JwtTokens:
        tls = TargetTls(Pem(settings.ca.encode()))
        keys = IssuerKeys(
            settings.issuer,
            settings.discovery_url,
            lambda url: Connection(Target(url, tls)),
            self._parts.clock,
        )
        resolver = None
        if settings.groups.claim:
            resolver = ClaimResolver(
                settings,
                lambda url, token: Connection(Target(url, tls, token=token)),
                self._parts.clock,
            )
        return JwtTokens(settings, keys, self.audiences, self._parts.clock, resolver)

    def _static(self) -> Sequence[TokenAuthenticator]:
        path = self._given.token_file
        return [StaticTokens(_static_users(path), self.audiences)] if path else []

    def _accounts(self) -> Sequence[TokenAuthenticator]:
        if not self.keys:
            return []
        accounts, parts = self._given.accounts, self._parts
        ring = KeyRing(self.keys)
        legacy = TokenVerifier([LEGACY_ISSUER], ring, self.audiences)
        bound = TokenVerifier(accounts.issuers, ring, self.audiences)
        view, live, clock = parts.view, parts.live, parts.clock
        self.legacy_tokens = LegacyTokens(legacy, view, live, clock, looks_up=accounts.looks_up)
        self._account_tokens = ServiceAccountTokens(bound, view, live, clock)
        return [self.legacy_tokens, self._account_tokens]

    def _others(self) -> Sequence[TokenAuthenticator]:
        options, parts = self._given, self._parts
        members: list[TokenAuthenticator] = []
        if options.bootstrap_tokens:
            members.append(BootstrapTokens(parts.view, self.audiences, parts.clock))
        members.append(self._issuers)
        if options.webhook is not None:
            members.append(self._webhook_tokens(options.webhook))
        return members

    def _webhook_tokens(self, options: TokenWebhookOptions) -> WebhookTokens:
        path, parts = Path(options.file), self._parts
        try:
            self._webhook = Connection(read_kubeconfig(path.read_bytes(), path.parent))
        except (OSError, DocumentError) as error:
            raise ConfigError(f"{path}: {error}") from None
        webhook = Webhook(
            self._webhook, timeout_s=_WEBHOOK_TIMEOUT_S, clock=parts.clock, random=parts.random
        )
        return WebhookTokens(
            webhook, self.audiences, parts.clock, version=options.version, lasts_ns=options.lasts_ns
        )

    def _requests(self) -> RequestAuthenticator:
        anonymous = self._settings.anonymous or AnonymousSettings(self._given.anonymous)
        if anonymous.is_enabled and self._parts.allows_all:
            self._parts.logger.warning(
                "anonymous requests are refused because every request would be allowed"
            )
            anonymous = AnonymousSettings(is_enabled=False)
        proxy = self.proxy_authorities
        return RequestAuthenticator(
            self.tokens,
            self.audiences,
            front_proxy=None if proxy is None else FrontProxy(proxy, self._given.proxies),
            certificates=self._certificates,
            anonymous=Anonymous(is_allowed=anonymous.is_enabled, paths=anonymous.paths),
        )


def _of_flags(oidc: OidcOptions) -> JwtSettings:
    settings = JwtSettings(
        oidc.issuer,
        (oidc.client_id,),
        Source(oidc.username_claim, oidc.username_prefix),
        required_claims=oidc.required_claims,
        algorithms=oidc.algorithms,
    )
    if oidc.groups_claim:
        groups = Source(oidc.groups_claim, oidc.groups_prefix)
        settings = dataclasses.replace(settings, groups=groups)
    if not oidc.ca_file:
        return settings
    return dataclasses.replace(settings, ca=_read(oidc.ca_file).decode("ascii", "replace"))


def _ca_problem(text: str) -> str:
    try:
        x509.load_pem_x509_certificates(text.encode())
    except ValueError as error:
        return str(error)
    return ""


def _authorities(path: str, clock: Clock) -> Authorities | None:
    if not path:
        return None
    try:
        return Authorities(_read(path), clock)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def _keys(path: str) -> list[PublicKey]:
    try:
        return public_keys(_read(path))
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None


def _static_users(path: str) -> dict[str, User]:
    try:
        return read_token_file(_read(path).decode().splitlines(), path)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
