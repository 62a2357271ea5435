"""What PersistentVolumeClaims may be, and what of them may change."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.storage.claims import CLAIMS
from tests.apiserver.kinds.hooks import (
    NOW,
    cells_of,
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)

STATUS = CLAIMS.subresources["status"]
SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
OTHER = {"apiGroup": "example.com", "kind": "Thing", "name": "t"}
CLASS = "volume.beta.kubernetes.io/storage-class"


def claim(size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    """Return a PersistentVolumeClaim."""
    return {
        "metadata": {"name": "c", "resourceVersion": "1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        },
    }


def bound(size: str = "1Gi", capacity: str = "1Gi", **spec: Any) -> dict[str, Any]:
    """Return a claim that has its volume."""
    status = {"phase": "Bound", "capacity": {"storage": capacity}}
    return claim(size, volumeName="v", **spec) | {"status": status}


def test_defaults() -> None:
    """A claim is pending, and for a file system."""
    found = prepared_object(CLAIMS, claim("1u") | {"status": {"phase": "Bound"}})
    assert found["spec"]["volumeMode"] == "Filesystem"
    assert found["spec"]["resources"]["requests"] == {"storage": "1m"}
    assert found["status"] == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("source", "reference", "expected"),
    [
        (None, None, (None, None)),
        (SNAPSHOT, None, (SNAPSHOT, SNAPSHOT)),
        (None, SNAPSHOT, (SNAPSHOT, SNAPSHOT)),
        (None, OTHER, (OTHER, OTHER)),
        (OTHER, None, (None, None)),
        (OTHER, OTHER, (OTHER, OTHER)),
        (
            {"kind": "PersistentVolumeClaim", "name": "d"},
            None,
            (
                {"apiGroup": None, "kind": "PersistentVolumeClaim", "name": "d"},
                {"kind": "PersistentVolumeClaim", "name": "d"},
            ),
        ),
        (None, SNAPSHOT | {"namespace": "n"}, (None, None)),
    ],
)
def test_sources_of_new_claims(
    source: dict[str, Any] | None, reference: dict[str, Any] | None, expected: tuple[Any, Any]
) -> None:
    """Old and new field say the same; what cannot be is dropped."""
    given = claim()
    if source is not None:
        given["spec"]["dataSource"] = source
    if reference is not None:
        given["spec"]["dataSourceRef"] = reference
    spec = prepared_object(CLAIMS, given)["spec"]
    reference_found, source_found = spec.get("dataSourceRef"), spec.get("dataSource")
    assert (reference_found, source_found) == expected


def test_sources_of_changed_claims() -> None:
    """A namespace and a kind that are there stay."""
    named = claim(dataSourceRef=SNAPSHOT | {"namespace": "n"})
    assert changed(CLAIMS, named, named)["spec"]["dataSourceRef"]["namespace"] == "n"
    assert "dataSource" not in changed(CLAIMS, named, named)["spec"]
    other = claim(dataSource=OTHER)
    assert changed(CLAIMS, other, other)["spec"]["dataSourceRef"] == OTHER


def test_rules_of_new_claims() -> None:
    """They are those of claim templates, too."""
    given = claim("0", accessModes=[], storageClassName="A")
    found = [each.partition(": ")[0] for each in refusals(CLAIMS, given)]
    assert found == [
        "spec.accessModes",
        "spec.resources[storage]",
        "spec.storageClassName",
    ]


FIXED = (
    "spec: Forbidden: spec is immutable after creation except resources.requests and"
    " volumeAttributesClassName for bound claims\n"
)


@pytest.mark.parametrize(
    ("new", "old", "is_fine"),
    [
        (claim(volumeName="v"), claim(), True),
        (claim(volumeName="w"), claim(volumeName="v"), False),
        (claim(storageClassName="c"), claim(), True),
        (claim(storageClassName=""), claim(), True),
        (claim(storageClassName="d"), claim(storageClassName="c"), False),
        (claim(), claim(storageClassName="c"), False),
        (claim(accessModes=["ReadOnlyMany"]), claim(), False),
        (claim("2Gi"), claim(), False),
        (bound("2Gi"), bound(), True),
        (bound("1024Mi"), bound(), True),
        (bound("1Gi", "1Gi"), bound("3Gi", "1Gi"), False),
        (bound("2Gi", "1Gi"), bound("3Gi", "1Gi"), True),
        (bound(volumeAttributesClassName="a"), bound(), True),
        (claim(volumeAttributesClassName="a"), claim(), False),
        (bound(selector={"matchLabels": {"a": "b"}}), bound(), False),
    ],
)
def test_what_may_change(new: dict[str, Any], old: dict[str, Any], is_fine: bool) -> None:  # noqa: FBT001
    """The name of the volume and the class once; more where the claim is bound."""
    found = change_refusals(CLAIMS, new, old)
    assert (found == []) == is_fine
    assert all(
        each.startswith(FIXED)
        or each
        == "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
        for each in found
    )


def test_mode_stays() -> None:
    """It is told apart, too."""
    found = change_refusals(CLAIMS, claim(volumeMode="Block"), claim())
    assert found[0].startswith(FIXED)
    assert found[1:] == ['volumeMode: Invalid value: "Block": field is immutable']


def annotated(given: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a claim with the old annotation of its class."""
    return patched(given, {"metadata": {"annotations": {CLASS: name}}})


