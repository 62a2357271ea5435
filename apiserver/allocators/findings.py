"""Findings of a repair: Warning events to write."""

from typing import Any, NamedTuple, TypeAlias

Obj: TypeAlias = dict[str, Any]
"""A JSON object."""


class Finding(NamedTuple):
    """One Warning event to be written."""

    about: Obj
    """The Service or IPAddress that the event regards."""
    reason: str
    action: str
    message: str
