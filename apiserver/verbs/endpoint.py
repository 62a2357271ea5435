"""Endpoints: a resource, or one of its subresources, in one version.

    endpoints.find("apps", "v1", "deployments", "status")  → Endpoint

An endpoint joins what the table, the hooks of the kind and the registry know, once for all its
requests. Clients see objects in its version; admission, hooks and the registry see the hub version
(registry.registry). Most endpoints are of the hub version, so that nothing is converted.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kvstack.apimachinery.objects.groups import GroupKind, GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.unchanged import keeps
from kvstack.apimachinery.schema.decode import decode
from kvstack.apimachinery.schema.resource import Column, Kind, Resource
from kvstack.apimachinery.schema.types import Type
from kvstack.apimachinery.schema.zeros import Make, zero
from kvstack.apiserver.apiextensions.customresources.resource import CustomResource
from kvstack.apiserver.apply.endpoint import ConversionError
from kvstack.apiserver.apply.endpoint import Endpoint as ApplyEndpoint
from kvstack.apiserver.kinds.strategy import Conversion, Strategy
from kvstack.apiserver.kinds.table import rechecks_finalizers, strategy_of_row
from kvstack.apiserver.kinds.workloads.cells import scale_cells
from kvstack.apiserver.kinds.workloads.scales import SCALE
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.reads import Page
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.verbs.forms.converting import ConvertedVersion

if TYPE_CHECKING:
    from kvstack.apiserver.policy.admission.request import Versions

_NO_HOOKS: Final = Strategy()
_DEPRECATED: Final = {
    ("", "v1", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
    ("", "v1", "endpoints"): (
        "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
    ),
}
"""Warnings of deprecated APIs, by group, version and resource."""


class Endpoint:
    """A resource or subresource in one version."""

    def __init__(
        self, row: Resource, collection: Collection | None, subresource: str, rows: list[Resource]
    ) -> None:
        """rows: all that share the collection."""
        self.row: Final = row
        self.collection: Final = collection
        self.subresource: Final = subresource
        self.main: Final = strategy_of_row(row) or _NO_HOOKS
        """The hooks of the resource."""
        self.strategy: Final = (
            self.main.subresources.get(subresource, self.main) if subresource else self.main
        )
        """The hooks of the subresource, if it is one."""
        below = row.subresources.get(subresource) if subresource else None
        self.kind: Final[Kind] = row.kind if below is None else below.kind
        """The kind that is read and written here."""
        self.type: Final[Type | None] = row.type if below is None else below.type
        self.is_custom_object: Final = row.is_custom and self.kind == row.kind
        """Whether custom resources are read and written here, rather than their Scales."""
        self.cells: Final = self._own_cells()
        self.columns: Final[tuple[Column, ...]] = tuple((below or row).columns)
        self.verbs: Final = (below or row).verbs
        self.has_table: Final = self.strategy.table.is_served and self.verbs != ("create",)
        """Whether Tables are supported: not for reviews, bindings and evictions."""
        self.resource: Final = GroupResource(row.group, row.name)
        self.converted_version: Final = _converted_version(row)
        """Set if a webhook converts the objects, which are then handled in this version."""
        self._is_stored_version = collection is None or collection.codec.kind == row.kind
        self.hub_kind: Final = (
            row.kind
            if collection is None or self.converted_version is not None
            else collection.codec.kind
        )
        self.group_kind: Final = GroupKind(self.hub_kind.group, self.hub_kind.kind)
        """Group and kind as in the 422 of an object."""
        self.api_version: Final = row.group_version
        self.deprecation: Final = row.deprecation or _DEPRECATED.get(
            (row.group, row.version, row.name), ""
        )
        self.is_hub: Final = self.converted_version is not None or self._is_stored_version
        self.rechecks_finalizers: Final = rechecks_finalizers(row.group, row.name)
        self.blank_status: Final = None if collection is None else _blank_status(collection)
        """Makes the status of an object that has none; None: it may be absent."""
        self._conversion = self.main.conversions.get(row.version)
        self.rows: Final = rows
        """All versions that share the collection."""
        self.versions: Versions | None = None
        """The versions as admission sees them; made by the first write that reaches admission."""
        self._versions = {each.group_version: each for each in rows}
        self._apply: ApplyEndpoint | None = None

    def _own_cells(self) -> Callable[[Object, float], list[Any]] | None:
        if self.kind == self.row.kind:
            return self.strategy.cells or self.main.cells
        return scale_cells if self.kind.kind == SCALE else None

    async def read(self, record: Record, *, may_be_old: bool = False) -> Record:
        """Return the object of a record in the endpoint's version; raises ApiError.

        may_be_old: whether a cached conversion suffices.
        """
        converted = self.converted_version
        if converted is None:
            return record
        if may_be_old:
            [found] = await converted.records([record])
            return found
        return await converted.fresh(record)

    async def read_all(self, page: Page) -> Page:
        """Return the objects of a list in the endpoint's version; raises ApiError."""
        converted = self.converted_version
        if converted is None:
            return page
        return page._replace(records=await converted.records(page.records), cached=None)

    def is_outdated(self, record: Record) -> bool:
        """Return whether a record is stored in another version than would be written now."""
        if self.converted_version is None or self.collection is None:
            return False
        return record.parse().get("apiVersion") != self.collection.codec.api_version

    async def to_stored(self, obj: Object) -> Object:
        """Return an object of the endpoint's version in its stored form; raises ApiError."""
        if self._is_stored_version or self.converted_version is None:
            return obj
        assert self.collection is not None, "what is written is stored"
        kind = self.collection.codec.kind
        assert isinstance(self.row, CustomResource), "others are not converted by webhooks"
        stored = _converted_version(self.row.versions[kind.api_version])
        assert stored is not None, "all versions are converted alike"
        return await stored.object(obj)

    @property
    def fields(self) -> ApplyEndpoint:
        """Return the endpoint's field set for server-side apply and managed fields."""
        if self._apply is None:
            assert self.type is not None, "only endpoints with objects are written to"
            self._apply = ApplyEndpoint(
                self.type,
                self.kind.api_version,
                self.kind.kind,
                subresource=self.subresource,
                reset_fields=self.strategy.reset_fields,
                owned_fields=self.strategy.owned_fields,
                convert=self.converted if len(self._versions) > 1 else None,
                checks_versions=self.row.is_custom,
            )
        return self._apply

    def is_of(self, obj: Object) -> bool:
        """Return whether an object is one of the resource, rather than a Scale or the like."""
        return bool(obj.get("kind") == self.hub_kind.kind)

    def default(self, obj: Object, now: str = "") -> None:
        """Apply this version's defaults to an object; now: of the request."""
        if self._conversion is None:
            self.main.default(obj)
        else:
            self._conversion.default(obj)
            if not self.is_hub and not self.row.is_custom:
                self._complete_by_hub(obj)
        if now:
            self.main.default_times(obj, now)

    def _complete_by_hub(self, obj: Object) -> None:
        """Apply the hub version's defaults to an object, and restore what only the hub has."""
        completed = self.from_hub(self.to_hub(json_text.copied(obj)))
        is_reset = (obj.get("metadata") or {}).get("managedFields") == []
        obj.clear()
        obj.update(completed)
        if is_reset:  # decoding drops the request to clear all managers
            obj.setdefault("metadata", {})["managedFields"] = []

    def to_hub(self, obj: Object) -> Object:
        """Return an object of this version in the hub version, with its defaults.

        The argument may be changed.
        """
        if self.is_hub:
            return obj
        if self._conversion is not None:
            obj = self._conversion.to_stored(obj)
            self.main.default(obj)
        obj["apiVersion"], obj["kind"] = self.hub_kind.api_version, self.hub_kind.kind
        if self.row.is_custom and self.collection is not None:
            return decode(obj, self.collection.codec.type).obj  # drops fields unknown to the hub
        if self.collection is not None:
            obj |= decode(obj, self.collection.codec.type).obj
        return obj

    @keeps(1)
    def from_hub(self, obj: Object) -> Object:
        """Return an object of the hub version in this version; the argument is not changed."""
        if self.is_hub:
            return obj
        found = obj if self._conversion is None else self._conversion.to_served(obj)
        found = {**found, "apiVersion": self.row.kind.api_version, "kind": self.row.kind.kind}
        return decode(found, self.row.type).obj

    @keeps(1)
    def converted(self, obj: Object, api_version: str) -> tuple[Object, Type] | None:
        """Return an object in another served version, and its type; None: there is none.

        The argument is not changed, but the result may share parts with it and must not be changed.

        A version of another group does not count: who wrote an event through one group loses its
        fields once somebody writes through the other.
        """
        row = self._versions.get(api_version)
        source = self._versions.get(obj.get("apiVersion", ""))
        if row is None or source is None or row.group != source.group:
            return None
        converted = _converted_version(row)
        if converted is not None:
            return converted.from_cache(obj), row.type
        hub = _convert(obj, self._conversion_of(source), to_hub=True)
        return _convert(hub, self._conversion_of(row), to_hub=False), row.type

    def fields_of(self) -> Callable[[Record], Mapping[str, str]] | None:
        """Return how selectable fields are read if the collection does not keep them.

        If a webhook converts the version they are those of the converted record, which must be
        cached by then.
        """
        own, converted = self.main.selectable, self.converted_version
        if own is None:
            return None
        if converted is not None:
            return lambda record: own(_ready(converted, record).parse())
        return None if self._is_stored_version else lambda record: own(record.parse())

    def _conversion_of(self, row: Resource) -> Conversion | None:
        strategy = strategy_of_row(row) or _NO_HOOKS
        return strategy.conversions.get(row.version)


