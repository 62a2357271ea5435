import pytest

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.registry.encryption.configuration import (
    IDENTITY,
    Key,
    Keys,
    Kms,
    read_encryption,
    rule_of,
)

SECRET = "MDEyMzQ1Njc4OWFiY2RlZg=="
HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
WHOLE = f"""{HEAD}
- resources: [secrets]
  providers:
  - aesgcm: {{keys: [{{name: k, secret: {SECRET}}}]}}
  - kms: {{apiVersion: v2, name: vault, endpoint: "unix:///run/kms.sock", timeout: 2s}}
  - identity: {{}}
- resources: ["*.apps"]
  providers: [{{aescbc: {{keys: [{{name: c, secret: {SECRET}}}]}}}}]
- resources: ["*.*"]
  providers: [{{identity: {{}}}}]
"""


def test_rules_are_read() -> None:
    first, second, third = read_encryption(WHOLE.encode())
    assert first.resources == (GroupResource("", "secrets"),)
    assert first.providers == (
        Keys("aesgcm", (Key("k", b"0123456789abcdef"),)),
        Kms("vault", "/run/kms.sock", 2.0),
        IDENTITY,
    )
    assert second.resources == (GroupResource("apps", "*"),)
    assert third.resources == (GroupResource("*", "*"),)


def test_the_closest_rule_counts() -> None:
    rules = read_encryption(WHOLE.encode())
    assert rule_of(rules, GroupResource("", "secrets")) == list(rules[0].providers)
    assert rule_of(rules, GroupResource("apps", "deployments")) == list(rules[1].providers)
    assert rule_of(rules, GroupResource("", "configmaps")) == [IDENTITY]
    assert rule_of(rules[:1], GroupResource("", "configmaps")) == []


def providers(text: str) -> str:
    return f"{HEAD}- resources: [secrets]\n  providers: [{text}]\n"


def resources(*names: str) -> str:
    rules = (f"- resources: [{name}]\n  providers: [{{identity: {{}}}}]\n" for name in names)
    return HEAD + "".join(rules)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "at least one resources is required"),
        (resources("Secrets"), "resource name should not contain capital letters"),
        (resources('"*"'), "use '*.' to encrypt all the resources from core API group"),
        (resources("'*.extensions'"), "'extensions' group has been removed"),
        (resources("'pods.*'"), "encrypting the same resource across groups is not supported"),
        (resources("secrets, secrets"), "the same resource cannot be specified multiple times"),
        (resources("secrets, '*.'"), "will be masked"),
        (
            resources("'*.*'", "secrets"),
            'resource "secrets" is masked by earlier rule "*.*"',
        ),
        (
            resources("'*.apps'", "deployments.apps"),
            'resource "deployments.apps" is masked by earlier rule "*.apps"',
        ),
        (providers(""), "at least one resources[0].providers is required"),
        (providers("{}"), "does not contain any of the expected providers"),
        (providers("{identity: {}, aescbc: {}}"), "more than one provider"),
        (providers("{aescbc: {keys: []}}"), "at least one keys is required"),
        (providers("{aescbc: {keys: [{name: k, secret: '?'}]}}"), "must be base64 encoded"),
        (
            providers("{secretbox: {keys: [{name: k, secret: MDEy}]}}"),
            "secret is not of the expected length, got 3, expected one of [32]",
        ),
        (providers("{kms: {name: vault, endpoint: 'unix:///s'}}"), "KMSv1 is deprecated"),
        (
            providers("{kms: {apiVersion: v2, name: vault, endpoint: 'http://s'}}"),
            'unsupported scheme "http" for KMS provider, only unix is supported',
        ),
        (
            providers("{kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///s'}}"),
            "invalid KMS provider name a:b, must not contain ':'",
        ),
        (providers("{rot13: {}}"), 'unknown field "resources[0].providers[0].rot13"'),
    ],
)
def test_what_is_wrong_is_reported(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_encryption(text.encode())
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)
