"""Authentication and service account settings of the flags."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.authentication.front_proxy import FrontProxySettings
from kvstack.apiserver.policy.authentication.jwt.settings import ALGORITHMS
from kvstack.component.flags.flag_reader import FlagReader

_HOUR_S: Final = 3600
_EXPIRATION_MAX_S: Final = 1 << 32
_PROXY_LISTS: Final = (
    "requestheader-username-headers",
    "requestheader-uid-headers",
    "requestheader-group-headers",
    "requestheader-extra-headers-prefix",
    "requestheader-allowed-names",
)
_OIDC_FLAGS: Final = (
    "oidc-issuer-url",
    "oidc-client-id",
    "oidc-ca-file",
    "oidc-username-claim",
    "oidc-username-prefix",
    "oidc-groups-claim",
    "oidc-groups-prefix",
    "oidc-signing-algs",
    "oidc-required-claim",
)
_WEBHOOK_VERSIONS: Final = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class ServiceAccountOptions:
    """Settings of service account tokens."""

    issuers: tuple[str, ...] = ()
    key_files: tuple[str, ...] = ()
    signing_key_file: str = ""
    jwks_uri: str = ""
    looks_up: bool = True
    extends: bool = True
    longest_s: int = 0


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """Settings of an OIDC issuer."""

    issuer: str
    client_id: str
    """The required audience of its tokens."""
    ca_file: str = ""
    username_claim: str = "sub"
    username_prefix: str = ""
    groups_claim: str = ""
    groups_prefix: str = ""
    algorithms: tuple[str, ...] = ("RS256",)
    required_claims: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenWebhookOptions:
    """Settings of a token review webhook."""

    file: str
    """A kubeconfig."""
    version: str = "v1beta1"
    lasts_ns: int = 120_000_000_000
    """How long its answers are cached; 0: not at all."""


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """Settings of authentication."""

    anonymous: bool = True
    is_anonymous_given: bool = False
    """Whether a flag set it, rather than the default."""
    config_file: str = ""
    """File of an AuthenticationConfiguration."""
    bootstrap_tokens: bool = False
    oidc: OidcOptions | None = None
    webhook: TokenWebhookOptions | None = None
    client_ca_file: str = ""
    token_file: str = ""
    api_audiences: tuple[str, ...] = ()
    proxy_ca_file: str = ""
    proxies: FrontProxySettings = field(default_factory=FrontProxySettings)
    proxy_lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The request-header flags as they were given, by flag name."""
    accounts: ServiceAccountOptions = field(default_factory=ServiceAccountOptions)


def authentication_options(reader: FlagReader) -> AuthenticationOptions:
    """Return the settings of the flags; errors are added to the reader's faults."""

    def lower(name: str) -> tuple[str, ...]:
        return tuple(each.lower() for each in reader.texts(name))

    proxies = FrontProxySettings(
        allowed_names=reader.texts("requestheader-allowed-names"),
        user_headers=lower("requestheader-username-headers"),
        uid_headers=lower("requestheader-uid-headers"),
        group_headers=lower("requestheader-group-headers"),
        extra_prefixes=lower("requestheader-extra-headers-prefix"),
    )
    return AuthenticationOptions(
        anonymous=reader.flag("anonymous-auth"),
        is_anonymous_given=reader.is_given("anonymous-auth"),
        config_file=reader.text("authentication-config"),
        bootstrap_tokens=reader.flag("enable-bootstrap-token-auth"),
        oidc=_oidc(reader),
        webhook=_webhook(reader),
        client_ca_file=reader.text("client-ca-file"),
        token_file=reader.text("token-auth-file"),
        api_audiences=reader.texts("api-audiences"),
        proxy_ca_file=reader.text("requestheader-client-ca-file"),
        proxies=proxies,
        proxy_lists={each: reader.texts(each) for each in _PROXY_LISTS},
        accounts=_accounts(reader),
    )


def _oidc(reader: FlagReader) -> OidcOptions | None:
    given = [each for each in _OIDC_FLAGS if reader.is_given(each)]
    if not given:
        return None
    issuer, client_id = reader.text("oidc-issuer-url"), reader.text("oidc-client-id")
    if reader.text("authentication-config"):
        reader.wrong.append("authentication-config file and oidc-* flags are mutually exclusive")
    elif not issuer or not client_id:
        reader.wrong.append(
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags"
            " are set"
        )
    algorithms = reader.texts("oidc-signing-algs")
    for each in algorithms:
        if each not in ALGORITHMS:
            reader.wrong.append(f"oidc: unsupported signing alg: {quote(each)}")
    claim, prefix = reader.text("oidc-username-claim"), reader.text("oidc-username-prefix")
    if not prefix and claim != "email":
        prefix = f"{issuer}#"
    return OidcOptions(
        issuer,
        client_id,
        reader.text("oidc-ca-file"),
        claim,
        "" if prefix == "-" else prefix,
        reader.text("oidc-groups-claim"),
        reader.text("oidc-groups-prefix"),
        algorithms,
        reader.map("oidc-required-claim"),
    )


def _webhook(reader: FlagReader) -> TokenWebhookOptions | None:
    file = reader.text("authentication-token-webhook-config-file")
    version = reader.text("authentication-token-webhook-version")
    if version not in _WEBHOOK_VERSIONS:
        supported = ", ".join(map(quote, _WEBHOOK_VERSIONS))
        reader.wrong.append(
            f"unsupported authentication webhook version {quote(version)}, supported versions are"
            f" {supported}"
        )
    lasts_ns = reader.int("authentication-token-webhook-cache-ttl")
    return TokenWebhookOptions(file, version, lasts_ns) if file else None


def _accounts(reader: FlagReader) -> ServiceAccountOptions:
    issuers = reader.texts("service-account-issuer")
    key_files = reader.texts("service-account-key-file")
    signing_key_file = reader.text("service-account-signing-key-file")
    if not issuers:
        reader.wrong.append("service-account-issuer is a required flag")
    for each in issuers:
        if ":" in each and not _is_url(each):
            reader.wrong.append(
                f"service-account-issuer {quote(each)} contained a ':' but was not a valid URL"
            )
    if not key_files:
        reader.wrong.append(
            "either `--service-account-key-file` or `--service-account-signing-endpoint` must be"
            " set"
        )
    if not signing_key_file or not issuers:
        reader.wrong.append(
            "--service-account-signing-key-file and --service-account-issuer are required flags"
        )
    longest_s = int(reader.seconds("service-account-max-token-expiration"))
    if longest_s and not _HOUR_S <= longest_s <= _EXPIRATION_MAX_S:
        reader.wrong.append(
            "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"
        )
    return ServiceAccountOptions(
        issuers,
        key_files,
        signing_key_file,
        reader.text("service-account-jwks-uri"),
        looks_up=reader.flag("service-account-lookup"),
        extends=reader.flag("service-account-extend-token-expiration"),
        longest_s=longest_s,
    )


def _is_url(text: str) -> bool:
    scheme, separator, rest = text.partition("://")
    return bool(separator) and scheme.isalnum() and bool(rest)
