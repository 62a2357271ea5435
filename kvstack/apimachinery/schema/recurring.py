"""Results of pure functions for values that recur: a controller creates many pods of one spec.

    results = RecentResults[FieldSet]()
    key = key_of(spec)                     None: the value cannot be kept
    value_of(key)                          a copy of the spec
    found = results.get(key)               None: not known
    results.put(key, fields)

A key is the whole value, so equal keys mean equal values, down to the order of members and the
difference of `1`, `1.0` and `true`. Only results that nobody changes may be kept. What is kept is
bounded: once it is full, all of it is forgotten, which costs the next calls their time and nothing
else. Results are kept by process, and the same for all clients.
"""

import marshal
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

RECURRING: Final = frozenset(("io.k8s.api.core.v1.PodSpec",))
"""Names of the types whose values recur."""
KEY_BYTES_MAX: Final = 16 << 10
KEYS_BYTES_MAX: Final = 256 << 10
_VERSION: Final = 2
"""The last version of marshal whose text does not depend on which objects a value shares."""


class RecentResults(Generic[T]):
    """The results of one function, by the keys of its arguments."""

    __slots__ = ("_bytes", "_results")

    def __init__(self) -> None:
        self._results: Final[dict[bytes, T]] = {}
        self._bytes = 0

    def get(self, key: bytes | None) -> T | None:
        """Return what is known for a key."""
        return None if key is None else self._results.get(key)

    def put(self, key: bytes | None, result: T | None) -> None:
        """Keep a result; without a key, or if it is None, nothing is kept."""
        if key is None or result is None:
            return
        if self._bytes + len(key) > KEYS_BYTES_MAX:
            self._results.clear()
            self._bytes = 0
        self._bytes += len(key)
        self._results[key] = result


def key_of(value: Any) -> bytes | None:  # noqa: ANN401  # any JSON
    """Return the key of a value of JSON; None if it is too large or not only JSON's types."""
    try:
        key = marshal.dumps(value, _VERSION)
    except ValueError:  # classes of its own, such as repeated members, or too deep
        return None
    return key if len(key) <= KEY_BYTES_MAX else None


def value_of(key: bytes) -> Any:  # noqa: ANN401  # any JSON
    """Return a new copy of the value of a key."""
    return marshal.loads(key)  # noqa: S302 - written by key_of in this process
