"""The contents of a cluster at one revision.

    contents.rows        the objects as the store holds them, by key, with their revisions
    contents.revision    the store's current revision
    contents.time_s      when that was, as near as it is known
    contents.left_out    what could not be read, or was not to be
    contents.history     what there was before, where the source has it

A cluster that begins with them (`first_rows`) has the same objects, uids, resourceVersions and the
same current revision. What belonged to the source's API servers stays behind (`is_left_behind`).
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
"""The lease of Events from sources that do not tell when they end."""
EVENT_TTL_S: Final = 3600
OBJECTS_MAX: Final = 200_000
"""How many objects are read unless more are asked for."""

_LEFT_BEHIND: Final = (
    # Of API servers: addresses, identities, and what was given to Services, which objects say too.
    b"/registry/masterleases/",
    b"/registry/peerserverleases/",
    b"/registry/leases/kube-system/apiserver-",
    b"/registry/internal.apiserver.k8s.io/storageversions/",
    b"/registry/ranges/",
)
_LAST_KEY: Final = b"/kvstack/revision"
"""What a store holds at its current revision if nothing else was changed then."""


class Origin(NamedTuple):
    """Where contents came from."""

    kind: str
    """In words: `API server`, `etcd snapshot`."""
    name: str
    """The context, endpoints or path."""
    version: str = ""
    """Of the server that was asked, if one was."""


class LeftOut(NamedTuple):
    """Something that is not among the contents, or is not as it was."""

    what: str
    """A resource or a key: `secrets`, `pods.metrics.k8s.io`."""
    why: str
    number: int = 0
    """How many objects; 0: it is not known."""


class History(NamedTuple):
    """The states before the current one, back to a revision."""

    readable_from: int
    records: Sequence[KeyValue]
    """What is not among the rows any more: what was replaced or deleted later, and deletions
    (version 0), in the order of their revisions."""


@dataclass(slots=True)
class Contents:
    """What a cluster holds at a revision; see the module's text."""

    rows: Sequence[KeyValue]
    """In the order of their keys, which all begin with `/registry/`."""
    revision: int
    origin: Origin
    time_s: float = 0.0
    """Since 1970; 0: nothing is known of it."""
    left_out: list[LeftOut] = field(default_factory=list)
    history: History | None = None
    unread: frozenset[GroupResource] = frozenset()
    """Resources of which there may be objects that could not be read."""
    leases: Mapping[int, int] = field(default_factory=dict)
    """The TTL in seconds of the leases that rows and history name."""

    def first_rows(self, *, has_leases: bool = True) -> FirstRows:
        """Return what a member in memory begins with; has_leases: else nothing ends by itself."""
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
    """Whether a key is no object, or one of the API servers that wrote it."""
    return not key.startswith(ROOT) or key.startswith(_LEFT_BEHIND)


def ending_events(rows: Iterable[KeyValue]) -> list[KeyValue]:
    """Return rows with a lease for Events, which otherwise would never end."""
    return [
        kv._replace(lease=EVENT_LEASE) if kv.key.startswith(EVENTS) and not kv.lease else kv
        for kv in rows
    ]
