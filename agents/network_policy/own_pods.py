"""The pods of one node, from their first address to the end of their last process.

A pod is known from when its kubelet holds it back before its start, or from the API. Its address is
its sandbox's: a pod that was deleted by force is isolated as long as something of it may still run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kvstack.agents.network_policy.cluster import OwnPod
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import MIRROR_ANNOTATION


class _PodIdentity(NamedTuple):
    namespace: str
    name: str
    labels: Mapping[str, str]


class OwnPods:
    """The pods of one node."""

    def __init__(self, node: str, addresses_of: Callable[[str], Sequence[str]]) -> None:
        """addresses_of: of the sandbox of a pod, by uid; none: it has no network of its own."""
        self._node = node
        self._addresses_of = addresses_of
        self._known: dict[str, _PodIdentity] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}
        self.changed: dict[str, None] = {}
        """Uids of pods that are to be looked at."""

    def put(self, pod: Object) -> str:
        """Take a pod as it is now, if it is of this node; return its uid here, else nothing."""
        meta, spec = pod["metadata"], pod["spec"]
        uid = uid_of(pod)
        is_static = meta["uid"] != uid or not spec.get("nodeName")
        if spec.get("hostNetwork") or (spec.get("nodeName") != self._node and not is_static):
            return ""
        self._known[uid] = _PodIdentity(meta["namespace"], meta["name"], meta.get("labels") or {})
        self.changed[uid] = None
        return uid

    def sweep(self) -> None:
        """Note the pods whose sandbox has come, changed or gone since they were looked at."""
        for uid in self._known:
            if tuple(self._addresses_of(uid)) != self._addresses.get(uid, ()):
                self.changed[uid] = None

    def touch_all(self) -> None:
        """Let all be looked at."""
        self.changed.update(dict.fromkeys(self._known))

    def look(self, uid: str, *, is_in_api: Callable[[str, str], bool]) -> OwnPod | None:
        """Return a pod as it is now; None: nothing of it can send.

        is_in_api: whether the API has a pod, by `namespace/name` and uid.
        """
        known, addresses = self._known.get(uid), tuple(self._addresses_of(uid))
        if known is None or not addresses:
            self._addresses.pop(uid, None)
            if known is not None and not is_in_api(f"{known.namespace}/{known.name}", uid):
                del self._known[uid]
            return None
        self._addresses[uid] = addresses
        return OwnPod(known.namespace, known.labels, addresses)

    def addresses(self, uid: str) -> Sequence[str]:
        """Return the addresses of a pod's sandbox; none: it has none."""
        return self._addresses_of(uid)


def uid_of(pod: Object) -> str:
    """Return by which uid the node knows a pod."""
    meta = pod["metadata"]
    found: str = (meta.get("annotations") or {}).get(MIRROR_ANNOTATION) or meta["uid"]
    return found
