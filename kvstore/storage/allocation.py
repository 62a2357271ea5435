"""Reserves blocks for a file beyond its end, so that later writes there need no free space.

The length of the file stays as it is (fallocate with FALLOC_FL_KEEP_SIZE). The blocks belong to the
file, also after a crash, until it is removed or truncated. On file systems that write every change
to a new location (btrfs, ZFS) a reserved block can be written once; on others the call is refused,
and `is_refused` distinguishes such an error from a full disk.
"""

import ctypes
import errno
import os
from typing import Final

_KEEP_SIZE: Final = 1
_REFUSED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV})

_fallocate: Final = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None) or getattr(
    ctypes.CDLL(None, use_errno=True), "fallocate", None
)
if _fallocate is not None:
    _fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def reserve(descriptor: int, offset: int, size_bytes: int) -> None:
    """Allocate what has no blocks yet of these bytes of a file; raises OSError."""
    if _fallocate is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    while _fallocate(descriptor, _KEEP_SIZE, offset, size_bytes) != 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


def is_refused(error: OSError) -> bool:
    """Return whether the file system or the operating system cannot reserve blocks at all."""
    return error.errno in _REFUSED


def free_reserved(descriptor: int) -> None:
    """Free the blocks beyond the end of a file; raises OSError."""
    os.ftruncate(descriptor, os.fstat(descriptor).st_size)
