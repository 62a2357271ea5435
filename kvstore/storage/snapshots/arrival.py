"""Progress reports of a file's writer to a process that reads the file meanwhile.

    u64 | u64 | u64 | …        bytes written so far, big-endian; END is added to the last one

The reports go through a pipe. A pipe that ends without the last report means that the rest of the
file will not be written, whatever ended its writer.
"""

import os
from typing import Final

from kvstore.errors import DataDirError

END: Final = 1 << 63
STEP_BYTES_MIN: Final = 1 << 20
STEP_S_MAX: Final = 1.0
_STEP_SHARE: Final = 1024
_REPORT_BYTES: Final = 8
_READ_BYTES: Final = 64 << 10


def report(size_bytes: int, *, is_complete: bool = False) -> bytes:
    """Return the report that size_bytes are written."""
    return (size_bytes | (END if is_complete else 0)).to_bytes(_REPORT_BYTES, "big")


def is_report_due(size_bytes: int, reported_bytes: int, since_s: float = 0.0) -> bool:
    """Return whether to report size_bytes after a report of reported_bytes, since_s ago.

    Steps grow with the file, so that a pipe of 64 KiB has room for all reports: no writer ever
    waits for its reader. A slow writer reports any growth after STEP_S_MAX, because the member that
    receives the file treats a long silence as its end; at one a second the pipe has room for two
    hours of them.
    """
    grown_bytes = size_bytes - reported_bytes
    is_late = grown_bytes > 0 and since_s >= STEP_S_MAX
    return is_late or grown_bytes >= max(STEP_BYTES_MIN, size_bytes // _STEP_SHARE)


class PipeArrival:
    """The reading end of such a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._partial = b""  # of a report that is not complete
        self._size_bytes = 0
        self.is_complete = False

    def wait(self, size_bytes: int) -> int:
        """Return how many bytes are written, once that is size_bytes or the file is complete.

        DataDirError if the pipe ends before.
        """
        while self._size_bytes < size_bytes and not self.is_complete:
            self._receive(os.read(self._descriptor, _READ_BYTES))
        return self._size_bytes

    def wait_for_end(self) -> int:
        """Return the size of the complete file; DataDirError if it stays incomplete."""
        while not self.is_complete:
            self._receive(os.read(self._descriptor, _READ_BYTES))
        return self._size_bytes

    def _receive(self, data: bytes) -> None:
        if not data:
            raise DataDirError(f"the file is truncated after {self._size_bytes} bytes")
        data = self._partial + data
        end = len(data) - len(data) % _REPORT_BYTES
        self._partial = data[end:]
        if end:
            last = int.from_bytes(data[end - _REPORT_BYTES : end], "big")
            self.is_complete = bool(last & END)
            self._size_bytes = last & ~END
