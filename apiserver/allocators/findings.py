"""What a repair found: which object is to be told, by a Warning event, and what."""

from typing import Any, NamedTuple, TypeAlias

Obj: TypeAlias = dict[str, Any]
"""An object as JSON has it."""


class Finding(NamedTuple):
    """One Warning event to be written."""

    about: Obj
    """The Service or IPAddress that the event regards."""
    reason: str
    action: str
    message: str
