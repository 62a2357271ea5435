"""A change that is files: each of their objects is applied, as by `kubectl apply --server-side`.

    FileChange(manifests)             Namespaces and definitions first, else in their order
    FileChange(manifests, Pruning())  and what they have no more is deleted

What an earlier `kubectl apply` set and the files have no more is removed: its fields pass to the
manager that applies here, as kubectl itself hands them over. Conflicts are overruled.
"""

from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from kvstack.agents.client.api import Api
from kvstack.agents.client.resource_type import ResourceType
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import APPLY_PATCH, JSON_PATCH
from kvstack.clusters.plan.change import Change, Outcome, PlanError, Site
from kvstack.clusters.plan.pruning import Applied, Pruning, pruned
from kvstack.clusters.sources.manifest_files import Manifest

MANAGER: Final = "kubectl"
_CLIENT_SIDE: Final = "kubectl-client-side-apply"
_FIRST: Final = ("Namespace", "CustomResourceDefinition")
_TRIES: Final = 10
_AGAIN_S: Final = 0.5
"""Definitions are served a moment after they are made."""


class FileChange(Change):
    """Applies the objects of files."""

    def __init__(self, manifests: Sequence[Manifest], pruning: Pruning | None = None) -> None:
        """Apply nothing yet; pruning: what is deleted that files have no more; None: nothing."""
        self._manifests: Final = sorted(manifests, key=lambda each: each.obj["kind"] not in _FIRST)
        self._pruning: Final = pruning
        self._types: Final[dict[tuple[str, str], ResourceType]] = {}

    @override
    async def make(self, site: Site) -> Outcome:
        applied = []
        for each in self._manifests:
            for attempt in range(1, _TRIES + 1):
                try:
                    applied.append(await self._apply(site.api, each))
                except ApiError as error:
                    if not error.is_not_found or attempt == _TRIES:
                        raise PlanError(f"{each.at}: {error.message}") from error
                    await site.pass_time(_AGAIN_S)
                else:
                    break
        if self._pruning is not None:
            try:
                await pruned(site.api, self._pruning, applied)
            except ApiError as error:
                raise PlanError(f"--prune: {error.message}") from error
        return Outcome(site.writes.passed_s)

    async def _apply(self, api: Api, manifest: Manifest) -> Applied:
        obj = manifest.obj
        meta = obj["metadata"]
        resource = await self._type(api, manifest)
        namespace = (meta.get("namespace") or "default") if resource.is_namespaced else ""
        await _take_over(api, resource, namespace, meta["name"])
        after = await api.patch(
            resource,
            namespace,
            meta["name"],
            _applied(obj),
            APPLY_PATCH,
            field_manager=MANAGER,
            force=True,
        )
        return Applied(namespace, after["metadata"]["uid"])

    async def _type(self, api: Api, manifest: Manifest) -> ResourceType:
        """Return the resource of an object; ApiError 404: its version is not served."""
        api_version, kind = manifest.obj["apiVersion"], manifest.obj["kind"]
        found = self._types.get((api_version, kind))
        if found is not None:
            return found
        group, _, version = api_version.rpartition("/")
        path = f"/apis/{api_version}" if group else f"/api/{version}"
        answered = await api.call("GET", path)
        for each in answered.get("resources") or ():
            if each["kind"] == kind and "/" not in each["name"]:
                found = ResourceType(group, version, each["name"], kind, each["namespaced"])
                self._types[api_version, kind] = found
                return found
        raise PlanError(f"{manifest.at}: {api_version} has no kind {kind}")


def _applied(obj: Object) -> Object:
    """Return an object as it may be applied."""
    meta = {
        name: value
        for name, value in obj["metadata"].items()
        if name not in ("managedFields", "resourceVersion", "uid", "creationTimestamp")
    }
    found = {name: value for name, value in obj.items() if name != "status"}
    return {**found, "metadata": meta}


async def _take_over(api: Api, resource: ResourceType, namespace: str, name: str) -> None:
    """Hand the fields that `kubectl apply` set over to the manager that applies here."""
    try:
        obj = await api.get(resource, namespace, name)
    except ApiError as error:
        if error.is_not_found:
            return
        raise
    managers = with_fields_handed_over(obj["metadata"].get("managedFields") or [])
    if managers is not None:
        version = obj["metadata"]["resourceVersion"]
        steps = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/metadata/managedFields", "value": managers},
        ]
        await api.patch(resource, namespace, name, steps, JSON_PATCH)


def with_fields_handed_over(managers: Sequence[Object]) -> list[Object] | None:
    """Return managed fields in which those of `kubectl apply` are of MANAGER; None: there are none.

    Entries of another version than the newest are let go: they say less.
    """
    of_kubectl = [
        each
        for each in managers
        if not each.get("subresource")
        and (
            (each.get("operation") == "Update" and each.get("manager") == _CLIENT_SIDE)
            or (each.get("operation") == "Apply" and each.get("manager") == MANAGER)
        )
    ]
    if all(each["operation"] == "Apply" for each in of_kubectl):
        return None
    newest = max(of_kubectl, key=lambda each: each.get("time") or "")
    fields: Object = {}
    for each in of_kubectl:
        if each.get("apiVersion") == newest.get("apiVersion"):
            _unite(fields, each.get("fieldsV1") or {})
    kept = [each for each in managers if each not in of_kubectl]
    return [*kept, {**newest, "manager": MANAGER, "operation": "Apply", "fieldsV1": fields}]


def _unite(fields: Object, more: Object) -> None:
    for name, below in more.items():
        _unite(fields.setdefault(name, {}), below)
