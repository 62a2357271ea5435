"""The table as it is loaded: its types, rows and order."""

import base64
import hashlib

import pytest

from kvstack.apimachinery.schema.load import enum_values, load
from kvstack.apimachinery.schema.resource import FALLBACK_COLUMNS, Kind, Resource
from kvstack.apimachinery.schema.types import NO_DEFAULT, Shape
from tests.apimachinery.schema.recordings import lines

TABLE = load()


def row(group: str, version: str, name: str) -> Resource:
    found = TABLE.resource(group, version, name)
    assert found is not None
    return found


def test_a_row_says_all_of_a_resource() -> None:
    found = row("apps", "v1", "deployments")
    assert found.kind == Kind("apps", "v1", "Deployment")
    assert found.is_namespaced
    assert found.short_names == ("deploy",)
    assert found.categories == ("all",)
    assert found.group_version == found.kind.api_version == "apps/v1"
    assert found.qualified_name == "deployments.apps"
    assert found.storage is not None
    assert found.storage.prefix == "deployments"
    assert found.columns[0].format == "name"
    assert set(found.subresources) == {"scale", "status"}
    assert found.subresources["scale"].kind == Kind("autoscaling", "v1", "Scale")
    assert found.subresources["scale"].type is TABLE.types["io.k8s.api.autoscaling.v1.Scale"]
    assert TABLE.kind("apps", "v1", "Deployment") is found


def test_columns_are_those_of_a_real_server() -> None:
    seen = 0
    for line in lines("columns"):
        found = row(line["group"], line["version"], line["resource"])
        columns = [[each.name, each.type, each.format, each.priority] for each in found.columns]
        assert columns == line["columns"], line["resource"]
        seen += 1
    assert seen == 45


def test_kinds_without_columns_have_two() -> None:
    roles = row("rbac.authorization.k8s.io", "v1", "roles")
    assert roles.columns == FALLBACK_COLUMNS
    assert [each.name for each in roles.columns] == ["Name", "Created At"]
    scale = row("apps", "v1", "deployments").subresources["scale"]
    assert [each.name for each in scale.columns] == ["Name", "Desired", "Available", "Age"]


