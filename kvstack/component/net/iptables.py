"""The programs of iptables, for one family: `iptables-restore` in, `iptables-save` out.

    restore(4, text)               each table of the text all or nothing; raises IptablesError
    saved(4, "nat")                one table as text, or all that the kernel has by now
    has_rule(4, "nat", "OUTPUT", '-m comment --comment "to Services" -j X')
    problem(4, text)               why rules like those cannot be written here; empty: they can

Whether the kernel has them as nftables or as its older tables is the affair of the programs that
are installed. Calls wait for the program, and are made in threads.
"""

import os
import shlex
import shutil
import subprocess
from typing import Final

from kvstack.component.net.own_network import in_own_network

_TIMEOUT_S: Final = 300.0
_LOCK_S: Final = "5"
"""How long a program waits for another one that changes rules."""
_ERROR_CHARACTERS_MAX: Final = 500
_NAMES: Final = {4: "iptables", 6: "ip6tables"}


class IptablesError(Exception):
    """The program refused, or cannot be run."""


def is_installed(family: int) -> bool:
    """Whether this machine has the programs."""
    return not _missing(family)


def _missing(family: int) -> str:
    """Return the first program that this machine lacks; empty: it has all."""
    name = _NAMES[family]
    programs = (name, f"{name}-restore", f"{name}-save")
    return next((each for each in programs if shutil.which(each) is None), "")


def problem(family: int, text: str) -> str:
    """Return why rules like those of a text cannot be written here; empty: they can.

    They are written into a network namespace that ends at once.
    """
    if program := _missing(family):
        return f"the program {program} is not installed"
    if os.geteuid() != 0:
        return "only root may change the rules of the machine"
    try:
        in_own_network(lambda: restore(family, text))
    except (IptablesError, OSError) as error:
        return str(error)
    return ""


def restore(family: int, text: str) -> None:
    """Carry the changes of a text out, and keep all else; raises IptablesError."""
    _run([f"{_NAMES[family]}-restore", "-w", _LOCK_S, "--noflush"], text)


def saved(family: int, table: str = "") -> str:
    """Return a table as text, or all tables; raises IptablesError."""
    return _run([f"{_NAMES[family]}-save", *(("-t", table) if table else ())], "")


def has_rule(family: int, table: str, chain: str, rule: str) -> bool:
    """Whether a chain has a rule."""
    start = [_NAMES[family], "-w", _LOCK_S, "-t", table, "-C", chain]
    try:
        _run([*start, *shlex.split(rule)], "")
    except IptablesError:
        return False
    return True


def _run(command: list[str], given: str) -> str:
    try:
        done = subprocess.run(
            command, input=given, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except OSError as error:
        raise IptablesError(f"{command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise IptablesError(f"{command[0]} did not end within {_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise IptablesError(f"{command[0]}: {done.stderr.strip()[:_ERROR_CHARACTERS_MAX]}")
    return done.stdout
