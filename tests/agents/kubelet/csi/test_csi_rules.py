"""What CSIDrivers, volumes and claims mean for a node, and what stands on its disk."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from kvstack.agents.kubelet.csi import expansion
from kvstack.agents.kubelet.csi.volume import (
    EPHEMERAL,
    Volume,
    gives_group,
    is_attached_first,
    of_claim,
    of_pod,
)
from kvstack.agents.kubelet.csi.volume_data import Published, Staged, VolumePaths
from kvstack.apimachinery.objects.json_object import Object

POD = {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}}


def driver(**spec: Any) -> Object:
    return {"spec": spec}


def volume(**fields: Any) -> Volume:
    return Volume(**{"name": "v", "driver": "d.io", "handle": "h", **fields})


@pytest.mark.parametrize(
    ("fields", "obj", "expected"),
    [
        ({"fs_type": "ext4", "access_modes": ("ReadWriteOnce",)}, None, True),
        ({"fs_type": "", "access_modes": ("ReadWriteOnce",)}, None, False),
        ({"fs_type": "ext4", "access_modes": ("ReadWriteMany",)}, None, False),
        ({"fs_type": "ext4"}, None, False),
        ({"access_modes": ("ReadWriteMany",)}, driver(fsGroupPolicy="File"), True),
        ({"is_read_only": True}, driver(fsGroupPolicy="File"), False),
        (
            {"fs_type": "ext4", "access_modes": ("ReadWriteOnce",)},
            driver(fsGroupPolicy="None"),
            False,
        ),
        ({"fs_type": "ext4", "lifecycle": EPHEMERAL}, None, True),
    ],
)
def test_whose_files_are_given_to_a_group(
    fields: Object, obj: Object | None, *, expected: bool
) -> None:
    assert gives_group(volume(**fields), obj) is expected


def test_what_is_attached_first() -> None:
    assert is_attached_first(volume(), None)
    assert is_attached_first(volume(), driver())
    assert not is_attached_first(volume(), driver(attachRequired=False))
    assert not is_attached_first(volume(lifecycle=EPHEMERAL), driver(attachRequired=True))


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-a", "a-", "x" * 64, "a b"])
def test_names_that_no_driver_has(name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name of a CSI driver"):
        of_pod(POD, {"name": "v", "csi": {"driver": name}})
    spec = {"csi": {"driver": name, "volumeHandle": "h"}}
    with pytest.raises(ValueError, match="is not a valid name of a CSI driver"):
        of_claim({"metadata": {"name": "pv"}, "spec": spec}, is_read_only=False)


def claim(capacity: str, progress: str = "", **fields: Any) -> Object:
    status: Object = {"capacity": {"storage": capacity}}
    if progress:
        status["allocatedResourceStatuses"] = {"storage": progress}
    meta = {"name": "c", "namespace": "n", "resourceVersion": "7", **fields.pop("meta", {})}
    return {
        "metadata": meta,
        "spec": {"accessModes": ["ReadWriteOnce"], **fields},
        "status": status,
    }


SHARED: Object = {"accessModes": ["ReadWriteMany"]}
SETTLED: Object = {"annotations": {"volume.kubernetes.io/node-expansion-not-required": "true"}}


@pytest.mark.parametrize(
    ("obj", "size", "expected"),
    [
        (claim("1Gi", "NodeResizePending"), 1 << 30, True),
        (claim("1Gi", "NodeResizeInProgress"), 1 << 30, True),
        (claim("1Gi", "NodeResizeInfeasible"), 1 << 30, False),
        (claim("1Gi", "ControllerResizeInProgress"), 1 << 30, False),
        (claim("1Gi"), 1 << 30, False),
        (claim("2Gi", "NodeResizePending"), 2 << 30, False),
        (claim("2Gi"), 1 << 30, False),
        (claim("2Gi", **SHARED), 1 << 30, True),
        (claim("2Gi", meta=SETTLED, **SHARED), 1 << 30, False),
    ],
)
def test_which_volumes_grow_on_the_node(obj: Object, size: int, *, expected: bool) -> None:
    assert expansion.is_due(obj, volume(capacity="2Gi"), size) is expected


def test_a_claim_that_has_grown_keeps_its_other_conditions() -> None:
    obj = claim("1Gi", "NodeResizeInProgress")
    obj["status"]["conditions"] = [{"type": "Unused"}, {"type": "FileSystemResizePending"}]
    assert expansion.done(obj, volume(capacity="2Gi")) == {
        "metadata": {"resourceVersion": "7"},
        "status": {
            "capacity": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": None},
            "conditions": [{"$patch": "delete", "type": "FileSystemResizePending"}],
        },
    }


# The disk.


def test_what_is_noted_is_found_again(tmp_path: Path) -> None:
    paths = VolumePaths(tmp_path, "node-a")
    published = [
        Published("u-1", "pv", "d.io", "h"),
        Published("u-1", "inline", "d.io", "csi-1", EPHEMERAL),
        Published("u-2", "disk", "d.io", "b", is_block=True),
    ]
    staged = [Staged("d.io", "h"), Staged("d.io", "b", "disk")]
    for one in staged:
        paths.note_staged(one)
    for each in published:
        paths.note_published(each)
    problems: list[str] = []
    assert sorted(paths.all_published(problems), key=str) == sorted(published, key=str)
    assert sorted(paths.all_staged(problems), key=str) == sorted(staged, key=str)
    for each in published:
        paths.forget_published(each)
    for one in staged:
        paths.forget_staged(one)
    assert problems == []
    assert not [each for each in tmp_path.rglob("*") if not each.is_dir()]
    assert not list((tmp_path / "pods").rglob("kubernetes.io~csi/*"))


def test_nothing_is_removed_but_empty_directories(tmp_path: Path) -> None:
    paths = VolumePaths(tmp_path, "node-a")
    one, staged = Published("u", "pv", "d.io", "h"), Staged("d.io", "h")
    paths.note_published(one)
    paths.note_staged(staged)
    for path in (paths.target(one), paths.staging(staged)):
        path.mkdir(exist_ok=True)
        (path / "data").write_text("of somebody")
    with pytest.raises(OSError, match="not empty"):
        paths.forget_published(one)
    with pytest.raises(OSError, match="not empty"):
        paths.forget_staged(staged)
    assert (paths.target(one) / "data").exists()
    assert (paths.staging(staged) / "data").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"driverName": "d.io"}',
        '{"driverName": 1, "volumeHandle": "h"}',
        '{"driverName": "../..", "volumeHandle": "h"}',
        '{"driverName": "d.io", "volumeHandle": "another"}',
    ],
)
def test_files_that_cannot_be_meant(tmp_path: Path, text: str) -> None:
    paths = VolumePaths(tmp_path, "node-a")
    staged = Staged("d.io", "h")
    paths.note_staged(staged)
    file = paths.staging(staged).parent / "vol_data.json"
    assert orjson.loads(file.read_bytes())["volumeHandle"] == "h"
    file.write_text(text)
    problems: list[str] = []
    assert list(paths.all_staged(problems)) == []
    assert len(problems) == 1
    assert str(file) in problems[0]
