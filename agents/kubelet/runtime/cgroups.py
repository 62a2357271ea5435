"""Control groups of containers: limits and usage, in both versions.

    version 1   /sys/fs/cgroup/memory/kubepods/burstable/pod<uid>/<container>, and one a controller
    version 2   /sys/fs/cgroup/kubepods/burstable/pod<uid>/<container>

A machine that lets none be made (`is_usable`) runs containers without limits.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.agents.kubelet.runtime.runtime import NO_COUNTS, Counts, Limits

ROOT: Final = Path("/sys/fs/cgroup")
_NEEDED: Final = ("memory", "cpu", "pids")
_CONTROLLERS: Final = ("memory", "cpu", "cpuacct", "pids", "blkio")
_IO: Final = "io"
_PERIOD_US: Final = 100_000
_BURSTABLE, _BEST_EFFORT = "burstable", "besteffort"
_SHARES_MIN: Final = 2
_SHARES_MAX: Final = 262_144
_WEIGHT_MAX: Final = 10_000


class GroupUsage(NamedTuple):
    """The resource usage of a control group."""

    cpu_ns: int
    memory_bytes: int
    inactive_file_bytes: int
    rss_bytes: int
    page_faults: int
    major_page_faults: int
    processes: int
    counts: Counts = NO_COUNTS


class Cgroups:
    """The control groups of one node."""

    def __init__(self, root: Path = ROOT) -> None:
        """Look at what the machine has; make nothing yet."""
        self.root: Final = root
        self.version: Final = 2 if (root / "cgroup.controllers").exists() else 1
        self.is_usable = False

    def probe(self, path: str) -> None:
        """Find out whether groups can be made under a path, which is made."""
        try:
            self._make(path)
        except OSError:
            self.is_usable = False
            return
        # Those that another user made are there, and nothing can be made in them.
        directories = self._directories(path)
        self.is_usable = all(self._has(path, each) for each in _NEEDED) and all(
            os.access(each, os.W_OK) for each in directories
        )

    def make(self, path: str, limits: Limits) -> list[str]:
        """Make a group; return the files to which its processes write themselves. OSError."""
        self._make(path)
        for place, value in self._settings(path, limits):
            place.write_text(value)
        return [str(each / "cgroup.procs") for each in self._directories(path)]

    def view(self, files: Iterable[str]) -> dict[str, str]:
        """Return the groups to which `make` gave these files, as a container sees them.

        By the name below /sys/fs/cgroup: of the hierarchy, empty where version 2 has all of them.
        """
        groups = [Path(each).parent for each in files]
        if self.version == 2:
            return {"": str(groups[0])} if groups else {}
        return {each.relative_to(self.root).parts[0]: str(each) for each in groups}

    def limit(self, path: str, limits: Limits) -> None:
        """Limit a group that is there; OSError."""
        for place, value in self._settings(path, limits):
            place.write_text(value)

    def weigh_classes(self, path: str) -> None:
        """Give classes of pods their parts of the processors: what their pods ask for; OSError.

        path: of all pods. Those that ask for nothing get the least; Guaranteed ones are beside
        the classes.
        """
        burstable = self._file(path, "cpu", _BURSTABLE)
        pods = burstable.glob("pod*") if burstable.is_dir() else ()
        asked = sum(self._shares(f"{path}/{_BURSTABLE}/{each.name}") for each in pods)
        for name, shares in ((_BURSTABLE, asked), (_BEST_EFFORT, _SHARES_MIN)):
            if self._file(path, "cpu", name).is_dir():
                place, value = self._weight(f"{path}/{name}", shares)
                place.write_text(value)

    def _shares(self, path: str) -> int:
        """Return what part of the processors a group has; 0: it goes."""
        place, _ = self._weight(path, 0)
        try:
            found = int(place.read_text())
        except (OSError, ValueError):
            return 0
        if self.version == 1:
            return found
        return (found - 1) * (_SHARES_MAX - _SHARES_MIN) // (_WEIGHT_MAX - 1) + _SHARES_MIN

    def _weight(self, path: str, shares: int) -> tuple[Path, str]:
        """Return the file of a group's part of the processors, and what is to stand in it."""
        kept = min(max(shares, _SHARES_MIN), _SHARES_MAX)
        if self.version == 1:
            return self._file(path, "cpu", "cpu.shares"), str(kept)
        weight = 1 + (kept - _SHARES_MIN) * (_WEIGHT_MAX - 1) // (_SHARES_MAX - _SHARES_MIN)
        return self._file(path, "cpu", "cpu.weight"), str(weight)

    def remove(self, path: str) -> bool:
        """Remove a group and those below it; return whether it is gone: what runs in it keeps it.

        Of version 1 also where others made it: container engines use more controllers.
        """
        places = [self.root / path]
        if self.version == 1:
            places = [each / path for each in self.root.iterdir()] if self.root.exists() else []
        for place in places:
            for below, _, _ in os.walk(place, topdown=False):
                with contextlib.suppress(OSError):  # a process is in it, or it is gone
                    os.rmdir(below)
        return not any(each.exists() for each in places)

    def out_of_memory(self, path: str) -> bool:
        """Whether the kernel killed a process of a group for its memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return _numbers(self._file(path, "memory", name)).get("oom_kill", 0) > 0

    def usage(self, path: str) -> GroupUsage | None:
        """Return the usage of a group; None: it does not exist."""
        try:
            return self._usage_2(path) if self.version == 2 else self._usage_1(path)
        except (OSError, ValueError, KeyError):  # it goes
            return None

    def processes(self, path: str) -> list[int]:
        """Return the processes of a group and of those below it."""
        found: list[int] = []
        for directory, _, _ in os.walk(self._directories(path)[0]):
            with contextlib.suppress(OSError):  # it went meanwhile
                found += [int(each) for each in Path(directory, "cgroup.procs").read_text().split()]
        return [each for each in found if each]  # 0: it is in another process namespace

    # The two versions.

    def _make(self, path: str) -> None:
        for directory in self._directories(path):
            directory.mkdir(parents=True, exist_ok=True)
        if self.version == 2:
            counts_io = _IO in (self.root / "cgroup.controllers").read_text().split()
            at = self.root
            for part in Path(path).parts:
                wanted = " ".join(f"+{each}" for each in _NEEDED)
                (at / "cgroup.subtree_control").write_text(wanted)
                if counts_io:
                    with contextlib.suppress(OSError):  # what is read and written is not counted
                        (at / "cgroup.subtree_control").write_text(f"+{_IO}")
                at /= part

    def _has(self, path: str, controller: str) -> bool:
        if self.version == 2:
            held = (self.root / path / "cgroup.controllers").read_text().split()
            return controller in held
        return (self.root / controller / path / "cgroup.procs").exists()

    def _directories(self, path: str) -> list[Path]:
        if self.version == 2:
            return [self.root / path]
        return [self.root / each / path for each in _CONTROLLERS if (self.root / each).is_dir()]

    def _file(self, path: str, controller: str, name: str) -> Path:
        return self.root / ("" if self.version == 2 else controller) / path / name

    def _settings(self, path: str, limits: Limits) -> Iterator[tuple[Path, str]]:
        quota, memory = limits.cpu_quota_us, limits.memory_bytes
        yield self._weight(path, limits.cpu_shares)
        if self.version == 2:
            yield self._file(path, "cpu", "cpu.max"), f"{quota or 'max'} {_PERIOD_US}"
            yield self._file(path, "memory", "memory.max"), str(memory or "max")
            if limits.kills_all:
                yield self._file(path, "memory", "memory.oom.group"), "1"
            swap = self._file(path, "memory", "memory.swap.max")
            if swap.exists():  # not every kernel counts it
                yield swap, "0"
            yield self._file(path, "pids", "pids.max"), str(limits.processes or "max")
            return
        yield self._file(path, "cpu", "cpu.cfs_quota_us"), str(quota or -1)
        if memory:
            yield from self._memory_1(path, memory)
        yield self._file(path, "pids", "pids.max"), str(limits.processes or "max")

    def _memory_1(self, path: str, memory: int) -> Iterator[tuple[Path, str]]:
        """Limit memory, and memory and swap together to the same; the first is never above."""
        limit = self._file(path, "memory", "memory.limit_in_bytes")
        swap = self._file(path, "memory", "memory.memsw.limit_in_bytes")
        if not swap.exists():  # not every kernel counts it
            yield limit, str(memory)
            return
        now = swap.read_text()
        grows = now.strip().isdecimal() and memory > int(now)
        yield from ((each, str(memory)) for each in ((swap, limit) if grows else (limit, swap)))

    def _usage_1(self, path: str) -> GroupUsage:
        stat = _numbers(self._file(path, "memory", "memory.stat"))
        return GroupUsage(
            int(self._file(path, "cpuacct", "cpuacct.usage").read_text()),
            int(self._file(path, "memory", "memory.usage_in_bytes").read_text()),
            stat.get("total_inactive_file", 0),
            stat.get("total_rss", 0),
            stat.get("total_pgfault", 0),
            stat.get("total_pgmajfault", 0),
            len(self.processes(path)),
            self._counts_1(path, stat),
        )

    def _counts_1(self, path: str, stat: Mapping[str, int]) -> Counts:
        cpu = _numbers(self._file(path, "cpu", "cpu.stat"))
        kills = _numbers(self._file(path, "memory", "memory.oom_control"))
        read, written = self._io_1(path)
        return Counts(
            cpu.get("nr_periods"),
            cpu.get("nr_throttled"),
            cpu.get("throttled_time"),
            _number(self._file(path, "memory", "memory.max_usage_in_bytes")),
            stat.get("total_cache"),
            _number(self._file(path, "memory", "memory.failcnt")),
            kills.get("oom_kill"),
            stat.get("total_swap"),
            read,
            written,
        )

    def _io_1(self, path: str) -> tuple[int | None, int | None]:
        """Return what was read and written; None: it is not counted."""
        try:
            text = self._file(path, "blkio", "blkio.throttle.io_service_bytes").read_text()
        except OSError:
            return None, None
        rows = [line.split() for line in text.splitlines()]
        read, written = (
            sum(int(row[2]) for row in rows if row[1:2] == [what]) for what in ("Read", "Write")
        )
        return read, written

    def _usage_2(self, path: str) -> GroupUsage:
        stat = _numbers(self._file(path, "memory", "memory.stat"))
        return GroupUsage(
            _numbers(self._file(path, "cpu", "cpu.stat"))["usage_usec"] * 1000,
            int(self._file(path, "memory", "memory.current").read_text()),
            stat.get("inactive_file", 0),
            stat.get("anon", 0),
            stat.get("pgfault", 0),
            stat.get("pgmajfault", 0),
            len(self.processes(path)),
            self._counts_2(path, stat),
        )

    def _counts_2(self, path: str, stat: Mapping[str, int]) -> Counts:
        cpu = _numbers(self._file(path, "cpu", "cpu.stat"))
        events = _numbers(self._file(path, "memory", "memory.events"))
        throttled_us = cpu.get("throttled_usec")
        read, written = self._io_2(path)
        return Counts(
            cpu.get("nr_periods"),
            cpu.get("nr_throttled"),
            None if throttled_us is None else throttled_us * 1000,
            _number(self._file(path, "memory", "memory.peak")),
            stat.get("file"),
            events.get("max"),
            events.get("oom_kill"),
            _number(self._file(path, "memory", "memory.swap.current")),
            read,
            written,
        )

    def _io_2(self, path: str) -> tuple[int | None, int | None]:
        """Return what was read and written; None: it is not counted."""
        try:
            text = self._file(path, "io", "io.stat").read_text()
        except OSError:
            return None, None
        pairs = [field.partition("=") for field in text.split()]
        read, written = (
            sum(int(value) for name, _, value in pairs if name == what)
            for what in ("rbytes", "wbytes")
        )
        return read, written


def _number(file: Path) -> int | None:
    """Return the number that is a file; None: this kernel has no such file, or it went."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _numbers(file: Path) -> dict[str, int]:
    """Return a file of names and numbers; empty: it went with its group."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return {}
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}
