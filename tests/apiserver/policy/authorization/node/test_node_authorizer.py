"""What kubelets may do, and what they are told otherwise."""

from typing import Any

import pytest

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects import fields
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authorization.node.authorizer import NodeAuthorizer
from kvstack.apiserver.policy.authorization.node.graph import NodeGraph
from kvstack.apiserver.policy.authorization.rbac.bootstrap import default_rules
from kvstack.apiserver.policy.interfaces import NO_OPINION, Decision
from tests.apiserver.policy.views import FakeView

PODS = GroupResource("", "pods")
VOLUMES = GroupResource("", "persistentvolumes")
N1 = User("system:node:n1", groups=("system:nodes", "system:authenticated"))
N2 = User("system:node:n2", groups=("system:nodes",))
GROUPS = {
    "resourceclaims": "resource.k8s.io",
    "resourceslices": "resource.k8s.io",
    "volumeattachments": "storage.k8s.io",
    "csinodes": "storage.k8s.io",
    "csidrivers": "storage.k8s.io",
    "leases": "coordination.k8s.io",
    "podcertificaterequests": "certificates.k8s.io",
}


class World:
    """A view, and an authorizer that follows it."""

    def __init__(self) -> None:
        self.view = FakeView()
        self.graph = NodeGraph()
        self.graph.follow(self.view)
        self.authorizer = NodeAuthorizer(self.graph, default_rules("system:node"))

    def ask(
        self, verb: str, what: str, name: str = "", user: User = N1, selector: str = "", **more: Any
    ) -> Decision:
        resource, _, subresource = what.partition("/")
        found = self.authorizer.authorize(
            Attributes(
                user,
                verb,
                group=GROUPS.get(resource, ""),
                resource=resource,
                subresource=subresource,
                name=name,
                field_selector=fields.parse(selector) if selector else None,
                **more,
            )
        )
        assert isinstance(found, Decision)
        return found

    def reads(self, what: str, name: str, user: User = N1, namespace: str = "a") -> bool:
        return self.ask("get", what, name, user, namespace=namespace).allowed


@pytest.fixture
def world() -> World:
    return World()


def pod(node: str = "n1", spec: Object | None = None, **more: Any) -> Object:
    metadata = {"namespace": "a", "name": "p", "uid": "1", **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"nodeName": node, **(spec or {})}, **more}


RICH = {
    "serviceAccountName": "account",
    "imagePullSecrets": [{"name": "pull"}],
    "containers": [
        {
            "name": "c",
            "envFrom": [{"configMapRef": {"name": "env-map"}}],
            "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "env-secret"}}}],
        }
    ],
    "volumes": [
        {"name": "s", "secret": {"secretName": "volume-secret"}},
        {"name": "m", "projected": {"sources": [{"configMap": {"name": "projected-map"}}]}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
    ],
    "resourceClaims": [
        {"name": "own", "resourceClaimName": "device"},
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "later", "resourceClaimTemplateName": "t"},
    ],
}
STATUS = {
    "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "made-device"}],
    "extendedResourceClaimStatus": {"resourceClaimName": "extended-device"},
}
NEEDED = [
    ("serviceaccounts", "account"),
    ("secrets", "pull"),
    ("secrets", "env-secret"),
    ("secrets", "volume-secret"),
    ("configmaps", "env-map"),
    ("configmaps", "projected-map"),
    ("persistentvolumeclaims", "claim"),
    ("persistentvolumeclaims", "p-e"),
    ("resourceclaims", "device"),
    ("resourceclaims", "made-device"),
    ("resourceclaims", "extended-device"),
    ("pods", "p"),
]


@pytest.mark.parametrize(("resource", "name"), NEEDED)
def test_what_a_pod_needs_its_node_reads_until_the_pod_is_gone(
    world: World, resource: str, name: str
) -> None:
    assert not world.reads(resource, name)
    world.view.put(PODS, pod(spec=RICH, status=STATUS))
    assert world.reads(resource, name)
    assert not world.reads(resource, name, N2)
    assert not world.reads(resource, name, namespace="b")
    assert not world.reads(resource, f"{name}-other")
    assert not world.reads(resource, name, User("system:node:n1"))  # not in the group
    world.view.remove(PODS, "a", "p")
    assert not world.reads(resource, name)


