"""The unix socket on which the store of `kvstack up` listens.

    DIR/run/etcd.sock                     mode 0600, in a directory of mode 0700
    /run/kvstack/store-HASH/etcd.sock     if that path is too long or has unusual characters; for
    $XDG_RUNTIME_DIR/kvstack/store-HASH/  root, and for other users. HASH is of DIR

The directory is made before the socket and only its user may enter it, so there is no moment at
which another user could connect. A directory of another user is refused: it might have been put
there by somebody who waits for connections.

The member takes over a socket that no process answers on, after it has locked its data directory,
and refuses to start at one that is answered (`kvstack.component.net.addresses`).
"""

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kvstack.component.errors import ConfigError

PATH_BYTES_MAX: Final = 107
"""The maximum of Linux for a unix socket, without the terminating zero byte."""
DIRECTORY: Final = "run"
NAME: Final = "etcd.sock"

_DIRECTORY_MODE: Final = 0o700
_SOCKET_MODE: Final = 0o600
_OTHERS: Final = 0o077
_ROOT_RUNTIME_DIR: Final = "/run"
_HASH_CHARACTERS: Final = 16
# Clients take the path as part of a URL, in a list that commas separate.
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._+=@-]+")


def socket_path(data_dir: Path, environment: Mapping[str, str]) -> Path:
    """Return the path of the socket of a data directory; ConfigError if none is possible."""
    path = data_dir.absolute() / DIRECTORY / NAME
    if _is_usable(path):
        return path
    runtime = _ROOT_RUNTIME_DIR if os.geteuid() == 0 else environment.get("XDG_RUNTIME_DIR", "")
    digest = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:_HASH_CHARACTERS]
    instead = Path(runtime, "kvstack", f"store-{digest}", NAME)
    if runtime and _is_usable(instead):
        return instead
    raise ConfigError(
        f"the store cannot listen on {path}: the path of a unix socket has at most"
        f" {PATH_BYTES_MAX} bytes (this one {len(os.fsencode(path))}) and here only letters,"
        " digits and . _ + = @ - /; choose another --data-dir, set XDG_RUNTIME_DIR, or give"
        " --listen-client-urls"
    )


def make_directory(socket: Path) -> None:
    """Make the directory of a socket for its owner alone; ConfigError if it is not."""
    directory = socket.parent
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigError(
                f"{directory} is for the socket of the store, but is not a directory of this user"
            )
        if stat.S_IMODE(found.st_mode) & _OTHERS:
            directory.chmod(_DIRECTORY_MODE)
    except OSError as error:
        raise ConfigError(
            f"the directory of the store's socket, {directory}, cannot be used: {error.strerror}"
        ) from error


def restrict(socket: Path) -> None:
    """Give a socket its mode, once it is there."""
    socket.chmod(_SOCKET_MODE)


def _is_usable(path: Path) -> bool:
    return len(os.fsencode(path)) <= PATH_BYTES_MAX and bool(_PLAIN.fullmatch(str(path)))
