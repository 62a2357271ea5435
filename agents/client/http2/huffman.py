"""The Huffman code of HPACK (RFC 7541, appendix B): `decoded(bytes) → bytes`.

The code is canonical: codes of equal length follow one another in the order of their symbols, so
the lengths say all.
"""

from functools import lru_cache
from typing import Final

_END: Final = 256
"""The symbol that no text contains."""
_PADDING_BITS_MAX: Final = 7

# Lengths of the codes of the symbols 0 to 256, as letters: A is 5 bits.
_LENGTHS: Final = (
    "ISXXXXXXXTZXXZXXXXXXXXZXXXXXXXXXBFFHIBDGFFDGDBBBAAABBBBBBBCDKBHFIBCCCCCCCCCCCCCCCCCCCCCCDC"
    "DIOIJBKABABABBBACCBBBABCBAABCCCCCKGJIXPRPPRRRSRSSSSSTSTTRSTSSSSQRSRSSTRQPRRSSQSRRTQRSSQQRQ"
    "SRSSPRRRSRRSVVPORSRUVVVWWVTUOQVWWVWTQQVVXWWWPTPQRQQSRRUUTTVSVWVVWWWWWXWWWWWVZ"
)


class HuffmanError(ValueError):
    """Bytes that are not valid in this code."""


def _codes() -> dict[tuple[int, int], int]:
    """Return the symbol of each code, by its length and bits."""
    lengths = [ord(letter) - ord("A") + 5 for letter in _LENGTHS]
    codes: dict[tuple[int, int], int] = {}
    code = last = 0
    for symbol in sorted(range(len(lengths)), key=lambda each: (lengths[each], each)):
        code <<= lengths[symbol] - last
        last = lengths[symbol]
        codes[last, code] = symbol
        code += 1
    return codes


_CODES: Final = _codes()


@lru_cache(maxsize=1024)
def decoded(data: bytes) -> bytes:
    """Return what bytes mean; raises HuffmanError."""
    symbols = bytearray()
    code = length = 0
    for byte in data:
        for place in range(7, -1, -1):
            code = code << 1 | byte >> place & 1
            length += 1
            symbol = _CODES.get((length, code))
            if symbol is not None:
                if symbol == _END:
                    raise HuffmanError("the end within a text")
                symbols.append(symbol)
                code = length = 0
    if length > _PADDING_BITS_MAX or code != (1 << length) - 1:
        raise HuffmanError("a text that ends within a code")
    return bytes(symbols)
