"""The managers of a Scale: mapping of replicas to and from its parent.

    Deployment  {"f:spec": {"f:replicas": {}, "f:paused": {}}}   apps/v1
    Scale       {"f:spec": {"f:replicas": {}}}                   autoscaling/v1, the same managers

A write of a Scale goes through an endpoint of its own, with the managers that `scale_entries`
derives from the parent's; `parent_entries` maps the result back. The replicas field of the parent
depends on its version; None: that version has none.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from kvstack.apiserver.apply.field_set import FieldSet, contains, difference, of_path, union
from kvstack.apiserver.apply.managed_fields import (
    Entry,
    Managed,
    Manager,
    Managers,
    decode,
    encode,
)
from kvstack.apiserver.apply.path import FIELD, Path

SCALE_VERSION: Final = "autoscaling/v1"

ReplicasPaths: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""Paths such as `("spec", "replicas")` by apiVersion."""

_REPLICAS: Final[Path] = (FIELD + "spec", FIELD + "replicas")


def scale_entries(parent: Sequence[Entry], paths: ReplicasPaths) -> list[Entry]:
    """Return the entries of a Scale: of all managers that own the parent's replicas.

    Raises ManagedFieldsError.
    """
    owners: Managers = {}
    for manager, managed in decode(parent, parent).items():
        path = _path(paths, managed.api_version)
        if path and contains(managed.fields, path):
            owners[_at_version(manager, SCALE_VERSION)] = Managed(
                of_path(_REPLICAS), SCALE_VERSION, managed.time
            )
    return encode(owners)


def parent_entries(
    parent: Sequence[Entry], scale: Sequence[Entry], api_version: str, paths: ReplicasPaths
) -> list[Entry]:
    """Return the entries of the parent after a write of its Scale.

    parent: its entries before; scale: those of the Scale after; api_version: of the parent in the
    request. Managers of versions that `paths` does not have are left out. Raises
    ManagedFieldsError.
    """
    owners = decode(scale, scale)
    after: Managers = {}
    known_managers: set[Manager] = set()
    for manager, managed in decode(parent, parent).items():
        if managed.api_version not in paths:
            continue
        path = _path(paths, managed.api_version)
        fields = managed.fields
        if path and contains(fields, path):
            owner = _at_version(manager, SCALE_VERSION)
            known_managers.add(owner)
            if owner not in owners:
                fields = difference(fields, of_path(path))
        if fields:
            after[manager] = managed._replace(fields=fields)
    replicas = of_path(_path(paths, api_version) or ())
    for owner, managed in owners.items():
        if owner not in known_managers and contains(managed.fields, _REPLICAS):
            _own(after, _at_version(owner, api_version), replicas, api_version)
    return encode(after)


def _own(managers: Managers, manager: Manager, fields: FieldSet, api_version: str) -> None:
    # Without a time: the parent never had an entry of this manager.
    before = managers.get(manager, Managed({}, api_version))
    managers[manager] = Managed(union(before.fields, fields), api_version, before.time)


def _at_version(manager: Manager, api_version: str) -> Manager:
    return manager._replace(api_version=api_version) if manager.api_version else manager


def _path(paths: ReplicasPaths, api_version: str) -> Path:
    return tuple([FIELD + name for name in paths.get(api_version) or ()])
