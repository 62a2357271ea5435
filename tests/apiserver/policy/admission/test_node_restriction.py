"""What kubelets may write."""

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from kvstack.apimachinery.attributes import Attributes, User
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
    VOLUMES,
)
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.policy.admission.plugins.node_restriction.plugin import NodeRestriction
from kvstack.apiserver.policy.admission.request import CREATE, DELETE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import NO_OPINION, Decision
from tests.apiserver.policy.certificates import curve_key, subject
from tests.apiserver.policy.views import FakeView
from tests.apiserver.policy.waiting import result

N1 = User("system:node:n1", groups=("system:nodes",))
MIRROR = {"kubernetes.io/config.mirror": "x"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": True}
DRIVERS = GroupResource("storage.k8s.io", "csidrivers")


class Asked:
    """An authorizer that allows what a test lists, and notes what it was asked."""

    def __init__(self) -> None:
        self.allowed: set[tuple[str, str, str]] = set()
        self.questions: list[Attributes] = []

    def authorize(self, attributes: Attributes) -> Decision:
        self.questions.append(attributes)
        what = attributes.verb, attributes.resource, attributes.name
        return Decision(allowed=True) if what in self.allowed else NO_OPINION


class World:
    """Nodes n1 and n2, and a pod on each."""

    def __init__(self) -> None:
        self.view = FakeView()
        self.asked = Asked()
        self.plugin = NodeRestriction(self.view, self.asked)
        for name in ("n1", "n2"):
            self.view.put(NODES, {"metadata": {"name": name, "uid": name.replace("n", "u")}})
        self.view.put(PODS, pod("mine", "n1"))
        self.view.put(PODS, pod("other", "n2"))
        self.view.put(SERVICE_ACCOUNTS, {"metadata": metadata("sa", uid="sa-uid")})

    def write(
        self,
        operation: str,
        what: GroupResource,
        new: Object | None,
        old: Object | None = None,
        *,
        subresource: str = "",
        name: str = "",
        user: User = N1,
        namespace: str = "a",
    ) -> None:
        if not name:
            name = ((new or old or {}).get("metadata") or {}).get("name", "")
        request = AdmissionRequest(
            operation, user, what, Kind("", "v1", "x"), subresource=subresource,
            namespace=namespace, name=name, object=new, old=old,
        )  # fmt: skip
        assert self.plugin.handles(operation, what, subresource)
        waiting = self.plugin.mutate(request)
        if waiting is not None:
            result(waiting)

    def refusal(self, *arguments: Any, **more: Any) -> str:
        with pytest.raises(ApiError) as caught:
            self.write(*arguments, **more)
        text = caught.value.message
        return text.partition(" is forbidden: ")[2] or f"{caught.value.code} {text}"


@pytest.fixture
def world() -> World:
    return World()


def metadata(name: str, **more: Any) -> Object:
    return {"namespace": "a", "name": name, **more}


def pod(name: str, node: str, spec: Object | None = None, **more: Any) -> Object:
    spec = {"nodeName": node, "serviceAccountName": "sa", **(spec or {})}
    return {"metadata": metadata(name, uid=f"{name}-uid", **more), "spec": spec}


def mirror(spec: Object | None = None, **more: Any) -> Object:
    made = pod("m", "n1", spec, **{"annotations": MIRROR, "ownerReferences": [OWNER], **more})
    if "serviceAccountName" not in (spec or {}):
        del made["spec"]["serviceAccountName"]
    return made


def test_others_than_nodes_are_not_concerned(world: World) -> None:
    for user in (User("bob"), User("system:node:n1"), User("x", groups=("system:nodes",))):
        world.write(DELETE, PODS, None, pod("other", "n2"), user=user)
    nobody = User("system:node:", groups=("system:nodes",))
    assert "could not determine node" in world.refusal(DELETE, PODS, None, name="p", user=nobody)
    assert not world.plugin.handles(CREATE, GroupResource("", "secrets"), "")


def test_pods_that_nodes_create(world: World) -> None:
    world.write(CREATE, PODS, mirror())
    told = world.refusal(CREATE, PODS, pod("p", "n1"))
    assert told == (
        'pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create'
        " mirror pods"
    )
    told = world.refusal(CREATE, PODS, pod("p", "n2", annotations=MIRROR))
    assert told == 'node "n1" can only create pods with spec.nodeName set to itself'


@pytest.mark.parametrize(
    ("owners", "reason"),
    [
        ([], "an owner reference set to itself"),
        ([OWNER, OWNER], "a single owner reference set to itself"),
        ([{**OWNER, "name": "n2"}], "an owner reference set to itself"),
        ([{**OWNER, "controller": False}], "a controller owner reference set to itself"),
        ([{**OWNER, "blockOwnerDeletion": True}], "must not set blockOwnerDeletion"),
        ([{**OWNER, "uid": "u2"}], "node n1 UID mismatch: expected u2 got u1"),
    ],
)
def test_owners_of_mirror_pods(world: World, owners: list[Object], reason: str) -> None:
    assert reason in world.refusal(CREATE, PODS, mirror(ownerReferences=owners))


@pytest.mark.parametrize(
    ("spec", "reference"),
    [
        ({"serviceAccountName": "sa"}, "serviceaccounts"),
        ({"imagePullSecrets": [{"name": "s"}]}, "secrets"),
        ({"resourceClaims": [{"name": "c"}]}, "resourceclaims"),
        ({"volumes": [{"name": "v", "configMap": {}}]}, "configmaps (via configmap volumes)"),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "persistentvolumeclaims"),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
            "serviceaccounts (via projected volumes)",
        ),
        ({"volumes": [{"name": "v", "future": {}}]}, 'an unknown type of volume "v"'),
    ],
)
def test_mirror_pods_refer_to_nothing(world: World, spec: Object, reference: str) -> None:
    told = world.refusal(CREATE, PODS, mirror(spec))
    assert told == f'node "n1" can not create pods that reference {reference}'


