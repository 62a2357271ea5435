"""Comparisons: by what objects mean, in few words, and silent where nothing is different."""

import asyncio
import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.json_object import Object
from kvstack.clusters.comparison.comparison import Change, Comparison, compare
from kvstack.clusters.comparison.field_changes import field_changes
from kvstack.clusters.comparison.printing import as_json, as_text
from kvstack.clusters.comparison.summaries import summary
from kvstack.clusters.contents import Contents, Origin
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.sources.source import ReadOptions, Silent
from kvstack.clusters.sources.state_files import StateFileSource
from kvstore.client.values import KeyValue
from tests.clusters.support.snapshots import real_objects, real_snapshot
from tests.clusters.support.sources import definition

DEPLOYMENT: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "web",
                        "image": "registry/web:1.4",
                        "resources": {"requests": {"cpu": "1"}},
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    },
                    {"name": "log", "image": "registry/web:1.4"},
                ]
            },
        },
    },
    "status": {
        "replicas": 2,
        "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicas"}],
    },
}
PATH = "deployments/shop/web"


def contents(**objects: Object) -> Contents:
    """Return contents; names of objects are keys with __ for a slash."""
    rows = [
        KeyValue(
            f"/registry/{name.replace('__', '/')}".encode(), orjson.dumps(obj) + b"\n", 5, 5, 1, 0
        )
        for name, obj in sorted(objects.items())
    ]
    return Contents(rows, 9, Origin("test", "x"))


def changed(obj: Object, **paths: Any) -> Object:
    """Return a copy with other values at paths such as spec__replicas."""
    copy: Object = json.loads(json.dumps(obj))
    for path, value in paths.items():
        at: Any = copy
        *parents, last = path.split("__")
        for each in parents:
            at = at[int(each)] if each.isdigit() else at[each]
        at[last] = value
    return copy


def of_one(before: Object, after: Object, name: str = "deployments__shop__web") -> Comparison:
    return compare(contents(**{name: before}), contents(**{name: after}))


def text_of(before: Object, after: Object, name: str = "deployments__shop__web") -> str:
    [difference] = of_one(before, after, name).differences
    return summary(difference)


TEMPLATE = "spec__template__spec__containers"


def test_images_and_replicas_come_first_and_containers_are_one() -> None:
    after = changed(
        DEPLOYMENT,
        **{
            f"{TEMPLATE}__0__image": "registry/web:1.5",
            f"{TEMPLATE}__1__image": "registry/web:1.5",
            "spec__replicas": 5,
            "spec__minReadySeconds": 3,
        },
    )
    assert text_of(DEPLOYMENT, after) == (
        "image 1.4 → 1.5, replicas 2 → 5, spec.minReadySeconds none → 3".replace("none ", "")
    )
    other = changed(DEPLOYMENT, **{f"{TEMPLATE}__0__image": "elsewhere/web:1.4"})
    assert text_of(DEPLOYMENT, other) == "image registry/web:1.4 → elsewhere/web:1.4"


@pytest.mark.parametrize(
    "paths",
    [
        {f"{TEMPLATE}__0__resources__requests__cpu": "1000m"},
        {f"{TEMPLATE}__0__env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
        {f"{TEMPLATE}__0__ports": []},
        {"metadata__managedFields": [{"manager": "x"}]},
        {"metadata__generation": 7},
        {"spec__progressDeadlineSeconds": 600},  # the default
        {"metadata__labels": {}},
        {"metadata__annotations": None},
    ],
)
def test_what_makes_no_difference(paths: Object) -> None:
    assert of_one(DEPLOYMENT, changed(DEPLOYMENT, **paths)).differences == []


def test_items_are_compared_by_their_keys() -> None:
    env = [{"name": "C", "value": "3"}, {"name": "A", "value": "9"}]
    [difference] = of_one(
        DEPLOYMENT, changed(DEPLOYMENT, **{f"{TEMPLATE}__0__env": env})
    ).differences
    prefix = "spec.template.spec.containers[web].env"
    assert [(each.text, each.before, each.after) for each in difference.fields] == [
        (f"{prefix}[A].value", "1", "9"),
        (f"{prefix}[B]", {"name": "B", "value": "2"}, None),
        (f"{prefix}[C]", None, {"name": "C", "value": "3"}),
    ]


def test_conditions_and_phases() -> None:
    conditions = [
        {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ]
    assert text_of(DEPLOYMENT, changed(DEPLOYMENT, status__conditions=conditions)) == (
        "Available True → False (MinimumReplicasUnavailable), Progressing none → True"
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }
    failed = changed(pod, status__phase="Failed")
    assert text_of(pod, failed, "pods__shop__p") == "Running → Failed"


def test_many_fields_are_counted() -> None:
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "shop", "uid": "u"},
        "data": {"k0": "x" * 100},
    }
    after = changed(config, data={f"k{each}": "y\nz" for each in range(9)})
    assert text_of(config, after, "configmaps__shop__c") == (
        f"data.k0 {'x' * 39}… → y\\nz, "
        "data.k1 → y\\nz, data.k2 → y\\nz, data.k3 → y\\nz, and 5 more"
    )


