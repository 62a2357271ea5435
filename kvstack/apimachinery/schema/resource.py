"""One row of the table: a resource of one group and version, and its subresources.

Built-in kinds and custom resources have the same rows; those of custom resources are made when a
definition is established.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.schema.types import Type

if TYPE_CHECKING:
    from kvstack.apimachinery.schema.openapi.descriptions import Descriptions

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

BUILT_IN_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)
CUSTOM_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


UNKNOWN_LABEL: Final = "field label not supported: {label}"


@dataclass(slots=True, frozen=True)
class Kind:
    """A group, version and kind."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(slots=True, frozen=True)
class Column:
    """One column of the Table of a kind."""

    name: str
    type: str
    """`string`, `integer`, `number`, `boolean` or `date`."""
    format: str = ""
    description: str = ""
    priority: int = 0
    """0: always shown; 1: with `-o wide`."""


FALLBACK_COLUMNS: Final = (
    Column("Name", "string", "name", "Name of the object."),
    Column("Created At", "date", description="When the object was created."),
)
"""The columns of kinds without their own."""


@dataclass(slots=True, frozen=True)
class Selectable:
    """The fields that a field selector of a resource may name."""

    fields: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Old names, and the fields that they mean."""
    text: str = UNKNOWN_LABEL
    """The error for any other label: `{label}`, or quoted `{quoted}`."""

    def resolve(self, label: str) -> str | None:
        """Return the field of a label; None: the label is not supported."""
        found = self.aliases.get(label, label)
        return found if found in self.fields else None

    def refusal(self, label: str) -> str:
        """Return the error for a label that is not supported."""
        return self.text.format(label=label, quoted=quote(label))


BY_NAME: Final = Selectable(
    ("metadata.name", "metadata.namespace"),
    text='{quoted} is not a known field selector: only "metadata.name", "metadata.namespace"',
)
"""The field labels of resources without their own."""


@dataclass(slots=True, frozen=True)
class Storage:
    """The keys and the version of stored objects."""

    group: str
    version: str
    kind: str
    prefix: str
    """The prefix of keys below `/registry/`, without outer slashes: `services/specs`."""
    is_json: bool = False
    """Whether objects are written as JSON and not as protobuf."""


@dataclass(slots=True, frozen=True)
class Subresource:
    """One subresource, and what it takes and answers."""

    name: str
    kind: Kind
    verbs: tuple[str, ...]
    type: Type | None
    """The type of `kind`; None: it is not an object (options of a stream)."""
    columns: Sequence[Column] = FALLBACK_COLUMNS


def no_components(descriptions: "Descriptions") -> Mapping[str, Any]:
    """Return the OpenAPI components of a built-in resource: the table has them all."""
    return {}


@dataclass(slots=True)
class Resource:
    """One resource of one group and version."""

    group: str
    version: str
    name: str
    """Plural, as in paths."""
    kind: Kind
    singular: str
    is_namespaced: bool
    verbs: tuple[str, ...]
    type: Type
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    storage: Storage | None = None
    """None: its objects are not stored (reviews, bindings)."""
    storage_version_hash: str = ""
    columns: Sequence[Column] = FALLBACK_COLUMNS
    selectable: Selectable = BY_NAME
    returns_deleted: bool = False
    """Whether a delete returns the last state of the object instead of a Status."""
    patches: tuple[str, ...] = BUILT_IN_PATCHES
    is_custom: bool = False
    component: str = ""
    """For a custom resource: the name of its OpenAPI component; the list's ends in `List`."""
    components: "Callable[[Descriptions], Mapping[str, Any]]" = no_components
    """Return the OpenAPI components of a custom resource by name."""
    deprecation: str = ""
    """The warnings that are sent with every answer."""
    fingerprint: str = ""
    """For a custom resource: a value that changes with its definition."""

    @property
    def group_version(self) -> str:
        """As in `apiVersion`: `apps/v1`, `v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """As errors name it: `deployments.apps`, `pods`."""
        return f"{self.name}.{self.group}" if self.group else self.name
