"""Manifest files of webhooks and policies, read at start and again as they change.

files = ManifestFiles(settings, table, clock, logger)   raises ConfigError
files.manifests              for the plugins
await files.reload()         what is bad changes nothing, and the log says why
"""

import asyncio
from pathlib import Path
from typing import Final

from kvstack.apimachinery.objects.field_errors import summary
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apimachinery.schema.table import Table
from kvstack.apiserver.kinds.access import FULL_ACCESS
from kvstack.apiserver.kinds.admissionregistration.reserved_names import reserved_name_errors
from kvstack.apiserver.kinds.expressions_in_cel import CEL
from kvstack.apiserver.kinds.strategy import Context
from kvstack.apiserver.kinds.table import strategy_of_row
from kvstack.apiserver.policy.admission.configuration import AdmissionSettings
from kvstack.apiserver.policy.admission.manifests import (
    GROUP,
    Manifests,
    read_manifests,
)
from kvstack.apiserver.registry.timing import now_text
from kvstack.apiserver.verbs.forms.bodies import YAML, read_object
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger

PERIOD_S: Final = 60.0
_SUFFIXES: Final = frozenset((".json", ".yaml", ".yml"))

Files = list[tuple[str, bytes]]


class ManifestFiles:
    """The manifest directories of all plugins."""

    def __init__(
        self, settings: AdmissionSettings, table: Table, clock: Clock, logger: Logger
    ) -> None:
        """Read all files; raises ConfigError."""
        self._folders: Final = settings.manifest_folders
        self._table: Final = table
        self._clock: Final = clock
        self._logger: Final = logger
        self._known: Final[dict[str, Files]] = {}
        self.manifests: Final = Manifests(self._folders)
        for plugin, folder in self._folders.items():
            try:
                self._take(plugin, _read(folder))
            except (OSError, DocumentError) as error:
                raise ConfigError(f"{plugin}: staticManifestsDir {folder}: {error}") from None

    async def reload(self) -> None:
        """Read the files again; those of a plugin take effect together or not at all."""
        for plugin, folder in self._folders.items():
            try:
                files = await asyncio.to_thread(_read, folder)
                if files == self._known[plugin]:
                    continue
                self._take(plugin, files)
            except (OSError, DocumentError) as error:
                self._logger.error(
                    "failed to reload webhooks and policies of manifest files",
                    plugin=plugin,
                    folder=folder,
                    error=str(error),
                )
            else:
                self._logger.info("reloaded webhooks and policies of manifest files", plugin=plugin)

    def _take(self, plugin: str, files: Files) -> None:
        found = read_manifests(plugin, files, self._decode)
        self._known[plugin] = files
        self.manifests.replace(found)

    def _decode(self, kind: str, text: bytes) -> Object:
        """Return an object in its stored form, except for its name."""
        row = self._table.kind(GROUP, "v1", kind)
        assert row is not None, kind
        strategy = strategy_of_row(row)
        assert strategy is not None, kind
        try:
            body = read_object(text, YAML, row.kind, row.type)
        except ApiError as error:
            raise DocumentError(str(error)) from None
        if body.findings:
            raise DocumentError(f"strict decoding error: {', '.join(body.findings)}")
        obj = body.obj
        obj.setdefault("metadata", {})
        strategy.default(obj)
        context = Context(
            now_text(self._clock),
            api_version=row.group_version,
            access=FULL_ACCESS,
            expressions=CEL,
        )
        reserved = {str(each) for each in reserved_name_errors(obj)}
        errors = [each for each in strategy.validate(obj, context) if str(each) not in reserved]
        if errors:
            raise DocumentError(summary(errors))
        return obj


def _read(folder: str) -> Files:
    """Return the manifest files of a directory by name; raises OSError."""
    paths = sorted(Path(folder).iterdir())
    return [
        (str(path), path.read_bytes())
        for path in paths
        if path.suffix.lower() in _SUFFIXES and path.is_file()
    ]
