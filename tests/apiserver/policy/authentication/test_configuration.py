"""AuthenticationConfiguration: what is taken, and everything that is wrong with it."""

from collections.abc import Mapping

import pytest

from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.policy.authentication.configuration import (
    AnonymousSettings,
    AuthenticationSettings,
    Means,
    read_authentication,
)
from kvstack.apiserver.policy.authentication.jwt.settings import Expression, Source

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
ISSUER = "issuer: {url: https://i, audiences: [a]}"
NAME = "claimMappings: {username: {claim: sub, prefix: ''}}"


class Compiled:
    def __init__(self, text: str) -> None:
        self.text = text

    def evaluate(self, value: Mapping[str, object]) -> object:
        return self.text


def compiled(text: str, variable: str, is_condition: bool) -> Expression:  # noqa: FBT001
    if "bad" in text:
        raise DocumentError(f"{variable} is bad")
    assert is_condition is text.startswith("is ")
    return Compiled(text)


MEANS = Means(compiled, lambda ca: "" if ca == "PEM" else "no PEM", ("https://accounts",))


def read(text: str) -> AuthenticationSettings:
    return read_authentication((HEAD + text).encode(), MEANS)


def issuer(*lines: str) -> str:
    return "jwt:\n- " + "\n  ".join(lines)


def test_an_issuer() -> None:
    text = issuer(
        "issuer: {url: https://i, discoveryURL: https://d, certificateAuthority: PEM,"
        " audiences: [a, b], audienceMatchPolicy: MatchAny}",
        "claimMappings:",
        "  username: {claim: sub, prefix: 'p:'}",
        "  groups: {expression: claims.g}",
        "  uid: {claim: id}",
        "  extra: [{key: x.io/a, valueExpression: claims.a}]",
        "claimValidationRules: [{claim: c, requiredValue: v}, {expression: is x, message: m}]",
        "userValidationRules: [{expression: is y}]",
    )
    (made,) = read(text).issuers
    assert (made.issuer, made.discovery_url, made.ca) == ("https://i", "https://d", "PEM")
    assert made.audiences == ("a", "b")
    assert made.username == Source("sub", "p:")
    assert made.groups.expression is not None
    assert made.uid == Source("id")
    assert [key for key, _ in made.extra] == ["x.io/a"]
    assert made.required_claims == {"c": "v"}
    (condition,) = made.claim_conditions
    assert (condition.text, condition.message) == ("is x", "m")
    assert [each.text for each in made.user_conditions] == ["is y"]


def test_anonymous() -> None:
    assert read("jwt: []").anonymous is None
    assert read("anonymous: {enabled: false}").anonymous == AnonymousSettings(is_enabled=False)
    text = "anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}]}"
    assert read(text).anonymous == AnonymousSettings(True, ("/livez", "/readyz"))


ISSUERS = {
    "jwt[0].issuer.url: Required value": ("issuer: {audiences: [a]}", NAME),
    "URL scheme must be https": ("issuer: {url: http://i, audiences: [a]}", NAME),
    "must not contain a username": ("issuer: {url: https://u@i, audiences: [a]}", NAME),
    "must not contain a query": ("issuer: {url: https://i?a, audiences: [a]}", NAME),
    "must not contain a fragment": ("issuer: {url: https://i#a, audiences: [a]}", NAME),
    "must not overlap with disallowed issuers: [https://accounts]": (
        "issuer: {url: https://accounts, audiences: [a]}",
        NAME,
    ),
    "discoveryURL must be different": (
        "issuer: {url: https://i, discoveryURL: https://i/, audiences: [a]}",
        NAME,
    ),
    'certificateAuthority: Invalid value: "<omitted>": no PEM': (
        "issuer: {url: https://i, certificateAuthority: x, audiences: [a]}",
        NAME,
    ),
    "at least one jwt[0].issuer.audiences is required": ("issuer: {url: https://i}", NAME),
    "audiences[1]: Duplicate value": (
        "issuer: {url: https://i, audiences: [a, a], audienceMatchPolicy: MatchAny}",
        NAME,
    ),
    "must be MatchAny for multiple": ("issuer: {url: https://i, audiences: [a, b]}", NAME),
    "must be empty or MatchAny": (
        "issuer: {url: https://i, audiences: [a], audienceMatchPolicy: All}",
        NAME,
    ),
    "egress selectors are not supported here": (
        "issuer: {url: https://i, audiences: [a], egressSelectorType: cluster}",
        NAME,
    ),
    "jwt[0].claimMappings.username: Required value: claim or expression is required": (ISSUER,),
    "prefix is required when claim is set": (ISSUER, "claimMappings: {username: {claim: sub}}"),
    "claim and expression can't both be set": (
        ISSUER,
        "claimMappings: {username: {claim: sub, expression: x}}",
    ),
    "may not be specified when expression is set": (
        ISSUER,
        "claimMappings: {username: {prefix: a, expression: x}}",
    ),
    "claims is bad": (ISSUER, "claimMappings: {username: {expression: bad}}"),
    "claims.email_verified must be used": (
        ISSUER,
        "claimMappings: {username: {expression: claims.email}}",
    ),
    "must be lowercase": (
        ISSUER,
        "claimMappings: {username: {expression: x}, extra: [{key: a.io/A, valueExpression: x}]}",
    ),
    "reserved for Kubernetes use": (
        ISSUER,
        "claimMappings: {username: {expression: x}, extra: [{key: a.k8s.io/a,"
        " valueExpression: x}]}",
    ),
    "extra[0].valueExpression: Required value": (
        ISSUER,
        "claimMappings: {username: {expression: x}, extra: [{key: a.io/a}]}",
    ),
    "claimValidationRules[0]: Required value": (ISSUER, NAME, "claimValidationRules: [{}]"),
    "may not be specified when claim is set": (
        ISSUER,
        NAME,
        "claimValidationRules: [{claim: c, message: m}]",
    ),
    "claimValidationRules[1].claim: Duplicate value": (
        ISSUER,
        NAME,
        "claimValidationRules: [{claim: c}, {claim: c}]",
    ),
    "claimValidationRules[1].expression: Duplicate value": (
        ISSUER,
        NAME,
        "claimValidationRules: [{expression: is x}, {expression: is x}]",
    ),
    "userValidationRules[0].expression: Required value": (
        ISSUER,
        NAME,
        "userValidationRules: [{}]",
    ),
    "user is bad": (ISSUER, NAME, "userValidationRules: [{expression: is bad}]"),
    'unknown field "jwt[0].issuer.uri"': ("issuer: {url: https://i, audiences: [a], uri: x}", NAME),
}


@pytest.mark.parametrize("message", ISSUERS)
def test_what_is_wrong_with_an_issuer(message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(issuer(*ISSUERS[message]))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{issuer(ISSUER, NAME)}\n- {ISSUER}\n  {NAME}", "jwt[1].issuer.url: Duplicate value"),
        ("jwt:\n" + f"- {{{ISSUER}}}\n" * 65, "jwt: Too many: 65: must have at most 64 items"),
        ("anonymous: {enabled: false, conditions: [{path: /x}]}", "enabled should be set to true"),
        ("anonymus: {}", 'unknown field "anonymus"'),
    ],
)
def test_what_is_wrong_with_a_configuration(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(text)
    assert message in str(caught.value)
