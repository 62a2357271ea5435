"""The ids of an ordinary user's user namespace: its own, and its subordinate ones.

subordinate_ids(1000, "ada")     Subordinates((100000, 65536), (100000, 65536), "")
maps(1000, 1000, found)          0 is the user itself, 1 and on the subordinate ones
"""

import shutil
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

Row: TypeAlias = tuple[int, int, int]
"""First id inside, first outside, how many."""

NEEDED: Final = 65_535
"""Subordinate ids that are needed besides the user's own, to map all ids that images use."""
_FILES: Final = {"uid": Path("/etc/subuid"), "gid": Path("/etc/subgid")}
_PROGRAMS: Final = {"uid": "newuidmap", "gid": "newgidmap"}


class Subordinates(NamedTuple):
    """The first range of ids of each kind that a user has besides its own."""

    uids: tuple[int, int] = (0, 0)
    """The first, and how many."""
    gids: tuple[int, int] = (0, 0)
    problem: str = ""
    """Why they cannot be used; empty: they can."""


def subordinate_ids(uid: int, name: str) -> Subordinates:
    """Return the subordinate ids of a user; name: empty, if it has none."""
    ids_by_kind: dict[str, tuple[int, int]] = {}
    for kind, file in _FILES.items():
        program = _PROGRAMS[kind]
        if shutil.which(program) is None:
            return Subordinates(problem=f"the program {program} is not installed (package uidmap)")
        try:
            text = file.read_text()
        except OSError as error:
            return Subordinates(problem=f"{file}: {error.strerror}")
        row = first_range(text, uid, name)
        if row is None:
            return Subordinates(problem=f"{file} has no {NEEDED:,} ids of user {name or uid}")
        ids_by_kind[kind] = row
    return Subordinates(ids_by_kind["uid"], ids_by_kind["gid"])


def first_range(text: str, uid: int, name: str) -> tuple[int, int] | None:
    """Return the first large range of a user; text: of /etc/subuid or /etc/subgid."""
    for line in text.splitlines():
        owner, _, rest = line.partition(":")
        first, _, count = rest.partition(":")
        if owner not in (str(uid), name or str(uid)):
            continue
        if first.isdecimal() and count.isdecimal() and int(count) >= NEEDED:
            return int(first), int(count)
    return None


def maps(own: int, subordinate: tuple[int, int]) -> list[Row]:
    """Return the rows of a map: root inside is the user itself."""
    first, count = subordinate
    return [(0, own, 1), *([(1, first, count)] if count else [])]
