"""A file that grows while another process reads it: how the writer tells how far it has come.

    u64 | u64 | u64 | …        bytes written so far, big-endian; END added to the last one

The words travel in a pipe. A pipe that ends without the last word means that the rest of the file
will not come, whatever ended its writer.
"""

import os
from typing import Final

from kvstore.errors import DataDirError

END: Final = 1 << 63
STEP_BYTES_MIN: Final = 1 << 20
STEP_S_MAX: Final = 1.0
_STEP_SHARE: Final = 1024
_WORD: Final = 8
_READ_BYTES: Final = 64 << 10


def word(size_bytes: int, *, is_whole: bool = False) -> bytes:
    """Return the word that tells of so many bytes."""
    return (size_bytes | (END if is_whole else 0)).to_bytes(_WORD, "big")


def is_due(size_bytes: int, told_bytes: int, since_s: float = 0.0) -> bool:
    """Tell whether to send a word of size_bytes after one of told_bytes, since_s ago.

    Steps grow with the file, so that a pipe of 64 KiB has room for all words: no writer ever waits
    for its reader. A slow writer tells of every bit after STEP_S_MAX, for the member that is sent
    the file takes a long silence for its end; at one a second there is room for two hours of them.
    """
    grown_bytes = size_bytes - told_bytes
    is_late = grown_bytes > 0 and since_s >= STEP_S_MAX
    return is_late or grown_bytes >= max(STEP_BYTES_MIN, size_bytes // _STEP_SHARE)


class PipeArrival:
    """The reading end of such a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""  # of a word that is not complete
        self._size_bytes = 0
        self.is_whole = False

    def wait(self, size_bytes: int) -> int:
        """Return how many bytes are there once it is size_bytes, or all there will be.

        DataDirError if the pipe ends before.
        """
        while self._size_bytes < size_bytes and not self.is_whole:
            self._take(os.read(self._descriptor, _READ_BYTES))
        return self._size_bytes

    def wait_for_end(self) -> int:
        """Return the size of the whole file; DataDirError if it stays a part."""
        while not self.is_whole:
            self._take(os.read(self._descriptor, _READ_BYTES))
        return self._size_bytes

    def _take(self, data: bytes) -> None:
        if not data:
            raise DataDirError(f"the file breaks off after {self._size_bytes} bytes")
        data = self._rest + data
        end = len(data) - len(data) % _WORD
        self._rest = data[end:]
        if end:
            last = int.from_bytes(data[end - _WORD : end], "big")
            self.is_whole = bool(last & END)
            self._size_bytes = last & ~END
