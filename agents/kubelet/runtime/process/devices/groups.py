"""Restricts the devices of a container's processes by its control group.

    groups = DeviceGroups(Path("/sys/fs/cgroup"))
    groups.probe("kubepods")                           groups.problem: why none can be had
    files = groups.limit("kubepods/pod1/c", rules)     which its processes enter in addition

    version 1   the devices controller: /sys/fs/cgroup/devices/kubepods/pod1/c
    version 2   a program on the container's group, also where that hierarchy is mounted beside
                version 1 and has no controllers: /sys/fs/cgroup/unified/kubepods/pod1/c

A group below a limited one cannot be given more, by either.
"""

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.devices import program
from kvstack.agents.kubelet.runtime.process.devices.rules import DEFAULT, Rule

CONTROLLER: Final = "devices"
PROGRAM: Final = "program"
_PROBE: Final = "kv-devices-probe"
_PROCESSES: Final = "cgroup.procs"


class DeviceGroups:
    """The control groups of one node, as far as they limit devices."""

    def __init__(self, root: Path, *, ways: Sequence[str] = (CONTROLLER, PROGRAM)) -> None:
        """ways: the allowed mechanisms; the first that works is used."""
        self._root = root
        self._ways = ways
        self._default = -1  # the program of the default rules: one for all containers
        self.way = ""
        """CONTROLLER or PROGRAM; empty: devices cannot be limited."""
        self.problem = "control groups cannot be made"
        """Why devices cannot be limited; empty: they are."""

    def probe(self, path: str) -> None:
        """Find out by what devices can be limited in groups below a path."""
        problems = []
        for way in self._ways:
            self.way = way
            tried = f"{path}/{_PROBE}-{os.getpid()}"
            try:
                self.limit(tried, DEFAULT)
            except OSError as error:
                problems.append(f"{way}: {error}")
                continue
            finally:
                with contextlib.suppress(FileNotFoundError):  # it could not be made
                    (self._hierarchy() / tried).rmdir()
            self.problem = ""
            return
        self.way, self.problem = "", "; ".join(problems) or "no way is allowed"

    def close(self) -> None:
        """Keep no program; those that groups have stay."""
        if self._default >= 0:
            os.close(self._default)
            self._default = -1

    def limit(self, path: str, rules: Sequence[Rule]) -> list[str]:
        """Limit a group to some devices; return the files that its processes enter; OSError."""
        hierarchy = self._hierarchy()
        if not (hierarchy / _PROCESSES).exists():
            raise FileNotFoundError(errno.ENOENT, "no control groups are mounted", str(hierarchy))
        directory = hierarchy / path
        directory.mkdir(parents=True, exist_ok=True)
        if self.way == CONTROLLER:
            (directory / "devices.deny").write_text("a")
            _write_lines(directory / "devices.allow", rules)
        else:
            self._attach(directory, rules)
        # Where version 2 has all groups, containers enter theirs anyway.
        return [] if hierarchy == self._root else [str(directory / _PROCESSES)]

    def _attach(self, directory: Path, rules: Sequence[Rule]) -> None:
        if tuple(rules) == DEFAULT:
            if self._default < 0:
                self._default = program.load(program.instructions(DEFAULT))
            program.attach(self._default, str(directory))
        else:
            loaded = program.load(program.instructions(rules))
            try:
                program.attach(loaded, str(directory))
            finally:
                os.close(loaded)

    def _hierarchy(self) -> Path:
        """Return where the groups are that limit devices."""
        if self.way == CONTROLLER:
            return self._root / CONTROLLER
        is_whole = (self._root / "cgroup.controllers").exists()
        return self._root if is_whole else self._root / "unified"


def _write_lines(file: Path, rules: Sequence[Rule]) -> None:
    """Write rules; the kernel takes one at a time."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for each in rules:
            os.write(descriptor, each.line.encode())
    finally:
        os.close(descriptor)
