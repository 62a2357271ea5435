"""Findings about a machine, and how they are printed.

    Finding("port", "127.0.0.1:6443 is in use", Level.ERROR, "kvstack up cannot listen there")

    ERROR    port             127.0.0.1:6443 is in use
                              kvstack up cannot listen there

A finding is an ERROR if `kvstack up` would not start with it, and LIMITED if it starts but
something that users expect is missing or slow.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple


class Level(Enum):
    """The severity of a finding."""

    OK = "ok"
    LIMITED = "limited"
    ERROR = "ERROR"


class Finding(NamedTuple):
    """One fact of a machine."""

    subject: str
    """A word or two: `cgroups`."""
    found: str
    """What the machine has: `v1: cpu, memory, pids`."""
    level: Level = Level.OK
    consequence: str = ""
    """What follows for the cluster; empty: nothing that a user would notice."""


_LEVEL_WIDTH: Final = max(len(each.value) for each in Level) + 2


def has_error(findings: Iterable[Finding]) -> bool:
    """Return whether `kvstack up` would not start."""
    return any(each.level is Level.ERROR for each in findings)


def as_text(findings: Sequence[Finding]) -> str:
    """Return the findings as a table for people."""
    width = max(len(each.subject) for each in findings) + 2
    lines: list[str] = []
    for each in findings:
        lines.append(f"{each.level.value:{_LEVEL_WIDTH}}{each.subject:{width}}{each.found}")
        if each.consequence:
            lines.append(" " * (_LEVEL_WIDTH + width) + each.consequence)
    return "\n".join(lines) + "\n"


def as_objects(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the findings as plain objects, for `--output json`."""
    return [{**each._asdict(), "level": each.level.value.lower()} for each in findings]


def short(findings: Iterable[Finding]) -> dict[str, str]:
    """Return what is not as it should be, for one line of the log: subject to consequence."""
    return {
        each.subject: each.consequence or each.found
        for each in findings
        if each.level is not Level.OK
    }