def test_values_of_secrets_are_not_shown() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "shop", "uid": "u"},
        "data": {"a": "aHVudGVyMg==", "b": "eA=="},
    }
    found = of_one(secret, changed(secret, data={"a": "b3RoZXI=", "c": "eA=="}), "secrets__shop__s")
    text = as_text(found) + as_json(found)
    for value in ("aHVudGVyMg==", "b3RoZXI=", "eA=="):
        assert value not in text
    assert "data.a differs, data.b was removed, data.c is new" in text


def test_what_is_named_or_looks_like_a_secret_is_not_shown() -> None:
    secret = "hunter2-correct"
    before = changed(
        DEPLOYMENT,
        **{
            f"{TEMPLATE}__0__env": [{"name": "DB_PASSWORD", "value": f"old-{secret}"}],
            f"{TEMPLATE}__0__args": [f"--token={secret}"],
            "metadata__annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": secret,
                "note": "https://a:b@c/",
            },
        },
    )
    after = changed(
        before,
        **{
            f"{TEMPLATE}__0__env": [{"name": "DB_PASSWORD", "value": f"new-{secret}"}],
            f"{TEMPLATE}__0__args": [f"--token={secret}2"],
            "metadata__annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": f"{secret}3",
                "note": f"https://a:{secret}@c/",
            },
        },
    )
    found = of_one(before, after)
    text = as_text(found) + as_json(found)
    assert secret not in text
    assert "env[DB_PASSWORD].value differs" in text
    assert "metadata.annotations.note" in text


def test_what_came_and_went_and_was_replaced() -> None:
    before = contents(
        deployments__shop__web=DEPLOYMENT,
        deployments__shop__old=changed(DEPLOYMENT, metadata__name="old"),
    )
    after = contents(
        deployments__shop__web=changed(DEPLOYMENT, metadata__uid="another"),
        deployments__shop__new=changed(DEPLOYMENT, metadata__name="new"),
    )
    found = compare(before, after)
    assert {(each.name, each.change) for each in found.differences} == {
        ("new", Change.ADDED),
        ("old", Change.REMOVED),
        ("web", Change.REPLACED),
    }
    assert as_text(found) == (
        "+ deployment shop/new\n"
        "- deployment shop/old\n"
        "± deployment shop/web  replaced by another one\n"
        "1 replaced, 1 added, 1 removed\n"
    )
    assert as_text(compare(before, before)) == "no difference\n"


def test_leases_events_and_what_is_of_servers_are_left_alone_unless_asked_for() -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "n", "namespace": "kube-node-lease", "uid": "u"},
        "spec": {"holderIdentity": "a"},
    }
    ca = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kube-root-ca.crt", "namespace": "shop", "uid": "u"},
        "data": {"ca.crt": "x"},
    }
    names = {"leases__kube-node-lease__n": lease, "configmaps__shop__kube-root-ca.crt": ca}
    other = {
        "leases__kube-node-lease__n": changed(lease, spec__holderIdentity="b"),
        "configmaps__shop__kube-root-ca.crt": changed(ca, data={"ca.crt": "y"}),
    }
    assert compare(contents(**names), contents(**other)).differences == []
    found = compare(contents(**names), contents(**other), has_all=True)
    assert len(found.differences) == 2


