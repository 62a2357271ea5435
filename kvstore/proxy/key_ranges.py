"""Ranges of keys as requests have them: a key and a range end.

(b"a", b"")     the key a            (b"a", b"\\0")    all keys from a on
(b"a", b"c")    all keys from a on and before c
"""

from typing import Final

OPEN_END: Final = b"\0"

KeyRange = tuple[bytes, bytes]


def contains(span: KeyRange, key: bytes) -> bool:
    """Return whether a key is in a range."""
    start, end = span
    return start <= key and _is_before_end(key, start, end)


def overlap(one: KeyRange, other: KeyRange) -> bool:
    """Return whether two ranges have a key in common."""
    (start, end), (other_start, other_end) = one, other
    return _is_before_end(start, other_start, other_end) and _is_before_end(other_start, start, end)


def prefix_end(prefix: bytes) -> bytes:
    """Return the range end of all keys that begin with prefix."""
    kept = prefix.rstrip(b"\xff")
    if not kept:
        return OPEN_END
    # etcd keeps the length: "a\xff" gives "b\0", which bounds the same keys as "b".
    return kept[:-1] + bytes([kept[-1] + 1]) + b"\0" * (len(prefix) - len(kept))


def _is_before_end(key: bytes, start: bytes, end: bytes) -> bool:
    if not end:
        return key <= start
    return end == OPEN_END or key < end
