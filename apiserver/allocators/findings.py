"""Findings of a repair: Warning events to write."""

from typing import NamedTuple

from kvstack.apimachinery.objects.json_object import Object


class Finding(NamedTuple):
    """One Warning event to be written."""

    about: Object
    """The Service or IPAddress that the event regards."""
    reason: str
    action: str
    message: str
