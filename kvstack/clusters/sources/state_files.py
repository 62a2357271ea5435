"""Contents of files that no server uses: etcd's snapshots, data directories of etcd and ours.

    StateFileSource(Path("snapshot.db")).read(options, progress)

All revisions that a file holds come along, so that watches of clients go on in a fork of it. What
cannot be right is an error that names the file, and the row or segment.
"""

from pathlib import Path
from typing import Final

from typing_extensions import override

from kvstack.clusters.contents import Contents, LeftOut, Origin
from kvstack.clusters.sources.source import Progress, ReadOptions, Source, SourceError
from kvstack.clusters.sources.store_records import StoreRecords
from kvstore.offline import CorruptionError, DataDirError, open_offline

_UNAPPLIED: Final = (
    "the server did not end cleanly: the last entries of its log are not in the database yet; "
    "starting and stopping it brings them there"
)


class StateFileSource(Source):
    """A database file or a data directory."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    @property
    @override
    def name(self) -> str:
        return self._path.name.partition(".")[0] or "snapshot"

    @override
    async def read(self, options: ReadOptions, progress: Progress) -> Contents:
        if options.at:
            raise SourceError(f"--at {options.at}: {self._path} is read as it was last")
        progress.say(f"reading {self._path}")
        records = StoreRecords(options, progress)
        try:
            with open_offline(self._path) as state:
                for kv in state.records():
                    records.add(kv)
                revision = max(records.last_revision, state.compacted, 1)
                contents = await records.contents(
                    Origin(state.format, str(self._path)),
                    revision,
                    max(state.compacted, 1),
                    state.leases,
                )
        except (CorruptionError, DataDirError, OSError) as error:
            raise SourceError(str(error)) from error
        if state.unapplied:
            contents.left_out.append(LeftOut("entries of the log", _UNAPPLIED, state.unapplied))
        return contents
