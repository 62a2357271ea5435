"""Trust bundle publisher: a ClusterTrustBundle with the authorities of the API server.

Its name holds a hash of its content; bundles of the same signer with other content are deleted.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from typing_extensions import override

from kvstack.agents.client.built_in import CLUSTER_TRUST_BUNDLES
from kvstack.agents.reconcile.plan import (
    BaseController,
    Create,
    Delete,
    Identity,
    Plan,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.json_object import Object

SIGNER: Final = "kubernetes.io/kube-apiserver-serving"

_ALL: Final = "bundles"
_HASH_BYTES: Final = 12


class TrustBundlePublisher(BaseController):
    """Publishes a bundle."""

    workers = 1

    def __init__(self, bundle: str) -> None:
        """bundle: PEM."""
        name = "kube-apiserver-serving-clustertrustbundle-publisher"
        self.identity: Identity = Identity(f"{name}-controller", name, name)
        self.watches: Sequence[Watch] = (Watch(CLUSTER_TRUST_BUNDLES, _keys),)
        self._bundle: Final = bundle
        self._name: Final = bundle_name(bundle)

    @override
    def initial_keys(self) -> Iterable[str]:
        """Start even without a bundle."""
        return (_ALL,)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for all bundles of the signer."""
        published = view.get(CLUSTER_TRUST_BUNDLES, self._name)
        spec = {"signerName": SIGNER, "trustBundle": self._bundle}
        if published is None:
            obj = {
                "apiVersion": CLUSTER_TRUST_BUNDLES.api_version,
                "kind": CLUSTER_TRUST_BUNDLES.kind,
                "metadata": {"name": self._name},
                "spec": spec,
            }
            yield from do(Create(CLUSTER_TRUST_BUNDLES, "", obj))
        elif published["spec"].get("trustBundle") != self._bundle:
            yield from do(Update(CLUSTER_TRUST_BUNDLES, {**published, "spec": spec}))
        outcomes = yield [
            Delete(CLUSTER_TRUST_BUNDLES, "", each["metadata"]["name"], each["metadata"]["uid"])
            for each in view.list(CLUSTER_TRUST_BUNDLES)
            if _is_ours(each) and each["metadata"]["name"] != self._name
        ]
        for outcome in outcomes:
            if not outcome.is_not_found:
                outcome.result()
        return None


def bundle_name(bundle: str) -> str:
    """Return the name of the object that holds a bundle."""
    digest = hashlib.sha256(bundle.encode()).digest()[:_HASH_BYTES]
    return f"{SIGNER.replace('/', ':')}:{digest.hex()}"


def _is_ours(bundle: Object) -> bool:
    signer: str = bundle["spec"].get("signerName", "")
    return signer == SIGNER


def _keys(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if _is_ours(new or old or {}):
        yield _ALL
