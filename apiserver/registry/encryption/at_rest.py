"""Encryption at rest: its rules, the plugins they name, and their reload at run time.

    at_rest = AtRest(rules, clock, new_uid, logger)
    await at_rest.start()                     the first check of plugins
    at_rest.of(resource, b"/registry/secrets/")
    await at_rest.check()                     now and again; see `kms`
    await at_rest.replace(rules)              new rules, once their plugins are well

New rules apply to all values from then on. A value that neither the old nor the new rules can
decrypt is reported when it is read.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.registry.encryption.ciphers import AesCbc, AesGcm, Cipher, SecretBox
from kvstack.apiserver.registry.encryption.configuration import (
    Keys,
    Kms,
    ProviderConfig,
    Rule,
    rule_of,
)
from kvstack.apiserver.registry.encryption.kms import KmsProvider, KmsService
from kvstack.apiserver.registry.encryption.providers import (
    Counts,
    Identity,
    NamedProvider,
    OneKey,
    Prefixed,
)
from kvstack.apiserver.registry.transformer import Plain
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

KMS_PREFIX: Final = b"k8s:enc:kms:v2:"
UNMATCHED: Final = "no matching prefix found"
_CIPHERS: Final[dict[str, Callable[[bytes], Cipher]]] = {
    "aescbc": AesCbc,
    "aesgcm": AesGcm,
    "secretbox": SecretBox,
}
_SHOWN: Final = {"aescbc": "AES", "aesgcm": "AES", "secretbox": "Secretbox"}
Connect = Callable[[Kms], KmsService]


class _Rules:
    """Built rules."""

    def __init__(self, rules: Iterable[Rule], make_kms: Callable[[Kms], KmsProvider]) -> None:
        self._rules: Final = tuple(rules)
        self.plugins: Final = {
            each: make_kms(each)
            for rule in self._rules
            for each in rule.providers
            if isinstance(each, Kms)
        }
        self._built: dict[GroupResource, Prefixed | None] = {}

    def of(self, resource: GroupResource, counts: Counts) -> Prefixed | None:
        if resource not in self._built:
            found = rule_of(self._rules, resource)
            named = [self._build_provider(each) for each in found]
            self._built[resource] = Prefixed(named, UNMATCHED, counts) if named else None
        return self._built[resource]

    def _build_provider(self, config: ProviderConfig) -> NamedProvider:
        match config:
            case Keys(kind, keys):
                make = _CIPHERS[kind]
                named = [NamedProvider(f"{e.name}:".encode(), OneKey(make(e.secret))) for e in keys]
                text = f"no matching key was found for the provided {_SHOWN[kind]} transformer"
                return NamedProvider(f"k8s:enc:{kind}:v1:".encode(), Prefixed(named, text))
            case Kms(name):
                return NamedProvider(KMS_PREFIX + f"{name}:".encode(), self.plugins[config])
            case _:
                return NamedProvider(b"", Identity())


class _ResourceTransformer:
    """Encrypts the values of one resource; see `Transformer`."""

    def __init__(self, at_rest: "AtRest", resource: GroupResource, key_prefix: bytes) -> None:
        self._at_rest: Final = at_rest
        self._resource: Final = resource
        self._key_prefix: Final = key_prefix

    def to_storage(self, key: str, plain: bytes) -> bytes:
        provider = self._at_rest.provider_of(self._resource)
        return plain if provider is None else provider.seal(plain, self._key_prefix + key.encode())

    def from_storage(self, key: str, stored: bytes) -> Plain:
        provider = self._at_rest.provider_of(self._resource)
        if provider is None:
            return Plain(stored, is_stale=False)
        return provider.open(stored, self._key_prefix + key.encode())


class AtRest:
    """Encryption at rest; see `Transformers`."""

    def __init__(
        self,
        rules: Iterable[Rule],
        clock: Clock,
        new_uid: Callable[[], str],
        logger: Logger,
        connect: Connect | None = None,
    ) -> None:
        """connect: connects to the plugin of a KMS; the default is gRPC."""
        self._clock: Final = clock
        self._new_uid: Final = new_uid
        self._logger: Final = logger
        self._connect: Final = connect or _connect
        self.counts: Final = Counts()
        self.reloads: Final = {"success": 0, "failure": 0}
        self._rules = _Rules(rules, self._make_kms)

    @property
    def plugins(self) -> list[KmsProvider]:
        """The plugins in use."""
        return list(self._rules.plugins.values())

    def provider_of(self, resource: GroupResource) -> Prefixed | None:
        """Return the current transformer of a resource; None: there is none."""
        return self._rules.of(resource, self.counts)

    def of(self, resource: GroupResource, key_prefix: bytes) -> _ResourceTransformer:
        """Return the transformer of a resource, which follows changes of the rules."""
        return _ResourceTransformer(self, resource, key_prefix)

    async def prepare(self, values: Iterable[bytes]) -> None:
        """Have the plugins decrypt the seeds of values."""
        if not self._rules.plugins:
            return
        for each in values:
            if each.startswith(KMS_PREFIX):
                name, _, rest = each[len(KMS_PREFIX) :].partition(b":")
                for plugin in self.plugins:
                    if plugin.name.encode() == name:
                        await plugin.fetch([rest])

    async def start(self) -> None:
        """Query the plugins for the first time; errors are logged."""
        await self._check(self._rules)

    async def check(self) -> str:
        """Query the status of the plugins; return what is wrong."""
        return await self._check(self._rules)

    @property
    def error(self) -> str:
        """The errors of plugins at their last check."""
        return ", ".join(each.error for each in self.plugins if each.error)

    async def replace(self, rules: Iterable[Rule]) -> str:
        """Switch to new rules if their plugins are healthy; else return the errors."""
        new = _Rules(rules, self._make_kms)
        wrong = await self._check(new)
        if wrong:
            self.reloads["failure"] += 1
            await _close(new)
            return wrong
        old, self._rules = self._rules, new
        self.reloads["success"] += 1
        await _close(old)
        return ""

    def refused(self, why: str) -> None:
        """Record that new rules cannot be used."""
        self.reloads["failure"] += 1
        self._logger.error("failed to reload the encryption configuration", error=why)

    async def stop(self) -> None:
        """Close the connections to plugins."""
        await _close(self._rules)

    async def _check(self, rules: _Rules) -> str:
        found = await asyncio.gather(*(each.check() for each in rules.plugins.values()))
        wrong = ", ".join(filter(None, found))
        if wrong:
            self._logger.error("a KMS plugin is unhealthy", error=wrong)
        return wrong

    def _make_kms(self, config: Kms) -> KmsProvider:
        return KmsProvider(config.name, self._connect(config), self._clock, self._new_uid)


async def _close(rules: _Rules) -> None:
    for each in rules.plugins.values():
        await each.close()


def _connect(config: Kms) -> KmsService:
    from kvstack.apiserver.registry.encryption.kms_client import GrpcKms  # gRPC is slow to load

    return GrpcKms(config.socket, config.timeout_s)
