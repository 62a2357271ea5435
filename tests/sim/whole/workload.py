"""What users do: they make workloads, scale and change them, evict and delete pods, and delete all.

Names are few. A request whose outcome is unknown is not repeated: the next one looks what is there.
"""

import asyncio
from typing import Any, Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    STATEFUL_SETS,
)
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import MERGE_PATCH
from tests.sim.stack.base import BaseWorld
from tests.sim.stack.links import SimTransport
from tests.sim.stack.servers import ADMIN

NAMESPACE: Final = "default"
_NAMES: Final = ("a", "b")
_CPUS: Final = ("200m", "900m", "1500m")
_KINDS: Final = {DEPLOYMENTS: 4, STATEFUL_SETS: 3, JOBS: 3, DAEMON_SETS: 1}


class Workload:
    """One user, until stopped."""

    def __init__(self, world: BaseWorld, pause_s: float, often: str = "") -> None:
        """Do nothing yet; often: what is done more than anything else."""
        self._world = world
        self._rng = world.rng
        self._api = Api(SimTransport(world.network, "user", ADMIN))
        self._number = 0
        self._often = often
        self.is_stopped = False
        self.is_over = False
        self.evicted: Final[list[str]] = []
        self._pause_s = pause_s

    async def run(self) -> None:
        """Work until stopped."""
        rng = self._rng
        acts = {
            "make": (self._make, 6),
            "scale": (self._scale, 4),
            "change": (self._change, 4),
            "delete": (self._delete, rng.choice((0, 1, 2))),
            "delete a pod": (self._delete_pod, rng.choice((0, 2))),
            "evict": (self._evict, rng.choice((0, 3))),
            "budget": (self._budget, 1),
        }
        weights = [20 if name == self._often else weight for name, (_, weight) in acts.items()]
        while not self.is_stopped:
            try:
                act, _ = rng.choices(list(acts.values()), weights)[0]
                await act()
            except (ApiError, UnreachableError) as error:
                self._world.note("refused", str(error)[:80])
            await asyncio.sleep(rng.uniform(0, 2 * self._pause_s))
        self.is_over = True

    def _kind(self) -> ResourceType:
        return self._rng.choices(list(_KINDS), list(_KINDS.values()))[0]

    async def _make(self) -> None:
        kind = self._kind()
        name = self._rng.choice(_NAMES)
        spec = {
            DEPLOYMENTS: self._deployment,
            STATEFUL_SETS: self._stateful_set,
            JOBS: self._job,
            DAEMON_SETS: self._daemon_set,
        }[kind](f"{kind.kind.lower()}-{name}")
        await self._api.create(kind, NAMESPACE, {"metadata": {"name": name}, "spec": spec})
        self._world.counts[f"made {kind.name}"] += 1

    def _template(self, app: str, **spec: Any) -> Object:
        self._number += 1
        cpu = self._rng.choice(_CPUS)
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        labels = {"app": app}
        annotations = {"version": str(self._number)}
        return {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **spec},
        }

    def _selected(self, app: str) -> Object:
        return {"selector": {"matchLabels": {"app": app}}, "template": self._template(app)}

    def _deployment(self, app: str) -> Object:
        rng = self._rng
        surge, unavailable = rng.choice(((1, 0), (0, 1), (2, 1), ("50%", "50%"), ("25%", "25%")))
        rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        strategy: Object = {"type": "RollingUpdate", "rollingUpdate": rolling}
        if rng.random() < 0.2:
            strategy = {"type": "Recreate"}
        return {"replicas": rng.randrange(5), "strategy": strategy, **self._selected(app)}

    def _stateful_set(self, app: str) -> Object:
        policy = self._rng.choice(("OrderedReady", "Parallel"))
        return {
            "replicas": self._rng.randrange(4),
            "podManagementPolicy": policy,
            "serviceName": app,
            **self._selected(app),
        }

    def _job(self, app: str) -> Object:
        rng = self._rng
        completions = rng.choice((1, 3, 5))
        template = self._template(app, restartPolicy="Never")
        if rng.random() < 0.2:
            template["metadata"]["annotations"]["hollow/exit-code"] = "1"
        mode = rng.choice(("Indexed", "NonIndexed"))
        return {
            "completions": completions,
            "parallelism": rng.choice((1, 2, 5)),
            "completionMode": mode,
            "backoffLimit": rng.choice((0, 2)),
            "template": template,
        }

    def _daemon_set(self, app: str) -> Object:
        return self._selected(app)

    async def _one(self, kind: ResourceType) -> Object | None:
        page = await self._api.list_page(kind, NAMESPACE)
        return self._rng.choice(page.items) if page.items else None

    async def _scale(self) -> None:
        kind = self._rng.choice((DEPLOYMENTS, STATEFUL_SETS))
        found = await self._one(kind)
        if found is not None:
            body = {"spec": {"replicas": self._rng.randrange(5)}}
            await self._api.patch(kind, NAMESPACE, found["metadata"]["name"], body, MERGE_PATCH)

    async def _change(self) -> None:
        """Change the template, so that it is rolled out."""
        kind = self._rng.choice((DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS))
        found = await self._one(kind)
        if found is not None:
            self._number += 1
            annotations = {"version": str(self._number)}
            body = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
            await self._api.patch(kind, NAMESPACE, found["metadata"]["name"], body, MERGE_PATCH)

    async def _delete(self) -> None:
        kind = self._kind()
        found = await self._one(kind)
        if found is not None:
            propagation = self._rng.choice(("Background", "Foreground", "Orphan"))
            name, uid = found["metadata"]["name"], found["metadata"]["uid"]
            await self._api.delete(kind, NAMESPACE, name, uid=uid, propagation=propagation)
            self._world.counts[f"deleted, {propagation}"] += 1

    async def _delete_pod(self) -> None:
        found = await self._one(PODS)
        if found is not None:
            meta = found["metadata"]
            await self._api.delete(PODS, NAMESPACE, meta["name"], uid=meta["uid"])

    async def _evict(self) -> None:
        found = await self._one(PODS)
        if found is not None:
            name = found["metadata"]["name"]
            meta = {"name": name, "namespace": NAMESPACE}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
            await self._api.create(PODS, NAMESPACE, eviction, name=name, subresource="eviction")
            self._world.counts["evictions"] += 1

    async def _budget(self) -> None:
        app = f"{self._rng.choice(('deployment', 'statefulset'))}-{self._rng.choice(_NAMES)}"
        spec: Object = {"selector": {"matchLabels": {"app": app}}}
        spec[self._rng.choice(("minAvailable", "maxUnavailable"))] = self._rng.choice((1, 2, "50%"))
        body = {"metadata": {"name": app}, "spec": spec}
        await self._api.create(POD_DISRUPTION_BUDGETS, NAMESPACE, body)
