"""Search paths of pods: the names that a client would try next.

    web.other.default.svc.cluster.local     a pod of the namespace default queries it first
    web.other                               is the name that it looks for
    web.other.svc.cluster.local             it would query these next
    web.other.cluster.local
    web.other.corp.example                  in each domain that its node searches
    web.other

The whole path can be tried at the first query only if the client would try exactly that path. So a
name is ignored unless the client is a pod of that namespace with its own address and the usual path
(`SearchPaths`), and the name is outside of the cluster: without a dot it is a Service's, and with
NDOTS dots the client would have queried it as it is before.

Pure: pods go in, names come out.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from kvstack.agents.dns.query import wire_name
from kvstack.agents.dns.services import normal
from kvstack.apimachinery.objects.core.pod_status import ENDED_PHASES
from kvstack.apimachinery.objects.json_object import Object

NDOTS: Final = 5
"""The ndots that kubelets write into pods."""
WITHOUT_ADDRESS: Final = ENDED_PHASES | {"Unknown"}
"""The phases of pods whose addresses others may have."""
_POLICIES: Final = ("", "ClusterFirst", "ClusterFirstWithHostNet")
_USUAL: Final = re.compile(r"[a-z0-9_-]+")

Labels = Sequence[str]


def meant(labels: Labels) -> Labels:
    """Return what a client means by a name of the zone, if it may be searching; else nothing.

    labels: before those of the zone, in lower case.
    """
    base = labels[:-2]
    if not 2 <= len(base) <= NDOTS or labels[-1] != "svc":
        return ()
    return base if all(map(_USUAL.fullmatch, base)) else ()


class SearchPaths:
    """The search paths of pods."""

    def __init__(self, domain: str, of_node: Callable[[], Sequence[str]]) -> None:
        """domain: the cluster's; of_node: the domains that nodes search, which pods get too."""
        self._domain = domain
        self._of_node = of_node
        self._pods: dict[str, tuple[str, str]] = {}  # address → namespace and uid

    def put(self, pod: Object) -> None:
        """Add or update a pod."""
        meta = pod["metadata"]
        for each in _own_addresses(pod):
            self._pods[each] = meta["namespace"], meta["uid"]

    def drop(self, pod: Object) -> None:
        """Forget a pod."""
        meta = pod["metadata"]
        own = meta["namespace"], meta["uid"]
        for each in _addresses(pod):
            if self._pods.get(each) == own:
                del self._pods[each]

    def is_of(self, client: str, namespace: str) -> bool:
        """Whether a client searches a namespace first, and then the usual domains."""
        return self._pods.get(client, ("", ""))[0] == namespace

    def names(self, base: Labels) -> list[str]:
        """Return the names that a client asks for after the first, in its order."""
        text = ".".join(base)
        domains = (f"svc.{self._domain}", self._domain, *self._of_node())
        return [each for each in (*(f"{text}.{it}" for it in domains), text) if _is_name(each)]


def _own_addresses(pod: Object) -> list[str]:
    """Return the addresses of a pod that has them alone and searches where all pods do."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if status.get("phase") in WITHOUT_ADDRESS or spec.get("hostNetwork"):
        return []
    if spec.get("dnsPolicy", "") not in _POLICIES or spec.get("dnsConfig"):
        return []
    given = [each.get("ip") for each in status.get("hostIPs") or ()]
    of_node = {normal(each) for each in (*given, status.get("hostIP")) if each}
    return [each for each in _addresses(pod) if each not in of_node]


def _addresses(pod: Object) -> list[str]:
    status = pod.get("status") or {}
    return [normal(each["ip"]) for each in status.get("podIPs") or () if each.get("ip")]


def _is_name(text: str) -> bool:
    try:
        wire_name(text)
    except ValueError:
        return False
    return True
