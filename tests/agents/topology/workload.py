"""A workload that is changed again and again, and what must be true of it when it is let be.

churn = Churn(api, random.Random(7))                on nodes that need no programs
churn = Churn(api, random.Random(7), Programs(…))   on nodes that run some
await churn.begin(); await churn.step(); …        what is written is remembered
faults = await churn.faults()                     what is not as the manifests say
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import DEPLOYMENTS, JOBS, NODES, PODS, REPLICA_SETS
from kvstack.agents.client.built_in import STATEFUL_SETS as SETS
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import APPLY_PATCH

NAMESPACE: Final = "default"
DEPLOYMENT_COUNT: Final = 3
REPLICAS_MAX: Final = 6
COMPLETIONS: Final = 3
TRIES_S: Final = 60.0
VERSION: Final = "VERSION"
_ENDED: Final = frozenset(("Succeeded", "Failed"))
_REFUSED: Final = frozenset((400, 403, 404, 422))


class Programs(NamedTuple):
    """What containers run."""

    image: str = "image:1"
    lasting: tuple[str, ...] = ()
    """Of pods that are to run on; empty: what the image has."""
    ending: tuple[str, ...] = ()
    """Of pods of jobs."""
    environment: Mapping[str, str] = {}


class Churn:
    """Writes manifests. What is rolled out is a version: a variable of the containers."""

    def __init__(self, api: Api, rng: random.Random, programs: Programs | None = None) -> None:
        self._api = api
        self._rng = rng
        self._programs = programs or Programs()
        self._manifests: dict[tuple[ResourceType, str], Object] = {}
        self._jobs = 0
        self.writes = 0

    async def begin(self) -> None:
        """Write the first manifests."""
        for number in range(DEPLOYMENT_COUNT):
            await self._apply(DEPLOYMENTS, f"web-{number}", self._deployment(f"web-{number}", 3, 1))
        await self._apply(SETS, "db", self._stateful_set(2, 1))
        await self._new_job()

    async def step(self) -> None:
        """Change something."""
        kind = self._rng.choice(("scale", "roll", "roll", "set", "job"))
        if kind == "job":
            await self._new_job()
            return
        replicas = self._rng.randint(0, REPLICAS_MAX)
        version = self._rng.randint(1, 9)
        if kind == "set":
            await self._apply(SETS, "db", self._stateful_set(1 + replicas % 3, version))
            return
        name = f"web-{self._rng.randrange(DEPLOYMENT_COUNT)}"
        spec = self._manifests[DEPLOYMENTS, name]["spec"]
        if kind == "scale":
            version = _version(spec["template"])
        else:
            replicas = spec["replicas"]
        await self._apply(DEPLOYMENTS, name, self._deployment(name, replicas, version))

    async def end(self) -> None:
        """Delete everything."""
        for resource, name in list(self._manifests):
            del self._manifests[resource, name]
            await self._delete(resource, name)

    async def _new_job(self) -> None:
        """Add a job, and delete the one before the last."""
        self._jobs += 1
        await self._apply(JOBS, f"job-{self._jobs}", self._job())
        old = f"job-{self._jobs - 2}"
        if self._manifests.pop((JOBS, old), None) is not None:
            await self._delete(JOBS, old)

    async def _delete(self, resource: ResourceType, name: str) -> None:
        await self._until_done(
            lambda: self._api.delete(resource, NAMESPACE, name, propagation="Background"), gone=True
        )

    async def _apply(self, resource: ResourceType, name: str, spec: Object) -> None:
        manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        }
        self._manifests[resource, name] = manifest
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

    # What is written.

    def _deployment(self, name: str, replicas: int, version: int) -> Object:
        labels = {"app": name}
        return {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": self._template(labels, version),
        }

    def _stateful_set(self, replicas: int, version: int) -> Object:
        return {"serviceName": "db", **self._deployment("db", replicas, version)}

    def _job(self) -> Object:
        template = self._template({}, 1, "Never")
        return {"completions": COMPLETIONS, "parallelism": 2, "template": template}

    def _template(self, labels: dict[str, str], version: int, policy: str = "Always") -> Object:
        programs = self._programs
        command = programs.ending if policy == "Never" else programs.lasting
        environment = {VERSION: str(version), **programs.environment}
        container = {
            "name": "main",
            "image": programs.image,
            "env": [{"name": name, "value": value} for name, value in environment.items()],
            **({"command": list(command)} if command else {}),
        }
        return {
            "metadata": {"labels": labels},
            "spec": {
                "restartPolicy": policy,
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }

    # What must be true.

    def versions(self) -> Counter[str]:
        """Return how many pods are to run on, by version."""
        found: Counter[str] = Counter()
        for (resource, _), manifest in self._manifests.items():
            if resource is not JOBS:
                spec = manifest["spec"]
                found[str(_version(spec["template"]))] += spec["replicas"]
        return +found

    async def faults(self) -> list[str]:
        """Return what is not as the manifests say; empty: everything is."""
        try:
            pods = await self._api.list_all(PODS, NAMESPACE)
            sets = await self._api.list_all(REPLICA_SETS, NAMESPACE)
            nodes = {each["metadata"]["name"] for each in await self._api.list_all(NODES)}
            found = [
                fault
                for (resource, name), manifest in self._manifests.items()
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
    version = _version(manifest["spec"]["template"])
    versions = Counter(map(_version, own))
    faults = []
    if dict(versions) != ({version: wanted} if wanted else {}):
        faults.append(f"{name}: {wanted} pods of {version} wanted, there are {dict(versions)}")
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


def _version(of: Object) -> int:
    """Return the version in a pod, or in a template of pods."""
    environment = of["spec"]["containers"][0]["env"]
    return next(int(each["value"]) for each in environment if each["name"] == VERSION)
