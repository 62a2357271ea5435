"""Has the disk begin to write what a later sync waits for, so that other work is done meanwhile.

    write ─► begin_writeback ─► other work ─► fdatasync waits for what is left, and flushes
                   └─────── the disk writes ───────►

It promises nothing: what was begun may still be lost, and a failure shows in the sync. Where the
system has no such call (Linux has: sync_file_range) or the file system refuses it, the sync does
all of the work.
"""

import ctypes
from typing import Final

_WRITE: Final = 2  # SYNC_FILE_RANGE_WRITE: begin, wait for nothing

_sync_file_range: Final = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _sync_file_range is not None:
    _sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def begin_writeback(descriptor: int, offset: int, size_bytes: int) -> None:
    """Have the disk begin to write these bytes of a file."""
    if _sync_file_range is not None:
        _sync_file_range(descriptor, offset, size_bytes, _WRITE)
