"""AuthenticationConfiguration: token issuers and anonymous requests.

apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://issuer.example, audiences: [kubernetes]}
  claimMappings: {username: {claim: sub, prefix: "oidc:"}}
anonymous: {enabled: true, conditions: [{path: /livez}]}

read_authentication(data, limits)   → AuthenticationSettings; raises DocumentError with all wrong
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from kvstack.apimachinery.objects.field_checks import domain_prefixed_path
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    required,
    summary,
    too_many,
)
from kvstack.apimachinery.objects.text import config_document
from kvstack.apimachinery.objects.text.config_document import Document, DocumentError
from kvstack.apiserver.policy.authentication.jwt.settings import (
    Compile,
    Condition,
    Expression,
    JwtSettings,
    Source,
)

ISSUERS_MAX: Final = 64

_KINDS: Final = {
    (f"apiserver.config.k8s.io/{version}", "AuthenticationConfiguration")
    for version in ("v1", "v1beta1", "v1alpha1")
}
_MATCH_ANY: Final = "MatchAny"
_RESERVED: Final = ("kubernetes.io", "k8s.io")
_BOTH: Final = "claim and expression can't both be set"
_NEITHER: Final = "claim or expression is required"
_EMAIL: Final = (
    "claims.email_verified must be used in claimMappings.username.expression or"
    " claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when"
    " claims.email is used in claimMappings.username.expression"
)

CaProblem = Callable[[str], str]
"""Returns why a text is not a list of PEM certificates; empty: it is one."""


@dataclass(frozen=True, slots=True)
class AnonymousSettings:
    """Which requests may be anonymous."""

    is_enabled: bool
    paths: tuple[str, ...] = ()
    """The paths for which requests may be anonymous; none: all."""


@dataclass(frozen=True, slots=True)
class AuthenticationSettings:
    """Settings of a configuration."""

    issuers: tuple[JwtSettings, ...] = ()
    anonymous: AnonymousSettings | None = None
    """None: the configuration does not set it."""


@dataclass(frozen=True, slots=True)
class Means:
    """What parsing a configuration needs."""

    compile: Compile
    ca_problem: CaProblem
    disallowed_issuers: Collection[str] = ()
    """Issuers of service account tokens."""


def read_authentication(data: bytes, means: Means) -> AuthenticationSettings:
    """Return the settings of a configuration; raises DocumentError with all errors."""
    document = config_document.read(data, _KINDS)
    reader = _Reader(means)
    issuers = reader.issuers(document.items("jwt"))
    anonymous = reader.anonymous(document.item("anonymous"))
    document.close()
    if reader.errors:
        raise DocumentError(summary(reader.errors))
    return AuthenticationSettings(issuers, anonymous)


def check_issuer(settings: JwtSettings, means: Means) -> None:
    """Check the issuer of the flags; raises DocumentError."""
    reader = _Reader(means)
    reader.check_url(settings.issuer, "issuer.url", disallowed=means.disallowed_issuers)
    reader.check_ca(settings.ca, "issuer")
    if reader.errors:
        raise DocumentError(summary(reader.errors))


class _Reader:
    """Parses a configuration, and collects errors."""

    def __init__(self, means: Means) -> None:
        self._means: Final = means
        self.errors: list[FieldError] = []

    def issuers(self, entries: list[Document]) -> tuple[JwtSettings, ...]:
        if len(entries) > ISSUERS_MAX:
            self.errors.append(too_many("jwt", len(entries), ISSUERS_MAX))
            return ()
        settings: list[JwtSettings] = []
        for position, entry in enumerate(entries):
            path = index("jwt", position)
            issuer = self._issuer(entry, path)
            entry.close()
            if any(each.issuer == issuer.issuer for each in settings):
                self.errors.append(duplicate(child(path, "issuer", "url"), issuer.issuer))
            discovery = issuer.discovery_url
            if discovery and any(each.discovery_url == discovery for each in settings):
                self.errors.append(duplicate(child(path, "issuer", "discoveryURL"), discovery))
            settings.append(issuer)
        return tuple(settings)

    def anonymous(self, entry: Document | None) -> AnonymousSettings | None:
        if entry is None:
            return None
        is_enabled = entry.flag("enabled")
        paths: list[str] = []
        for condition in entry.items("conditions"):
            paths.append(condition.text("path"))
            condition.close()
        entry.close()
        if paths and not is_enabled:
            message = "enabled should be set to true when conditions are defined"
            self.errors.append(invalid("anonymous.conditions", paths, message))
        return AnonymousSettings(is_enabled, tuple(paths))

    def _issuer(self, entry: Document, path: str) -> JwtSettings:
        issuer = entry.item("issuer") or Document({})
        below = child(path, "issuer")
        url, discovery = issuer.text("url"), issuer.text("discoveryURL")
        ca, egress = issuer.text("certificateAuthority"), issuer.text("egressSelectorType")
        audiences = self._audiences(issuer, below)
        issuer.close()
        if not url:
            self.errors.append(required(child(below, "url")))
        else:
            disallowed = self._means.disallowed_issuers
            self.check_url(url, child(below, "url"), disallowed=disallowed)
        if discovery:
            self._check_discovery(url, discovery, child(below, "discoveryURL"))
        self.check_ca(ca, below)
        if egress:
            message = "egress selectors are not supported here"
            self.errors.append(invalid(child(below, "egressSelectorType"), egress, message))
        required_claims, conditions = self._claim_rules(
            entry.items("claimValidationRules"), child(path, "claimValidationRules")
        )
        mappings = entry.item("claimMappings") or Document({})
        where = child(path, "claimMappings")
        username = self._source(mappings, where, "username", is_required=True)
        groups = self._source(mappings, where, "groups")
        uid = self._uid(mappings, child(where, "uid"))
        texts, extra = self._extra(mappings.items("extra"), child(where, "extra"))
        self._check_email(mappings, where, [*(each.text for each in conditions), *texts])
        mappings.close()
        user_conditions = self._user_rules(
            entry.items("userValidationRules"), child(path, "userValidationRules")
        )
        return JwtSettings(
            url,
            audiences,
            username,
            discovery,
            ca,
            groups,
            uid,
            extra,
            required_claims,
            conditions,
            user_conditions,
        )

    def check_url(self, url: str, path: str, *, disallowed: Collection[str] = ()) -> None:
        """Check the URL of an issuer."""
        problems = []
        if url in disallowed:
            issuers_text = " ".join(sorted(disallowed))
            problems.append(f"URL must not overlap with disallowed issuers: [{issuers_text}]")
        try:
            parts = urlsplit(url)
        except ValueError as error:
            self.errors.append(invalid(path, url, str(error)))
            return
        if parts.scheme != "https":
            problems.append("URL scheme must be https")
        if "@" in parts.netloc:
            problems.append("URL must not contain a username or password")
        if parts.query:
            problems.append("URL must not contain a query")
        if parts.fragment:
            problems.append("URL must not contain a fragment")
        self.errors += [invalid(path, url, each) for each in problems]

    def check_ca(self, ca: str, path: str) -> None:
        """Check the CA certificates of an issuer."""
        if ca and (problem := self._means.ca_problem(ca)):
            self.errors.append(invalid(child(path, "certificateAuthority"), "<omitted>", problem))

    def _check_discovery(self, url: str, discovery: str, path: str) -> None:
        if url and url.rstrip("/") == discovery.rstrip("/"):
            message = "discoveryURL must be different from URL"
            self.errors.append(invalid(path, discovery, message))
        self.check_url(discovery, path)

    def _audiences(self, issuer: Document, path: str) -> tuple[str, ...]:
        audiences, policy = issuer.texts("audiences"), issuer.text("audienceMatchPolicy")
        where, of_policy = child(path, "audiences"), child(path, "audienceMatchPolicy")
        if not audiences:
            self.errors.append(required(where, f"at least one {where} is required"))
            return ()
        for position, each in enumerate(audiences):
            if not each:
                self.errors.append(required(index(where, position)))
            if each in audiences[:position]:
                self.errors.append(duplicate(index(where, position), each))
        if len(audiences) > 1 and policy != _MATCH_ANY:
            message = "audienceMatchPolicy must be MatchAny for multiple audiences"
            self.errors.append(invalid(of_policy, policy, message))
        elif policy not in {"", _MATCH_ANY}:
            message = "audienceMatchPolicy must be empty or MatchAny for single audience"
            self.errors.append(invalid(of_policy, policy, message))
        return audiences

    def _claim_rules(
        self, rules: list[Document], path: str
    ) -> tuple[dict[str, str], tuple[Condition, ...]]:
        claims: dict[str, str] = {}
        conditions: list[Condition] = []
        for position, rule in enumerate(rules):
            where = index(path, position)
            claim, value = rule.text("claim"), rule.text("requiredValue")
            text, message = rule.text("expression"), rule.text("message")
            rule.close()
            if claim and text:
                self.errors.append(invalid(where, claim, _BOTH))
            elif claim:
                if message:
                    forbidden = "may not be specified when claim is set"
                    self.errors.append(invalid(child(where, "message"), message, forbidden))
                if claim in claims:
                    self.errors.append(duplicate(child(where, "claim"), claim))
                claims[claim] = value
            elif not text:
                self.errors.append(required(where, _NEITHER))
            else:
                if value:
                    forbidden = "may not be specified when expression is set"
                    self.errors.append(invalid(child(where, "requiredValue"), value, forbidden))
                self._add(conditions, text, message, "claims", child(where, "expression"))
        return claims, tuple(conditions)

    def _user_rules(self, rules: list[Document], path: str) -> tuple[Condition, ...]:
        conditions: list[Condition] = []
        for position, rule in enumerate(rules):
            where = child(index(path, position), "expression")
            text, message = rule.text("expression"), rule.text("message")
            rule.close()
            if not text:
                self.errors.append(required(where))
            else:
                self._add(conditions, text, message, "user", where)
        return tuple(conditions)

    def _add(
        self, conditions: list[Condition], text: str, message: str, variable: str, path: str
    ) -> None:
        if any(each.text == text for each in conditions):
            self.errors.append(duplicate(path, text))
            return
        expression = self._compiled(text, variable, path, is_condition=True)
        if expression is not None:
            conditions.append(Condition(expression, text, message))

    def _source(
        self, mappings: Document, path: str, name: str, *, is_required: bool = False
    ) -> Source:
        entry = mappings.item(name) or Document({})
        where = child(path, name)
        claim, text = entry.text("claim"), entry.text("expression")
        has_prefix, prefix = "prefix" in entry, entry.text("prefix")
        entry.close()
        if claim and text:
            self.errors.append(invalid(where, "", _BOTH))
        elif text:
            if has_prefix:
                message = "may not be specified when expression is set"
                self.errors.append(invalid(child(where, "prefix"), prefix, message))
            return Source(expression=self._compiled(text, "claims", child(where, "expression")))
        elif claim:
            if not has_prefix:
                message = (
                    "prefix is required when claim is set. It can be set to an empty string to"
                    " disable prefixing"
                )
                self.errors.append(required(child(where, "prefix"), message))
            return Source(claim, prefix)
        elif is_required:
            self.errors.append(required(where, _NEITHER))
        return Source()

    def _uid(self, mappings: Document, path: str) -> Source:
        entry = mappings.item("uid") or Document({})
        claim, text = entry.text("claim"), entry.text("expression")
        entry.close()
        if claim and text:
            self.errors.append(invalid(path, "", _BOTH))
            return Source()
        if text:
            return Source(expression=self._compiled(text, "claims", child(path, "expression")))
        return Source(claim)

    def _extra(
        self, entries: list[Document], path: str
    ) -> tuple[list[str], tuple[tuple[str, Expression], ...]]:
        texts: list[str] = []
        by_key: dict[str, Expression | None] = {}
        for position, entry in enumerate(entries):
            where = index(path, position)
            key, text = entry.text("key"), entry.text("valueExpression")
            entry.close()
            self._check_key(key, child(where, "key"))
            if key in by_key:
                self.errors.append(duplicate(child(where, "key"), key))
                continue
            by_key[key] = None
            if not text:
                self.errors.append(required(child(where, "valueExpression")))
                continue
            texts.append(text)
            by_key[key] = self._compiled(text, "claims", child(where, "valueExpression"))
        return texts, tuple((key, each) for key, each in by_key.items() if each is not None)

    def _check_key(self, key: str, path: str) -> None:
        self.errors += domain_prefixed_path(path, key)
        if key != key.lower():
            self.errors.append(invalid(path, key, "must be lowercase"))
        domain, slash, _ = key.partition("/")
        if slash and any(domain == each or domain.endswith(f".{each}") for each in _RESERVED):
            message = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
            self.errors.append(invalid(path, key, message))

    def _check_email(self, mappings: Document, path: str, others: list[str]) -> None:
        # Upstream checks the expression's syntax tree; a text that names the claim in another way
        # is as rare.
        text = (mappings.item("username") or Document({})).text("expression")
        uses = text.replace("claims.email_verified", "")
        if "claims.email" in uses and not any(
            "claims.email_verified" in each for each in (text, *others)
        ):
            self.errors.append(invalid(child(path, "username", "expression"), text, _EMAIL))

    def _compiled(
        self, text: str, variable: str, path: str, *, is_condition: bool = False
    ) -> Expression | None:
        try:
            return self._means.compile(text, variable, is_condition)
        except ValueError as error:
            self.errors.append(invalid(path, text, str(error)))
            return None
