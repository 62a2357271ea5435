"""What StorageClasses and VolumeAttributesClasses may be."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.storage.attributes_classes import VOLUME_ATTRIBUTES_CLASSES
from kvstack.apiserver.kinds.storage.classes import STORAGE_CLASSES, effective_default
from tests.apiserver.kinds.hooks import (
    cells_of,
    change_refusals,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)


def storage_class(**members: Any) -> dict[str, Any]:
    """Return a StorageClass."""
    return {"metadata": {"name": "c"}, "provisioner": "a.b/c", **members}


def topology(*expressions: tuple[str, list[str]]) -> dict[str, Any]:
    """Return a term of topologies."""
    return {"matchLabelExpressions": [{"key": key, "values": v} for key, v in expressions]}


def test_defaults() -> None:
    """Volumes are made at once and deleted with their claim."""
    found = prepared_object(STORAGE_CLASSES, storage_class())
    assert (found["reclaimPolicy"], found["volumeBindingMode"]) == ("Delete", "Immediate")


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, []),
        ({"provisioner": "Kubernetes.io/NFS"}, []),
        ({"provisioner": ""}, ["provisioner: Required value"]),
        (
            {"provisioner": "/A"},
            ['provisioner: Invalid value: "/a": prefix part must be non-empty'],
        ),
        (
            {"reclaimPolicy": "Recycle", "volumeBindingMode": "Later"},
            [
                'reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"',
                'volumeBindingMode: Unsupported value: "Later":'
                ' supported values: "Immediate", "WaitForFirstConsumer"',
            ],
        ),
        ({"parameters": {"": "a"}}, ['parameters: Invalid value: "": field can not be empty.']),
        (
            {"parameters": {f"a{each}": "" for each in range(513)}},
            ["parameters: Too long: may not be more than 512 bytes"],
        ),
        ({"parameters": {"a": "b" * (256 * 1024 - 1)}}, []),
        (
            {"parameters": {"a": "b" * 256 * 1024}},
            ["parameters: Too long: may not be more than 262144 bytes"],
        ),
        ({"allowedTopologies": [topology(("a", ["b"]))]}, []),
        (
            {"allowedTopologies": [topology(("/a", []), ("b", ["c", "c"]), ("b", ["d"]))]},
            [
                "allowedTopologies[0].matchLabelExpressions[0].values: Required value",
                'allowedTopologies[0].matchLabelExpressions[0].key: Invalid value: "/a":'
                " prefix part must be non-empty",
                'allowedTopologies[0].matchLabelExpressions[1].values[1]: Duplicate value: "c"',
                'allowedTopologies[0].matchLabelExpressions[2].key: Duplicate value: "b"',
            ],
        ),
        (
            {"allowedTopologies": [topology(("a", ["b", "c"])), topology(("a", ["c", "b"]))]},
            ['allowedTopologies[1].matchLabelExpressions: Duplicate value: ""'],
        ),
        (
            {"allowedTopologies": [topology()]},
            ['allowedTopologies[0].matchLabelExpressions: Duplicate value: ""'],
        ),
    ],
)
def test_storage_classes(members: dict[str, Any], expected: list[str]) -> None:
    """The driver's name is taken in lower case."""
    assert refusals(STORAGE_CLASSES, storage_class(**members)) == expected


def test_what_makes_a_class_stays() -> None:
    """Other things may change."""
    new = storage_class(
        provisioner="x.y/z",
        parameters={"a": "b"},
        reclaimPolicy="Retain",
        volumeBindingMode="WaitForFirstConsumer",
        allowVolumeExpansion=True,
        mountOptions=["ro"],
    )
    assert change_refusals(STORAGE_CLASSES, new, storage_class()) == [
        f"{each}: Invalid value: null: field is immutable"
        for each in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode")
    ]
    same = storage_class(allowVolumeExpansion=True, mountOptions=["ro"], parameters={})
    assert change_refusals(STORAGE_CLASSES, same, storage_class()) == []


def test_warning_of_deprecated_labels() -> None:
    """In topologies."""
    given = storage_class(
        allowedTopologies=[topology(("a", ["b"]), ("beta.kubernetes.io/arch", ["c"]))]
    )
    expected = [
        "allowedTopologies[0].matchLabelExpressions[1].key:"
        ' deprecated since v1.14; use "kubernetes.io/arch" instead'
    ]
    assert warnings_of(STORAGE_CLASSES, given) == expected
    assert warnings_of_change(STORAGE_CLASSES, given, given) == expected


def marked(name: str, created: str, *, is_beta: bool = False) -> dict[str, Any]:
    """Return a class that is marked as the default."""
    beta = "beta." if is_beta else ""
    annotations = {f"storageclass.{beta}kubernetes.io/is-default-class": "true"}
    return {
        "metadata": {"name": name, "creationTimestamp": created, "annotations": annotations},
        "provisioner": "p",
    }


OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([], ""),
        ([storage_class()], ""),
        ([marked("a", OLD), storage_class()], "a"),
        ([marked("a", OLD), marked("b", YOUNG, is_beta=True)], "b"),
        ([marked("b", YOUNG), marked("a", YOUNG), marked("0", OLD)], "a"),
    ],
)
def test_effective_default(classes: list[dict[str, Any]], expected: str) -> None:
    """The newest one, of those the first by name."""
    assert effective_default(classes) == expected


def test_rows_of_storage_classes() -> None:
    """The default is marked in lists, where all of them are seen."""
    given = storage_class(allowVolumeExpansion=True)
    row = ["c", "a.b/c", "Delete", "Immediate", True, "3m"]
    assert cells_of(STORAGE_CLASSES, given) == row
    classes = [marked("a", OLD), marked("b", YOUNG), given]
    rows = [cells_of(STORAGE_CLASSES, each) for each in classes]
    assert STORAGE_CLASSES.table.adjust_list is not None
    STORAGE_CLASSES.table.adjust_list(classes, rows)
    assert [each[0] for each in rows] == ["a", "b (default)", "c"]


def attributes_class(**members: Any) -> dict[str, Any]:
    """Return a VolumeAttributesClass."""
    return {"metadata": {"name": "c"}, "driverName": "d", "parameters": {"a": "b"}, **members}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, []),
        ({"driverName": ""}, ["driverName: Required value"]),
        (
            {"parameters": {}},
            ["parameters: Required value: must contain at least one key/value pair"],
        ),
    ],
)
def test_attributes_classes(members: dict[str, Any], expected: list[str]) -> None:
    """They need parameters, or there is nothing to change."""
    assert refusals(VOLUME_ATTRIBUTES_CLASSES, attributes_class(**members)) == expected


def test_attributes_classes_stay() -> None:
    """What changes are volumes."""
    new = attributes_class(driverName="e", parameters={"a": "c"})
    assert change_refusals(VOLUME_ATTRIBUTES_CLASSES, new, attributes_class()) == [
        "driverName: Forbidden: updates to driverName are forbidden.",
        "parameters: Forbidden: updates to parameters are forbidden.",
    ]


def test_rows_of_attributes_classes() -> None:
    """The driver's name."""
    assert cells_of(VOLUME_ATTRIBUTES_CLASSES, attributes_class()) == ["c", "d", "3m"]
