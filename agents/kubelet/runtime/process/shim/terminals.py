"""The terminal of a container or of a command in it: one of the container's own devpts.

Nothing in the container's /dev is believed: the devpts is recognized by the kind of its file
system, in which only the kernel makes names, and the container's side is opened through the
terminal itself.
"""

import errno
import fcntl
import os
import socket
import stat
import struct
import termios
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import rooted, syscalls

_UNLOCK, _PEER = 0x40045431, 0x5441
"""Requests about a terminal: TIOCSPTLCK, TIOCGPTPEER (from Linux 4.13)."""
_FLAGS: Final = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC


def take_terminal(*, is_console: bool) -> None:
    """Make a terminal the one of this session and its 0, 1 and 2; OSError.

    What stands at 0 is a socket, through which its other side is handed over.
    is_console: whether it is bound at /dev/console, too.
    """
    root = rooted.open_root("/")
    ours = _open_master(root)
    fcntl.ioctl(ours, _UNLOCK, struct.pack("i", 0))
    terminal = fcntl.ioctl(ours, _PEER, _FLAGS)
    with socket.socket(fileno=os.dup(0)) as connection:
        socket.send_fds(connection, [b"t"], [ours])
    os.close(ours)
    if is_console:
        console = rooted.make(root, "/dev/console", is_file=True)
        syscalls.mount(rooted.path_of(terminal), rooted.path_of(console), "", syscalls.MS_BIND)
        os.close(console)
    os.close(root)
    for each in range(3):
        os.dup2(terminal, each)
    os.close(terminal)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _open_master(root: int) -> int:
    """Open a terminal of the devpts at /dev/pts; OSError: it is not a devpts."""
    directory = rooted.find(root, "/dev/pts")
    try:
        found = os.fstat(directory)
        is_devpts = syscalls.file_system(directory) == syscalls.DEVPTS_MAGIC
        if not is_devpts or not stat.S_ISDIR(found.st_mode):
            raise OSError(errno.ENOTTY, "/dev/pts is not a devpts")
        return os.open("ptmx", _FLAGS | os.O_NOFOLLOW, dir_fd=directory)
    finally:
        os.close(directory)