def _ready(converted: ConvertedVersion, record: Record) -> Record:
    found = converted.ready(record)
    assert found is not None, "what is selected by its fields was converted before"
    return found


def _converted_version(row: Resource) -> ConvertedVersion | None:
    if not isinstance(row, CustomResource) or row.converter is None:
        return None
    return ConvertedVersion(row, row.converter)


def _blank_status(collection: Collection) -> Make | None:
    field = collection.codec.type.fields.get("status")
    return None if field is None or field.is_pointer or field.omit_empty else zero(field.type)


def _convert(obj: Object, conversion: Conversion | None, *, to_hub: bool) -> Object:
    if conversion is None:
        return obj
    try:
        return conversion.to_stored(obj) if to_hub else conversion.to_served(obj)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConversionError(f"the object cannot be converted: {error!r}") from error


class Endpoints:
    """All endpoints of the served resources."""

    def __init__(self, rows: list[Resource], registry: Registry) -> None:
        """Endpoints are made when they are first looked up."""
        self._registry = registry
        self._rows = {(each.group, each.version, each.name): each for each in rows}
        self._versions = {(each.group, each.version) for each in rows}
        self._custom_versions: set[tuple[str, str]] = set()
        self._found: dict[tuple[str, str, str, str], Endpoint] = {}

    def set_custom(self, rows: list[Resource]) -> None:
        """Serve these custom resources, and no others; drops all endpoints."""
        kept = [each for each in self._rows.values() if not each.is_custom]
        self._rows = {(each.group, each.version, each.name): each for each in [*kept, *rows]}
        self._versions = {(each.group, each.version) for each in self._rows.values()}
        built_in = {(each.group, each.version) for each in kept}
        self._custom_versions = self._versions - built_in
        self._found.clear()

    @property
    def rows(self) -> list[Resource]:
        """The served rows, in order."""
        return list(self._rows.values())

    def serves(self, group: str, version: str) -> bool:
        """Return whether anything of a version is served."""
        return (group, version) in self._versions

    def is_custom(self, group: str, version: str) -> bool:
        """Return whether everything of a version is a custom resource."""
        return (group, version) in self._custom_versions

    def find(self, group: str, version: str, resource: str, subresource: str) -> Endpoint | None:
        """Return an endpoint; None: there is no such resource or subresource."""
        key = (group, version, resource, subresource)
        endpoint = self._found.get(key)
        if endpoint is None:
            row = self._rows.get(key[:3])
            if row is None or (subresource and subresource not in row.subresources):
                return None
            endpoint = self._found[key] = self._make(row, subresource)
        return endpoint

    def _make(self, row: Resource, subresource: str) -> Endpoint:
        collection = self._registry.find(GroupResource(row.group, row.name))
        sharing = [
            each
            for each in self._rows.values()
            if row.storage and each.storage and each.storage.prefix == row.storage.prefix
        ]
        return Endpoint(row, collection, subresource, sharing)
