"""The interface of sources.

    contents = await source.read(ReadOptions(objects_max=50_000), progress)

A source only reads. What cannot be read at all is a SourceError, which names what and why; what
could not be read in part is among the contents (`left_out`).
"""

from typing import Final, NamedTuple, Protocol

from kvstack.clusters.contents import OBJECTS_MAX, Contents
from kvstack.component.errors import ConfigError


class SourceError(ConfigError):
    """Contents cannot be read; the text names what and why."""


class TooManyObjectsError(SourceError):
    """There are more objects than the limit."""

    def __init__(self, objects_max: int, at: str) -> None:
        """at: the object or resource that is one too many."""
        super().__init__(
            f"there are more than {objects_max} objects (at {at}); --max-objects reads more, "
            "--namespace fewer"
        )


class ReadOptions(NamedTuple):
    """What is read, and its limits."""

    objects_max: int = OBJECTS_MAX
    namespaces: tuple[str, ...] = ()
    """Of namespaced objects; none: all."""
    has_events: bool = True
    at: str = ""
    """A revision or, of our API servers, a time (RFC 3339); empty: now."""
    since_s: float | None = None
    """How far back the history goes; 0: none; None: what the source has without extra reads."""
    encryption_config: str = ""
    """The file of an EncryptionConfiguration; empty: what is encrypted is left out."""
    etcd_prefix: str = "/registry"


class Progress(Protocol):
    """Shows the progress of long steps."""

    def say(self, text: str) -> None:
        """Replace the line of progress."""
        ...


class Silent:
    """Shows no progress."""

    def say(self, text: str) -> None:
        """Drop it."""


class Source(Protocol):
    """Something that contents can be read from."""

    @property
    def name(self) -> str:
        """The name of forks of it: a context, or the name of a file."""
        ...

    async def read(self, options: ReadOptions, progress: Progress) -> Contents:
        """Return the contents; raises SourceError."""
        ...


EVERY_OBJECTS: Final = 500
"""The number of objects after which progress is shown again."""
