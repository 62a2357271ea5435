"""TTL: annotates nodes with how long to cache Secrets and ConfigMaps, by the size of the cluster.

The size at which it goes down is below the one at which it went up, so that it does not flap.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.object_store import key_of
from kvstack.agents.reconcile.plan import BaseController, Identity, Patch, Plan, View, Watch, do
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH

_ANNOTATION: Final = "node.alpha.kubernetes.io/ttl"


class _Band(NamedTuple):
    """Sizes of clusters, in nodes, and what goes for them."""

    least: int
    most: int
    ttl_s: int


_BANDS: Final = (
    _Band(0, 100, 0),
    _Band(90, 500, 15),
    _Band(450, 1000, 30),
    _Band(900, 2000, 60),
    _Band(1800, 10000, 300),
)


class TtlController(BaseController):
    """Keeps the annotation of nodes."""

    def __init__(self) -> None:
        """Start with a small cluster."""
        self.identity: Identity = Identity("ttl-controller", "ttl-controller", "ttl-controller")
        self.watches: Sequence[Watch] = (Watch(NODES, self._keys),)
        self._band = 0

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one node."""
        node = view.get(NODES, key)
        wanted = str(_BANDS[self._band].ttl_s)
        if node is None or (node["metadata"].get("annotations") or {}).get(_ANNOTATION) == wanted:
            return None
        body = {"metadata": {"annotations": {_ANNOTATION: wanted}}}
        yield from do(Patch(NODES, "", key, body, STRATEGIC_MERGE_PATCH))
        return None

    def _keys(self, old: Object | None, new: Object | None, view: View) -> Iterable[str]:
        before = self._band
        if old is None or new is None:
            count = len(view.list(NODES))
            while self._band + 1 < len(_BANDS) and count > _BANDS[self._band].most:
                self._band += 1
            while count < _BANDS[self._band].least:
                self._band -= 1
        if self._band != before:
            yield from map(key_of, view.list(NODES))
        elif new is not None:
            yield key_of(new)
