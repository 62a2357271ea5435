"""The directories of local-path volumes on this machine.

    ROOT/pvc-<uid of the claim>/        mode 0777: any user of a pod may write, none of the machine
                                        reaches it, as ROOT is for root alone

Names are made of uids, which the API server gives, and are checked nevertheless: what is removed is
a directory of such a name in ROOT, whatever an object says. A directory holds as much as its claim
asks for where its file system has project quotas (`quotas`).
"""

import os
import re
import stat
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.disk.removal import remove_tree
from kvstack.agents.standalone.local_path.quotas import ProjectQuotas

VOLUMES: Final = "local-path"
"""The directory of volumes, in that of a node."""
_NAME: Final = re.compile(r"pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ROOT_MODE: Final = 0o700
_MODE: Final = 0o777


class Directories:
    """The directories of one node; its methods wait for the disk."""

    def __init__(self, root: Path) -> None:
        """root: absolute; it need not be there yet."""
        self.root: Final = root
        self.quotas: Final = ProjectQuotas(root)

    def path(self, name: str) -> Path:
        """Return the path of a volume's directory; ValueError: no volume of ours has such a name.

        It is not created.
        """
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name}: the name of a volume is pvc- and the uid of its claim")
        return self.root / name

    def make(self, name: str, size_bytes: int) -> None:
        """Make a directory for so many bytes; it may be there from an earlier try.

        Raises OSError, ValueError.
        """
        path = self.path(name)
        self.root.mkdir(mode=_ROOT_MODE, parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            if not stat.S_ISDIR(path.lstat().st_mode):
                raise
        self.resize(name, size_bytes)  # before pods can write
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(held, _MODE)
        finally:
            os.close(held)

    def resize(self, name: str, size_bytes: int) -> None:
        """Set the limit of a directory, where limits can be enforced; OSError, ValueError."""
        path = self.path(name)
        if not self.quotas.problem():
            self.quotas.limit(path, size_bytes)

    def remove(self, name: str) -> None:
        """Remove a directory with all that is in it, if it is there; OSError, ValueError."""
        path = self.path(name)
        project = 0 if self.quotas.problem() else self.quotas.project_of(path)
        remove_tree(path)
        if project:
            self.quotas.free(project)