@pytest.mark.parametrize(
    ("new", "old", "is_fine"),
    [
        (claim(storageClassName="c"), annotated(claim(), "c"), True),
        (annotated(claim(storageClassName="c"), "c"), annotated(claim(), "c"), True),
        (annotated(claim(storageClassName="d"), "c"), annotated(claim(), "c"), False),
        (annotated(claim(), "d"), annotated(claim(), "c"), False),
        (annotated(claim(), "c"), claim(), False),
        (claim(), annotated(claim(), "c"), False),
    ],
)
def test_class_in_the_annotation(new: dict[str, Any], old: dict[str, Any], is_fine: bool) -> None:  # noqa: FBT001
    """It may only be written down in the field that took its place."""
    assert (change_refusals(CLAIMS, new, old) == []) == is_fine


def test_class_of_attributes_in_use() -> None:
    """It may be another one, but not none."""
    old = bound(volumeAttributesClassName="a")
    old["status"]["currentVolumeAttributesClassName"] = "a"
    new = bound(volumeAttributesClassName="b") | {"status": old["status"]}
    assert change_refusals(CLAIMS, new, old) == []
    empty = bound(volumeAttributesClassName="") | {"status": old["status"]}
    path = "spec.volumeAttributesClassName: Forbidden: update to"
    end = "is forbidden when status.currentVolumeAttributesClassName is not nil"
    assert change_refusals(CLAIMS, empty, old) == [f"{path} empty string {end}"]
    gone = bound() | {"status": old["status"]}
    assert f"{path} nil {end}" in change_refusals(CLAIMS, gone, old)


def test_what_is_wrong_may_stay() -> None:
    """Groups of sources, values of selectors."""
    old = claim(
        dataSource=OTHER | {"apiGroup": "A"},
        dataSourceRef=OTHER | {"apiGroup": "A"},
        selector={"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]},
    )
    assert len(refusals(CLAIMS, old)) == 3
    assert change_refusals(CLAIMS, old, old) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"capacity": {"storage": "1Gi"}}, []),
        (
            {"capacity": {"storage": "-1"}},
            ["status.capacity[storage]: Invalid value: -1: must be a valid resource quantity"],
        ),
        (
            {"allocatedResourceStatuses": {"storage": "Resizing"}},
            [
                'status.allocatedResourceStatuses: Unsupported value: "storage": supported values:'
                ' "ControllerResizeInProgress", "ControllerResizeInfeasible",'
                ' "NodeResizeInProgress", "NodeResizeInfeasible", "NodeResizePending"'
            ],
        ),
        (
            {"allocatedResourceStatuses": {"cpu": "NodeResizePending"}},
            [
                'status.allocatedResourceStatuses: Unsupported value: "cpu":'
                ' supported values: "storage"'
            ],
        ),
        ({"allocatedResourceStatuses": {"example.com/x": "NodeResizePending"}}, []),
        (
            {"allocatedResources": {"/x": "1"}},
            ['status.allocatedResources: Invalid value: "/x": prefix part must be non-empty'],
        ),
        (
            {"allocatedResources": {"storage": "-1"}},
            [
                "status.allocatedResources[storage]: Invalid value: -1:"
                " must be a valid resource quantity"
            ],
        ),
        ({"allocatedResources": {"storage": "500m"}}, []),
    ],
)
def test_status(status: dict[str, Any], expected: list[str]) -> None:
    """Amounts of storage, and how far a change of size is."""
    assert change_refusals(STATUS, claim() | {"status": status}, claim()) == expected


def test_status_needs_versions_and_modes() -> None:
    """The modes are those of the spec."""
    old = patched(claim(), {"spec": {"accessModes": None}})
    new = patched(old, {"metadata": {"resourceVersion": None}})
    assert change_refusals(STATUS, new, old) == [
        "resourceVersion: Required value",
        "Spec.accessModes: Required value",
    ]


def test_health_is_dropped_where_it_was_not() -> None:
    """The feature is off; what is stored is checked."""
    bad = {"healthStatus": {"healthConditions": [{"reason": "-"}, {}]}}
    given = claim() | {"status": bad}
    assert "healthStatus" not in changed(STATUS, given, claim())["status"]
    (found,) = change_refusals(STATUS, given, given)
    assert found.startswith('status.healthStatus.healthConditions[0].reason: Invalid value: "-":')


def test_each_endpoint_changes_its_part() -> None:
    """As with all kinds."""
    new = bound() | {"status": {"phase": "Lost"}}
    assert changed(CLAIMS, new, claim())["status"] == {"phase": "Pending"}
    assert "volumeName" not in changed(STATUS, new, claim())["spec"]
    assert changed(STATUS, new, claim())["status"] == {"phase": "Lost"}


def test_warnings() -> None:
    """Amounts that are no whole bytes, and the old annotation."""
    given = annotated(claim("1500m"), "c")
    expected = [
        f'metadata.annotations[{CLASS}]: deprecated since v1.8; use "storageClassName" attribute'
        " instead",
        'spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an'
        " integer",
    ]
    assert warnings_of(CLAIMS, given) == expected
    assert warnings_of_change(CLAIMS, given, given) == expected


def test_rows() -> None:
    """Capacity and modes are those of the volume."""
    given = claim(storageClassName="new")
    assert cells_of(CLAIMS, given) == [
        "c", "Pending", "", "", "", "new", "<unset>", "3m", "Filesystem",
    ]  # fmt: skip
    given = annotated(bound(volumeAttributesClassName="a"), "old")
    given["metadata"]["deletionTimestamp"] = NOW
    given["status"]["accessModes"] = ["ReadWriteOnce"]
    assert cells_of(CLAIMS, given) == [
        "c", "Terminating", "v", "1Gi", "RWO", "old", "a", "3m", "Filesystem",
    ]  # fmt: skip
