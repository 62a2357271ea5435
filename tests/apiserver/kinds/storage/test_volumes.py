"""What PersistentVolumes may be, and what of them may change."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.storage.access_modes import modes_text
from kvstack.apiserver.kinds.storage.sources import SOURCES
from kvstack.apiserver.kinds.storage.volumes import VOLUMES
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

STATUS = VOLUMES.subresources["status"]
NFS = {"nfs": {"server": "s", "path": "/"}}
CSI = {"csi": {"driver": "d", "volumeHandle": "h"}}


def volume(source: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a PersistentVolume, of NFS if nothing else is said."""
    return {
        "metadata": {"name": "v", "resourceVersion": "1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            **(NFS if source is None else source),
            **spec,
        },
    }


def affinity(key: str = "a", *values: str, operator: str = "In") -> dict[str, Any]:
    """Return the affinity of a volume for nodes with a label."""
    expression = {"key": key, "operator": operator, "values": list(values)}
    terms = [{"matchExpressions": [expression]}]
    return {"required": {"nodeSelectorTerms": terms}}


LOCAL = volume({"local": {"path": "/x"}}, nodeAffinity=affinity("a", "b"))


def test_defaults() -> None:
    """A volume is kept, and is a file system."""
    found = prepared_object(VOLUMES, volume(capacity={"storage": "1u"}))
    assert found["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert found["spec"]["volumeMode"] == "Filesystem"
    assert found["spec"]["capacity"] == {"storage": "1m"}
    assert found["status"] == {"phase": "Pending", "lastPhaseTransitionTime": NOW}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"accessModes": []}, ["accessModes: Required value"]),
        (
            {"capacity": {"cpu": "1", "storage": "1"}},
            ['capacity: Unsupported value: {"cpu":"1","storage":"1"}: supported values: "storage"'],
        ),
        (
            {"capacity": {"storage": "-1"}},
            [
                "capacity[storage]: Invalid value: -1: must be a valid resource quantity",
                'capacity[storage]: Invalid value: "-1": must be greater than zero',
            ],
        ),
        (
            {"capacity": {"storage": "0"}},
            ['capacity[storage]: Invalid value: "0": must be greater than zero'],
        ),
        (
            {"persistentVolumeReclaimPolicy": "Keep", "volumeMode": "Tape"},
            [
                'persistentVolumeReclaimPolicy: Unsupported value: "Keep":'
                ' supported values: "Delete", "Recycle", "Retain"',
                'volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"',
            ],
        ),
        (
            {"nodeAffinity": {}},
            ["nodeAffinity.required: Required value: must specify required node constraints"],
        ),
        (
            {"volumeAttributesClassName": ""},
            [
                "volumeAttributesClassName: Required value: an empty string is disallowed",
                "csi: Required value: has to be specified when using volumeAttributesClassName",
            ],
        ),
    ],
)
def test_spec(spec: dict[str, Any], expected: list[str]) -> None:
    """One rule each."""
    assert refusals(VOLUMES, volume(**spec)) == [f"spec.{each}" for each in expected]


@pytest.mark.parametrize("path", ["/", "//", "/a/.."])
def test_root_of_a_host_is_not_recycled(path: str) -> None:
    """However it is written."""
    given = volume({"hostPath": {"path": path}}, persistentVolumeReclaimPolicy="Recycle")
    expected = (
        "spec.persistentVolumeReclaimPolicy: Forbidden:"
        " may not be 'recycle' for a hostPath mount of '/'"
    )
    assert expected in refusals(VOLUMES, given)
    other = volume({"hostPath": {"path": "/a"}}, persistentVolumeReclaimPolicy="Recycle")
    assert refusals(VOLUMES, other) == []


