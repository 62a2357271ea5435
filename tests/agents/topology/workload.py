"""A workload that is changed again and again, and what must be true of it when it is let be.

churn = Churn(api, random.Random(7))
await churn.begin(); await churn.step(); …        what is written is remembered
faults = await churn.faults()                     what is not as the manifests say
await churn.end()                                 nothing is wanted any more

Containers sleep, those of jobs end: on nodes with processes the images need a `sleep` and a `true`.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import DEPLOYMENTS, JOBS, NODES, PODS, REPLICA_SETS
from kvstack.agents.client.built_in import STATEFUL_SETS as SETS
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.schema.resource import APPLY_PATCH

Object = dict[str, Any]

NAMESPACE: Final = "default"
DEPLOYMENT_COUNT: Final = 3
REPLICAS_MAX: Final = 6
COMPLETIONS: Final = 3
IMAGES_MAX: Final = 9
SLEEP: Final = ("sleep", str(10_000_000 + os.getpid()))
"""Found again among the processes of the machine."""
TRIES_S: Final = 60.0
_ENDED: Final = frozenset(("Succeeded", "Failed"))
_REFUSED: Final = frozenset((400, 403, 404, 422))


class Churn:
    """Writes manifests."""

    def __init__(self, api: Api, chance: random.Random) -> None:
        self._api = api
        self._chance = chance
        self._wanted: dict[tuple[ResourceType, str], Object] = {}
        self._jobs = 0
        self.writes = 0

    async def begin(self) -> None:
        """Write the first manifests."""
        for number in range(DEPLOYMENT_COUNT):
            await self._apply(
                DEPLOYMENTS, f"web-{number}", _deployment(f"web-{number}", 3, "image:1")
            )
        await self._apply(SETS, "db", _stateful_set(2, "image:1"))
        await self._new_job()

    async def step(self) -> None:
        """Change something."""
        kind = self._chance.choice(("scale", "roll", "roll", "set", "job"))
        if kind == "job":
            await self._new_job()
            return
        replicas = self._chance.randint(0, REPLICAS_MAX)
        image = f"image:{self._chance.randint(1, IMAGES_MAX)}"
        if kind == "set":
            await self._apply(SETS, "db", _stateful_set(1 + replicas % 3, image))
            return
        name = f"web-{self._chance.randrange(DEPLOYMENT_COUNT)}"
        spec = self._wanted[DEPLOYMENTS, name]["spec"]
        if kind == "scale":
            image = spec["template"]["spec"]["containers"][0]["image"]
        else:
            replicas = spec["replicas"]
        await self._apply(DEPLOYMENTS, name, _deployment(name, replicas, image))

    async def _new_job(self) -> None:
        """Add a job, and delete the one before the last."""
        self._jobs += 1
        await self._apply(JOBS, f"job-{self._jobs}", _job())
        old = f"job-{self._jobs - 2}"
        if self._wanted.pop((JOBS, old), None) is not None:
            await self._delete(JOBS, old)

    async def _apply(self, resource: ResourceType, name: str, spec: Object) -> None:
        manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        self._wanted[resource, name] = manifest
        await self._until_done(
            lambda: self._api.patch(
                resource,
                NAMESPACE,
                name,
                manifest,
                APPLY_PATCH,
                field_manager="churn",
                force=True,
            )
        )

    async def _until_done(self, write: Any, *, gone: bool = False) -> None:
        """Write until it succeeds: a write that may have been done is done again."""
        self.writes += 1
        async with asyncio.timeout(TRIES_S):
            while True:
                try:
                    await write()
                except ApiError as error:
                    if gone and error.code == 404:
                        return
                    if error.code in _REFUSED:
                        raise
                except UnreachableError:
                    pass
                else:
                    return
                await asyncio.sleep(0.1)

    async def end(self) -> None:
        """Delete all that was written; what was made for it is then a fault."""
        for resource, name in list(self._wanted):
            del self._wanted[resource, name]
            await self._delete(resource, name)

    async def _delete(self, resource: ResourceType, name: str) -> None:
        await self._until_done(
            lambda: self._api.delete(resource, NAMESPACE, name, propagation="Background"), gone=True
        )

    # What must be true.

    async def faults(self) -> list[str]:
        """Return what is not as the manifests say; empty: everything is."""
        try:
            pods = await self._api.list_all(PODS, NAMESPACE)
            sets = await self._api.list_all(REPLICA_SETS, NAMESPACE)
            nodes = {each["metadata"]["name"] for each in await self._api.list_all(NODES)}
            found = [
                fault
                for (resource, name), manifest in self._wanted.items()
                for fault in _faults_of(
                    await self._api.get(resource, NAMESPACE, name), manifest, pods, sets
                )
            ]
            owners = {each["metadata"]["uid"] for each in sets}
            for resource in (DEPLOYMENTS, SETS, JOBS):
                live = await self._api.list_all(resource, NAMESPACE)
                owners |= {each["metadata"]["uid"] for each in live}
        except (ApiError, UnreachableError) as error:
            return [f"not readable: {error}"]
        for pod in [*pods, *sets]:
            owner = pod["metadata"]["ownerReferences"][0]
            if owner["uid"] not in owners:
                found.append(f"{pod['metadata']['name']}: its {owner['kind']} is gone")
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node not in nodes:
                found.append(f"{pod['metadata']['name']}: on {node}, which is no node")
        return found


def _faults_of(live: Object, manifest: Object, pods: list[Object], sets: list[Object]) -> list[str]:
    name, kind = live["metadata"]["name"], live["kind"]
    status = live.get("status") or {}
    if kind == "Job":
        if status.get("succeeded") != COMPLETIONS or status.get("active"):
            return [f"{name}: {status}"]
        return []
    owners = {live["metadata"]["uid"]}
    if kind == "Deployment":
        owners |= {
            each["metadata"]["uid"]
            for each in sets
            if each["metadata"]["ownerReferences"][0]["uid"] in owners
        }
    own = [each for each in pods if each["metadata"]["ownerReferences"][0]["uid"] in owners]
    wanted = manifest["spec"]["replicas"]
    image = manifest["spec"]["template"]["spec"]["containers"][0]["image"]
    images = Counter(each["spec"]["containers"][0]["image"] for each in own)
    faults = []
    if dict(images) != ({image: wanted} if wanted else {}):
        faults.append(f"{name}: {wanted} pods of {image} wanted, there are {dict(images)}")
    if any(each["status"]["phase"] in _ENDED for each in own):
        faults.append(f"{name}: pods have ended")
    counts = {status.get(each, 0) for each in ("replicas", "readyReplicas", "updatedReplicas")}
    if counts != {wanted} or status.get("observedGeneration") != live["metadata"]["generation"]:
        faults.append(f"{name}: {wanted} wanted: {status}")
    if kind == "StatefulSet":
        names = {each["metadata"]["name"] for each in own}
        if names != {f"{name}-{number}" for number in range(wanted)}:
            faults.append(f"{name}: {sorted(names)}")
    return faults


def _template(
    labels: dict[str, str], image: str, policy: str = "Always", command: Sequence[str] = SLEEP
) -> Object:
    return {
        "metadata": {"labels": labels},
        "spec": {
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": image, "command": list(command)}],
        },
    }


def _deployment(name: str, replicas: int, image: str) -> Object:
    labels = {"app": name}
    return {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": _template(labels, image),
    }


def _stateful_set(replicas: int, image: str) -> Object:
    labels = {"app": "db"}
    return {
        "replicas": replicas,
        "serviceName": "db",
        "selector": {"matchLabels": labels},
        "template": _template(labels, image),
    }


def _job() -> Object:
    return {
        "completions": COMPLETIONS,
        "parallelism": 2,
        "template": _template({}, "image:1", "Never", ("true",)),
    }
