"""Keys of objects in the store: /registry/<prefix of the resource>/[namespace/]name.

    prefixes = KeyPrefixes(b"/registry/", ["pods", "services/specs", "apiextensions.k8s.io/c…"])
    prefixes.split(b"/registry/pods/a/web")            → ("pods", "a/web")
    prefixes.split(b"/registry/services/specs/a/web")  → ("services/specs", "a/web")
    prefixes.split(b"/registry/ranges/serviceips")     → None: not of a resource

Prefixes of resources have one or two segments. A key relative to its prefix is a `Record.key`.
"""

from collections.abc import Iterable
from typing import Final

ROOT: Final = "/registry/"


class KeyPrefixes:
    """The resources of keys."""

    def __init__(self, root: str, prefixes: Iterable[str] = ()) -> None:
        """root: with a slash at both ends."""
        self.root = root
        self._start = len(root)
        self._one: set[str] = set()
        self._two: dict[str, set[str]] = {}
        for each in prefixes:
            self.add(each)

    def add(self, prefix: str) -> None:
        """Add a prefix."""
        first, slash, second = prefix.partition("/")
        if slash:
            self._two.setdefault(first, set()).add(second)
        else:
            self._one.add(first)

    def remove(self, prefix: str) -> None:
        """Remove a prefix."""
        first, slash, second = prefix.partition("/")
        if slash:
            self._two[first].discard(second)
        else:
            self._one.discard(first)

    def key(self, prefix: str, key: str) -> bytes:
        """Return the store's key of an object."""
        return f"{self.root}{prefix}/{key}".encode()

    def split(self, key: bytes) -> tuple[str, str] | None:
        """Return the prefix of a resource and the object's key below it; None: no resource."""
        first, _, rest = key[self._start :].decode("utf-8", "replace").partition("/")
        if first in self._one:
            return (first, rest) if rest else None
        seconds = self._two.get(first)
        if seconds is None:
            return None
        second, _, rest = rest.partition("/")
        return (f"{first}/{second}", rest) if second in seconds and rest else None


def object_key(namespace: str, name: str) -> str:
    """Return the key of an object below its resource's prefix."""
    return f"{namespace}/{name}" if namespace else name


def end_of(prefix: str) -> str | None:
    """Return the end of the range of a prefix that ends in a slash; None: no end."""
    return f"{prefix[:-1]}0" if prefix else None
