"""Which engines can mount images in containers.

CRI has no call that says it. An engine that does not know the field `image` of a mount sees one
without a source: containerd before 2.1 fails with a text that names neither the image nor the
volume. One that knows `image` but not `image_sub_path` mounts the whole image instead of the
path, without an error. So the version decides; an engine that is not known here is trusted.
"""

import re
from typing import Final, NamedTuple


class _Since(NamedTuple):
    """The first versions of an engine that know the fields of a mount."""

    image: tuple[int, int]
    sub_path: tuple[int, int]


_SINCE: Final = {
    "containerd": _Since((2, 1), (2, 2)),
    "cri-o": _Since((1, 31), (1, 33)),
}
_VERSION: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?!\d)")


def image_mount_problem(engine: str, version: str, *, has_sub_path: bool) -> str:
    """Return why an engine cannot mount an image, or a path in one; empty: as far as known, it can.

    engine and version: as the engine's answer to `Version` has them.
    """
    since = _SINCE.get(engine.lower())
    parsed = _VERSION.match(version)
    if since is None or parsed is None:
        return ""
    number = (int(parsed[1]), int(parsed[2]))
    if number < since.image:
        return _problem("a volume that is an image", since.image, engine, version)
    if has_sub_path and number < since.sub_path:
        return _problem("subPath in a volume that is an image", since.sub_path, engine, version)
    return ""


def _problem(what: str, since: tuple[int, int], engine: str, version: str) -> str:
    return f"{what} needs {engine} {since[0]}.{since[1]} or later: the node has {version}"
