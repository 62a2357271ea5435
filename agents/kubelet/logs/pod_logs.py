"""The log directories of this node's pods; others are never removed.

    /var/log/pods/<namespace>_<name>_<uid>/     may be shared with other kubelets of the machine
    ROOT/pod-logs/<namespace>_<name>_<uid>      an empty file for each that is this node's

A file is there before the directory, and goes after it, so that nothing is left behind by a node
that is killed.
"""

from collections.abc import Collection
from pathlib import Path

from kvstack.agents.kubelet.disk.removal import remove_tree


class PodLogs:
    """The logs of one node's pods; its methods wait for the disk."""

    def __init__(self, records: Path) -> None:
        """records: a directory of this node alone."""
        self._records = records

    def claim(self, directory: Path) -> None:
        """Mark a directory as this node's; OSError."""
        record = self._records / directory.name
        if not record.exists():
            self._records.mkdir(mode=0o750, parents=True, exist_ok=True)
            record.touch()

    def remove_others(self, logs: Path, uids: Collection[str]) -> None:
        """Remove the logs of this node's pods in a directory, but for those of some uids; OSError.

        What cannot be removed is tried again the next time.
        """
        if not self._records.is_dir():
            return
        for record in list(self._records.iterdir()):
            if record.name.rpartition("_")[2] in uids:
                continue
            directory = logs / record.name
            remove_tree(directory)
            record.unlink()
