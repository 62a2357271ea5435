"""Extenders: HTTP services that take part in decisions. Their requests and answers; pure.

    filter       which of the nodes that will do the extender takes, and why not the others
    prioritize   how good these are, 0 to 10; times its weight and 10 in the sum of scores
    preempt      which victims on which nodes it takes
    bind         it binds the pod itself

An extender is asked about pods that name one of its resources, or about all if it has none. Names
of members are matched without regard to case, as Go's decoder does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kvstack.agents.scheduler.cycle import SCORE_MAX, Code, Reason
from kvstack.agents.scheduler.handle import Candidate
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object

_EXTENDER_SCORE_MAX: Final = 10


class ExtenderError(Exception):
    """An extender that failed, or whose answer makes no sense; the message is for users."""


@dataclass(frozen=True, slots=True)
class Extender:
    """The settings of an extender; an empty verb is not called."""

    url: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    timeout_s: float = 5.0
    knows_nodes: bool = False
    """Whether it gets names of nodes, not the objects."""
    resources: frozenset[str] = frozenset()
    is_ignorable: bool = False
    """Its failures do not keep pods from being placed."""
    is_https: bool = False
    tls: Mapping[str, Any] = field(default_factory=dict)
    """The member tlsConfig."""

    def is_interested(self, pod: PodInfo) -> bool:
        """Whether it is responsible for a pod."""
        return not self.resources or any(
            name in self.resources
            for group in ("containers", "initContainers")
            for container in pod.spec.get(group) or ()
            for amounts in (container.get("resources") or {}).values()
            if isinstance(amounts, dict)
            for name in amounts
        )


class Filtered(NamedTuple):
    """The answer about nodes."""

    names: list[str]
    refused: dict[str, Reason]


def about_nodes(extender: Extender, pod: PodInfo, cluster: Cluster, names: Sequence[str]) -> Object:
    """Return what is sent to filter and prioritize."""
    if extender.knows_nodes:
        return {"Pod": pod.obj, "Nodes": None, "NodeNames": list(names)}
    nodes = [cluster.nodes[cluster.slots[name]] for name in names]
    return {"Pod": pod.obj, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}


def read_filtered(extender: Extender, answer: object, names: Sequence[str]) -> Filtered:
    """Return what an extender answered about nodes; raises ExtenderError."""
    members = _members(extender, answer)
    if members.get("error"):
        raise ExtenderError(str(members["error"]))
    names_left: list[str] = []
    if extender.knows_nodes and members.get("nodenames") is not None:
        names_left = list(members["nodenames"])
    elif members.get("nodes") is not None:
        names_left = [each["metadata"]["name"] for each in members["nodes"].get("items") or ()]
    known = set(names)
    for name in names_left:
        if name not in known:
            raise ExtenderError(
                f'extender "{extender.url}" claims a filtered node "{name}" which is not found'
                " in the input node list"
            )
    refused = {
        name: Reason(code, (text,))
        for member, code in (
            ("failednodes", Code.UNSCHEDULABLE),
            ("failedandunresolvablenodes", Code.UNRESOLVABLE),
        )
        for name, text in (members.get(member) or {}).items()
    }
    return Filtered(names_left, refused)


def read_scores(extender: Extender, answer: object) -> dict[str, int]:
    """Return by node what is to be added to sums; raises ExtenderError."""
    if not isinstance(answer, list):
        raise _not_understood(extender, answer)
    factor = extender.weight * (SCORE_MAX // _EXTENDER_SCORE_MAX)
    scores: dict[str, int] = {}
    for each in answer:
        said = _members(extender, each)
        host, score = said.get("host"), said.get("score") or 0
        if not isinstance(host, str) or not isinstance(score, int):
            raise _not_understood(extender, each)
        scores[host] = scores.get(host, 0) + score * factor
    return scores


def about_victims(
    extender: Extender, pod: PodInfo, cluster: Cluster, candidates: Sequence[Candidate]
) -> Object:
    """Return what is sent to preempt."""
    by_node = {
        cluster.names[each.slot]: {
            "Pods": [
                {"UID": victim.uid} if extender.knows_nodes else victim.obj
                for victim in each.victims
            ],
            "NumPDBViolations": each.violations,
        }
        for each in candidates
    }
    member = "NodeNameToMetaVictims" if extender.knows_nodes else "NodeNameToVictims"
    return {"Pod": pod.obj, "NodeNameToVictims": None, "NodeNameToMetaVictims": None} | {
        member: by_node
    }


def read_victims(extender: Extender, answer: object, cluster: Cluster) -> list[Candidate]:
    """Return where an extender lets pods be pushed away; raises ExtenderError."""
    said = _members(extender, answer).get("nodenametometavictims") or {}
    candidates = []
    for name, victims in said.items():
        members = _members(extender, victims) if victims else {}
        if not members.get("pods"):
            if extender.is_ignorable:
                continue
            raise ExtenderError(f'expected at least one victim pod on node "{name}"')
        slot = cluster.slots.get(name)
        if slot is None:
            raise ExtenderError(f'nodeinfo not found for node name "{name}"')
        pods = cluster.pods_on[slot]
        uids = [_members(extender, each).get("uid", "") for each in members["pods"]]
        if strange := [uid for uid in uids if uid not in pods]:
            raise ExtenderError(
                f"extender: {extender.url} claims to preempt pod (UID: {strange[0]}) on node:"
                f" {name}, but the pod is not found on that node"
            )
        violations = members.get("numpdbviolations") or 0
        candidates.append(Candidate(slot, tuple(pods[uid] for uid in uids), violations))
    return candidates


def about_binding(pod: PodInfo, node: str) -> Object:
    """Return what is sent to bind."""
    return {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}


def check_bound(extender: Extender, answer: object) -> None:
    """Check that an extender bound a pod; raises ExtenderError."""
    said = _members(extender, answer)
    if said.get("error"):
        raise ExtenderError(str(said["error"]))


def _members(extender: Extender, answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise _not_understood(extender, answer)
    return {str(name).lower(): value for name, value in answer.items()}


def _not_understood(extender: Extender, answer: object) -> ExtenderError:
    return ExtenderError(f"extender {extender.url}: an answer that makes no sense: {answer!r:.200}")
