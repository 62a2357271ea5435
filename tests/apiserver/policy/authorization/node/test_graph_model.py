"""What is related to nodes, kept as objects change, against looking at everything anew."""

from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authorization.node.graph import NodeGraph
from kvstack.apiserver.policy.authorization.node.references import references_of_pod
from tests.apiserver.policy.views import FakeView

PODS = GroupResource("", "pods")
VOLUMES = GroupResource("", "persistentvolumes")
ATTACHMENTS = GroupResource("storage.k8s.io", "volumeattachments")
NAMES = ("a", "b")
NODES = ("", "n1", "n2")
names = st.sampled_from(NAMES)
nodes = st.sampled_from(NODES)


@st.composite
def pods(draw: st.DrawFn) -> Object:
    volumes: list[Object] = []
    for name in draw(st.lists(names, max_size=2)):
        volumes.append({"name": f"c{name}", "persistentVolumeClaim": {"claimName": name}})
        volumes.append({"name": f"s{name}", "secret": {"secretName": name}})
    ephemeral = [
        {"name": "d", "envFrom": [{"configMapRef": {"name": name}}]}
        for name in draw(st.lists(names, max_size=1))
    ]
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}} if draw(st.booleans()) else {}
    metadata = {"namespace": draw(names), "name": draw(names), "uid": draw(names), **mirror}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": draw(names)}}
    spec = {"nodeName": draw(nodes), "volumes": volumes, "ephemeralContainers": ephemeral}
    return {"metadata": metadata, "spec": spec, "status": status if draw(st.booleans()) else {}}


@st.composite
def volumes(draw: st.DrawFn) -> Object:
    claim = {"namespace": draw(names), "name": draw(names)} if draw(st.booleans()) else None
    source = {"secretRef": {"name": draw(names)}}
    spec = {"rbd": source, **({"claimRef": claim} if claim else {})}
    return {"metadata": {"name": draw(names)}, "spec": spec}


@st.composite
def attachments(draw: st.DrawFn) -> Object:
    return {"metadata": {"name": draw(names)}, "spec": {"nodeName": draw(nodes)}}


written = st.one_of(
    st.tuples(st.just(PODS), pods()),
    st.tuples(st.just(VOLUMES), volumes()),
    st.tuples(st.just(ATTACHMENTS), attachments()),
)
steps = st.lists(st.tuples(st.booleans(), written), max_size=12)
KEYS = [
    (resource, namespace, name)
    for resource in ("pods", "secrets", "configmaps", "persistentvolumeclaims", "resourceclaims")
    for namespace in NAMES
    for name in NAMES
] + [(resource, "", name) for resource in (VOLUMES[1], ATTACHMENTS[1]) for name in NAMES]


def related(view: FakeView, node: str) -> set[tuple[str, str, str]]:
    """Return what is related to a node, by looking at every object."""
    found: set[tuple[str, str, str]] = set()
    for pod in view.list(PODS):
        if pod["spec"]["nodeName"] == node:
            found |= references_of_pod(pod)
            found.add(("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]))
    for volume in view.list(VOLUMES):
        claim = volume["spec"].get("claimRef")
        if claim and ("persistentvolumeclaims", claim["namespace"], claim["name"]) in found:
            found.add((VOLUMES.resource, "", volume["metadata"]["name"]))
            found.add(("secrets", claim["namespace"], volume["spec"]["rbd"]["secretRef"]["name"]))
    for each in view.list(ATTACHMENTS):
        if each["spec"]["nodeName"] == node:
            found.add((ATTACHMENTS.resource, "", each["metadata"]["name"]))
    return found


def check(graph: NodeGraph, view: FakeView) -> None:
    for node in NODES[1:]:
        expected = related(view, node)
        assert {key for key in KEYS if graph.relates(node, key)} == expected & set(KEYS)


@given(steps)
def test_what_is_kept_is_what_is_there(
    done: list[tuple[bool, tuple[GroupResource, Object]]],
) -> None:
    view, graph = FakeView(), NodeGraph()
    graph.follow(view)
    for is_removed, (resource, obj) in done:
        metadata = obj["metadata"]
        place = metadata.get("namespace", ""), metadata["name"]
        if is_removed and view.get(resource, *place) is not None:
            view.remove(resource, *place)
        elif not is_removed:
            view.put(resource, obj)
        check(graph, view)
    for resource, rows in view.objects.items():
        for place in list(rows):
            view.remove(resource, *place)
    assert not graph._nodes
    assert not graph._pods
    assert not graph._volumes
    assert not graph._volumes_of


def test_pods_of_one_workload_hold_their_references_once() -> None:
    view, graph = FakeView(), NodeGraph()
    graph.follow(view)
    volumes = [{"name": "v", "secret": {"secretName": "db"}}]
    for name in NAMES:
        metadata = {"namespace": "-".join("ab"), "name": name}
        view.put(PODS, {"metadata": metadata, "spec": {"nodeName": "n1", "volumes": volumes}})
    (_, first), (_, second) = graph._pods.values()
    assert first is second
    assert all(graph.relates("n1", ("pods", "a-b", name)) for name in NAMES)
