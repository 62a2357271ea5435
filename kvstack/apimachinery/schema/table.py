"""The table of all kinds: resources in the order of discovery, and types by name.

    table.resource("apps", "v1", "deployments").type.fields["spec"]
    table.kind("apps", "v1", "Deployment")
    for each in table: …

Types are built at their first use; a type keeps all types that it refers to alive. Rows can be
added and removed while the server runs (custom resources); the table does no locking.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kvstack.apimachinery.schema.resource import Kind, Resource
from kvstack.apimachinery.schema.types import Type

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_IN_EVERY_GROUP: Final = frozenset(
    {
        "CreateOptions",
        "DeleteOptions",
        "GetOptions",
        "ListOptions",
        "PatchOptions",
        "UpdateOptions",
        "WatchEvent",
    }
)


class Priority(NamedTuple):
    """The position of a group and version in discovery; higher is earlier."""

    group: int
    version: int


CUSTOM_PRIORITY: Final = Priority(1000, 100)
"""The priority of the groups and versions of custom resources."""
_AGGREGATOR: Final = "apiregistration.k8s.io"
_FIRST: Final = Priority(1 << 20, 1)
"""The priority of a group without an APIService."""


class Table:
    """All resources that can be served, and all types."""

    def __init__(
        self,
        types: Mapping[str, Type],
        kinds: Mapping[Kind, str],
        resources: list[Resource],
        priorities: Mapping[str, Priority],
    ) -> None:
        """Hold the given rows, in order; `kinds` names the types of the kinds of objects."""
        self.types = types
        """Types by their names in OpenAPI v3; KeyError for an unknown name."""
        self.priorities = priorities
        """Priorities of the built-in groups and versions, such as `apps/v1`, with an APIService."""
        self._kind_names = kinds
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[Kind, Resource] = {}
        for each in resources:
            self.add(each)

    def priority(self, group: str, version: str) -> Priority:
        """Return where discovery lists a group and version, also those of custom resources."""
        found = self.priorities.get(f"{group}/{version}" if group else version)
        if found is None and group == _AGGREGATOR:
            return _FIRST
        return found or CUSTOM_PRIORITY

    def resource(self, group: str, version: str, name: str) -> Resource | None:
        """Return the row of a resource by its plural name."""
        return self._resources.get((group, version, name))

    def kind(self, group: str, version: str, kind: str) -> Resource | None:
        """Return the row whose objects are of a kind; the first one if there are several."""
        return self._by_kind.get(Kind(group, version, kind))

    def type_of(self, kind: Kind) -> Type | None:
        """Return the type of a kind of objects, also of lists, options and other bodies.

        Options are kinds of every group and version, known or not.
        """
        row = self._by_kind.get(kind)
        if row is not None:
            return row.type
        name = self._kind_names.get(kind)
        if name is None and kind.kind in _IN_EVERY_GROUP:
            name = f"{_META}.{kind.kind}"
        return None if name is None else self.types[name]

    def __iter__(self) -> Iterator[Resource]:
        """Return all rows in the order of discovery, those added later last."""
        return iter(self._resources.values())

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._resources)

    def add(self, row: Resource) -> None:
        """Add a row, or replace the row with its group, version and name."""
        key = (row.group, row.version, row.name)
        old = self._resources.get(key)
        if old is not None and self._by_kind.get(old.kind) is old:
            del self._by_kind[old.kind]
        self._resources[key] = row
        self._by_kind.setdefault(row.kind, row)

    def remove(self, group: str, version: str, name: str) -> None:
        """Remove a row; KeyError if it does not exist."""
        row = self._resources.pop((group, version, name))
        if self._by_kind.get(row.kind) is row:
            del self._by_kind[row.kind]
