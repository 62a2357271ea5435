"""The forks of a user: a directory each, which a living fork holds by a lock.

    $XDG_RUNTIME_DIR/kvstack/forks/          or /tmp/kvstack-UID/forks, mode 0700
        .lock                                while forks are made or cleaned up
        before/lock                          held by the process of the fork, as long as it lives
        before/fork.json                     what it is (`ForkRecord`)
        before/log                           what it logs
        before/kubernetes/…                  certificates and kubeconfigs

A fork that was killed holds its lock no more: whoever looks next removes its directory and its
context. So nothing depends on process ids, which are used again.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import orjson

from kvstack.clusters.forks.kubeconfig_file import KubeconfigFile
from kvstack.component.errors import ConfigError

FORKS_MAX: Final = 100
NAME_MAX: Final = 63
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OTHER: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LOCK: Final = "lock"
_RECORD: Final = "fork.json"
_PRIVATE: Final = 0o700


class ForkError(ConfigError):
    """A fork cannot be made, found or ended; the text says why."""


@dataclass(frozen=True, slots=True)
class ForkRecord:
    """What a fork tells of itself."""

    name: str
    source: str
    """What it is a fork of."""
    pid: int
    began_s: float
    """Since 1970."""
    ends_s: float = 0.0
    """When it ends by itself; 0: never."""
    url: str = ""
    """Empty: it is not ready yet."""
    revision: int = 0
    objects: int = 0
    is_read_only: bool = False
    context_file: str = ""
    """The kubeconfig that has its context; empty: none has."""
    context_before: str = ""
    """What becomes current where the fork was, once it ends."""


class Reservation:
    """The directory of a fork that begins, and the lock on it."""

    def __init__(self, directory: Path, descriptor: int) -> None:
        """Hold a lock that was taken."""
        self.directory: Final = directory
        self._descriptor: Final = descriptor

    @property
    def name(self) -> str:
        """The name of the fork."""
        return self.directory.name

    @property
    def log_file(self) -> Path:
        """Where the fork logs to."""
        return self.directory / "log"

    def write(self, record: ForkRecord) -> None:
        """Tell what the fork is."""
        new = self.directory / f"{_RECORD}.new"
        new.write_bytes(orjson.dumps(asdict(record)))
        new.replace(self.directory / _RECORD)

    def is_there(self) -> bool:
        """Return whether the directory is still this one: the session may have been cleared."""
        try:
            held, there = os.fstat(self._descriptor), (self.directory / _LOCK).stat()
        except OSError:
            return False
        return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)

    def give_up(self) -> None:
        """Remove the fork's context and directory; the lock goes last."""
        if self.is_there():
            _remove(self.directory)
        os.close(self._descriptor)

    def leave(self) -> None:
        """Leave it to another process, which holds the same lock."""
        os.close(self._descriptor)


class ForkRegistry:
    """All forks of a user."""

    def __init__(self, root: Path) -> None:
        """Touch nothing yet."""
        self._root: Final = root

    @classmethod
    def of_user(cls, environ: Mapping[str, str]) -> "ForkRegistry":
        """Return that of this user, making the directory; ForkError if it cannot be trusted."""
        runtime = environ.get("XDG_RUNTIME_DIR", "")
        if runtime and Path(runtime).is_absolute() and _is_own(Path(runtime)):
            base = Path(runtime) / "kvstack"
        else:
            base = Path(tempfile.gettempdir()) / f"kvstack-{os.geteuid()}"
        root = base / "forks"
        try:
            for directory in (base, root):
                directory.mkdir(mode=_PRIVATE, exist_ok=True)
        except OSError as error:
            raise ForkError(f"{root}: {error.strerror}") from error
        for directory in (base, root):
            _check(directory)
        return cls(root)

    def reserve(self, name: str, like: str) -> Reservation:
        """Return the directory of a new fork.

        name: of the fork; empty: the first free one of `like-1`, `like-2` and so on. ForkError if
        there is one of that name, or there are too many.
        """
        if name and (not _NAME.fullmatch(name) or len(name) > NAME_MAX):
            raise ForkError(
                f"{name!r} is not a valid name of a fork: letters, digits, '.', '_' and '-', at "
                f"most {NAME_MAX}"
            )
        with self._locked():
            taken = {path.name for path in self._directories()}
            if len(taken) >= FORKS_MAX:
                raise ForkError(f"there are {FORKS_MAX} forks already: kvstack delete fork …")
            if name in taken:
                raise ForkError(f"there is a fork {name!r} already")
            stem = plain_name(like)
            number = 1
            while not name or name in taken:
                name = f"{stem}-{number}"
                number += 1
            directory = self._root / name
            try:
                directory.mkdir(mode=_PRIVATE)
                descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as error:
                raise ForkError(f"{directory}: {error.strerror}") from error
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return Reservation(directory, descriptor)

    def forks(self) -> list[ForkRecord]:
        """Return the forks that live, by name, and clean up after those that do not."""
        with self._locked():
            found = []
            for directory in self._directories():
                if _is_held(directory):
                    record = _record(directory)
                    if record is not None:
                        found.append(record)
                else:
                    _remove(directory)
            return found

    def find(self, name: str) -> ForkRecord | None:
        """Return a fork that lives; None: there is none of this name."""
        return next((each for each in self.forks() if each.name == name), None)

    def is_alive(self, name: str) -> bool:
        """Return whether the process of a fork holds its lock."""
        return _is_held(self._root / name)

    def directory(self, name: str) -> Path:
        """Return the directory of a fork."""
        return self._root / name

    def kubeconfig(self, name: str) -> Path:
        """Return the kubeconfig of a fork's user."""
        return self._root / name / "kubernetes" / "super-admin.conf"

    def _directories(self) -> list[Path]:
        return sorted(path for path in self._root.iterdir() if path.is_dir())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            descriptor = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ForkError(f"{self._root}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def plain_name(text: str) -> str:
    """Return a name for forks of a context or file: the end of it, without what names may not have.

    plain_name("arn:aws:eks:eu-west-1:123:cluster/prod") → prod
    """
    end = text.rstrip("/").rpartition("/")[2]
    plain = _OTHER.sub("-", end).strip("-._")
    return plain[: NAME_MAX - 8] or "fork"


def _is_own(directory: Path) -> bool:
    try:
        state = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid()


def _check(directory: Path) -> None:
    """Raise ForkError unless nobody but this user can enter a directory."""
    state = directory.lstat()
    if not stat.S_ISDIR(state.st_mode):
        raise ForkError(f"{directory} is not a directory")
    if state.st_uid != os.geteuid():
        raise ForkError(f"{directory} belongs to user {state.st_uid}")
    if stat.S_IMODE(state.st_mode) & 0o077:
        raise ForkError(
            f"{directory} has mode {stat.S_IMODE(state.st_mode):04o}: others could read the keys "
            f"of forks; chmod 700 {directory}"
        )


def _is_held(directory: Path) -> bool:
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _record(directory: Path) -> ForkRecord | None:
    """Return what a fork tells of itself; None: it has not told yet."""
    try:
        return ForkRecord(**orjson.loads((directory / _RECORD).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _remove(directory: Path) -> None:
    """Remove a fork's context, then its directory; KubeconfigFileError: all of it stays."""
    record = _record(directory)
    if record is not None and record.context_file:
        KubeconfigFile(Path(record.context_file)).remove(record.name, record.context_before)
    shutil.rmtree(directory, ignore_errors=True)
