"""Root CA publisher: every namespace has the ConfigMap `kube-root-ca.crt`.

What anyone else writes into it is overwritten, and its deletion undone.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import CONFIG_MAPS, NAMESPACES
from kvstack.agents.client.object_store import key_of
from kvstack.agents.reconcile.plan import (
    BaseController,
    Create,
    Identity,
    Plan,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.json_object import Object

ROOT_CA: Final = "kube-root-ca.crt"
_DESCRIPTION: Final = "kubernetes.io/description"
_TEXT: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal"
    " endpoints such as the internal service IP or kubernetes.default.svc. No other usage is"
    " guaranteed across distributions of Kubernetes clusters."
)


class RootCaPublisher(BaseController):
    """Publishes the CA bundle."""

    workers = 1

    def __init__(self, bundle: str) -> None:
        """bundle: PEM."""
        self.identity: Identity = Identity(
            "root-ca-certificate-publisher-controller",
            "root-ca-cert-publisher",
            "root-ca-cert-publisher",
        )
        self.watches: Sequence[Watch] = (
            Watch(NAMESPACES, _keys_of_namespace),
            Watch(CONFIG_MAPS, _keys_of_map),
        )
        self._data: Final = {"ca.crt": bundle}

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one namespace."""
        namespace = view.get(NAMESPACES, key)
        if namespace is None or (namespace.get("status") or {}).get("phase") != "Active":
            return None
        config_map = view.get(CONFIG_MAPS, f"{key}/{ROOT_CA}")
        if config_map is None:
            yield from self._create(key)
            return None
        annotations = config_map["metadata"].get("annotations") or {}
        if config_map.get("data") == self._data and annotations.get(_DESCRIPTION):
            return None
        meta = {**config_map["metadata"], "annotations": {**annotations, _DESCRIPTION: _TEXT}}
        yield from do(Update(CONFIG_MAPS, {**config_map, "metadata": meta, "data": self._data}))
        return None

    def _create(self, namespace: str) -> Plan:
        meta = {"name": ROOT_CA, "annotations": {_DESCRIPTION: _TEXT}}
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": self._data}
        [outcome] = yield [Create(CONFIG_MAPS, namespace, obj)]
        if not outcome.is_namespace_terminating and not outcome.is_conflict:
            outcome.result()
        return None


def _keys_of_namespace(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None:
        yield key_of(new)


def _keys_of_map(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    meta = (new or old or {})["metadata"]
    if meta["name"] == ROOT_CA:
        yield meta["namespace"]