def test_a_pod_without_a_node_or_from_a_file_gives_nothing(world: World) -> None:
    world.view.put(PODS, pod("", RICH))
    assert not world.reads("secrets", "pull")
    annotations = {"kubernetes.io/config.mirror": "x"}
    world.view.put(PODS, pod(spec=RICH, metadata={"name": "m", "annotations": annotations}))
    assert not world.reads("secrets", "pull")
    assert world.reads("pods", "m")


def test_what_is_needed_by_two_pods_is_read_until_both_are_gone(world: World) -> None:
    for name in ("p", "q"):
        world.view.put(PODS, pod(spec=RICH, metadata={"name": name}))
    world.view.remove(PODS, "a", "p")
    assert world.reads("secrets", "pull")
    world.view.remove(PODS, "a", "q")
    assert not world.reads("secrets", "pull")


def test_references_change_with_ephemeral_containers_and_device_claims(world: World) -> None:
    world.view.put(PODS, pod())
    world.view.put(PODS, pod(spec={"ephemeralContainers": RICH["containers"]}))
    assert world.reads("secrets", "env-secret")
    world.view.put(PODS, pod(spec={"resourceClaims": RICH["resourceClaims"]}, status=STATUS))
    assert world.reads("resourceclaims", "made-device")
    assert not world.reads("secrets", "env-secret")


def test_a_pod_of_the_same_name_on_another_node_is_another(world: World) -> None:
    world.view.put(PODS, pod(spec=RICH))
    world.view.put(PODS, pod("n2", RICH, metadata={"uid": "2"}))
    assert not world.reads("secrets", "pull")
    assert world.reads("secrets", "pull", N2)


def test_volumes_and_their_secrets_are_read_through_claims(world: World) -> None:
    claim = {"namespace": "a", "name": "claim"}
    source = {"secretRef": {"name": "own"}}
    csi = {
        "nodeStageSecretRef": {"namespace": "store", "name": "stage"},
        "controllerExpandSecretRef": {"namespace": "store", "name": "controller"},
    }
    volume = {"metadata": {"name": "v"}, "spec": {"claimRef": claim, "rbd": source, "csi": csi}}
    world.view.put(VOLUMES, volume)
    assert not world.reads("persistentvolumes", "v", namespace="")
    world.view.put(PODS, pod(spec=RICH))
    assert world.reads("persistentvolumes", "v", namespace="")
    assert world.reads("secrets", "own")
    assert world.reads("secrets", "stage", namespace="store")
    assert not world.reads("secrets", "controller", namespace="store")
    assert not world.reads("secrets", "own", N2)
    world.view.put(VOLUMES, {"metadata": {"name": "v"}, "spec": {"rbd": source}})
    assert not world.reads("secrets", "own")


@pytest.mark.parametrize("resource", ["volumeattachments", "resourceslices"])
def test_objects_that_name_a_node(world: World, resource: str) -> None:
    kind = GroupResource(GROUPS[resource], resource)
    world.view.put(kind, {"metadata": {"name": "x"}, "spec": {"nodeName": "n1"}})
    assert world.reads(resource, "x", namespace="")
    assert not world.reads(resource, "x", N2, namespace="")
    world.view.remove(kind, "", "x")
    assert not world.reads(resource, "x", namespace="")


NO_RELATION = "no relationship found between node 'n1' and this object"


