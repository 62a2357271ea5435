"""The versions of a resource as admission sees them: conversion in both directions.

    versions = RequestVersions(endpoint, endpoints)
    shown = await versions.show(obj, versioned)
    obj = await versions.take(patched, versioned)

Plugins see objects in the hub version. A webhook or policy sees the version that its rules name.
"""

from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.decode import DecodeError, decode
from kvstack.apimachinery.schema.stored_form import without_empty
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.policy.admission.request import VersionedResource
from kvstack.apiserver.verbs.endpoint import Endpoint, Endpoints


class RequestVersions:
    """The versions of one endpoint's resource; see `policy.admission.request.Versions`."""

    def __init__(self, endpoint: Endpoint, endpoints: Endpoints) -> None:
        self._endpoint: Final = endpoint
        self._endpoints: Final = endpoints
        self.served: Final[tuple[VersionedResource, ...]] = (
            _versioned(endpoint),
            *(_versioned(each) for each in self._others()),
        )

    def _others(self) -> list[Endpoint]:
        own, below = self._endpoint.row, self._endpoint.subresource
        rows = [each for each in self._endpoint.rows if each is not own]
        found = [self._endpoints.find(e.group, e.version, e.name, below) for e in rows]
        return [each for each in found if each is not None]

    async def show(self, obj: Object, versioned: VersionedResource) -> Object:
        """Return an object in a version; the argument is not changed. Raises ApiError."""
        endpoint = self._at(versioned)
        if not endpoint.is_of(obj) or endpoint.type is None:
            return obj
        if endpoint.converted_version is not None:
            return await endpoint.converted_version.object(obj)
        return without_empty(endpoint.from_hub(obj), endpoint.type)

    async def take(self, obj: Object, versioned: VersionedResource) -> Object:
        """Return a plain object of a version in the hub version; raises ApiError."""
        endpoint = self._at(versioned)
        type_ = endpoint.type
        assert type_ is not None, "what is patched has a type"
        try:
            decoded = decode(obj, type_).obj
            decoded = {
                "kind": versioned.kind.kind,
                "apiVersion": versioned.kind.api_version,
                **decoded,
            }
            if endpoint.kind == endpoint.row.kind:
                endpoint.default(decoded)
                decoded = endpoint.to_hub(decoded)
                own = self._endpoint.converted_version
                if own is not None:
                    decoded = await own.object(decoded)
        except DecodeError as error:
            raise status.internal_error(str(error)) from error
        return decoded

    def type_of(self, versioned: VersionedResource) -> Type:
        """Return the type of the objects in a version."""
        found = self._at(versioned).type
        assert found is not None, "what is patched has a type"
        return found

    def _at(self, versioned: VersionedResource) -> Endpoint:
        below = self._endpoint.subresource
        found = self._endpoints.find(versioned.group, versioned.version, versioned.resource, below)
        if found is None:
            text = f"unable to convert to {versioned.group}/{versioned.version}: unknown kind"
            raise status.internal_error(text)
        return found


def _versioned(endpoint: Endpoint) -> VersionedResource:
    row = endpoint.row
    return VersionedResource(row.group, row.version, row.name, endpoint.kind)
