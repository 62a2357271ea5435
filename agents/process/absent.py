"""A row of docs/differences.md: a feature of the original that is missing."""

from typing import NamedTuple


class Absent(NamedTuple):
    """Something that is not done, and what a user sees instead."""

    what: str
    instead: str
