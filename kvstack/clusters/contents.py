"""The contents of a cluster at one revision.

    contents.rows        the objects as the store holds them, by key, with their revisions
    contents.revision    the store's current revision
    contents.time_s      its time, as near as it is known
    contents.left_out    what could not be read, or was not to be
    contents.history     what there was before, where the source has it

A cluster that starts with them (`first_rows`) has the same objects, uids, resourceVersions and the
same current revision. What belonged to the source's API servers is left out (`is_left_behind`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.groups import GroupResource
from kvstore.client.values import KeyValue as KeyValue
from kvstore.embed import FirstRows

ROOT: Final = b"/registry/"
EVENTS: Final = b"/registry/events/"
EVENT_LEASE: Final = 1
"""The lease of Events from sources without their time of expiry."""
EVENT_TTL_S: Final = 3600
OBJECTS_MAX: Final = 200_000
"""The default limit of objects that are read."""

_LEFT_BEHIND: Final = (
    # Of API servers: addresses, identities, and allocations, which the Services' objects show, too.
    b"/registry/masterleases/",
    b"/registry/peerserverleases/",
    b"/registry/leases/kube-system/apiserver-",
    b"/registry/internal.apiserver.k8s.io/storageversions/",
    b"/registry/ranges/",
)
_LAST_KEY: Final = b"/kvstack/revision"
"""The key that holds the current revision if no other key was changed then."""


class Origin(NamedTuple):
    """The source of contents."""

    kind: str
    """The kind of source: `API server`, `etcd snapshot`."""
    name: str
    """The context, endpoints or path."""
    version: str = ""
    """The version of the server, if a server was read."""


class LeftOut(NamedTuple):
    """Something that is not among the contents, or is not as it was."""

    what: str
    """A resource or a key: `secrets`, `pods.metrics.k8s.io`."""
    why: str
    number: int = 0
    """The number of objects; 0: unknown."""


class History(NamedTuple):
    """The states before the current one, back to a revision."""

    readable_from: int
    records: Sequence[KeyValue]
    """Earlier rows: those replaced or deleted later, and deletions (version 0), in the order of
    their revisions."""


@dataclass(slots=True)
class Contents:
    """The contents of a cluster at a revision; see the module's text."""

    rows: Sequence[KeyValue]
    """Sorted by key; all keys start with `/registry/`."""
    revision: int
    origin: Origin
    time_s: float = 0.0
    """Since 1970; 0: unknown."""
    left_out: list[LeftOut] = field(default_factory=list)
    history: History | None = None
    unread: frozenset[GroupResource] = frozenset()
    """Resources of which there may be objects that could not be read."""
    leases: Mapping[int, int] = field(default_factory=dict)
    """The TTL in seconds of the leases that rows and history name."""

    def first_rows(self, *, has_leases: bool = True) -> FirstRows:
        """Return the first rows of a member in memory; has_leases: Events have leases and end."""
        records: list[KeyValue] = [*self.rows, *(self.history.records if self.history else ())]
        records.sort(key=attrgetter("mod_revision", "key"))
        readable_from = self.history.readable_from if self.history else self.revision
        last = records[-1].mod_revision if records else 0
        if last < self.revision and readable_from < self.revision:
            at = self.revision
            records.append(KeyValue(_LAST_KEY, b"", at, at, 1, 0))
        if not has_leases:
            records = [kv._replace(lease=0) if kv.lease else kv for kv in records]
        leases = self.leases if has_leases else {}
        return FirstRows(records, self.revision, readable_from, leases)


def is_left_behind(key: bytes) -> bool:
    """Return whether a key is not an object, or one of the API servers that wrote it."""
    return not key.startswith(ROOT) or key.startswith(_LEFT_BEHIND)


def ending_events(rows: Iterable[KeyValue]) -> list[KeyValue]:
    """Return rows with a lease for Events, which otherwise would never end."""
    return [
        kv._replace(lease=EVENT_LEASE) if kv.key.startswith(EVENTS) and not kv.lease else kv
        for kv in rows
    ]
