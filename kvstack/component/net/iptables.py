"""The programs of iptables, for one family: `iptables-restore` in, `iptables-save` out.

    restore(4, text)               each table of the text atomically; raises IptablesError
    saved(4, "nat")                one table as text, or all that the kernel has by now
    has_rule(4, "nat", "OUTPUT", '-m comment --comment "to Services" -j X')
    problem(4, text)               why such rules cannot be written here; empty: they can

The installed programs decide whether the rules are nftables or legacy tables. Calls wait for the
program, so they are made in threads.
"""

import os
import shlex
import shutil
import subprocess
from typing import Final

from kvstack.component.net.own_network import in_own_network

_TIMEOUT_S: Final = 300.0
_LOCK_S: Final = "5"
"""Time to wait for another program that changes rules."""
_ERROR_CHARACTERS_MAX: Final = 500
_NAMES: Final = {4: "iptables", 6: "ip6tables"}


class IptablesError(Exception):
    """The program failed, or cannot be run."""


def is_installed(family: int) -> bool:
    """Return whether the programs are installed."""
    return not _missing(family)


def _missing(family: int) -> str:
    """Return the first program that is not installed; empty: all are."""
    name = _NAMES[family]
    programs = (name, f"{name}-restore", f"{name}-save")
    return next((each for each in programs if shutil.which(each) is None), "")


def problem(family: int, text: str) -> str:
    """Return why the rules of a text cannot be written here; empty: they can.

    They are written into a temporary network namespace.
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
    """Apply the changes of a text, and keep all other rules; raises IptablesError."""
    _run([f"{_NAMES[family]}-restore", "-w", _LOCK_S, "--noflush"], text)


def saved(family: int, table: str = "") -> str:
    """Return a table as text, or all tables; raises IptablesError."""
    return _run([f"{_NAMES[family]}-save", *(("-t", table) if table else ())], "")


def has_rule(family: int, table: str, chain: str, rule: str) -> bool:
    """Return whether a chain has a rule."""
    start = [_NAMES[family], "-w", _LOCK_S, "-t", table, "-C", chain]
    try:
        _run([*start, *shlex.split(rule)], "")
    except IptablesError:
        return False
    return True


def _run(command: list[str], stdin: str) -> str:
    try:
        done = subprocess.run(
            command, input=stdin, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except OSError as error:
        raise IptablesError(f"{command[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise IptablesError(f"{command[0]} did not end within {_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise IptablesError(f"{command[0]}: {done.stderr.strip()[:_ERROR_CHARACTERS_MAX]}")
    return done.stdout
