"""A disk in memory that knows the difference between written and durable.

    file        data (what reads see)   durable (what a power cut leaves)   dirty (sectors)
    directory   entries                 durable                             journal (changes)

The law is that of `kvstore.storage.files`, at its worst. A power cut keeps of every dirty sector
the new bytes or the old ones, of a changed length either, and of a directory's changes since its
last sync some first ones; a rename is one change. A process that dies leaves all it wrote. A sync
that fails drops what it was to make durable, or does not, sector by sector.

The state of the member is kept beside the files: see SimBackend.
"""

import errno
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from kvstore.errors import StorageFatalError
from kvstore.storage.memory_backend import MemoryBackend
from tests.sim.disk_faults import SECTOR_BYTES, DiskFaults


@dataclass(eq=False, slots=True)
class _File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)  # sectors
    locked_by: int = 0  # a handle, 0: nobody
    rotten: dict[int, int] = field(default_factory=dict)  # offset → flipped bits

    def resize(self, size_bytes: int) -> None:
        """Truncate, or extend with zeros."""
        size = len(self.data)
        if size_bytes < size:
            del self.data[size_bytes:]
            self.rotten = {at: bits for at, bits in self.rotten.items() if at < size_bytes}
        else:
            self.data += bytes(size_bytes - size)
        if size_bytes != size:
            first, last = sorted((size, size_bytes))
            self.dirty.update(range(first // SECTOR_BYTES, -(-last // SECTOR_BYTES)))

    def settle(self, kept: set[int], size_bytes: int) -> None:
        """Make `kept` of the dirty sectors durable, and this length."""
        durable = self.durable
        if len(durable) < size_bytes:
            durable += bytes(size_bytes - len(durable))
        for sector in kept:
            start = sector * SECTOR_BYTES
            part = self.data[start : min(start + SECTOR_BYTES, size_bytes)]
            durable[start : start + len(part)] = part
        del durable[size_bytes:]

    def sync(self) -> None:
        """Make everything durable."""
        self.settle(self.dirty, len(self.data))
        self.dirty.clear()

    def tear(self, rng: random.Random) -> None:
        """Lose what a power cut, or a sync that failed, may lose."""
        if not self.dirty:
            return
        kind = rng.randrange(4)
        if kind == 0:
            kept: set[int] = set()
        elif kind == 1:
            kept = self.dirty
        else:
            kept = {sector for sector in sorted(self.dirty) if rng.randrange(2)}
        size_bytes = rng.choice((len(self.durable), len(self.data)))
        self.settle(kept, size_bytes)
        self.data = bytearray(self.durable)
        self.dirty.clear()


@dataclass(eq=False, slots=True)
class _Directory:
    entries: "dict[str, _Node]" = field(default_factory=dict)
    durable: "dict[str, _Node]" = field(default_factory=dict)
    journal: "list[dict[str, _Node | None]]" = field(default_factory=list)

    def change(self, changes: "dict[str, _Node | None]") -> None:
        """Set and remove names (None) in one go."""
        _apply(self.entries, changes)
        self.journal.append(changes)

    def sync(self) -> None:
        """Make the names durable."""
        self.durable = dict(self.entries)
        self.journal.clear()

    def forget(self, rng: random.Random) -> None:
        """Lose some last ones of the changes that were not synced."""
        kept = rng.randrange(len(self.journal) + 1)
        for changes in self.journal[:kept]:
            _apply(self.durable, changes)
        self.entries = dict(self.durable)
        self.journal.clear()


_Node = _File | _Directory


def _apply(entries: dict[str, _Node], changes: "dict[str, _Node | None]") -> None:
    for name, node in changes.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


@dataclass(slots=True)
class _Handle:
    file: _File
    can_write: bool


class SimFiles:
    """`kvstore.storage.files.Files` in memory; see the head of this module."""

    def __init__(self, faults: DiskFaults) -> None:
        self.faults = faults
        self._root = _Directory()
        self._handles: dict[int, _Handle] = {}
        self._next_handle = 3

    # Faults of the machine.

    def kill(self) -> None:
        """End the process: its handles and locks are closed, what it wrote stays."""
        for handle in list(self._handles):
            self._drop(handle)

    def power_cut(self) -> None:
        """End the process and lose what was not synced."""
        self.kill()
        rng = self.faults.rng
        for directory in list(_directories(self._root)):
            directory.forget(rng)
        for directory in _directories(self._root):
            for node in directory.entries.values():
                if isinstance(node, _File):
                    node.tear(rng)

    def rot(self, path: Path, offset: int, bits: int) -> None:
        """Flip bits of a byte; for when no process runs."""
        file = self._file(path)
        assert not file.dirty
        file.rotten[offset] = file.rotten.get(offset, 0) ^ bits
        file.data[offset] ^= bits
        file.durable[offset] ^= bits

    def heal(self) -> bool:
        """Restore flipped bits that were not written over; tell whether there were any."""
        found = False
        for directory in _directories(self._root):
            for node in directory.entries.values():
                if isinstance(node, _File) and node.rotten:
                    found = True
                    for offset, bits in node.rotten.items():
                        node.data[offset] ^= bits
                        node.durable[offset] ^= bits
                    node.rotten.clear()
        return found

    def content(self, path: Path) -> bytes:
        """Return the bytes of a file."""
        return bytes(self._file(path).data)

    def names(self, path: Path) -> list[str]:
        """Return the names in a directory; without faults."""
        return sorted(self._directory(path).entries)

    # Files.

    def exists(self, path: Path) -> bool:
        """See Files."""
        self.faults.check("exists")
        return self._find(path) is not None

    def list_directory(self, path: Path) -> list[str]:
        """See Files."""
        self.faults.check("list_directory")
        return self.names(path)

    def make_directory(self, path: Path) -> None:
        """See Files."""
        self.faults.check("make_directory")
        node: _Node = self._root
        for name in _names(path):
            assert isinstance(node, _Directory)
            found = node.entries.get(name)
            if found is None:
                found = _Directory()
                node.change({name: found})
            if isinstance(found, _File):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))
            node = found

    def remove(self, path: Path) -> None:
        """See Files."""
        self.faults.check("remove")
        self._file(path)
        self._directory(path.parent).change({path.name: None})

    def remove_tree(self, path: Path) -> None:
        """See Files."""
        self.faults.check("remove_tree")
        if self._find(path) is not None:
            self._directory(path.parent).change({path.name: None})

    def rename(self, old: Path, new: Path) -> None:
        """See Files; both names are in one directory here."""
        self.faults.check("rename")
        node = self._find(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(old))
        taken = self._find(new)
        if isinstance(taken, _Directory) and taken.entries:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(new))
        assert old.parent == new.parent
        self._directory(old.parent).change({old.name: None, new.name: node})

    def sync_directory(self, path: Path) -> None:
        """See Files."""
        self.faults.check("sync_directory")
        self._directory(path).sync()

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        """See Files."""
        node = self._find(path)
        if node is None and create:
            self.faults.check("create")
            node = _File()
            self._directory(path.parent).change({path.name: node})
        else:
            self.faults.check("open")
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", str(path))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = _Handle(node, write or create)
        return handle

    def close(self, handle: int) -> None:
        """See Files; closing what a kill has closed already is fine."""
        self._drop(handle)

    def close_removed(self, handles: Sequence[int]) -> None:
        """See Files."""
        for handle in handles:
            self.close(handle)

    def try_lock(self, handle: int) -> bool:
        """See Files."""
        self.faults.check("try_lock")
        file = self._writable(handle)
        if file.locked_by in (0, handle):
            file.locked_by = handle
            return True
        return False

    def size_bytes(self, handle: int) -> int:
        """See Files."""
        return len(self._open_file(handle).data)

    def data_end(self, handle: int) -> int:
        """See Files; the first such offset."""
        return len(self._open_file(handle).data.rstrip(b"\0"))

    def read(self, handle: int, offset: int, size_bytes: int) -> bytes:
        """See Files."""
        self.faults.check("read")
        return bytes(self._open_file(handle).data[offset : offset + size_bytes])

    def write(self, handle: int, offset: int, data: bytes) -> int:
        """See Files."""
        file = self._writable(handle)
        room_bytes = self.faults.room_for(offset, len(data))
        if 0 < room_bytes < len(data):
            data = data[:room_bytes]
        else:
            self.faults.check("write")
        end = offset + len(data)
        if end > len(file.data):
            file.resize(end)
        file.data[offset:end] = data
        for at in [each for each in file.rotten if offset <= each < end]:
            del file.rotten[at]
        file.dirty.update(range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)))
        return len(data)

    def truncate(self, handle: int, size_bytes: int) -> None:
        """See Files."""
        self.faults.check("truncate")
        self._writable(handle).resize(size_bytes)

    def allocate(self, handle: int, size_bytes: int) -> None:
        """See Files."""
        self.faults.check("allocate")
        file = self._writable(handle)
        if size_bytes > len(file.data):
            file.resize(size_bytes)

    def begin_writeback(self, handle: int, offset: int, size_bytes: int) -> None:
        """See Files; a power cut keeps any of the sectors written since the last sync anyway."""
        self._open_file(handle)

    def sync_data(self, handle: int) -> None:
        """See Files."""
        self._sync("sync_data", handle)

    def sync(self, handle: int) -> None:
        """See Files."""
        self._sync("sync", handle)

    def _sync(self, call: str, handle: int) -> None:
        file = self._open_file(handle)
        try:
            self.faults.check(call)
        except OSError:
            file.tear(self.faults.rng)
            raise
        file.sync()

    def _drop(self, handle: int) -> None:
        opened = self._handles.pop(handle, None)
        if opened is not None and opened.file.locked_by == handle:
            opened.file.locked_by = 0

    def _open_file(self, handle: int) -> _File:
        opened = self._handles.get(handle)
        if opened is None:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return opened.file

    def _writable(self, handle: int) -> _File:
        file = self._open_file(handle)
        if not self._handles[handle].can_write:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return file

    def _find(self, path: Path) -> _Node | None:
        node: _Node | None = self._root
        for name in _names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _file(self, path: Path) -> _File:
        node = self._find(path)
        if not isinstance(node, _File):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return node


class SimBackend(MemoryBackend):
    """The state in memory, on a disk that may fail at a commit.

    The power may go before or after a commit, and before or after a received state is put in place.
    """

    def __init__(self, faults: DiskFaults) -> None:
        super().__init__()
        self._faults = faults

    @override
    def commit(self) -> None:
        if self.pending_ops():
            try:
                self._faults.check("commit")
            except OSError as error:
                self.abandon()
                raise StorageFatalError(f"commit failed: {error}") from error
        super().commit()
        self._faults.check("committed")

    @override
    def take_received(self, index: int) -> bool:
        self._faults.check("take_received")
        taken = super().take_received(index)
        self._faults.check("received_taken")
        return taken

    def survive(self) -> "SimBackend":
        """Return the state the next process finds; this one is not used again."""
        survivor = type(self)(self._faults)
        vars(survivor).update(vars(self.crash()))
        return survivor


def _names(path: Path) -> tuple[str, ...]:
    return path.parts[1:] if path.is_absolute() else path.parts


def _directories(directory: _Directory) -> Iterator[_Directory]:
    yield directory
    for node in list(directory.entries.values()):
        if isinstance(node, _Directory):
            yield from _directories(node)
