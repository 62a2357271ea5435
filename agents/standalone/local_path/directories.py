"""The directories of local-path volumes on this machine.

    ROOT/pvc-<uid of the claim>/        mode 0777: any user of a pod may write, none of the machine
                                        reaches it, as ROOT is for root alone

Names are made of uids, which the API server gives, and are checked nevertheless: what is removed is
a directory of such a name in ROOT, whatever an object says.
"""

import os
import re
import stat
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.disk.removal import remove_tree

VOLUMES: Final = "local-path"
"""In the directory of a node."""
_NAME: Final = re.compile(r"pvc-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ROOT_MODE: Final = 0o700
_MODE: Final = 0o777


class Directories:
    """The directories of one node; its methods wait for the disk."""

    def __init__(self, root: Path) -> None:
        """root: absolute; it need not be there yet."""
        self.root: Final = root

    def path(self, name: str) -> Path:
        """Return where the directory of a volume is; ValueError: a volume of ours has no such name.

        Nothing is made.
        """
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name}: the name of a volume is pvc- and the uid of its claim")
        return self.root / name

    def make(self, name: str) -> None:
        """Make a directory; it may be there from an earlier try. OSError, ValueError."""
        path = self.path(name)
        self.root.mkdir(mode=_ROOT_MODE, parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            if not stat.S_ISDIR(path.lstat().st_mode):
                raise
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(held, _MODE)
        finally:
            os.close(held)

    def remove(self, name: str) -> None:
        """Remove a directory with all that is in it, if it is there; OSError, ValueError."""
        remove_tree(self.path(name))
