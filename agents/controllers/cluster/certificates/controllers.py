"""Approves, signs and removes CertificateSigningRequests.

new ─► approver (kubelets' client certificates, if their user may) ─► Approved
Approved ─► signer ─► status.certificate, or Failed
ended, or waiting for too long ─► cleaner ─► deleted
"""

import base64
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Final

from cryptography import x509
from typing_extensions import override

from kvstack.agents.client.built_in import (
    CERTIFICATE_SIGNING_REQUESTS,
    NODES,
    SUBJECT_ACCESS_REVIEWS,
)
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.cluster.certificates import requests
from kvstack.agents.controllers.cluster.certificates.authority import Authority
from kvstack.agents.controllers.options import SignerOptions
from kvstack.agents.controllers.sweeps import Sweep
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import (
    Again,
    BackOff,
    BaseController,
    Create,
    Delete,
    Identity,
    Outcome,
    Plan,
    Record,
    Retry,
    Step,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.core.node_status import is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.well_known import KUBELET_CLIENT_SIGNER

_SERVICE_ACCOUNT: Final = "certificate-controller"
_BACK_OFF: Final = BackOff(base_s=0.2, max_s=1000.0)
_GROUP: Final = "certificates.k8s.io"
_READY_S: Final = 10.0
"""The interval of checks of a request that a Ready node blocks."""
_SHORTEST_S: Final = 600.0
_HOUR_S: Final = 3600.0
_DAY_S: Final = 86400.0
_APPROVALS: Final = (
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."),
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
)
"""The permissions that are checked, in order, and the message of the approval."""


class UnreadableRequestError(Exception):
    """A request is none."""


class _RequestController(BaseController):
    """The common part of the approver and the signer."""

    back_off = _BACK_OFF

    def __init__(self, name: str) -> None:
        self.identity: Identity = Identity(name, _SERVICE_ACCOUNT, name)
        self.watches: Sequence[Watch] = (Watch(CERTIFICATE_SIGNING_REQUESTS, _keys),)


class Approver(_RequestController):
    """Approves kubelets' requests for client certificates.

    Only the node itself gets another one while it is Ready: otherwise anybody with a bootstrap
    token could become any node, and read its Secrets. Upstream approves that.
    """

    reads: Sequence[ResourceType] = (NODES,)

    def __init__(self) -> None:
        """Watch requests."""
        super().__init__("certificatesigningrequest-approving-controller")

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one request."""
        obj = view.get(CERTIFICATE_SIGNING_REQUESTS, key)
        if obj is None or obj["spec"]["signerName"] != KUBELET_CLIENT_SIGNER:
            return None
        status = obj.get("status") or {}
        found = status.get("conditions") or []
        if status.get("certificate") or any(each["type"] in _DECIDED for each in found):
            return None
        spec, request = obj["spec"], _parsed(obj)
        if requests.problem(request, KUBELET_CLIENT_SIGNER, spec.get("usages") or ()):
            return None
        name = requests.common_name(request)
        is_own = spec.get("username") == name
        node = view.get(NODES, name.removeprefix(requests.NODE_PREFIX))
        if not is_own and node is not None and is_ready(node):
            text = f"node {node['metadata']['name']} is Ready: it alone gets another certificate"
            yield [Record(obj, "Warning", "NodeIsReady", text)]
            return Again(_READY_S)
        for subresource, text in _APPROVALS[0 if is_own else 1 :]:
            review = yield from do(_review(spec, subresource))
            if (review.get("status") or {}).get("allowed"):
                yield from do(_approved(obj, text))
                return None
        return Retry("the access review did not approve it")


class Signer(_RequestController):
    """Signs what is approved."""

    def __init__(self, signers: Mapping[str, SignerOptions], duration_s: float) -> None:
        """signers: by name, those of other names are not used; raises AuthorityError."""
        super().__init__("certificatesigningrequest-signing-controller")
        self._authorities = {
            name: Authority(each.certificate, each.key)
            for name, each in signers.items()
            if name in requests.SIGNERS and each.certificate and each.key
        }
        self._duration_s = duration_s

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one request."""
        obj = view.get(CERTIFICATE_SIGNING_REQUESTS, key)
        if obj is None:
            return None
        spec, status = obj["spec"], obj.get("status") or {}
        authority = self._authorities.get(spec["signerName"])
        found = status.get("conditions") or []
        if (
            authority is None
            or status.get("certificate")
            or not _is_approved(found)
            or conditions.is_true(found, "Failed")
        ):
            return None
        request = _parsed(obj)
        usages = spec.get("usages") or ()
        if problem := requests.problem(request, spec["signerName"], usages):
            yield from do(_failed(obj, problem, now_s))
            return None
        duration_s = self._duration(spec.get("expirationSeconds"))
        uid = obj["metadata"]["uid"]
        certificate = authority.sign(request, uid, usages, duration_s, now_s)
        coded = base64.b64encode(certificate).decode()
        wanted = {**obj, "status": {**status, "certificate": coded}}
        yield from do(Update(CERTIFICATE_SIGNING_REQUESTS, wanted, "status"))
        return None

    def _duration(self, requested_s: float | None) -> float:
        if requested_s is None or requested_s > self._duration_s:
            return self._duration_s
        return max(requested_s, _SHORTEST_S)


class Cleaner(Sweep):
    """Deletes old requests."""

    period_s = 3600.0

    def __init__(self) -> None:
        """Look at all requests from time to time."""
        name = "certificatesigningrequest-cleaner-controller"
        self.identity: Identity = Identity(name, _SERVICE_ACCOUNT, name)
        super().__init__(CERTIFICATE_SIGNING_REQUESTS)

    @override
    def sweep(self, view: View, now_s: float) -> Generator[Step, list[Outcome], None]:
        """Delete what is over."""
        for obj in view.list(CERTIFICATE_SIGNING_REQUESTS):
            if _is_over(obj, now_s):
                yield from _delete(obj)


_DECIDED: Final = frozenset(("Approved", "Denied"))


def _is_approved(found: Sequence[Object]) -> bool:
    types = {each["type"] for each in found}
    return "Approved" in types and "Denied" not in types


def _parsed(obj: Object) -> requests.Request:
    request = requests.parsed(obj)
    if request is None:
        raise UnreadableRequestError(f'unable to parse csr "{obj["metadata"]["name"]}"')
    return request


def _review(spec: Object, subresource: str) -> Create:
    """Return the question whether a request's user may have it approved."""
    review = {
        "user": spec.get("username", ""),
        "uid": spec.get("uid", ""),
        "groups": spec.get("groups") or [],
        "extra": spec.get("extra") or {},
        "resourceAttributes": {
            "group": _GROUP,
            "resource": "certificatesigningrequests",
            "verb": "create",
            "subresource": subresource,
            "version": "*",
        },
    }
    body = {
        "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SUBJECT_ACCESS_REVIEWS.kind,
        "spec": review,
    }
    return Create(SUBJECT_ACCESS_REVIEWS, "", body)


def _with_condition(obj: Object, condition: Object) -> Object:
    status = obj.get("status") or {}
    found = [*(status.get("conditions") or ()), {"status": "True", **condition}]
    return {**obj, "status": {**status, "conditions": found}}


def _approved(obj: Object, text: str) -> Update:
    condition = {"type": "Approved", "reason": "AutoApproved", "message": text}
    return Update(CERTIFICATE_SIGNING_REQUESTS, _with_condition(obj, condition), "approval")


def _failed(obj: Object, text: str, now_s: float) -> Update:
    condition = {
        "type": "Failed",
        "reason": "SignerValidationFailure",
        "message": text,
        "lastUpdateTime": format_time(now_s),
    }
    return Update(CERTIFICATE_SIGNING_REQUESTS, _with_condition(obj, condition), "status")


def _is_over(obj: Object, now_s: float) -> bool:
    status = obj.get("status") or {}
    certificate = status.get("certificate")
    found = status.get("conditions") or ()
    if not found:
        return _is_older(obj["metadata"]["creationTimestamp"], _DAY_S, now_s)
    for condition in found:
        updated = condition.get("lastUpdateTime")
        if condition["type"] == "Approved":
            if _is_older(updated, _HOUR_S if certificate else _DAY_S, now_s):
                return True
            if certificate and _has_ended(certificate, now_s):
                return True
        elif condition["type"] in ("Denied", "Failed") and _is_older(updated, _HOUR_S, now_s):
            return True
    return False


def _is_older(time: str | None, age_s: float, now_s: float) -> bool:
    since_s = seconds_of(time)
    return since_s is not None and now_s - since_s > age_s


def _has_ended(certificate: str, now_s: float) -> bool:
    try:
        found = x509.load_pem_x509_certificate(base64.b64decode(certificate))
    except ValueError:
        return False  # an invalid certificate does not expire
    return found.not_valid_after_utc.timestamp() < now_s


def _delete(obj: Object) -> Generator[Step, list[Outcome], None]:
    [outcome] = yield [Delete(CERTIFICATE_SIGNING_REQUESTS, "", obj["metadata"]["name"])]
    if not outcome.is_not_found:
        outcome.result()


def _keys(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None:
        yield key_of(new)