def test_mirror_pods_may_have_volumes_of_the_node(world: World) -> None:
    projected: dict[str, Any] = {"sources": [{"downwardAPI": {}}]}
    volumes = [
        {"name": "a", "hostPath": {"path": "/"}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "projected": projected},
    ]
    world.write(CREATE, PODS, mirror({"volumes": volumes}))


def test_pods_that_nodes_delete_evict_and_change(world: World) -> None:
    world.write(DELETE, PODS, None, name="mine")
    world.write(CREATE, PODS, {}, subresource="eviction", name="mine")
    assert "can only delete pods" in world.refusal(DELETE, PODS, None, name="other")
    told = world.refusal(CREATE, PODS, {}, subresource="eviction", name="other")
    assert told == "node n1 can only evict pods with spec.nodeName set to itself"
    assert world.refusal(DELETE, PODS, None, name="x") == '404 pod "x" not found'
    told = world.refusal(UPDATE, PODS, pod("mine", "n1"), pod("mine", "n1"))
    assert told.startswith('unexpected operation "UPDATE", node "n1" can only create and delete')
    told = world.refusal(UPDATE, PODS, {}, {}, subresource="ephemeralcontainers", name="mine")
    assert told.startswith('unexpected pod subresource "ephemeralcontainers"')


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("resourceClaimStatuses", "cannot update resource claim statues"),
        ("extendedResourceClaimStatus", "cannot update extended resource claim status"),
        ("nodeAllocatableResourceClaimStatuses", "cannot update node allocatable resource claim"),
    ],
)
def test_status_of_pods(world: World, member: str, words: str) -> None:
    old = {**pod("mine", "n1"), "status": {"phase": "Pending"}}
    world.write(UPDATE, PODS, {**old, "status": {"phase": "Running"}}, old, subresource="status")
    claims = [{"name": "c"}] if member.endswith("uses") else {"resourceClaimName": "c"}
    claimed = {**old, "status": {member: claims}}
    assert words in world.refusal(UPDATE, PODS, claimed, old, subresource="status")
    labelled = pod("mine", "n1", labels={"a": "b"})
    told = world.refusal(UPDATE, PODS, labelled, old, subresource="status")
    assert told == 'node "n1" cannot update labels through pod status'
    told = world.refusal(UPDATE, PODS, old, pod("other", "n2"), subresource="status")
    assert told.startswith('node "n1" can only update pod status for pods')


def test_claims(world: World) -> None:
    old = {"metadata": metadata("c", resourceVersion="1"), "spec": {"volumeName": "v"}}
    new = {**old, "metadata": metadata("c"), "status": {"capacity": {"storage": "1Gi"}}}
    world.write(UPDATE, CLAIMS, new, old, subresource="status")
    assert world.refusal(UPDATE, CLAIMS, new, old) == "may only update PVC status"
    finalized = {**new, "metadata": metadata("c", finalizers=["a/b"])}
    told = world.refusal(UPDATE, CLAIMS, finalized, old, subresource="status")
    assert told.startswith('node "n1" is not allowed to update fields other than status.quantity')
    bound = {**new, "status": {"phase": "Bound"}}
    assert "fields other than" in world.refusal(UPDATE, CLAIMS, bound, old, subresource="status")