def test_exactly_one_source() -> None:
    """The first one counts; of a second FlexVolume nothing is said."""
    assert refusals(VOLUMES, volume({})) == ["spec: Required value: must specify a volume type"]
    both = volume(NFS | CSI | {"cephfs": {"monitors": ["m"]}})
    assert refusals(VOLUMES, both) == [
        "spec.cephFS: Forbidden: may not specify more than 1 volume type",
        "spec.csi: Forbidden: may not specify more than 1 volume type",
    ]
    flex = volume(NFS | {"flexVolume": {"driver": "a/b"}})
    assert refusals(VOLUMES, flex) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"hostPath": {"path": "/a", "type": ""}}, []),
        ({"hostPath": {"path": "../a"}}, [
            "hostPath.path: Invalid value: \"../a\": must not contain '..'",
        ]),
        (
            {"gcePersistentDisk": {"partition": 256}},
            [
                "persistentDisk.pdName: Required value",
                "persistentDisk.partition: Invalid value: 256:"
                " must be between 1 and 255, inclusive",
            ],
        ),
        (
            {"awsElasticBlockStore": {"volumeID": ""}},
            ["awsElasticBlockStore.volumeID: Required value"],
        ),
        (
            {"glusterfs": {"endpoints": "e", "path": "p", "endpointsNamespace": ""}},
            [
                'glusterfs.endpointsNamespace: Invalid value: "":'
                " if the endpointnamespace is set, it must be a valid namespace name"
            ],
        ),
        ({"nfs": {"server": "s", "path": "a"}}, [
            'nfs.path: Invalid value: "a": must be an absolute path',
        ]),
        ({"rbd": {"monitors": ["m"]}}, ["rbd.image: Required value"]),
        ({"cephfs": {}}, ["cephfs.monitors: Required value"]),
        (
            {"cinder": {"volumeID": "v", "secretRef": {}}},
            ["cinder.secretRef.name: Required value", "cinder.secretRef.namespace: Required value"],
        ),
        (
            {"azureFile": {"secretName": "s", "shareName": "n", "secretNamespace": ""}},
            ["azureFile.secretNamespace: Required value"],
        ),
        ({"azureFile": {"secretName": "s", "shareName": "n"}}, []),
        ({"vsphereVolume": {}}, ["vsphereVolume.volumePath: Required value"]),
        ({"photonPersistentDisk": {}}, ["photonPersistentDisk.pdID: Required value"]),
        ({"portworxVolume": {}}, ["portworxVolume.volumeID: Required value"]),
        (
            {"scaleIO": {}},
            [f"scaleIO.{each}: Required value" for each in ("gateway", "system", "volumeName")],
        ),
        ({"storageos": {"secretRef": {"name": "s"}}}, [
            "storageos.volumeName: Required value",
            "storageos.secretRef.namespace: Required value",
        ]),
        (
            {"csi": {"controllerPublishSecretRef": {}}},
            [
                "csi.driver: Required value",
                "csi.volumeHandle: Required value",
                "csi.controllerPublishSecretRef.name: Required value",
                "csi.controllerPublishSecretRef.namespace: Required value",
            ],
        ),
        (
            {"local": {"path": "a/../b"}},
            [
                "local.path: Invalid value: \"a/../b\": must not contain '..'",
                "nodeAffinity: Required value: Local volume requires node affinity",
            ],
        ),
        (
            {"local": {}},
            [
                "local.path: Required value",
                "nodeAffinity: Required value: Local volume requires node affinity",
            ],
        ),
    ],
)  # fmt: skip
def test_sources(source: dict[str, Any], expected: list[str]) -> None:
    """Each has its own members."""
    assert refusals(VOLUMES, volume(source)) == [f"spec.{each}" for each in expected]


ISCSI = {"targetPortal": "192.0.2.1:3260", "iqn": "iqn.2026-01.com.example:a"}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, []),
        ({"targetPortal": ""}, ["targetPortal: Required value"]),
        ({"iqn": ""}, ["iqn: Required value"]),
        ({"iqn": "x"}, ['iqn: Invalid value: "x": must be valid format']),
        ({"lun": 256}, ["lun: Invalid value: 256: must be between 0 and 255, inclusive"]),
        ({"chapAuthSession": True}, ["secretRef: Required value"]),
        ({"chapAuthSession": True, "secretRef": {}}, ["secretRef.name: Required value"]),
        ({"initiatorName": ""}, ['initiatorname: Invalid value: "": must be valid format']),
        ({"initiatorName": "x"}, ['initiatorname: Invalid value: "x": must be valid format']),
        ({"initiatorName": ISCSI["iqn"]}, []),
        (
            {"initiatorName": ISCSI["iqn"], "targetPortal": "p" * 63},
            [
                f'targetportal: Invalid value: "{"p" * 63}": Total length of <volume'
                " name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is"
                " specified."
            ],
        ),
    ],
)
def test_iscsi(members: dict[str, Any], expected: list[str]) -> None:
    """With an initiator the name of the volume and the portal share 64 characters."""
    given = volume({"iscsi": {**ISCSI, "lun": 0, **members}})
    assert refusals(VOLUMES, given) == [f"spec.iscsi.{each}" for each in expected]


