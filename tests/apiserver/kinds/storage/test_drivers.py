"""What CSIDrivers, CSINodes and CSIStorageCapacities may be."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.storage.capacities import CSI_STORAGE_CAPACITIES
from kvstack.apiserver.kinds.storage.drivers import CSI_DRIVERS
from kvstack.apiserver.kinds.storage.node_drivers import CSI_NODES
from tests.apiserver.kinds.hooks import (
    cells_of,
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)

NODE_STATUS = CSI_NODES.subresources["status"]


def driver(**spec: Any) -> dict[str, Any]:
    """Return a CSIDriver."""
    return {"metadata": {"name": "d"}, "spec": spec}


def test_defaults_of_drivers() -> None:
    """All is said in the end."""
    assert prepared_object(CSI_DRIVERS, driver())["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "requiresRepublish": False,
        "seLinuxMount": False,
        "preventPodSchedulingIfMissing": False,
        "volumeLifecycleModes": ["Persistent"],
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            {"fsGroupPolicy": "All", "volumeLifecycleModes": ["Persistent", "Other"]},
            [
                'fsGroupPolicy: Unsupported value: "All":'
                ' supported values: "File", "None", "ReadWriteOnceWithFSType"',
                'volumeLifecycleModes: Unsupported value: "Other":'
                ' supported values: "Persistent", "Ephemeral"',
            ],
        ),
        (
            {"nodeAllocatableUpdatePeriodSeconds": 9},
            [
                "nodeAllocatableUpdatePeriodSeconds: Invalid value: 9:"
                " must be greater than or equal to 10 seconds"
            ],
        ),
        (
            {"serviceAccountTokenInSecrets": True},
            [
                "serviceAccountTokenInSecrets: Invalid value: true:"
                " serviceAccountTokenInSecrets is set but no tokenRequests are specified"
            ],
        ),
        (
            {
                "tokenRequests": [
                    {"audience": "a", "expirationSeconds": 600},
                    {"audience": "a", "expirationSeconds": 1},
                    {"audience": "b", "expirationSeconds": 599},
                    {"audience": "c", "expirationSeconds": 2**32 + 1},
                ]
            },
            [
                'tokenRequests[1].audience: Duplicate value: "a"',
                "tokenRequests[2].expirationSeconds: Invalid value: 599:"
                " may not specify a duration less than 10 minutes",
                "tokenRequests[3].expirationSeconds: Invalid value: 4294967297:"
                " may not specify a duration larger than 2^32 seconds",
            ],
        ),
    ],
)
def test_drivers(spec: dict[str, Any], expected: list[str]) -> None:
    """One rule each."""
    assert refusals(CSI_DRIVERS, driver(**spec)) == [f"spec.{each}" for each in expected]


def test_what_defaults_fill_in_is_needed() -> None:
    """As objects could be written without it."""
    found = CSI_DRIVERS.validate(driver(), None)  # type: ignore[arg-type]
    assert [str(each) for each in found] == [
        f"spec.{each}: Required value"
        for each in (
            "attachedRequired",
            "podInfoOnMount",
            "storageCapacity",
            "seLinuxMount",
            "preventPodSchedulingIfMissing",
        )
    ]


def test_change_of_a_driver() -> None:
    """Two things stay; any other raises the generation, which starts at none."""
    old = prepared_object(CSI_DRIVERS, driver())
    assert "generation" not in old["metadata"]
    new = driver(attachRequired=False, volumeLifecycleModes=["Ephemeral"])
    assert change_refusals(CSI_DRIVERS, new, old) == [
        "spec.attachedRequired: Invalid value: false: field is immutable",
        'spec.volumeLifecycleModes: Invalid value: ["Ephemeral"]: field is immutable',
    ]
    other = driver(requiresRepublish=True)
    assert change_refusals(CSI_DRIVERS, other, old) == []
    assert changed(CSI_DRIVERS, other, old)["metadata"]["generation"] == 1
    assert "generation" not in changed(CSI_DRIVERS, driver(), old)["metadata"]


def test_warning_of_tokens_in_attributes() -> None:
    """When the requests are new."""
    given = driver(tokenRequests=[{"audience": "a"}])
    (warning,) = warnings_of(CSI_DRIVERS, given)
    assert warning.startswith("spec.serviceAccountTokenInSecrets is unset; if supported")
    assert warnings_of_change(CSI_DRIVERS, given, driver()) == [warning]
    assert warnings_of_change(CSI_DRIVERS, given, given) == []
    assert (
        warnings_of(CSI_DRIVERS, patched(given, {"spec": {"serviceAccountTokenInSecrets": False}}))
        == []
    )


def test_rows_of_drivers() -> None:
    """What is not said shows as its default."""
    row = ["d", True, False, False, "<unset>", False, "Persistent", "3m"]
    assert cells_of(CSI_DRIVERS, driver()) == row
    given = driver(
        tokenRequests=[{"audience": "a"}, {"audience": ""}],
        volumeLifecycleModes=["Persistent", "Ephemeral"],
        attachRequired=False,
    )
    expected = ["d", False, False, False, "a,", False, "Persistent,Ephemeral", "3m"]
    assert cells_of(CSI_DRIVERS, given) == expected


def csi_node(*drivers: dict[str, Any], **status: Any) -> dict[str, Any]:
    """Return a CSINode."""
    spec = {"drivers": [{"name": "d", "nodeID": "n", **each} for each in drivers]}
    return {"metadata": {"name": "n"}, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("drivers", "expected"),
    [
        ([], []),
        ([{}], []),
        ([{}, {}], ['[1].name: Duplicate value: "d"']),
        ([{"nodeID": ""}], ["[0].nodeID: Required value"]),
        (
            [{"nodeID": "n" * 257}],
            [f'[0].nodeID: Invalid value: "{"n" * 257}": must be 256 characters or less'],
        ),
        (
            [{"allocatable": {"count": -1}}],
            ["[0].allocatable.count: Invalid value: -1: must be greater than or equal to 0"],
        ),
        ([{"allocatable": {}}], []),
        (
            [{"topologyKeys": ["a", "a", "/b"]}],
            [
                '[0]: Duplicate value: "a"',
                '[0]: Invalid value: "/b": prefix part must be non-empty',
            ],
        ),
    ],
)
def test_drivers_of_nodes(drivers: list[dict[str, Any]], expected: list[str]) -> None:
    """Each is there once."""
    paths = [f"spec.drivers{each}" for each in expected]
    assert refusals(CSI_NODES, csi_node(*drivers)) == paths


def test_empty_topology_key() -> None:
    """It is told by two rules."""
    found = refusals(CSI_NODES, csi_node({"topologyKeys": [""]}))
    assert found[0] == "spec.drivers[0]: Required value"
    assert found[1].startswith('spec.drivers[0]: Invalid value: "": name part must be non-empty')


def test_driver_of_a_node_changes_only_how_much_it_takes() -> None:
    """It may go, and come back different."""
    old = csi_node({"topologyKeys": ["a"], "allocatable": {"count": 1}})
    more = csi_node({"topologyKeys": ["a"], "allocatable": {"count": 2}})
    assert change_refusals(CSI_NODES, more, old) == []
    assert change_refusals(CSI_NODES, csi_node(), old) == []
    assert change_refusals(CSI_NODES, csi_node({"topologyKeys": ["b"]}), old) == [
        'spec.drivers: Invalid value: {"Name":"d","NodeID":"n","TopologyKeys":["b"],'
        '"Allocatable":null}: field is immutable'
    ]


def condition(**members: Any) -> dict[str, Any]:
    """Return a condition of a driver's storage."""
    return {"status": "StorageDegraded", "reason": "Slow", **members}


