"""The user's kubeconfig: contexts of forks come and go, and nothing else is lost.

    file = KubeconfigFile(path)
    file.add(ForkContext("before-1", url, ca, certificate, key, namespace))
    file.remove("before-1", url, then="default")

A change is made under the lock that client-go takes (`config.lock`), on what the file holds then,
and replaces the file whole, with mode 0600. A file that changed meanwhile without the lock is read
once more. Links are followed, and the owner of the file stays its owner.
"""

import base64
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import uniform
from typing import Final, NamedTuple

from kvstack.clusters.forks.kubeconfig_text import (
    KubeconfigTextError,
    with_current,
    with_entry,
    without_entry,
)
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError

LOCK_WAIT_S: Final = 20.0
_POLL_MAX_S: Final = 0.02
_ATTEMPTS: Final = 5
_MEMBERS: Final = (("contexts", "context"), ("clusters", "cluster"), ("users", "user"))


class KubeconfigFileError(ConfigError):
    """A kubeconfig cannot be changed; the text names it."""


class ForkContext(NamedTuple):
    """A context, with a cluster and a user of its own."""

    name: str
    server: str
    ca: bytes
    certificate: bytes
    key: bytes
    namespace: str = ""

    @property
    def owned_name(self) -> str:
        """The name of its cluster and its user."""
        return f"kvstack-fork-{self.name}"


class KubeconfigFile:
    """One file, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        """Touch nothing yet."""
        self._path: Final = Path(os.path.realpath(path))

    def has(self, context: str) -> bool:
        """Return whether there is a context of this name; KubeconfigFileError."""
        return f"'{context}'" in self._refusal_of(context)

    def add(self, context: ForkContext) -> None:
        """Add a context; KubeconfigFileError if there is one of this name, or it cannot be."""
        owned = context.owned_name
        values: dict[str, dict[str, str]] = {
            "contexts": {"cluster": owned, "user": owned},
            "clusters": {
                "server": context.server,
                "certificate-authority-data": _base64(context.ca),
            },
            "users": {
                "client-certificate-data": _base64(context.certificate),
                "client-key-data": _base64(context.key),
            },
        }
        if context.namespace:
            values["contexts"]["namespace"] = context.namespace

        def change(text: str) -> str:
            for members, member in _MEMBERS:
                name = context.name if members == "contexts" else owned
                text = with_entry(text, members, {"name": name, member: values[members]})
            return text

        self._change(change)

    def remove(self, name: str, then: str) -> None:
        """Remove the context of a fork; then: becomes current if that one was."""
        owned = ForkContext(name, "", b"", b"", b"").owned_name

        def change(text: str) -> str:
            if not text.strip():
                return text
            for members, _ in _MEMBERS:
                text = without_entry(text, members, name if members == "contexts" else owned)
            with suppress(KubeconfigTextError):  # there is no current context
                if with_current(text, name) == text:
                    text = with_current(text, then)
            return text

        self._change(change)

    def _refusal_of(self, context: str) -> str:
        try:
            with_entry(self._text()[0], "contexts", {"name": context})
        except KubeconfigTextError as error:
            return str(error)
        return ""

    def _change(self, change: Callable[[str], str]) -> None:
        with self._locked():
            for _ in range(_ATTEMPTS):
                before, state = self._text()
                try:
                    after = change(before)
                except KubeconfigTextError as error:
                    raise KubeconfigFileError(f"{self._path}: {error}") from error
                if after == before or self._replace(after, state):
                    return
        raise KubeconfigFileError(f"{self._path} changes again and again while it is changed here")

    def _text(self) -> tuple[str, os.stat_result | None]:
        """Return what the file holds, and the state it was read in; None: it is not there."""
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                return file.read().decode(), state
        except FileNotFoundError:
            return "", None
        except (OSError, UnicodeDecodeError) as error:
            raise KubeconfigFileError(f"{self._path}: {error}") from error

    def _replace(self, text: str, state: os.stat_result | None) -> bool:
        """Put the file in place; False: it has changed since it was read."""
        new = self._path.with_name(f".{self._path.name}.kvstack-{os.getpid()}")
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                os.fchmod(file.fileno(), stat.S_IRUSR | stat.S_IWUSR)
                if state is not None and (state.st_uid, state.st_gid) != (
                    os.geteuid(),
                    os.getegid(),
                ):
                    os.fchown(file.fileno(), state.st_uid, state.st_gid)
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            if _identity(self._state()) != _identity(state):
                return False
            new.replace(self._path)
        except OSError as error:
            raise KubeconfigFileError(f"{self._path}: {error.strerror}") from error
        finally:
            new.unlink(missing_ok=True)
        return True

    def _state(self) -> os.stat_result | None:
        try:
            return self._path.stat()
        except FileNotFoundError:
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the file that client-go takes for its lock."""
        lock = self._path.with_name(f"{self._path.name}.lock")
        deadline_s = time.monotonic() + LOCK_WAIT_S
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            while True:
                try:
                    os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                    break
                except FileExistsError:
                    if time.monotonic() >= deadline_s:
                        raise KubeconfigFileError(_lock_problem(lock)) from None
                    time.sleep(uniform(0.0, _POLL_MAX_S))  # noqa: S311 - so that nobody is always late
        except OSError as error:
            raise KubeconfigFileError(f"{lock}: {error.strerror}") from error
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _identity(state: os.stat_result | None) -> tuple[int, ...]:
    if state is None:
        return ()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _lock_problem(lock: Path) -> str:
    try:
        age_s = max(SystemClock().unix_ms() / 1000 - lock.stat().st_mtime, 0.0)
    except OSError:
        age_s = 0.0
    return (
        f"{lock} is there for {age_s:.0f} s: another program changes this kubeconfig, or was ended "
        "while it did; if none runs, remove the file"
    )


def _base64(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
