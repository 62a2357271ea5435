"""Static pods, from files or a URL.

    static = StaticPods(settings, node, fetch)
    await static.read()         look what there is now: `pods`, by uid
    mirror_of(pod, node)        how the API shows one

A file that cannot be read as a pod is left out, and `problems` says why.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import yaml

from kvstack.agents.kubelet.pods.environment import references
from kvstack.agents.kubelet.pods.sandboxes import containers_of
from kvstack.apimachinery.objects.core.tolerations import NO_EXECUTE
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    CONFIG_HASH_ANNOTATION,
    CONFIG_SOURCE_ANNOTATION,
    MIRROR_ANNOTATION,
)

_BYTES_MAX: Final = 10 << 20


class StaticPodError(Exception):
    """A file is not a static pod."""


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """The sources of static pods."""

    path: Path | None = None
    url: str = ""


class StaticPods:
    """The static pods of one node."""

    def __init__(
        self, settings: StaticSettings, node: str, fetch: Callable[[str], Awaitable[bytes]]
    ) -> None:
        """fetch: returns the page of an URL, or raises OSError."""
        self._settings = settings
        self._node = node.lower()
        self._fetch = fetch
        self.pods: dict[str, Object] = {}
        """By uid."""
        self.problems: list[str] = []

    @property
    def is_used(self) -> bool:
        """Whether there is a source."""
        return self._settings.path is not None or bool(self._settings.url)

    async def read(self) -> set[str]:
        """Look what there is now; return the uids of those that came or went."""
        problems: list[str] = []
        pods: dict[str, Object] = {}
        if self._settings.path is not None:
            for source, data in await asyncio.to_thread(_files, self._settings.path):
                self._take(pods, problems, "file", source, data)
        if self._settings.url:
            try:
                data = await self._fetch(self._settings.url)
            except OSError as error:
                problems.append(f"{self._settings.url}: {error}")
                kept = self.pods.values()
                pods |= {pod["metadata"]["uid"]: pod for pod in kept if _source(pod) == "http"}
            else:
                self._take(pods, problems, "http", self._settings.url, data)
        changed = self.pods.keys() ^ pods.keys()
        self.pods, self.problems = pods, problems
        return changed

    def _take(
        self, pods: dict[str, Object], problems: list[str], kind: str, source: str, data: bytes
    ) -> None:
        try:
            names = {
                (each["metadata"]["namespace"], each["metadata"]["name"]) for each in pods.values()
            }
            for pod in _pods(data):
                made = completed(pod, self._node, kind, source)
                meta = made["metadata"]
                name = (meta["namespace"], meta["name"])
                if name in names:
                    problems.append(f"{source}: there is another pod {'/'.join(name)}")
                else:
                    pods[meta["uid"]] = made
        except (StaticPodError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
            problems.append(f"{source}: {error}")


def _source(pod: Object) -> str:
    found: str = pod["metadata"]["annotations"][CONFIG_SOURCE_ANNOTATION]
    return found


def _files(path: Path) -> list[tuple[str, bytes]]:
    """Return the files of a directory, or a file alone."""
    if path.is_dir():
        found = sorted(each for each in path.iterdir() if not each.name.startswith("."))
    else:
        found = [path] if path.exists() else []
    return [
        (str(each), each.read_bytes())
        for each in found
        if each.is_file() and each.stat().st_size <= _BYTES_MAX
    ]


def _pods(data: bytes) -> Iterator[Object]:
    obj = yaml.safe_load(data)
    if not isinstance(obj, dict):
        raise StaticPodError("not an object")
    pods = obj.get("items") or [] if obj.get("kind") == "PodList" else [obj]
    for pod in pods:
        if pod.get("kind", "Pod") != "Pod" or not (pod.get("spec") or {}).get("containers"):
            raise StaticPodError("not a Pod")
        yield pod


def _reference(spec: Object) -> str:
    """Return objects of the API that a specification refers to; empty: none."""
    if spec.get("serviceAccountName") or spec.get("serviceAccount"):
        return "serviceaccounts"
    kinds = {kind for kind, _ in references({"spec": spec})}
    if "Secret" in kinds or spec.get("imagePullSecrets"):
        return "secrets"
    if "ConfigMap" in kinds:
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in spec.get("volumes") or ():
        if "persistentVolumeClaim" in volume or "ephemeral" in volume:
            return "persistentvolumeclaims"
        for source in (volume.get("projected") or {}).get("sources") or ():
            if "serviceAccountToken" in source:
                return "serviceaccounts"
            if "clusterTrustBundle" in source:
                return "clustertrustbundles"
    return ""


def completed(pod: Object, node: str, kind: str, source: str) -> Object:
    """Return a static pod with what it has by default; raises StaticPodError."""
    if name := _reference(pod["spec"]):
        raise StaticPodError(f"static pods may not reference {name}")
    meta = dict(pod.get("metadata") or {})
    if not meta.get("name"):
        raise StaticPodError("name is required")
    uid = meta.get("uid")
    if not uid:
        text = (
            orjson.dumps(pod, option=orjson.OPT_SORT_KEYS) + f"host:{node}{kind}:{source}".encode()
        )
        uid = hashlib.blake2b(text, digest_size=16).hexdigest()
    annotations = {
        **(meta.get("annotations") or {}),
        CONFIG_HASH_ANNOTATION: uid,
        CONFIG_SOURCE_ANNOTATION: kind,
    }
    spec = dict(pod["spec"])
    if kind == "file":
        all_of_them = {"operator": "Exists", "effect": NO_EXECUTE}
        spec["tolerations"] = [*(spec.get("tolerations") or ()), all_of_them]
    spec = {"restartPolicy": "Always", "enableServiceLinks": True, **spec, "nodeName": node}
    spec.setdefault("terminationGracePeriodSeconds", 30)
    complete = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **meta,
            "uid": uid,
            "name": f"{meta['name']}-{node}",
            "namespace": meta.get("namespace") or "default",
            "annotations": annotations,
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }
    for container in containers_of(complete):
        tag = container["image"].rpartition("/")[2].partition(":")[2]
        latest = "@" not in container["image"] and tag in ("", "latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    return complete


def mirror_of(pod: Object, node: Object) -> Object:
    """Return how the API shows a static pod."""
    meta = pod["metadata"]
    annotations = {
        **meta["annotations"],
        MIRROR_ANNOTATION: meta["annotations"][CONFIG_HASH_ANNOTATION],
    }
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": node["metadata"]["name"],
        "uid": node["metadata"]["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": meta.get("labels") or {},
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": pod["spec"],
    }


def is_mirror(pod: Object) -> bool:
    """Whether a pod of the API is a mirror pod."""
    return MIRROR_ANNOTATION in (pod["metadata"].get("annotations") or {})


def is_mirror_of(mirror: Object, pod: Object) -> bool:
    """Whether a mirror pod matches the current static pod."""
    meta = mirror["metadata"]
    shown = (meta.get("annotations") or {}).get(MIRROR_ANNOTATION)
    is_same = shown == pod["metadata"]["annotations"][CONFIG_HASH_ANNOTATION]
    return is_same and not meta.get("deletionTimestamp")