def test_health_is_dropped_where_it_was_not() -> None:
    """The feature is off; metadata is not changed by this endpoint."""
    health = [{"name": "d", "healthConditions": [condition()]}]
    given = patched(csi_node(storageHealth=health), {"metadata": {"labels": {"a": "b"}}})
    assert prepared_object(CSI_NODES, given)["status"] == {}
    assert changed(CSI_NODES, given, csi_node())["status"] == {}
    assert changed(NODE_STATUS, given, csi_node()) == csi_node()
    had = csi_node(storageHealth=health)
    assert changed(NODE_STATUS, given, had) == had


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        ([{"name": "d"}], []),
        ([{"name": "d"}, {"name": "d"}], ['[1]: Duplicate value: "d"']),
        ([{"healthConditions": []}], ["[0].name: Required value"]),
        (
            [{"name": "d", "healthConditions": [condition()] * 17}],
            ["[0].healthConditions: Too many: 17: must have at most 16 items"],
        ),
        (
            [
                {
                    "name": "d",
                    "healthConditions": [
                        condition(
                            status="Bad",
                            reason="",
                            message="m" * 1025,
                            accessMode="Any",
                            volumeMode="Tape",
                        )
                    ],
                }
            ],
            [
                '[0].healthConditions[0].status: Unsupported value: "Bad":'
                ' supported values: "StorageDegraded", "StorageUnreachable"',
                "[0].healthConditions[0].reason: Required value",
                "[0].healthConditions[0].message: Too long: may not be more than 1024 bytes",
                '[0].healthConditions[0].accessMode: Unsupported value: "Any": supported values:'
                ' "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"',
                '[0].healthConditions[0].volumeMode: Unsupported value: "Tape":'
                ' supported values: "Filesystem", "Block"',
            ],
        ),
        (
            [{"name": "d", "healthConditions": [condition(reason="A" * 257)]}],
            ["[0].healthConditions[0].reason: Too long: may not be more than 256 bytes"],
        ),
    ],
)
def test_health(health: list[dict[str, Any]], expected: list[str]) -> None:
    """What is stored of it is checked."""
    given = csi_node(storageHealth=health)
    paths = [f"status.storageHealth{each}" for each in expected]
    assert change_refusals(NODE_STATUS, given, given) == paths


