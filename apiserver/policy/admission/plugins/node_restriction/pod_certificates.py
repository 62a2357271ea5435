"""PodCertificateRequests of a kubelet: for pods on it, by signers that their volumes name."""

from collections.abc import Awaitable
from typing import Final

from kvstack.apimachinery.attributes import Attributes
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import NODES, PODS, SERVICE_ACCOUNTS
from kvstack.apimachinery.objects.core.pod_references import is_mirror
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest
from kvstack.apiserver.policy.authorization.chain import decided
from kvstack.apiserver.policy.interfaces import Authorizer, ObjectView

_VERB: Final = "request-serviceaccounts-podcertificate-signer"


class PodCertificates:
    """Checks PodCertificateRequests."""

    def __init__(self, view: ObjectView, authorizer: Authorizer) -> None:
        """authorizer: called for other signers."""
        self._view: Final = view
        self._authorizer: Final = authorizer

    def check(self, node: str, request: AdmissionRequest) -> Awaitable[None] | None:
        """Refuse a request that no pod on the node needs; raises ApiError.

        If the watch cache may be behind the answer is 500, so that kubelets retry.
        """
        if request.operation != CREATE:
            raise request.forbidden(f"unexpected operation {request.operation}")
        if request.subresource:
            raise request.forbidden(f"unexpected subresource {request.subresource}")
        spec = request.new.get("spec") or {}
        named = spec.get("nodeName") or ""
        if named != node:
            raise request.forbidden(
                f"PodCertificateRequest.Spec.NodeName={quote(named)}, which is not the requesting"
                f" node {quote(node)}"
            )
        pod_text = quote(f"{request.namespace}/{spec.get('podName', '')}")
        found = self._find(NODES, "", named, f"node {quote(named)}")
        if (uid := _uid(found)) != spec.get("nodeUID"):
            raise status.unknown(
                f"PodCertificateRequest for pod {pod_text} names node UID"
                f" {quote(spec.get('nodeUID') or '')}, inconsistent with the running node"
                f" ({quote(uid)})"
            )
        pod = self._find(PODS, request.namespace, spec.get("podName") or "", f"pod {pod_text}")
        self._check_pod(request, spec, pod, pod_text)
        self._check_account(request, spec, pod_text)
        return self._check_signer(request, spec, pod, pod_text)

    def _check_pod(
        self, request: AdmissionRequest, spec: Object, pod: Object, pod_text: str
    ) -> None:
        if (uid := _uid(pod)) != spec.get("podUID"):
            raise status.unknown(
                f"PodCertificateRequest for pod {pod_text} contains pod UID"
                f" ({quote(spec.get('podUID') or '')}) which differs from running pod"
                f" {quote(uid)}"
            )
        if pod["spec"].get("nodeName") != spec["nodeName"]:
            raise request.forbidden(
                f"pod {pod_text} is not running on node {quote(spec['nodeName'])} named in the"
                " PodCertificateRequest"
            )
        if is_mirror(pod):
            raise request.forbidden(f"pod {pod_text} is a mirror pod")
        account, own = spec.get("serviceAccountName") or "", pod["spec"].get("serviceAccountName")
        if account != (own or ""):
            raise request.forbidden(
                f"PodCertificateRequest for pod {pod_text} contains serviceAccountName"
                f" ({quote(account)}) that differs from running pod ({quote(own or '')})"
            )

    def _check_account(self, request: AdmissionRequest, spec: Object, pod_text: str) -> None:
        name, wanted = spec.get("serviceAccountName") or "", spec.get("serviceAccountUID") or ""
        what = f"service account {quote(f'{request.namespace}/{name}')}"
        account = self._find(SERVICE_ACCOUNTS, request.namespace, name, what)
        if (uid := _uid(account)) != wanted:
            raise status.unknown(
                f"PodCertificateRequest for pod {pod_text} names service account UID"
                f" {quote(wanted)}, which differs from the running service account ({quote(uid)})"
            )

    def _check_signer(
        self, request: AdmissionRequest, spec: Object, pod: Object, pod_text: str
    ) -> Awaitable[None] | None:
        signer = spec.get("signerName") or ""
        for volume in pod["spec"].get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                if (source.get("podCertificate") or {}).get("signerName") == signer:
                    return None
        return self._ask(request, signer, spec.get("serviceAccountName") or "", pod_text)

    async def _ask(
        self, request: AdmissionRequest, signer: str, account: str, pod_text: str
    ) -> None:
        attributes = Attributes(
            request.user,
            _VERB,
            group=request.resource.group,
            version=request.version,
            # Rules cannot name a resource with a slash.
            resource=signer.replace("/", ":"),
            namespace=request.namespace,
            name=account,
        )
        decision = await decided(self._authorizer, attributes)
        if decision.allowed:
            return
        if decision.error:
            raise request.forbidden(
                f"error authorizing {request.user.name} to request podcertificaterequests for"
                f" signer {quote(signer)}: {decision.error}"
            )
        raise request.forbidden(
            f"pod {pod_text} does not mount a podCertificate projected volume for signer"
            f" {quote(signer)}"
        )

    def _find(self, resource: GroupResource, namespace: str, name: str, what: str) -> Object:
        obj = self._view.get(resource, namespace, name)
        if obj is None:
            kind = resource.resource[:-1]
            raise status.unknown(
                f"while retrieving {what} named in the PodCertificateRequest:"
                f" {kind} {quote(name)} not found"
            )
        return obj


def _uid(obj: Object) -> str:
    uid: str = obj["metadata"].get("uid") or ""
    return uid
