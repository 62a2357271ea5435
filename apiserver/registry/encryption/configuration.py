"""`--encryption-provider-config`: which resources are encrypted, and how.

    kind: EncryptionConfiguration
    resources:
    - resources: [secrets, "*.apps"]
      providers:
      - aesgcm: {keys: [{name: key1, secret: <base64>}]}
      - identity: {}

    read_encryption(data) → [Rule(("secrets", "*.apps"), (Keys("aesgcm", …), IDENTITY))]

Nothing is built or connected here. Errors have upstream's texts.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.text import config_document
from kvstack.apimachinery.objects.text.config_document import Document, DocumentError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.registry.encryption.ciphers import KEY_BYTES
from kvstack.component.units import SECOND_NS

ALL: Final = "*"
_KINDS: Final = {
    ("apiserver.config.k8s.io/v1", "EncryptionConfiguration"),
    ("v1", "EncryptionConfig"),
}
_KEY_SIZES: Final = {"aescbc": KEY_BYTES, "aesgcm": KEY_BYTES, "secretbox": (32,)}
_PROVIDERS: Final = (*_KEY_SIZES, "kms", "identity")
_NO_RESOURCES: Final = frozenset(
    ("apiserveripinfo", "serviceipallocations", "servicenodeportallocations")
)
_WRONG_GROUPS: Final = {
    "events.k8s.io": "'*.events.k8s.io' objects are stored using the 'events' API group in etcd."
    " Use 'events' instead in the config file",
    "extensions": "'extensions' group has been removed and cannot be used for encryption",
}


class Key(NamedTuple):
    """One key."""

    name: str
    secret: bytes


class Keys(NamedTuple):
    """A provider with keys of its own."""

    kind: str
    """aescbc, aesgcm or secretbox."""
    keys: tuple[Key, ...]


class Kms(NamedTuple):
    """A provider whose keys a plugin holds."""

    name: str
    socket: str
    """Path of its socket; an abstract one begins with @."""
    timeout_s: float


class Plainly(NamedTuple):
    """The provider that encrypts nothing."""


IDENTITY: Final = Plainly()
ProviderConfig: TypeAlias = Keys | Kms | Plainly


class Rule(NamedTuple):
    """How some resources are encrypted."""

    resources: tuple[GroupResource, ...]
    """`*` means all resources of a group, or all groups."""
    providers: tuple[ProviderConfig, ...]


def read_encryption(data: bytes) -> list[Rule]:
    """Return the rules of a file; raises DocumentError."""
    document = config_document.read(data, _KINDS)
    rules = [_rule(each) for each in document.items("resources")]
    document.close()
    if not rules:
        raise DocumentError("resources: Required value: at least one resources is required")
    _check_masked(rules)
    names = {(p.name, p.socket) for rule in rules for p in rule.providers if isinstance(p, Kms)}
    if len({name for name, _ in names}) < len(names):
        raise DocumentError("duplicate KMS provider name, names must be unique")
    return rules


def rule_of(rules: Iterable[Rule], resource: GroupResource) -> list[ProviderConfig]:
    """Return the providers of a resource; none: it is not encrypted."""
    for wanted in (
        resource,
        GroupResource(resource.group, ALL),
        GroupResource(ALL, ALL),
    ):
        found = [p for rule in rules if wanted in rule.resources for p in rule.providers]
        if found:
            return found
    return []


def _rule(item: Document) -> Rule:
    names = item.texts("resources")
    resources = tuple(_resource(item, position, name) for position, name in enumerate(names))
    providers = tuple(_provider(each) for each in item.items("providers"))
    item.close()
    for field, values in (("resources", resources), ("providers", providers)):
        if not values:
            raise DocumentError(
                f"{item.at(field)}: Required value: at least one {item.at(field)} is required"
            )
    _check_overlap(item, resources)
    return Rule(resources, providers)


def _resource(item: Document, position: int, text: str) -> GroupResource:
    name, _, group = text.partition(".")
    wrong = ""
    if text != text.lower():
        wrong = "resource name should not contain capital letters"
    elif text == ALL:
        wrong = (
            "use '*.' to encrypt all the resources from core API group or *.* to encrypt all"
            " resources"
        )
    elif text in _NO_RESOURCES:
        wrong = "resources which do not have REST API/s cannot be encrypted"
    elif group in _WRONG_GROUPS:
        wrong = _WRONG_GROUPS[group]
    elif group == ALL and name != ALL:
        wrong = "encrypting the same resource across groups is not supported"
    if wrong:
        path = f"{item.at('resources')}[{position}]"
        raise DocumentError(f"{path}: Invalid value: {quote(text)}: {wrong}")
    return GroupResource(group, name)


def _check_overlap(item: Document, resources: Sequence[GroupResource]) -> None:
    path = f"{item.at('resources')}: Invalid value"
    if len(set(resources)) < len(resources):
        raise DocumentError(f"{path}: the same resource cannot be specified multiple times")
    everything = GroupResource(ALL, ALL)
    masked = everything in resources or any(
        each.resource != ALL and GroupResource(each.group, ALL) in resources for each in resources
    )
    if masked and len(resources) > 1:
        raise DocumentError(
            f"{path}: using overlapping resources such as 'secrets' and '*.' in the same resource"
            " list is not allowed as they will be masked"
        )


def _check_masked(rules: Iterable[Rule]) -> None:
    """Check that no resource follows a rule that already covers it."""
    seen: list[GroupResource] = []
    for rule in rules:
        for each in rule.resources:
            for wide in (GroupResource(each.group, ALL), GroupResource(ALL, ALL)):
                if wide in seen:
                    message = f"resource {quote(_yaml(each))} is masked by earlier rule"
                    raise DocumentError(f"{message} {quote(_yaml(wide))}")
        seen += rule.resources


def _yaml(resource: GroupResource) -> str:
    if resource.group or resource.resource == ALL:
        return f"{resource.resource}.{resource.group}"
    return resource.resource


def _provider(item: Document) -> ProviderConfig:
    providers = [each for each in _PROVIDERS if each in item]
    if len(providers) > 1:
        raise DocumentError(
            f"{item.path}: Invalid value: more than one provider specified in a single element,"
            " should split into different list elements"
        )
    if not providers:
        item.close()
        raise DocumentError(
            f"{item.path}: Required value: provider does not contain any of the expected"
            " providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
        )
    kind = providers[0]
    own = item.item(kind)
    assert own is not None, "it is given"
    item.close()
    if kind == "identity":
        own.close()
        return IDENTITY
    return _kms(own) if kind == "kms" else _keys(own, kind)


def _keys(own: Document, kind: str) -> Keys:
    keys = tuple(_key(each, kind) for each in own.items("keys"))
    own.close()
    if not keys:
        raise DocumentError(f"{own.at('keys')}: Required value: at least one keys is required")
    return Keys(kind, keys)


def _key(item: Document, kind: str) -> Key:
    name, secret = item.text("name"), item.text("secret")
    item.close()
    for field, value in (("name", name), ("secret", secret)):
        if not value:
            path = item.at(field)
            raise DocumentError(f"{path}: Required value: {field} is a mandatory field for a key")
    path = item.at("secret")
    try:
        plain = base64.b64decode(secret, validate=True)
    except binascii.Error:
        text = "secrets must be base64 encoded"
        raise DocumentError(f'{path}: Invalid value: "REDACTED": {text}') from None
    sizes = _KEY_SIZES[kind]
    if len(plain) not in sizes:
        sizes_text = " ".join(map(str, sizes))
        raise DocumentError(
            f'{path}: Invalid value: "REDACTED": secret is not of the expected length, got'
            f" {len(plain)}, expected one of [{sizes_text}]"
        )
    return Key(name, plain)


def _kms(provider: Document) -> Kms:
    version, name, endpoint = (
        provider.text("apiVersion") or "v1",
        provider.text("name"),
        provider.text("endpoint"),
    )
    timeout_ns = provider.duration_ns("timeout", "3s")
    provider.plain("cachesize")  # of v1; for v2 it is an error below
    if "cachesize" in provider and version != "v1":
        raise DocumentError(f"{provider.at('cachesize')}: Invalid value: cachesize is not supported"
                            " in KMS v2")  # fmt: skip
    provider.close()
    if version == "v1":
        raise DocumentError(
            "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2"
            " instead."
        )
    if version != "v2":
        raise DocumentError(
            f"{provider.at('apiVersion')}: Invalid value: {quote(version)}: unsupported apiVersion"
            f" {version} for KMS provider, only v1 and v2 are supported"
        )
    if not name or ":" in name:
        wrong = f"invalid KMS provider name {name}, must not contain ':'"
        message = f"Invalid value: {quote(name)}: {wrong}" if name else "Required value"
        raise DocumentError(f"{provider.at('name')}: {message}")
    if timeout_ns <= 0:
        raise DocumentError(
            f"{provider.at('timeout')}: Invalid value: timeout should be a positive value"
        )
    scheme, separator, socket = endpoint.partition("://")
    if not separator or scheme != "unix":
        raise DocumentError(
            f"{provider.at('endpoint')}: Invalid value: {quote(endpoint)}: unsupported scheme"
            f" {quote(scheme if separator else '')} for KMS provider, only unix is supported"
        )
    return Kms(name, socket, timeout_ns / SECOND_NS)
