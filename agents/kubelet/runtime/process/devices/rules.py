"""The devices that a container may create and open; all others are refused.

    Rule("c", 1, 3, "rwm")     /dev/null: read, write, make
    Rule("b", ANY, ANY, "m")   a file of any block device may be made, but not opened

The list is runc's: archives that have devices in them can be unpacked. /dev/console is the
container's terminal, one of those of devpts, never the machine's. Privileged containers have no
list.
"""

import os
import stat
from typing import Final, NamedTuple

ANY: Final = -1
CHARACTER, BLOCK = "c", "b"


class Rule(NamedTuple):
    """Devices that may be used, and for what."""

    kind: str
    """CHARACTER or BLOCK."""
    major: int
    """ANY: of all."""
    minor: int
    access: str
    """Some of r, w and m: read, write, make its file."""

    @property
    def file(self) -> tuple[int, int]:
        """Kind and number of the device's file, from `stat`."""
        kind = stat.S_IFCHR if self.kind == CHARACTER else stat.S_IFBLK
        return kind, os.makedev(self.major, self.minor)

    @property
    def line(self) -> str:
        """The rule in the syntax of version 1: "c 136:* rwm"."""
        major, minor = ("*" if each == ANY else str(each) for each in (self.major, self.minor))
        return f"{self.kind} {major}:{minor} {self.access}"


DEFAULT: Final = (
    Rule(CHARACTER, ANY, ANY, "m"),
    Rule(BLOCK, ANY, ANY, "m"),
    *(Rule(CHARACTER, 1, minor, "rwm") for minor in (3, 5, 7, 8, 9)),  # null … urandom
    Rule(CHARACTER, 5, 0, "rwm"),  # tty
    Rule(CHARACTER, 5, 2, "rwm"),  # ptmx
    Rule(CHARACTER, 136, ANY, "rwm"),  # pts
)


def rule_of(path: str, *, is_read_only: bool) -> Rule | None:
    """Return the rule for the device at a path; None: it is not a device."""
    try:
        status = os.stat(path)
    except OSError:
        return None  # a missing file is reported when it is mounted
    kinds = {stat.S_IFCHR: CHARACTER, stat.S_IFBLK: BLOCK}
    kind = kinds.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return None
    access = "rm" if is_read_only else "rwm"
    return Rule(kind, os.major(status.st_rdev), os.minor(status.st_rdev), access)
