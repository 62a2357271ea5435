"""NodeRestriction: kubelets write only objects of their own node.

    node "a" writes      may be
    Node, Lease, CSINode of its own name, without labels and taints that steer pods
    Pod                  a mirror pod of its own; deleted, evicted and reported: pods on it
    TokenRequest         for the account of a pod on it, bound to that pod
    PodCertificateRequest, CSR, ResourceSlice    for itself

It applies only to users that the Node authorizer identifies as nodes.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.apimachinery.objects.core.group_resources import (
    CLAIMS,
    CSI_NODES,
    LEASES,
    NODES,
    POD_CERTIFICATES,
    PODS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    SIGNING_REQUESTS,
)
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER
from kvstack.apiserver.policy.admission.plugins.node_restriction import nodes, pods
from kvstack.apiserver.policy.admission.plugins.node_restriction.pod_certificates import (
    PodCertificates,
)
from kvstack.apiserver.policy.admission.plugins.node_restriction.tokens import Tokens
from kvstack.apiserver.policy.admission.request import CREATE, DELETE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.authorization.node.authorizer import LEASES_NAMESPACE
from kvstack.apiserver.policy.authorization.node.identity import node_of
from kvstack.apiserver.policy.interfaces import Authorizer, ObjectView

_Check: TypeAlias = Callable[[str, AdmissionRequest], Awaitable[None] | None]

_NODE_SIGNERS: Final = frozenset((KUBELET_SERVING_SIGNER, KUBELET_CLIENT_SIGNER))


class NodeRestriction:
    """Refuses writes that nodes must not make."""

    name = "NodeRestriction"

    def __init__(self, view: ObjectView, authorizer: Authorizer) -> None:
        """authorizer: called if a pod does not decide it."""
        self._checks: Final[Mapping[GroupResource, _Check]] = {
            PODS: pods.PodRestriction(view).check,
            NODES: nodes.check,
            CLAIMS: pods.check_claim,
            SERVICE_ACCOUNTS: Tokens(view, authorizer).check,
            POD_CERTIFICATES: PodCertificates(view, authorizer).check,
            LEASES: _check_lease,
            CSI_NODES: _check_csi_node,
            RESOURCE_SLICES: _check_slice,
            SIGNING_REQUESTS: _check_signing_request,
        }

    def handles(self, operation: str, resource: GroupResource, _subresource: str) -> bool:
        """Return whether a write is of a kind that is restricted for nodes."""
        return resource in self._checks and operation in {CREATE, UPDATE, DELETE}

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Refuse a node's write of an object that is not its own; raises ApiError."""
        node = node_of(request.user)
        if node is None:
            return None
        if not node:
            name = quote(request.user.name)
            raise request.forbidden(f"could not determine node from user {name}")
        return self._checks[request.resource](node, request)


def _check_lease(node: str, request: AdmissionRequest) -> None:
    if request.namespace != LEASES_NAMESPACE:
        raise request.forbidden(
            f"can only access leases in the {quote(LEASES_NAMESPACE)} system namespace"
        )
    if _name(request) != node:
        raise request.forbidden(
            "can only access node lease with the same name as the requesting node"
        )


def _check_csi_node(node: str, request: AdmissionRequest) -> None:
    if _name(request) != node:
        raise request.forbidden("can only access CSINode with the same name as the requesting node")
    if request.subresource == "status":
        raise request.forbidden("CSIVolumeHealth feature gate is disabled")


def _check_slice(node: str, request: AdmissionRequest) -> None:
    if request.operation == UPDATE:
        return  # the authorizer knows the slice's node, which is immutable
    is_create = request.operation == CREATE
    verb, slice_ = ("create", request.new) if is_create else ("delete", request.old or {})
    if (slice_.get("spec") or {}).get("nodeName") != node:
        raise request.forbidden(
            f"can only {verb} ResourceSlice with the same NodeName as the requesting node"
        )


def _check_signing_request(node: str, request: AdmissionRequest) -> None:
    if request.operation != CREATE:
        return
    spec = request.new.get("spec") or {}
    if spec.get("signerName") not in _NODE_SIGNERS:
        return
    try:
        name = _common_name(spec.get("request") or "")
    except ValueError as error:
        raise request.forbidden(f"unable to parse csr: {error}") from None
    if name != f"system:node:{node}":
        raise request.forbidden(f"can only create a node CSR with CN=system:node:{node}")


def _name(request: AdmissionRequest) -> str:
    """Return the name of the written object; for a create, that in the object."""
    if request.operation != CREATE:
        return request.name
    name: str = (request.new.get("metadata") or {}).get("name") or ""
    return name


def _common_name(request: str) -> str:
    """Return the CN of a base64 certificate request; ValueError if it cannot be parsed."""
    subject = x509.load_pem_x509_csr(base64.b64decode(request)).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    # Of several the last counts, as for signers.
    return str(names[-1].value) if names else ""
