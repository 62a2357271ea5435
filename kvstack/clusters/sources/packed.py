"""Contents of a packed file.

PackSource(Path("shop.kvs")).read(options, progress)
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from typing_extensions import override

from kvstack.clusters.contents import EVENTS, Contents
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.pack.packed_file import PackError, read_pack
from kvstack.clusters.sources.selection import of_namespaces
from kvstack.clusters.sources.source import Progress, ReadOptions, Source, SourceError
from kvstore.client.values import KeyValue


class PackSource(Source):
    """A file that `kvstack pack` wrote."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    @property
    @override
    def name(self) -> str:
        return self._path.name.partition(".")[0] or "pack"

    @override
    async def read(self, options: ReadOptions, progress: Progress) -> Contents:
        if options.at or options.since_s:
            raise SourceError(f"{self._path} is read as it was packed, at no other time")
        progress.say(f"reading {self._path}")
        try:
            contents = read_pack(self._path, options.objects_max)
        except PackError as error:
            raise SourceError(str(error)) from error
        if options.has_events and not options.namespaces:
            return contents
        kinds = Kinds.of(contents.rows)
        history = contents.history
        if history is not None:
            history = history._replace(records=_selected(kinds, history.records, options))
        return replace(contents, rows=_selected(kinds, contents.rows, options), history=history)


def _selected(kinds: Kinds, rows: Iterable[KeyValue], options: ReadOptions) -> list[KeyValue]:
    found = of_namespaces(kinds, rows, options.namespaces)
    return [kv for kv in found if options.has_events or not kv.key.startswith(EVENTS)]
