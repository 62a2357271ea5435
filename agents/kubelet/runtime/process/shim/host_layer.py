"""Hidden and writable paths of the machine's files in a container of the image `host`.

    fill(upper, hidden, own, owner)    before `upper` is the top of an overlay whose lowest is /

A directory that is hidden is empty there, and a file as well. It is the container's own layer that
says so (an opaque directory, a file above the machine's), no mount: nothing that is unmounted,
moved or removed inside brings the machine's files back. What is created on the machine later is
hidden only where its directory is.
"""

import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import user_namespaces

_OPAQUE: Final = "trusted.overlay.opaque"
_OPAQUE_OF_USERS: Final = "user.overlay.opaque"
"""The attribute in a user namespace (`userxattr`)."""
_TEMPORARY: Final = ("/tmp", "/var/tmp")
_RUN: Final = "/run"
_HOMES: Final = ("/root", "/home/")
_STICKY: Final = 0o1777
_EVERYBODY_READS: Final = stat.S_IROTH | stat.S_IXOTH


def home_of(home: str) -> str:
    """Return the home of a container's user; that of a service's user is not for writing."""
    return home if home.startswith(_HOMES) else "/tmp"


def fill(
    upper: str, hidden: Sequence[str], home: str, directory: str, owners: tuple[int, int]
) -> None:
    """Make a container's layer; OSError.

    home, directory: where the container's user lives, and where it begins. owners: the ids, on the
    machine, of the container's root, and of its user.
    """
    root, user = owners
    os.chown(upper, root, root)
    own = [*_TEMPORARY, _RUN, home_of(home)]
    replaced: set[str] = set()
    for path in own:
        real = os.path.realpath(path)
        if not os.path.isdir(real) or _is_below(real, replaced):
            continue
        replaced.add(real)
        if path in _TEMPORARY:
            _replace(upper, real, root, _STICKY)
        elif path == _RUN:
            _replace(upper, real, root, 0o755)
        else:
            _replace(upper, real, user, 0o700)
    for path in hidden:
        real = os.path.realpath(path)
        if not _is_below(real, replaced) and os.path.lexists(real):
            replaced.add(real)
            _hide(upper, real)
    _give(upper, directory, user, replaced)


def opaque() -> str:
    """Return the attribute of a directory that hides all of those below it."""
    return _OPAQUE_OF_USERS if user_namespaces.is_restricted() else _OPAQUE


def _is_below(path: str, others: Collection[str]) -> bool:
    """Whether a path is one of others, or below one of them."""
    return any(path == each or path.startswith(f"{each}/") for each in others)


def _hide(upper: str, path: str) -> None:
    if os.path.isdir(path):
        _replace(upper, path, 0, 0o755)
    else:
        _make_parents(upper, path)
        Path(upper + path).touch(mode=0o600)


def _replace(upper: str, path: str, owner: int, mode: int) -> None:
    """Replace a directory of the machine by an empty one."""
    _make_parents(upper, path)
    place = upper + path
    if not os.path.isdir(place):  # it may be above one that was hidden before
        os.mkdir(place)
    os.chown(place, owner, owner)
    os.chmod(place, mode)
    os.setxattr(place, opaque(), b"y")


def _make_parents(upper: str, path: str) -> None:
    """Make the directories above a place as the machine has them, where they are missing."""
    made = ""
    for part in path.split("/")[1:-1]:
        made += f"/{part}"
        if not os.path.isdir(upper + made):
            _copy(upper, made)


def _copy(upper: str, path: str) -> None:
    found = os.stat(path)
    os.mkdir(upper + path)
    if not user_namespaces.is_restricted():  # there most owners are unmapped
        os.chown(upper + path, found.st_uid, found.st_gid)
    os.chmod(upper + path, stat.S_IMODE(found.st_mode))


def _give(upper: str, directory: str, user: int, replaced: Collection[str]) -> None:
    """Give a container's user its working directory; a missing one is created.

    What only some may read on the machine stays as it is.
    """
    real = os.path.realpath(directory or "/")
    if real == "/" or _is_below(real, replaced):
        if real != "/" and not os.path.isdir(upper + real):
            _make_missing(upper, real, user)
        return
    missing = real
    while not os.path.lexists(missing):
        missing = os.path.dirname(missing)
    if missing != real:
        _make_parents(upper, f"{missing}/x")
        _make_missing(upper, real, user)
    elif os.path.isdir(real) and os.stat(real).st_mode & _EVERYBODY_READS == _EVERYBODY_READS:
        _make_parents(upper, f"{real}/x")
        os.chown(upper + real, user, user)


def _make_missing(upper: str, path: str, user: int) -> None:
    """Make a directory that the machine does not have, and those above it."""
    made = upper
    for part in path.split("/")[1:]:
        made += f"/{part}"
        if not os.path.isdir(made):
            os.mkdir(made)
            os.chown(made, user, user)
            os.chmod(made, 0o755)