def node(**more: Any) -> Object:
    return {"metadata": {"name": "n1", **more.pop("metadata", {})}, "spec": more}


LABELS = {
    "kubernetes.io/hostname": True,
    "topology.kubernetes.io/zone": True,
    "x.kubelet.kubernetes.io/a": True,
    "node.kubernetes.io/a": True,
    "example.org/a": True,
    "plain": True,
    "node-restriction.kubernetes.io/a": False,
    "x.node-restriction.kubernetes.io/a": False,
    "node-role.kubernetes.io/master": False,
    "kubernetes.io/other": False,
    "x.k8s.io/a": False,
    "xk8s.io/a": True,
}


@pytest.mark.parametrize("label", LABELS)
def test_labels_that_nodes_set(world: World, label: str) -> None:
    plain, labelled = node(), node(metadata={"labels": {label: ""}})
    writes = ((CREATE, labelled, None), (UPDATE, labelled, plain), (UPDATE, plain, labelled))
    for operation, new, old in writes:
        if LABELS[label]:
            world.write(operation, NODES, new, old)
        else:
            assert world.refusal(operation, NODES, new, old).endswith(f"labels: {label}")


def test_nodes(world: World) -> None:
    taint = {"key": "a", "effect": "NoSchedule"}
    world.write(CREATE, NODES, node(taints=[taint]))
    world.write(UPDATE, NODES, node(taints=[]), node())
    other = {"metadata": {"name": "n2"}}
    assert world.refusal(CREATE, NODES, other) == 'node "n1" is not allowed to modify node "n2"'
    told = world.refusal(UPDATE, NODES, node(), node(taints=[taint]), subresource="status")
    assert told == 'node "n1" is not allowed to modify taints'
    owned = node(metadata={"ownerReferences": [OWNER]})
    assert "modify ownerReferences" in world.refusal(UPDATE, NODES, owned, node())
    source = {"configMap": {"name": "c"}}
    assert "non-nil configSource" in world.refusal(CREATE, NODES, node(configSource=source))
    assert "new non-nil" in world.refusal(UPDATE, NODES, node(configSource=source), node())
    world.write(UPDATE, NODES, node(), node(configSource=source))


def token(audiences: list[str], **bound: str) -> Object:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "mine", "uid": "mine-uid", **bound}
    return {"spec": {"audiences": audiences, "boundObjectRef": reference}}


def ask(world: World, request: Object) -> None:
    world.write(CREATE, SERVICE_ACCOUNTS, request, subresource="token", name="sa")


def refused(world: World, request: Object) -> str:
    return world.refusal(CREATE, SERVICE_ACCOUNTS, request, subresource="token", name="sa")


def test_tokens_are_bound_to_pods_of_the_node(world: World) -> None:
    assert refused(world, {"spec": {}}) == "node requested token not bound to a pod"
    assert "not bound" in refused(world, token([], kind="Node"))
    assert "without a uid" in refused(world, token([], uid=""))
    assert "does not match the UID in record" in refused(world, token([], uid="x"))
    told = refused(world, token([], name="other", uid="other-uid"))
    assert told == "node requested token bound to a pod scheduled on a different node"
    assert refused(world, token([], name="x")) == '404 pod "x" not found'


