"""Compresses bytes that are alike: each against some others, which are its examples.

    packing = Packing()
    packed = packing.of(b'{"kind":"Event","reason":"Scheduled",…}')     None: nothing is saved
    packed.content()                                                   the bytes

A thousand bytes of JSON with the same members and mostly the same values become a hundred and
fifty. Compressing takes about 40 µs and decompressing 10: it is for what is kept long and read
seldom. What compresses badly becomes an example itself, up to EXAMPLES_BYTES_MAX in all.
"""

import zlib
from typing import Final, NamedTuple

EXAMPLES_BYTES_MAX: Final = 8 << 10
_LEVEL: Final = 6
_WINDOW_BITS: Final = -14
"""16 KiB, more than the examples and most texts have; negative: no header, no checksum."""
_MEMORY_LEVEL: Final = 4
"""A small table of strings: to clear a large one takes longer than to compress."""
_POOR: Final = 0.25
"""Of the size, above which something becomes an example."""


class Packed(NamedTuple):
    """Something compressed."""

    data: bytes
    examples: bytes
    """Shared by many."""

    def content(self) -> bytes:
        """Return what was compressed."""
        return zlib.decompressobj(_WINDOW_BITS, self.examples).decompress(self.data)


class Packing:
    """Compresses bytes of one kind."""

    def __init__(self) -> None:
        """Know no example yet."""
        self._examples = b""

    def of(self, content: bytes) -> Packed | None:
        """Return it compressed, or None if that saves nothing."""
        data = self._compressed(content)
        if len(data) > len(content) * _POOR and self._add(content):
            data = self._compressed(content)
        return Packed(data, self._examples) if len(data) < len(content) else None

    def _add(self, content: bytes) -> bool:
        """Make something an example, if there is room; return whether it is one."""
        has_room = 0 < len(content) <= EXAMPLES_BYTES_MAX - len(self._examples)
        if has_room:
            self._examples += content
        return has_room

    def _compressed(self, content: bytes) -> bytes:
        compressor = zlib.compressobj(
            _LEVEL,
            zlib.DEFLATED,
            _WINDOW_BITS,
            _MEMORY_LEVEL,
            zlib.Z_DEFAULT_STRATEGY,
            self._examples,
        )
        return compressor.compress(content) + compressor.flush()
