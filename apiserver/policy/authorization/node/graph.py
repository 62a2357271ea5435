"""The graph of objects related to nodes, updated as pods and volumes change.

    node ◄── pod ◄── secret, config map, service account, device claim
                 ◄── claim ◄── volume ◄── secret
    node ◄── volume attachment, resource slice, request for a pod's certificate

References of pods are counted per node, so that a check is one lookup; only volumes and their
Secrets are found by following claims. A pod itself is related to its node alone, and pods with the
same references, as those of one workload are, share them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern
from typing import Any, Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.policy.authorization.node.references import (
    CLAIMS,
    PODS,
    Key,
    references_of_pod,
    secrets_of_volume,
)
from kvstack.apiserver.policy.interfaces import Change, ObjectView

VOLUMES: Final = "persistentvolumes"
ATTACHMENTS: Final = "volumeattachments"
SLICES: Final = "resourceslices"
POD_CERTIFICATES: Final = "podcertificaterequests"

_ON_NODES: Final = (
    GroupResource("storage.k8s.io", ATTACHMENTS),
    GroupResource("resource.k8s.io", SLICES),
    GroupResource("certificates.k8s.io", POD_CERTIFICATES),
)
"""Objects whose spec names their node."""


class NodeGraph:
    """The objects related to nodes."""

    def __init__(self) -> None:
        self._nodes: dict[Key, dict[str, int]] = {}
        """Number of relations to each node, by object."""
        self._pods: dict[tuple[str, str], tuple[str, frozenset[Key]]] = {}
        """Node and references of each pod that has a node."""
        self._last: frozenset[Key] = frozenset()
        """The references of the last pod."""
        self._volumes: dict[str, tuple[Key, tuple[Key, ...]]] = {}
        """Claim and Secrets of each volume."""
        self._volumes_of: dict[Key, set[str]] = {}
        """Volumes that use each Secret."""

    def follow(self, view: ObjectView) -> None:
        """Take the objects of a view, and follow their changes."""
        # A pod without a node is not related to any.
        view.subscribe(GroupResource("", "pods"), self._change_pods, field="spec.nodeName")
        view.subscribe(GroupResource("", VOLUMES), self._change_volumes)
        for each in _ON_NODES:
            view.subscribe(each, self._change(each.resource))

    def relates(self, node: str, key: Key) -> bool:
        """Return whether an object is related to a node."""
        if key[0] == PODS:
            pod = self._pods.get(key[1:])
            return pod is not None and pod[0] == node
        if node in self._nodes.get(key, ()):
            return True
        if key[0] == VOLUMES:
            return self._relates_volume(node, key[2])
        return any(self._relates_volume(node, each) for each in self._volumes_of.get(key, ()))

    def _relates_volume(self, node: str, name: str) -> bool:
        volume = self._volumes.get(name)
        return volume is not None and node in self._nodes.get(volume[0], ())

    def _change_pods(self, changes: Sequence[Change]) -> None:
        for change in changes:
            new = change.object
            pod = new or change.previous
            if pod is None:
                continue
            pod_key = intern(pod["metadata"]["namespace"]), pod["metadata"]["name"]
            node = "" if new is None else (new.get("spec") or {}).get("nodeName", "")
            now = None if new is None or not node else (intern(node), self._references(new))
            known = self._pods.get(pod_key)
            if now == known:
                continue  # the references are the same, as when only the status changed
            if known is not None:
                del self._pods[pod_key]
                self._count(*known, -1)
            if now is not None:
                self._pods[pod_key] = now
                self._count(*now, 1)

    def _references(self, pod: Mapping[str, Any]) -> frozenset[Key]:
        found = references_of_pod(pod)
        if found != self._last:
            self._last = found
        return self._last

    def _change_volumes(self, changes: Sequence[Change]) -> None:
        for new, old in changes:
            volume = new or old
            if volume is None:
                continue
            name = volume["metadata"]["name"]
            known = self._volumes.pop(name, None)
            for secret in known[1] if known is not None else ():
                _discard(self._volumes_of, secret, name)
            claim = None if new is None else (new.get("spec") or {}).get("claimRef")
            if new is None or not claim:
                continue
            secrets = tuple(secrets_of_volume(new))
            of_claim = CLAIMS, claim.get("namespace", ""), claim.get("name", "")
            self._volumes[name] = of_claim, secrets
            for secret in secrets:
                self._volumes_of.setdefault(secret, set()).add(name)

    def _change(self, resource: str) -> Callable[[Sequence[Change]], None]:
        def change(changes: Sequence[Change]) -> None:
            for obj, count in ((each, count) for pair in changes for each, count in _both(pair)):
                metadata = obj["metadata"]
                key = resource, metadata.get("namespace", ""), metadata["name"]
                if node := (obj.get("spec") or {}).get("nodeName"):
                    self._count(node, (key,), count)

        return change

    def _count(self, node: str, keys: Iterable[Key], by: int) -> None:
        for key in keys:
            nodes = self._nodes.setdefault(key, {})
            count = nodes.get(node, 0) + by
            if count > 0:
                nodes[node] = count
                continue
            nodes.pop(node, None)
            if not nodes:
                del self._nodes[key]


def _both(change: Change) -> Iterable[tuple[dict[str, Any], int]]:
    if change.previous is not None:
        yield change.previous, -1
    if change.object is not None:
        yield change.object, 1


def _discard(sets: dict[Key, set[str]], key: Key, name: str) -> None:
    found = sets[key]
    found.discard(name)
    if not found:
        del sets[key]
