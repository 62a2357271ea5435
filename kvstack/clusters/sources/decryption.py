"""Decryption of values that are encrypted at rest, by an EncryptionConfiguration.

async with Decryption("encryption.yaml") as decryption:
    rows = await decryption.plain(kinds, rows, b"/registry/", refused)
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.registry.encryption.at_rest import AtRest
from kvstack.apiserver.registry.encryption.configuration import read_encryption
from kvstack.apiserver.registry.transformer import TransformError
from kvstack.clusters.contents import ROOT
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.sources.source import SourceError
from kvstack.component.clock import SystemClock
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.client.values import KeyValue

ENCRYPTED: Final = b"k8s:enc:"
UNREAD: Final = "encrypted; --encryption-provider-config reads them"
_UNKNOWN_KIND: Final = "encrypted, and of a kind that is not known"


class Decryption:
    """Decrypts the values of one store."""

    def __init__(self, config_file: str) -> None:
        """Read the configuration; raises SourceError."""
        try:
            rules = read_encryption(Path(config_file).read_bytes())
        except (OSError, DocumentError) as error:
            raise SourceError(f"--encryption-provider-config {config_file}: {error}") from error
        logger = LineLogger([], "fatal")
        self._at_rest: Final = AtRest(rules, SystemClock(), lambda: str(uuid4()), logger)

    async def __aenter__(self) -> Self:
        """Reach the plugins of the rules; raises SourceError."""
        await self._at_rest.start()
        if wrong := self._at_rest.error:
            await self._at_rest.stop()
            raise SourceError(f"encryption: {wrong}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the plugins."""
        await self._at_rest.stop()

    async def plain(
        self,
        kinds: Kinds,
        rows: Sequence[KeyValue],
        root: bytes,
        refused: Counter[tuple[str, str]],
    ) -> list[KeyValue]:
        """Return rows with plain values; refused: counts the others by resource and reason.

        root: what the store's own keys begin with, which is part of what was encrypted.
        """
        await self._at_rest.prepare(kv.value for kv in rows if kv.value.startswith(ENCRYPTED))
        decrypted = []
        for kv in rows:
            if not kv.value.startswith(ENCRYPTED):
                decrypted.append(kv)
                continue
            resource = resource_of(kinds, kv.key)
            try:
                decrypted.append(kv._replace(value=self._open(kinds, kv, root)))
            except TransformError as error:
                refused[resource, f"encrypted: {error}"] += 1
        return decrypted

    def _open(self, kinds: Kinds, kv: KeyValue, root: bytes) -> bytes:
        key_of = kinds.find(kv.key)
        if key_of is None:
            raise TransformError(_UNKNOWN_KIND)
        prefix = root + f"{key_of.prefix}/".encode()
        resource = GroupResource(*key_of.resource)
        return self._at_rest.of(resource, prefix).from_storage(key_of.path, kv.value).value


def without_encrypted(
    kinds: Kinds, rows: Iterable[KeyValue], refused: Counter[tuple[str, str]]
) -> list[KeyValue]:
    """Return the rows that are not encrypted; refused: counts the others."""
    found = []
    for kv in rows:
        if kv.value.startswith(ENCRYPTED):
            refused[resource_of(kinds, kv.key), UNREAD] += 1
        else:
            found.append(kv)
    return found


def resource_of(kinds: Kinds, key: bytes) -> str:
    """Return the resource of a key as messages name it."""
    key_of = kinds.find(key)
    if key_of is not None:
        return str(key_of.resource)
    parts = key.removeprefix(ROOT).decode("utf-8", "backslashreplace").split("/")
    return f"{parts[1]}.{parts[0]}" if len(parts) > 2 and "." in parts[0] else parts[0]
