"""The program of shims and of containers' first processes: this process's interpreter.

    interpreter = Interpreter()
    interpreter.open()
    interpreter.path         to be executed instead of sys.executable

A container can have it executed again as a process of its own (a script that begins with
`#!/proc/self/exe`), and then reaches the file on the machine by /proc/self/exe: the class of
CVE-2019-5736. So it is executed by a mount that can only be read, which no directory shows.
"""

import os
import sys

from kvstack.agents.kubelet.runtime.process.shim import syscalls


class Interpreter:
    """The interpreter, which containers cannot change."""

    def __init__(self) -> None:
        self._held = -1
        self.problem = ""
        """Why containers could change it; empty: they cannot."""

    def open(self) -> None:
        """Make the mount; where the kernel cannot, `problem` says so."""
        flags = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV
        try:
            self._held = syscalls.copy_of_mount(os.path.realpath(sys.executable), flags)
        except OSError as error:
            self.problem = str(error)

    @property
    def path(self) -> str:
        """The path to execute."""
        if self._held < 0:
            return sys.executable
        return f"/proc/{os.getpid()}/fd/{self._held}"

    def close(self) -> None:
        """End the mount, once what runs by it has ended."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
