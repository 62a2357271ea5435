"""Whether SELinux labels processes and files on this machine.

Where it does not, labels that a pod asks for mean nothing and are ignored, as kubelet ignores them.
"""

from pathlib import Path
from typing import Final

_FILE_SYSTEM: Final = Path("/sys/fs/selinux")


def is_enabled(mounted: Path = _FILE_SYSTEM) -> bool:
    """Whether SELinux is enabled; mounted: the mount point of selinuxfs."""
    return (mounted / "enforce").exists()