def test_each_source_is_there_once() -> None:
    """In the order in which they are looked at."""
    names = [each.name for each in SOURCES]
    assert len(set(names)) == len(names) == 22
    assert (names[0], names[-1]) == ("hostPath", "csi")


def test_options_of_mounts_in_the_annotation() -> None:
    """Only sources that take them."""
    name = "volume.beta.kubernetes.io/mount-options"
    patch = {"metadata": {"annotations": {name: "ro"}}}
    assert refusals(VOLUMES, patched(volume(), patch)) == []
    assert refusals(VOLUMES, patched(volume(CSI), patch)) == [
        f"metadata.annotations.{name}: Forbidden:"
        " may not specify mount options for this volume type"
    ]


def test_source_and_mode_stay() -> None:
    """What is told of the source is a difference of Go's fields."""
    new = patched(volume(), {"spec": {"nfs": {"path": "/b"}, "volumeMode": "Block"}})
    source, mode = change_refusals(VOLUMES, new, volume())
    assert source.startswith(
        "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after"
        " creation\n@@ "
    )
    assert '\n-  "Path": "/",\n+  "Path": "/b",\n' in source
    assert mode == 'volumeMode: Invalid value: "Block": field is immutable'


def test_other_things_may_change() -> None:
    """Size, modes, class, policy, claim."""
    patch = {
        "accessModes": ["ReadOnlyMany"],
        "capacity": {"storage": "2Gi"},
        "storageClassName": "c",
        "persistentVolumeReclaimPolicy": "Delete",
        "claimRef": {"name": "c", "namespace": "n"},
        "mountOptions": ["ro"],
    }
    assert change_refusals(VOLUMES, patched(volume(), {"spec": patch}), volume()) == []


def test_secret_for_expansion_may_be_added_once() -> None:
    """Unlike the other Secrets."""
    secret = {"name": "s", "namespace": "n"}
    added = patched(volume(CSI), {"spec": {"csi": {"controllerExpandSecretRef": secret}}})
    assert change_refusals(VOLUMES, added, volume(CSI)) == []
    other = patched(added, {"spec": {"csi": {"controllerExpandSecretRef": {"name": "t"}}}})
    assert len(change_refusals(VOLUMES, other, added)) == 1
    published = patched(volume(CSI), {"spec": {"csi": {"nodePublishSecretRef": secret}}})
    assert len(change_refusals(VOLUMES, published, volume(CSI))) == 1


def test_class_of_attributes_stays_one() -> None:
    """It may be another one."""
    old = volume(CSI, volumeAttributesClassName="a")
    assert change_refusals(VOLUMES, volume(CSI, volumeAttributesClassName="b"), old) == []
    assert change_refusals(VOLUMES, volume(CSI), old) == [
        "spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"
    ]


@pytest.mark.parametrize(
    ("before", "after", "is_fine"),
    [
        ("beta.kubernetes.io/os", "kubernetes.io/os", True),
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone", True),
        ("kubernetes.io/os", "beta.kubernetes.io/os", False),
        ("beta.kubernetes.io/os", "kubernetes.io/arch", False),
        ("a", "a", True),
        ("a", "b", False),
    ],
)
def test_affinity_changes_only_to_stable_labels(before: str, after: str, is_fine: bool) -> None:  # noqa: FBT001
    """Values stay."""
    old = volume(nodeAffinity=affinity(before, "x"))
    found = change_refusals(VOLUMES, volume(nodeAffinity=affinity(after, "x")), old)
    if is_fine:
        assert found == []
    else:
        assert [each[:30] for each in found] == ["nodeAffinity: Invalid value: {"]
        assert found[0].endswith("field is immutable, except for updating from beta label to GA")
    assert len(change_refusals(VOLUMES, volume(nodeAffinity=affinity(after, "y")), old)) == 1