def test_custom_resources_by_their_schema_and_unknown_kinds() -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "rules": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["id"],
                        "items": {
                            "type": "object",
                            "properties": {"id": {"type": "string"}, "on": {"type": "boolean"}},
                        },
                    }
                },
            }
        },
    }
    crd = definition()
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    crd |= {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "status": {
            "acceptedNames": crd["spec"]["names"],
            "conditions": [{"type": "Established", "status": "True"}],
            "storedVersions": ["v1"],
        },
    }
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "shop", "uid": "u"},
        "spec": {"rules": [{"id": "a", "on": True}, {"id": "b", "on": True}]},
    }
    after = changed(widget, spec__rules=[{"id": "b", "on": False}, {"id": "a", "on": True}])
    names = {"apiextensions.k8s.io__customresourcedefinitions__widgets.example.com": crd}
    odd = {"other.io__things__shop__t": {"kind": "Thing", "metadata": {"uid": "u"}, "a": 1}}
    odder = {"other.io__things__shop__t": {"kind": "Thing", "metadata": {"uid": "u"}, "a": 2}}
    found = compare(
        contents(**names, **odd, **{"example.com__widgets__shop__w": widget}),
        contents(**names, **odder, **{"example.com__widgets__shop__w": after}),
    )
    assert as_text(found) == (
        "~ thing shop/t   a 1 → 2\n~ widget shop/w  spec.rules[b].on true → false\n2 changed\n"
    )


def test_a_cluster_equals_itself_however_it_is_stored(tmp_path: Path) -> None:
    """Protobuf in the snapshot, JSON in the answers of its server."""
    source = StateFileSource(real_snapshot(tmp_path))
    stored = asyncio.run(source.read(ReadOptions(), Silent()))
    answered = [
        KeyValue(key.encode(), orjson.dumps(obj) + b"\n", 5, 5, 1, 0)
        for key, obj in sorted(real_objects().items())
    ]
    assert compare(stored, Contents(answered, 390, Origin("test", "x")), has_all=True) == (
        Comparison()
    )


def test_what_cannot_be_read_is_named() -> None:
    broken = KeyValue(b"/registry/configmaps/shop/c", b"k8s\0x", 5, 5, 1, 0)
    found = compare(Contents([broken], 9, Origin("t", "x")), Contents([], 9, Origin("t", "x")))
    [text] = found.unreadable
    assert text.startswith("/registry/configmaps/shop/c: ")
    assert "1 unreadable" in as_text(found)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["", "a", "b"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["name", "x", "y"]), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_any_two_values(before: Any, after: Any) -> None:
    changes = field_changes(before, after, None)
    back = field_changes(after, before, None)
    assert field_changes(before, before, None) == []
    assert {(each.text, str(each.before), str(each.after)) for each in changes} == {
        (each.text, str(each.after), str(each.before)) for each in back
    }
    if not changes:
        assert _normal(before) == _normal(after)


def _normal(value: Any) -> Any:
    """Return a value without what is empty, lists of named items by their names."""
    if isinstance(value, dict):
        found = {key: _normal(each) for key, each in value.items()}
        return {key: each for key, each in found.items() if each is not None} or None
    if isinstance(value, list):
        items = [_normal(each) for each in value]
        if all(isinstance(each, dict) and "name" in each for each in value):
            return sorted(map(repr, items)) or None
        return items or None
    return None if value == "" else value


def test_types_of_kinds_are_found() -> None:
    kinds = Kinds()
    key_of = kinds.find(b"/registry/deployments/shop/web")
    assert key_of is not None
    assert (key_of.kind, key_of.path) == ("Deployment", "shop/web")
    assert "spec" in kinds.type_of(key_of).fields
    assert kinds.find(b"/registry/other.io/things/a/b") is None
    assert kinds.find(b"/registry/configmaps/nameless") is None
