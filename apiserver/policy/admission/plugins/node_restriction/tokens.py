"""Token requests of a kubelet: for the account of a pod on it, with an audience that the pod needs.

The audience must be named by a projected volume of the pod, or by the CSI driver of one of its
volumes; or the node must be authorized for it:

    verbs: [request-serviceaccounts-token-audience]
    resources: [<audience>]
    resourceNames: [<account>]
"""

from collections.abc import Awaitable
from typing import Any, Final

from kvstack.apimachinery.attributes import Attributes
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import CLAIMS, VOLUMES
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import aggregate, quote
from kvstack.apiserver.policy.admission.plugins.node_restriction.pods import find_pod
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest
from kvstack.apiserver.policy.authorization.chain import decided
from kvstack.apiserver.policy.authorization.node.references import claim_of_volume
from kvstack.apiserver.policy.interfaces import Authorizer, ObjectView

_VERB: Final = "request-serviceaccounts-token-audience"
_CSI_DRIVERS: Final = GroupResource("storage.k8s.io", "csidrivers")
_MIGRATED: Final = {
    "awsElasticBlockStore": "ebs.csi.aws.com",
    "azureDisk": "disk.csi.azure.com",
    "azureFile": "file.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "gcePersistentDisk": "pd.csi.storage.gke.io",
    "portworxVolume": "pxd.portworx.com",
    "vsphereVolume": "csi.vsphere.vmware.com",
}
"""Volume sources that CSI drivers have replaced."""


class Tokens:
    """Checks token requests."""

    def __init__(self, view: ObjectView, authorizer: Authorizer) -> None:
        """authorizer: called for other audiences."""
        self._view: Final = view
        self._authorizer: Final = authorizer

    def check(self, node: str, request: AdmissionRequest) -> Awaitable[None] | None:
        """Refuse a token that no pod on the node needs; raises ApiError."""
        if request.operation != CREATE or request.subresource != "token":
            return None
        spec = request.new.get("spec") or {}
        bound = spec.get("boundObjectRef") or {}
        if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("name"):
            raise request.forbidden("node requested token not bound to a pod")
        uid = bound.get("uid") or ""
        if not uid:
            raise request.forbidden("node requested token with a pod binding without a uid")
        pod = find_pod(self._view, request.namespace, bound["name"])
        if uid != pod["metadata"].get("uid"):
            raise request.forbidden(
                f"the UID in the bound object reference ({uid}) does not match the UID in record."
                " The object might have been deleted and then recreated"
            )
        if (pod.get("spec") or {}).get("nodeName") != node:
            raise request.forbidden(
                "node requested token bound to a pod scheduled on a different node"
            )
        return self._check_audience(request, pod, spec.get("audiences") or [])

    def _check_audience(
        self, request: AdmissionRequest, pod: Object, audiences: list[str]
    ) -> Awaitable[None] | None:
        if len(audiences) > 1:
            raise request.forbidden("node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        errors: list[str] = []
        if self._needs(pod, audience, errors):
            return None
        if errors:
            shown = quote(audience)
            raise request.forbidden(f"error validating audience {shown}: {aggregate(errors)}")
        return self._ask(request, audience)

    async def _ask(self, request: AdmissionRequest, audience: str) -> None:
        attributes = Attributes(
            request.user,
            _VERB,
            group=request.resource.group,
            version=request.version,
            resource=audience,
            namespace=request.namespace,
            name=request.name,
        )
        decision = await decided(self._authorizer, attributes)
        if decision.allowed:
            return
        name, shown = request.user.name, quote(audience)
        if decision.error:
            raise request.forbidden(
                f"error authorizing {name} to request tokens for audience {shown}: {decision.error}"
            )
        raise request.forbidden(f"{name} is not authorized to request tokens for audience {shown}")

    def _needs(self, pod: Object, audience: str, errors: list[str]) -> bool:
        for volume in pod["spec"].get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                token = source.get("serviceAccountToken")
                if token is not None and (token.get("audience") or "") == audience:
                    return True
            try:
                driver = self._driver_of(pod, volume)
                if driver and self._asks_for(driver, audience):
                    return True
            except status.ApiError as error:
                errors.append(str(error))
        return False

    def _driver_of(self, pod: Object, volume: Object) -> str:
        """Return the CSI driver of a pod's volume; empty: none. Raises ApiError."""
        claim_name = claim_of_volume(pod, volume)
        if not claim_name:
            return _driver(volume)
        claim = self._find(CLAIMS, pod["metadata"]["namespace"], claim_name)
        return _driver(self._find(VOLUMES, "", claim["spec"].get("volumeName", ""))["spec"])

    def _asks_for(self, driver: str, audience: str) -> bool:
        spec = self._find(_CSI_DRIVERS, "", driver).get("spec") or {}
        wanted = spec.get("tokenRequests") or ()
        return any((each.get("audience") or "") == audience for each in wanted)

    def _find(self, resource: GroupResource, namespace: str, name: str) -> Object:
        obj = self._view.get(resource, namespace, name)
        if obj is None:
            raise status.not_found(resource._replace(resource=resource.resource[:-1]), name)
        return obj


def _driver(source: dict[str, Any]) -> str:
    if (csi := source.get("csi")) is not None:
        name: str = csi.get("driver") or ""
        return name
    return next((driver for kind, driver in _MIGRATED.items() if source.get(kind) is not None), "")
