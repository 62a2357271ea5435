"""What this machine allows an ordinary user of a node, found by harmless trials.

facts = look()
facts.problem       ""                               a user namespace can be made
                    "Operation not permitted; …"     it cannot, and why
"""

import os
import pwd
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.kubelet.runtime.process.shim.user_namespaces import CLONE_NEWUSER
from kvstack.agents.standalone.rootless.ids import Subordinates, subordinate_ids

NAMESPACES: Final = (
    CLONE_NEWUSER
    | syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWNET
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
)
UPLINKS: Final = ("pasta", "slirp4netns")
"""Programs that connect a network namespace with the machine's network, the better one first."""
_SETTINGS: Final = (
    ("user/max_user_namespaces", "0", "user.max_user_namespaces is 0"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone is 0"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns is 1: a profile of AppArmor is needed",
    ),
)
_SYSCTLS: Final = Path("/proc/sys")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the machine allows."""

    problem: str = ""
    """Why no user namespace can be made; empty: it can."""
    subordinates: Subordinates = field(default_factory=Subordinates)
    uplink: str = ""
    """The program that connects it with the machine's network; empty: none is installed."""


def look() -> Facts:
    """Find out; of a process with a single thread."""
    return Facts(problem(), own_subordinates(), uplink())


def own_subordinates() -> Subordinates:
    """Return the subordinate ids of the user of this process."""
    return subordinate_ids(os.getuid(), user_name())


def uplink() -> str:
    """Return the program that is used; empty: none is installed."""
    return next((each for each in UPLINKS if shutil.which(each)), "")


def user_name() -> str:
    """Return the name of the user of this process; empty: it has none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def problem() -> str:
    """Return why the namespaces of a node cannot be made; empty: they can."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            syscalls.unshare(NAMESPACES)
        except OSError as error:
            code = error.errno or 1
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return explained(os.strerror(code)) if code else ""


def explained(reason: str) -> str:
    """Return why a user namespace could not be made, with the settings that forbid it."""
    causes = [text for name, value, text in _SETTINGS if _is(name, value)]
    return "; ".join([f"a user namespace cannot be made: {reason}", *causes])


def _is(name: str, value: str) -> bool:
    try:
        return (_SYSCTLS / name).read_text().strip() == value
    except OSError:
        return False