def test_affinity_may_come_and_not_go() -> None:
    """Nor be cut short."""
    assert change_refusals(VOLUMES, volume(nodeAffinity=affinity("a", "b")), volume()) == []
    (found,) = change_refusals(VOLUMES, volume(), volume(nodeAffinity=affinity("a", "b")))
    assert found == (
        "nodeAffinity: Invalid value: null:"
        " field is immutable, except for updating from beta label to GA"
    )
    two = affinity("a", "b")
    two["required"]["nodeSelectorTerms"] *= 2
    shorter = volume(nodeAffinity=affinity("a", "b"))
    assert len(change_refusals(VOLUMES, shorter, volume(nodeAffinity=two))) == 1


def test_bad_values_of_labels_may_stay() -> None:
    """In an affinity that had some."""
    old = volume(nodeAffinity=affinity("a", "-"))
    assert len(refusals(VOLUMES, old)) == 1
    assert change_refusals(VOLUMES, old, old) == []


@pytest.mark.parametrize(
    ("phase", "given", "expected"),
    [
        ("Pending", None, "2020-01-01T00:00:00Z"),
        ("Pending", "2021-01-01T00:00:00Z", "2021-01-01T00:00:00Z"),
        ("Bound", None, NOW),
        ("Bound", "2020-01-01T00:00:00Z", NOW),
        ("Bound", "2021-01-01T00:00:00Z", "2021-01-01T00:00:00Z"),
    ],
)
def test_time_of_the_phase(phase: str, given: str | None, expected: str) -> None:
    """It is set when the phase changes, unless a new one is given."""
    old = volume() | {
        "status": {"phase": "Pending", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}
    }
    status: dict[str, Any] = {"phase": phase}
    if given is not None:
        status["lastPhaseTransitionTime"] = given
    found = changed(STATUS, volume(NFS, storageClassName="x") | {"status": status}, old)
    assert found["status"] == {"phase": phase, "lastPhaseTransitionTime": expected}
    assert "storageClassName" not in found["spec"]


def test_status_needs_a_resource_version() -> None:
    """And nothing else."""
    given = patched(volume(), {"metadata": {"resourceVersion": None}})
    assert change_refusals(STATUS, given, volume()) == ["resourceVersion: Required value"]
    assert change_refusals(STATUS, volume(), volume()) == []


def test_warnings() -> None:
    """Of what is deprecated."""
    given = patched(
        volume(
            {"rbd": {"monitors": ["m"], "image": "i"}},
            persistentVolumeReclaimPolicy="Recycle",
            nodeAffinity=affinity("beta.kubernetes.io/os", "linux"),
        ),
        {
            "metadata": {
                "annotations": {
                    "volume.beta.kubernetes.io/mount-options": "ro",
                    "volume.beta.kubernetes.io/storage-class": "c",
                }
            }
        },
    )
    expected = [
        "metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8;"
        ' use "storageClassName" attribute instead',
        "metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31;"
        ' use "mountOptions" attribute instead',
        "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the"
        " recommended approach is to use dynamic provisioning.",
        "spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key:"
        ' beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead',
        "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
    ]
    assert warnings_of(VOLUMES, given) == expected
    assert warnings_of_change(VOLUMES, given, given) == expected


def test_rows() -> None:
    """The old annotation of the class counts more; a deleted volume says so."""
    given = volume(
        NFS,
        accessModes=["ReadWriteMany", "ReadOnlyMany"],
        claimRef={"namespace": "n", "name": "c"},
        storageClassName="new",
    ) | {"status": {"phase": "Bound", "reason": "r"}}
    assert cells_of(VOLUMES, given) == [
        "v",
        "1Gi",
        "ROX,RWX",
        "Retain",
        "Bound",
        "n/c",
        "new",
        "<unset>",
        "r",
        "3m",
        "Filesystem",
    ]
    annotations = {"volume.beta.kubernetes.io/storage-class": "old"}
    deleted = {"metadata": {"annotations": annotations, "deletionTimestamp": NOW}}
    row = cells_of(VOLUMES, patched(given, deleted))
    assert (row[4], row[6]) == ("Terminating", "old")


def test_access_modes() -> None:
    """Always in one order, each once; unknown ones are not shown."""
    modes = ["X", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"]
    assert modes_text([*modes, *modes]) == "RWO,ROX,RWX,RWOP"
    assert modes_text(None) == ""
