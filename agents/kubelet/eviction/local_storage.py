"""Disk usage by pod: writable layers, volumes and logs.

<root>/pods/<uid>/              layers and volumes; other file systems below it do not count
<logs>/<namespace>_<name>_<uid>/
"""

from pathlib import Path

from kvstack.agents.kubelet.runtime.process.layer_sizes import size_of


def used_by_pods(pods: Path, logs: Path) -> dict[str, int]:
    """Return bytes by the uid of a pod; pods, logs: directories that may be missing."""
    used: dict[str, int] = {}
    for parent in (pods, logs):
        for directory in list(parent.iterdir()) if parent.is_dir() else ():
            uid = directory.name.rpartition("_")[2]
            used[uid] = used.get(uid, 0) + size_of(directory).bytes
    return used
