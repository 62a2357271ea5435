"""Encryption at rest as the flags configure it; the file is read at start and again.

encryption = make(options.encryption, clock, new_uid, logger)      None: there is none
await encryption.start()
await encryption.keep(registry)      every ten seconds: plugins, the file, what was unreadable
"""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Final

from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.registry.encryption.at_rest import AtRest
from kvstack.apiserver.registry.encryption.configuration import read_encryption
from kvstack.apiserver.registry.encryption.kms import HEALTHY_S
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.server.settings.options import EncryptionOptions, file_bytes
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples
from kvstack.component.metrics.labelled import by_labels
from kvstack.component.units import SECOND_NS


class Encryption:
    """Holds the configuration and its KMS plugins; see `Transformers`."""

    def __init__(
        self, options: EncryptionOptions, rules: AtRest, data: bytes, clock: Clock
    ) -> None:
        """Take the rules that were read from the file's data."""
        self.rules: Final = rules
        self.of: Final = rules.of
        self.prepare: Final = rules.prepare
        self.start: Final = rules.start
        self.stop: Final = rules.stop
        self._options: Final = options
        self._clock: Final = clock
        self._hash = sha256(data).digest()
        self._checked_ns = clock.monotonic_ns()

    async def keep(self, registry: Registry) -> None:
        """Check plugins and reload the file; raises StoreError."""
        was_wrong = self.rules.error
        now_ns = self._clock.monotonic_ns()
        is_due = now_ns - self._checked_ns >= HEALTHY_S * SECOND_NS
        has_changed = False
        if is_due and self._options.reloads:
            has_changed = await self._reload()
        if is_due or was_wrong:
            self._checked_ns = now_ns
            await self.rules.check()
        if has_changed or (was_wrong and not self.rules.error):
            await registry.read_broken_anew()

    async def _reload(self) -> bool:
        """Reload the file if it has changed; return whether the rules changed."""
        try:
            data = file_bytes(self._options.config_file)
            digest = sha256(data).digest()
            if digest == self._hash:
                return False
            rules = read_encryption(data)
        except DocumentError as error:
            self.rules.refused(str(error))
            return False
        if await self.rules.replace(rules):
            return False
        self._hash = digest
        return True


def make(
    options: EncryptionOptions, clock: Clock, new_uid: Callable[[], str], logger: Logger
) -> Encryption | None:
    """Return encryption at rest; None if it is not configured. Raises ConfigError."""
    if not options.config_file:
        return None
    try:
        data = file_bytes(options.config_file)
        rules = read_encryption(data)
    except DocumentError as error:
        raise ConfigError(f"--encryption-provider-config {options.config_file}: {error}") from None
    return Encryption(options, AtRest(rules, clock, new_uid, logger), data, clock)


def readings(encryption: Encryption) -> Iterator[FamilySamples]:
    """Yield the families of metrics."""
    rules = encryption.rules
    yield (
        "apiserver_storage_transformation_operations_total",
        FamilyKind.COUNTER,
        "Total number of transformations. Successful transformation will have a status 'OK' and a"
        " varied status string when the transformation fails.",
        by_labels(
            ("status", "transformation_type", "transformer_prefix"),
            {
                (status, type_, prefix): count
                for (type_, prefix, status), count in rules.counts.operations.items()
            },
        ),
    )
    yield (
        "apiserver_storage_envelope_transformation_cache_misses_total",
        FamilyKind.COUNTER,
        "Total number of cache misses while accessing key decryption key(KEK).",
        {"": sum(each.misses for each in rules.plugins)},
    )
    yield (
        "apiserver_encryption_config_controller_automatic_reloads_total",
        FamilyKind.COUNTER,
        "Total number of reload successes and failures of encryption configuration split by"
        " apiserver identity.",
        by_labels(("status",), {(status,): count for status, count in rules.reloads.items()}),
    )