def test_audiences_are_those_that_the_pod_needs(world: World) -> None:
    sources = [{"serviceAccountToken": {"audience": "vault"}}, {"serviceAccountToken": {}}]
    volumes = [
        {"name": "t", "projected": {"sources": sources}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
    ]
    claim = {"metadata": metadata("claim"), "spec": {"volumeName": "v"}}
    world.view.put(CLAIMS, claim)
    csi = {"csi": {"driver": "d"}}
    world.view.put(VOLUMES, {"metadata": {"name": "v"}, "spec": csi})
    wanted = {"tokenRequests": [{"audience": "driver"}]}
    world.view.put(DRIVERS, {"metadata": {"name": "d"}, "spec": wanted})
    world.view.put(PODS, pod("mine", "n1", {"volumes": volumes}))
    for audiences in ([], ["vault"], ["driver"]):
        ask(world, token(audiences))
    assert not world.asked.questions
    told = refused(world, token(["x"]))
    assert told == 'system:node:n1 is not authorized to request tokens for audience "x"'
    assert refused(world, token(["vault", "driver"])) == "node may only request 0 or 1 audiences"
    world.asked.allowed.add(("request-serviceaccounts-token-audience", "x", "sa"))
    ask(world, token(["x"]))
    assert world.asked.questions[-1].namespace == "a"


def test_a_volume_that_is_not_there_is_reported(world: World) -> None:
    volumes = [{"name": "c", "persistentVolumeClaim": {"claimName": "claim"}}]
    world.view.put(PODS, pod("mine", "n1", {"volumes": volumes}))
    told = refused(world, token(["x"]))
    assert told == ('error validating audience "x": persistentvolumeclaim "claim" not found')


def certificate(**more: str) -> Object:
    spec = {
        "nodeName": "n1", "nodeUID": "u1", "podName": "mine", "podUID": "mine-uid",
        "serviceAccountName": "sa", "serviceAccountUID": "sa-uid", "signerName": "x.io/s", **more,
    }  # fmt: skip
    return {"metadata": metadata("r"), "spec": spec}


def test_certificates_of_pods(world: World) -> None:
    told = world.refusal(CREATE, POD_CERTIFICATES, certificate())
    assert (
        told == 'pod "a/mine" does not mount a podCertificate projected volume for signer "x.io/s"'
    )
    world.asked.allowed.add(("request-serviceaccounts-podcertificate-signer", "x.io:s", "sa"))
    world.write(CREATE, POD_CERTIFICATES, certificate())
    sources = [{"podCertificate": {"signerName": "y.io/s"}}]
    volumes = [{"name": "v", "projected": {"sources": sources}}]
    world.view.put(PODS, pod("mine", "n1", {"volumes": volumes}))
    world.write(CREATE, POD_CERTIFICATES, certificate(signerName="y.io/s"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"nodeName": "n2"}, 'PodCertificateRequest.Spec.NodeName="n2", which is not the'),
        ({"nodeUID": "x"}, "500 "),
        ({"podName": "x"}, "500 while retrieving pod"),
        ({"podUID": "x"}, "500 "),
        ({"podName": "other", "podUID": "other-uid"}, 'pod "a/other" is not running on node "n1"'),
        ({"serviceAccountName": "x"}, "PodCertificateRequest for pod"),
        ({"serviceAccountUID": "x"}, "500 "),
    ],
)
def test_certificates_of_pods_that_do_not_match(
    world: World, more: dict[str, str], message: str
) -> None:
    assert world.refusal(CREATE, POD_CERTIFICATES, certificate(**more)).startswith(message)


def test_leases_csi_nodes_and_slices_of_the_node(world: World) -> None:
    mine, others = {"metadata": {"name": "n1"}}, {"metadata": {"name": "n2"}}
    for operation in (CREATE, UPDATE, DELETE):
        world.write(operation, LEASES, mine, namespace="kube-node-lease")
        world.write(operation, CSI_NODES, mine)
        told = world.refusal(operation, LEASES, others, namespace="kube-node-lease")
        assert told == "can only access node lease with the same name as the requesting node"
        assert "can only access CSINode" in world.refusal(operation, CSI_NODES, others)
    assert "can only access leases in" in world.refusal(CREATE, LEASES, mine)
    slice_ = {"metadata": {"name": "s"}, "spec": {"nodeName": "n1"}}
    world.write(CREATE, RESOURCE_SLICES, slice_)
    world.write(DELETE, RESOURCE_SLICES, None, slice_)
    assert "can only create" in world.refusal(CREATE, RESOURCE_SLICES, others)
    assert "can only delete" in world.refusal(DELETE, RESOURCE_SLICES, None, others)


def signing_request(name: str, signer: str) -> Object:
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject(name))
    made = builder.sign(curve_key(0), hashes.SHA256()).public_bytes(Encoding.PEM)
    spec = {"request": base64.b64encode(made).decode(), "signerName": signer}
    return {"metadata": {"name": "r"}, "spec": spec}


@pytest.mark.parametrize(
    "signer", ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"]
)
def test_requests_for_certificates(world: World, signer: str) -> None:
    world.write(CREATE, SIGNING_REQUESTS, signing_request("system:node:n1", signer))
    told = world.refusal(CREATE, SIGNING_REQUESTS, signing_request("system:node:n2", signer))
    assert told == "can only create a node CSR with CN=system:node:n1"
    world.write(CREATE, SIGNING_REQUESTS, signing_request("anybody", "x.io/s"))
    broken = {"metadata": {"name": "r"}, "spec": {"request": "AAAA", "signerName": signer}}
    assert "unable to parse csr" in world.refusal(CREATE, SIGNING_REQUESTS, broken)
