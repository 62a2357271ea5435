"""A row of docs/differences.md: something that the original does and ours does not."""

from typing import NamedTuple


class Absent(NamedTuple):
    """Something that is not done, and what a user sees instead."""

    what: str
    instead: str
