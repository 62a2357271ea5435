"""What `kubectl apply --prune` deletes: what was applied earlier and files have no more.

    Pruning("app=shop", kinds_of(("apps/v1/Deployment",)))
    await pruned(api, pruning, applied)      once all objects of the files are applied

By the rule of kubectl: an object is deleted if it is of a kind that is pruned, has the labels, was
created with `kubectl apply` (it has the annotation of what was applied), and is not among the
files. Of namespaced kinds only namespaces are looked at that an object of the files is in.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.agents.client import built_in
from kvstack.agents.client.api import Api
from kvstack.agents.client.resource_type import ResourceType
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.well_known import LAST_APPLIED_ANNOTATION
from kvstack.component.errors import ConfigError

_CORE: Final = "core"
_BACKGROUND: Final = "Background"
_INGRESSES: Final = ResourceType("networking.k8s.io", "v1", "ingresses", "Ingress")
KINDS: Final = (
    built_in.CONFIG_MAPS,
    built_in.ENDPOINTS,
    built_in.PERSISTENT_VOLUME_CLAIMS,
    built_in.PODS,
    built_in.REPLICATION_CONTROLLERS,
    built_in.SECRETS,
    built_in.SERVICES,
    built_in.JOBS,
    built_in.CRON_JOBS,
    _INGRESSES,
    built_in.DAEMON_SETS,
    built_in.DEPLOYMENTS,
    built_in.REPLICA_SETS,
    built_in.STATEFUL_SETS,
    built_in.NAMESPACES,
    built_in.PERSISTENT_VOLUMES,
)
"""What is pruned unless kinds are given."""


class Pruning(NamedTuple):
    """What may be deleted."""

    selector: str
    """Empty: whatever its labels."""
    kinds: Sequence[ResourceType] = KINDS


class Applied(NamedTuple):
    """An object of the files, as it is now."""

    namespace: str
    uid: str


def kinds_of(names: Sequence[str]) -> tuple[ResourceType, ...]:
    """Return the kinds of `--prune-allowlist`, as `core/v1/ConfigMap`; raises ConfigError."""
    rows = {(row.group, row.version, row.kind.kind): row for row in load() if row.storage}
    found = []
    for name in names:
        group, _, rest = name.partition("/")
        version, _, kind = rest.partition("/")
        row = rows.get(("" if group == _CORE else group, version, kind))
        if row is None:
            raise ConfigError(
                f"--prune-allowlist {name}: a built-in kind, as core/v1/ConfigMap or "
                "apps/v1/Deployment"
            )
        found.append(
            ResourceType(
                row.group, row.version, row.name, row.kind.kind, is_namespaced=row.is_namespaced
            )
        )
    return tuple(found) or KINDS


async def pruned(api: Api, pruning: Pruning, applied: Sequence[Applied]) -> int:
    """Delete what files have no more; return how many objects; raises ApiError."""
    uids = {each.uid for each in applied}
    namespaces = sorted({each.namespace for each in applied if each.namespace})
    number = 0
    for resource in pruning.kinds:
        for namespace in namespaces if resource.is_namespaced else ("",):
            for obj in await api.list_all(resource, namespace, labels=pruning.selector):
                meta = obj["metadata"]
                if (
                    LAST_APPLIED_ANNOTATION in (meta.get("annotations") or {})
                    and meta["uid"] not in uids
                ):
                    number += await _delete(api, resource, meta)
    return number


async def _delete(api: Api, resource: ResourceType, meta: Object) -> bool:
    """Delete an object; whether it was there still."""
    try:
        await api.delete(
            resource,
            meta.get("namespace", ""),
            meta["name"],
            uid=meta["uid"],
            propagation=_BACKGROUND,
        )
    except ApiError as error:
        if error.is_not_found:
            return False  # it went with its owner
        raise
    return True
