"""Requests of the server to itself: through the verbs, without HTTP, as system:apiserver.

    await loopback.create(NAMESPACES, {"metadata": {"name": "kube-public"}})
    await loopback.update(LEASES, changed)

Admission, defaults, validation and managed fields apply as for other clients. Objects are in the
storage version, with or without `kind` and `apiVersion`.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.request_info import request_info
from kvstack.apimachinery.schema.resource import APPLY_PATCH as APPLY
from kvstack.apiserver.registry.timing import now_text
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.dispatch import VERBS
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.environment import Environment
from kvstack.apiserver.verbs.forms.bodies import JSON
from kvstack.apiserver.verbs.results import Result, Stored

NAMESPACES: Final = GroupResource("", "namespaces")
USER: Final = User("system:apiserver", groups=(PRIVILEGED,))
MANAGER: Final = "kube-apiserver"

_METHODS: Final = {"create": "POST", "update": "PUT", "delete": "DELETE", "patch": "PATCH"}


class Loopback:
    """Reads and writes objects through the verbs."""

    def __init__(self, env: Environment) -> None:
        self._env: Final = env

    def get(self, resource: GroupResource, namespace: str, name: str) -> Object | None:
        """Return an object from the watch cache; it must not be changed."""
        return self._env.registry.view.get(resource, namespace, name)

    def serves(self, resource: GroupResource) -> bool:
        """Return whether a resource is served."""
        return self._env.registry.find(resource) is not None

    async def create(
        self, resource: GroupResource, obj: Mapping[str, Any], manager: str = MANAGER
    ) -> Object:
        """Create an object; raises ApiError."""
        return _object(await self._do("create", resource, obj, manager=manager))

    async def create_namespace(self, name: str) -> None:
        """Create a namespace; raises ApiError."""
        await self.create(NAMESPACES, {"metadata": {"name": name}})

    async def update(
        self, resource: GroupResource, obj: Mapping[str, Any], manager: str = MANAGER
    ) -> Object:
        """Replace an object; raises ApiError, 409 if its resourceVersion differs."""
        return _object(await self._do("update", resource, obj, manager=manager))

    async def apply(
        self,
        resource: GroupResource,
        obj: Mapping[str, Any],
        manager: str,
        subresource: str = "",
    ) -> Object:
        """Apply fields of an object, by force; raises ApiError."""
        return _object(
            await self._do(
                "patch", resource, obj, subresource=subresource, manager=manager, type_=APPLY
            )
        )

    async def delete(self, resource: GroupResource, obj: Mapping[str, Any]) -> None:
        """Delete an object if its uid and resourceVersion still match; raises ApiError."""
        metadata = obj["metadata"]
        conditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": conditions,
        }
        await self._do("delete", resource, obj, body=options)

    async def _do(
        self,
        verb: str,
        resource: GroupResource,
        obj: Mapping[str, Any],
        *,
        subresource: str = "",
        body: Mapping[str, Any] | None = None,
        manager: str = MANAGER,
        type_: str = JSON,
    ) -> Result:
        endpoint = self._endpoint(resource, subresource)
        path = _path(endpoint, obj["metadata"], has_name=verb != "create")
        if body is None:
            kind = endpoint.kind
            body = {"kind": kind.kind, "apiVersion": kind.api_version, **obj}
        call = Call(
            self._env,
            endpoint,
            request_info(_METHODS[verb], path),
            USER,
            {"fieldManager": [manager], **({"force": ["true"]} if type_ == APPLY else {})},
            now_text(self._env.clock),
            orjson.dumps(body),
            type_,
        )
        return await VERBS[verb](call)

    def _endpoint(self, resource: GroupResource, subresource: str) -> Endpoint:
        collection = self._env.registry.collection(resource)
        version = collection.codec.api_version.rpartition("/")[2]
        found = self._env.endpoints.find(resource.group, version, resource.resource, subresource)
        if found is None:
            raise LookupError(f"{resource} is not served")
        return found


def _path(endpoint: Endpoint, metadata: Mapping[str, Any], *, has_name: bool) -> str:
    row = endpoint.row
    parts = ["/apis", row.group_version] if row.group else ["/api", row.version]
    if row.is_namespaced:
        parts += ["namespaces", metadata["namespace"]]
    parts.append(row.name)
    if has_name:
        parts.append(metadata["name"])
        if endpoint.subresource:
            parts.append(endpoint.subresource)
    return "/".join(parts)


def _object(result: Result) -> Object:
    assert isinstance(result, Stored), (
        "the server's own writes are complete objects and no dry runs"
    )
    return result.record.parse()
