"""Links for log collectors to all containers' logs of a node, in one directory.

    /var/log/containers/<pod>_<namespace>_<container>-<id>.log  ->  /var/log/pods/…/<attempt>.log

Nobody here reads them; those whose log is gone are taken away.
"""

from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.runtime import Container
from kvstack.apimachinery.objects.json_object import Object

_NAME_MAX: Final = 255
_SUFFIX: Final = ".log"


class LogLinks:
    """The links of one node."""

    def __init__(self, directory: Path | None) -> None:
        """directory: None: there are none."""
        self._directory = directory

    def make(self, pod: Object, container: Container) -> None:
        """Make the link of a container that was started; OSError."""
        if self._directory is None or not container.log.name:
            return
        self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        meta = pod["metadata"]
        number = container.id.replace("/", "-")
        name = f"{meta['name']}_{meta['namespace']}_{container.name}-{number}"
        link = self._directory / (name[: _NAME_MAX - len(_SUFFIX)] + _SUFFIX)
        link.unlink(missing_ok=True)
        link.symlink_to(container.log)

    def clean(self) -> None:
        """Remove dangling links; OSError."""
        if self._directory is None or not self._directory.is_dir():
            return
        for each in self._directory.iterdir():
            if each.is_symlink() and not each.exists():
                each.unlink(missing_ok=True)