@pytest.mark.parametrize(
    ("verb", "what", "name", "more", "reason"),
    [
        ("get", "secrets", "x", {"namespace": "a"}, NO_RELATION),
        ("list", "secrets", "", {"namespace": "a"}, "No Object name found"),
        ("get", "secrets", "x", {}, "can only read namespaced object of this type"),
        ("update", "secrets", "x", {"namespace": "a"}, "can only read resources of this type"),
        ("get", "configmaps/x", "x", {"namespace": "a"}, "cannot read subresource"),
        ("list", "persistentvolumes", "", {}, "can only get individual resources of this type"),
        ("get", "persistentvolumeclaims/x", "c", {}, "cannot get subresource"),
        ("get", "persistentvolumeclaims/status", "c", {}, "can only get/update/patch this type"),
        ("create", "serviceaccounts/x", "s", {}, "can only create token subresource"),
        ("list", "serviceaccounts", "", {}, "can only create tokens for individual service"),
        ("create", "serviceaccounts/token", "s", {"namespace": "a"}, NO_RELATION),
        ("list", "leases", "", {"namespace": "kube-node-lease"}, "can only get, create, update"),
        ("get", "leases", "n1", {"namespace": "a"}, 'can only access leases in the "kube-node'),
        ("get", "leases", "n2", {"namespace": "kube-node-lease"}, "can only access node lease"),
        ("get", "csinodes", "n2", {}, "can only access CSINode with the same name"),
        ("update", "csinodes/status", "n1", {}, "CSINode status access requires CSIVolumeHealth"),
        ("list", "nodes", "", {}, "node 'n1' cannot read all nodes, only its own Node object"),
        ("get", "nodes", "n2", {}, "node 'n1' cannot read 'n2', only its own Node object"),
        ("list", "pods", "", {}, "can only list/watch pods with spec.nodeName field selector"),
        ("list", "pods", "", {"selector": "spec.nodeName=n2"}, "can only list/watch pods with"),
        ("list", "pods", "", {"selector": "spec.nodeName!=n1"}, "can only list/watch pods with"),
        ("list", "resourceslices", "", {}, "can only list/watch/deletecollection resourceslices"),
        ("create", "resourceslices/x", "", {}, "cannot authorize ResourceSlice subresources"),
        ("update", "podcertificaterequests", "x", {}, "nodes may not update"),
    ],
)
def test_reasons(
    world: World, verb: str, what: str, name: str, more: dict[str, Any], reason: str
) -> None:
    decision = world.ask(verb, what, name, **more)
    assert not decision.allowed
    assert not decision.denied
    assert decision.reason.startswith(reason)


@pytest.mark.parametrize(
    ("verb", "what", "name", "more"),
    [
        ("create", "nodes", "", {}),
        ("patch", "nodes/status", "n2", {}),  # admission looks at which
        ("get", "nodes", "n1", {}),
        ("watch", "nodes", "n1", {}),
        ("list", "pods", "", {"selector": "spec.nodeName=n1"}),
        ("create", "pods", "", {"namespace": "a"}),
        ("delete", "pods", "p", {"namespace": "a"}),
        ("create", "pods/eviction", "p", {"namespace": "a"}),
        ("patch", "pods/status", "p", {"namespace": "a"}),
        ("create", "leases", "", {"namespace": "kube-node-lease"}),
        ("update", "leases", "n1", {"namespace": "kube-node-lease"}),
        ("create", "csinodes", "", {}),
        ("create", "resourceslices", "", {}),
        ("deletecollection", "resourceslices", "", {"selector": "spec.nodeName=n1"}),
        ("create", "podcertificaterequests", "", {"namespace": "a"}),
        ("watch", "podcertificaterequests", "", {"selector": "spec.nodeName=n1"}),
        ("list", "services", "", {}),
        ("get", "csidrivers", "x", {}),
        ("create", "events", "", {"namespace": "a"}),
    ],
)
def test_what_nodes_may(
    world: World, verb: str, what: str, name: str, more: dict[str, Any]
) -> None:
    assert world.ask(verb, what, name, **more).allowed
    assert world.ask(verb, what, name, User("system:node:n1"), **more) is NO_OPINION
    assert world.ask(verb, what, name, User("n1", groups=("system:nodes",)), **more) is NO_OPINION


@pytest.mark.parametrize(
    ("verb", "what"),
    [("delete", "nodes"), ("create", "pods/exec"), ("deletecollection", "pods"), ("get", "jobs")],
)
def test_what_nodes_may_not_without_a_reason(world: World, verb: str, what: str) -> None:
    assert world.ask(verb, what, "n1", namespace="a") is NO_OPINION


def test_a_node_without_a_name_and_paths(world: World) -> None:
    nobody = User("system:node:", groups=("system:nodes",))
    assert world.ask("get", "nodes", "", nobody).reason == ('unknown node for user "system:node:"')
    path = Attributes.of_path(N1, "get", "/metrics")
    assert world.authorizer.authorize(path) is NO_OPINION


def test_rules_of_nodes_are_not_all_that_they_may(world: World) -> None:
    assert world.authorizer.user_rules(N1, "a").is_incomplete
    assert not world.authorizer.user_rules(User("bob"), "a").is_incomplete