def test_fields_that_selectors_may_name() -> None:
    pods = row("", "v1", "pods").selectable
    assert pods.resolve("spec.host") == "spec.nodeName"
    assert pods.resolve("metadata.name") == "metadata.name"
    assert pods.resolve("spec.x") is None
    assert pods.refusal("spec.x") == "field label not supported: spec.x"
    jobs = row("batch", "v1", "jobs").selectable
    assert jobs.refusal("x") == 'field label "x" not supported for Job'
    slices = row("resource.k8s.io", "v1beta1", "resourceslices").selectable
    assert slices.refusal("x") == (
        "field label not supported for resource.k8s.io/v1beta1, Kind=ResourceSlice: x"
    )
    requests = row("certificates.k8s.io", "v1", "podcertificaterequests").selectable
    assert requests.resolve("metadata.namespace") is None
    assert row("", "v1", "configmaps").selectable.refusal("x") == (
        '"x" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


def test_odd_keys_and_storage_versions() -> None:
    prefixes = {
        each.name: each.storage.prefix
        for each in TABLE
        if each.group == "" and each.storage is not None
    }
    assert prefixes["services"] == "services/specs"
    assert prefixes["nodes"] == "minions"
    events = row("events.k8s.io", "v1", "events").storage
    assert events is not None
    assert (events.group, events.version, events.prefix) == ("", "v1", "events")
    definitions = row("apiextensions.k8s.io", "v1", "customresourcedefinitions").storage
    assert definitions is not None
    assert definitions.is_json
    assert row("authorization.k8s.io", "v1", "subjectaccessreviews").storage is None


def test_storage_version_hashes_are_those_of_what_is_stored() -> None:
    for each in TABLE:
        if each.storage is not None:
            stored = f"{each.storage.group}/{each.storage.version}/{each.storage.kind}"
            digest = hashlib.sha256(stored.encode()).digest()[:8]
            assert base64.b64encode(digest).decode() == each.storage_version_hash


def test_rows_come_in_the_order_of_discovery() -> None:
    groups = list(dict.fromkeys(each.group for each in TABLE))
    assert groups[:4] == ["", "apiregistration.k8s.io", "apps", "events.k8s.io"]
    versions = dict.fromkeys(each.version for each in TABLE if each.group == "autoscaling")
    assert list(versions) == ["v2", "v1"]
    assert len(TABLE) == 100


def test_a_struct_has_the_fields_of_those_it_embeds() -> None:
    volume = TABLE.types["io.k8s.api.core.v1.Volume"]
    assert list(volume.fields)[:3] == ["name", "hostPath", "emptyDir"]
    host_path = volume.fields["hostPath"]
    assert host_path.inline
    assert host_path.embedded_in == ("VolumeSource",)
    [(number, source)] = volume.embedded
    assert number == 2
    assert source.name == "io.k8s.api.core.v1.VolumeSource"


def test_fields_say_what_lists_and_defaults_mean() -> None:
    spec = TABLE.types["io.k8s.api.core.v1.ServiceSpec"]
    ports = spec.fields["ports"]
    assert ports.type.list_type == "map"
    assert ports.type.list_keys == ("port", "protocol")
    assert ports.patch_merge_key == "port"
    assert ports.patch_strategies == {"merge"}
    assert ports.number == 1
    assert spec.fields["selector"].type.map_type == "atomic"
    container = TABLE.types["io.k8s.api.core.v1.Container"]
    assert container.fields["name"].default == ""
    assert container.fields["name"].required
    assert container.fields["image"].default is NO_DEFAULT
    assert container.fields["imagePullPolicy"].type.go_kind == "v1.PullPolicy"
    assert container.fields["securityContext"].is_pointer
    assert container.message == "k8s.io.api.core.v1.Container"


def test_a_field_may_merge_otherwise_than_its_type() -> None:
    spec = TABLE.types["io.k8s.api.core.v1.PersistentVolumeSpec"]
    assert spec.fields["claimRef"].type.map_type == "granular"
    assert TABLE.types["io.k8s.api.core.v1.ObjectReference"].map_type == "atomic"


def test_types_of_their_own_form() -> None:
    types = TABLE.types
    assert types["io.k8s.apimachinery.pkg.api.resource.Quantity"].shape is Shape.QUANTITY
    meta = types["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]
    assert meta.fields["creationTimestamp"].type.shape is Shape.TIME
    extra = types["io.k8s.api.authentication.v1.UserInfo"].fields["extra"].type
    assert extra.element is not None
    assert extra.element.message == "k8s.io.api.authentication.v1.ExtraValue"


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("io.k8s.api.core.v1.PodSpec", "restartPolicy", ("Always", "Never", "OnFailure")),
        (
            "io.k8s.api.networking.v1.NetworkPolicySpec",
            "policyTypes",
            ("Egress", "Ingress"),
        ),
        (
            "io.k8s.api.core.v1.PersistentVolumeClaimStatus",
            "allocatedResourceStatuses",
            (
                "ControllerResizeInProgress",
                "ControllerResizeInfeasible",
                "NodeResizeInProgress",
                "NodeResizeInfeasible",
                "NodeResizePending",
            ),
        ),
    ],
    ids=["of a text", "in a list", "in a map"],
)
def test_the_values_of_an_enumeration(name: str, field: str, values: tuple[str, ...]) -> None:
    assert enum_values(name, field) == values


def test_what_is_no_enumeration_has_no_values() -> None:
    name = "io.k8s.api.core.v1.PodSpec"
    with pytest.raises(ValueError, match=f"{name}: the field hostname is not an enumeration"):
        enum_values(name, "hostname")
    with pytest.raises(KeyError, match="noSuchField"):
        enum_values(name, "noSuchField")


def test_types_of_kinds_that_are_no_resources() -> None:
    for kind in (
        Kind("", "v1", "PodList"),
        Kind("", "v1", "Status"),
        Kind("", "v1", "RangeAllocation"),
        Kind("meta.k8s.io", "v1", "WatchEvent"),
        Kind("apps", "v1", "DeleteOptions"),
        Kind("meta.k8s.io", "v1", "PartialObjectMetadata"),
        Kind("policy", "v1", "Eviction"),
    ):
        found = TABLE.type_of(kind)
        assert found is not None
        assert found.name.endswith(f".{kind.kind}")
    assert TABLE.type_of(Kind("", "v1", "Nothing")) is None


def test_rows_can_be_added_and_removed() -> None:
    table = load()
    pods = row("", "v1", "pods")
    mine = Resource(
        group="example.com",
        version="v1",
        name="foos",
        kind=Kind("example.com", "v1", "Foo"),
        singular="foo",
        is_namespaced=True,
        verbs=("get",),
        type=pods.type,
        is_custom=True,
    )
    table.add(mine)
    assert table.kind("example.com", "v1", "Foo") is mine
    assert table.type_of(mine.kind) is pods.type
    assert list(table)[-1] is mine
    assert TABLE.resource("example.com", "v1", "foos") is None
    table.remove("example.com", "v1", "foos")
    assert table.kind("example.com", "v1", "Foo") is None
    with pytest.raises(KeyError):
        table.remove("example.com", "v1", "foos")