def test_rows_of_nodes() -> None:
    """How many drivers there are."""
    assert cells_of(CSI_NODES, csi_node({}, {"name": "e"})) == ["n", 2, "3m"]


def capacity(**members: Any) -> dict[str, Any]:
    """Return a CSIStorageCapacity."""
    return {"metadata": {"name": "c"}, "storageClassName": "s", **members}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"nodeTopology": {}, "capacity": "1Gi"}, []),
        (
            {"capacity": "-1"},
            ['capacity: Invalid value: "-1": must be greater than or equal to 0'],
        ),
    ],
)
def test_capacities(members: dict[str, Any], expected: list[str]) -> None:
    """They are not negative."""
    assert refusals(CSI_STORAGE_CAPACITIES, capacity(**members)) == expected


def test_change_of_a_capacity() -> None:
    """Only the amount changes; bad values of a topology may stay."""
    bad = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}
    old = capacity(nodeTopology=bad)
    assert len(refusals(CSI_STORAGE_CAPACITIES, old)) == 1
    more = capacity(nodeTopology=bad, capacity="1", maximumVolumeSize="1")
    assert change_refusals(CSI_STORAGE_CAPACITIES, more, old) == []
    new = capacity(storageClassName="t", nodeTopology={"matchLabels": {"a": "b"}})
    assert change_refusals(CSI_STORAGE_CAPACITIES, new, capacity()) == [
        'nodeTopology: Invalid value: {"matchLabels":{"a":"b"}}: field is immutable',
        'storageClassName: Invalid value: "t": field is immutable',
    ]


def test_warning_of_deprecated_labels() -> None:
    """In both forms of the topology."""
    given = capacity(
        nodeTopology={
            "matchLabels": {"beta.kubernetes.io/arch": "a"},
            "matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}],
        }
    )
    expected = [
        "nodeTopology.matchExpressions[0].key: beta.kubernetes.io/os is"
        ' deprecated since v1.14; use "kubernetes.io/os" instead',
        "nodeTopology.matchLabels.beta.kubernetes.io/arch:"
        ' deprecated since v1.14; use "kubernetes.io/arch" instead',
    ]
    assert warnings_of(CSI_STORAGE_CAPACITIES, given) == expected
    assert warnings_of_change(CSI_STORAGE_CAPACITIES, given, given) == expected
