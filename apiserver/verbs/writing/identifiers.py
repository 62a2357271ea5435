"""Random UIDs, and random suffixes of generated names.

identifiers = Identifiers(Random(1))
identifiers.new_uid()             → "0e4a5b0e-…"
identifiers.new_name("web-")      → "web-x7k2p"
"""

from random import Random
from typing import Final

from kvstack.apimachinery.objects.metadata import (
    SUFFIX_CHARACTERS,
    SUFFIX_LENGTH,
    generated_name,
)

SUFFIXES: Final = 32
"""Number of suffixes that are generated at once."""
_UIDS: Final = 32
_VARIANTS: Final = {f"{digit:x}": "89ab"[digit & 3] for digit in range(16)}
_SUFFIX_MASK: Final = (1 << 64) - 1


class Identifiers:
    """Generates many at once, since a good random source is slow to read."""

    __slots__ = ("_random", "_suffixes", "_uids")

    def __init__(self, random: Random) -> None:
        """random: the source."""
        self._random = random
        self._uids: list[str] = []
        self._suffixes: list[str] = []

    def forget(self) -> None:
        """Drop what was generated ahead: the source has been seeded again."""
        self._uids, self._suffixes = [], []

    def new_uid(self) -> str:
        """Return a random UID (version 4)."""
        try:
            text = self._uids.pop()
        except IndexError:
            text = f"{self._random.getrandbits(128 * _UIDS):0{32 * _UIDS}x}"
            uids = [text[at : at + 32] for at in range(0, len(text), 32)]
            text = uids.pop()
            self._uids = uids  # the thread of large objects may take the next one at once
        variant = _VARIANTS[text[16]]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"

    def name_suffix(self) -> str:
        """Return the random suffix of a generated name."""
        if not self._suffixes:
            # With this number of bits all characters are equally frequent.
            left = self._random.getrandbits(64 * SUFFIXES)
            for _ in range(SUFFIXES):
                self._suffixes.append(_suffix(left & _SUFFIX_MASK))
                left >>= 64
        return self._suffixes.pop()

    def new_name(self, prefix: str) -> str:
        """Return a name with a random suffix."""
        return generated_name(prefix, self.name_suffix())


def _suffix(number: int) -> str:
    characters: list[str] = []
    for _ in range(SUFFIX_LENGTH):
        number, position = divmod(number, len(SUFFIX_CHARACTERS))
        characters.append(SUFFIX_CHARACTERS[position])
    return "".join(characters)
