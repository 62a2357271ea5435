"""What VolumeAttachments may be."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.storage.attachments import VOLUME_ATTACHMENTS
from tests.apiserver.kinds.hooks import (
    cells_of,
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
)

STATUS = VOLUME_ATTACHMENTS.subresources["status"]
INLINE = {"accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "h"}}


def attachment(source: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a VolumeAttachment."""
    source = {"persistentVolumeName": "v"} if source is None else source
    spec = {"attacher": "d", "nodeName": "n", "source": source, **spec}
    return {"metadata": {"name": "a"}, "spec": spec, "status": {"attached": False}}


def inline(**members: Any) -> dict[str, Any]:
    """Return a VolumeAttachment with an inline volume."""
    return attachment({"inlineVolumeSpec": {**INLINE, **members}})


ONE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (attachment(), []),
        (inline(), []),
        (attachment({}), [f"spec.source: Required value: {ONE}"]),
        (
            attachment({"persistentVolumeName": "v", "inlineVolumeSpec": INLINE}),
            [f"spec.source: Forbidden: {ONE}"],
        ),
        (attachment(attacher=""), ["spec.attacher: Required value"]),
        (
            attachment(attacher="d" * 64),
            ["spec.attacher: Too long: may not be more than 63 characters"],
        ),
    ],
)
def test_spec(given: dict[str, Any], expected: list[str]) -> None:
    """One volume, one driver, one node."""
    assert refusals(VOLUME_ATTACHMENTS, given) == expected


def test_empty_names() -> None:
    """Are none."""
    found = refusals(VOLUME_ATTACHMENTS, attachment({"persistentVolumeName": ""}, nodeName=""))
    assert [each.partition(": ")[0] for each in found] == [
        "spec.source.persistentVolumeName",
        "spec.nodeName",
        "spec.source.persistentVolumeName",
    ]


NOT_INLINE = "may not be specified in the context of inline volumes"


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"claimRef": {}}, [f"claimRef: Forbidden: {NOT_INLINE}"]),
        ({"capacity": {"storage": "1"}}, [f"capacity: Forbidden: {NOT_INLINE}"]),
        ({"nodeAffinity": {}}, [f"nodeAffinity: Forbidden: {NOT_INLINE}"]),
        ({"storageClassName": "c"}, [f"storageClassName: Forbidden: {NOT_INLINE}"]),
        (
            {"persistentVolumeReclaimPolicy": "Delete"},
            [
                "persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of"
                " inline volumes"
            ],
        ),
        ({"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"}, []),
        (
            {"volumeMode": "Block"},
            [
                "volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the"
                " context of inline volumes"
            ],
        ),
        (
            {"csi": None, "nfs": {"server": "s", "path": "/"}},
            ["csi: Required value: has to be specified in the context of inline volumes"],
        ),
    ],
)
def test_inline_volumes(members: dict[str, Any], expected: list[str]) -> None:
    """They are volumes of CSI that nobody claims."""
    paths = [f"spec.source.inlineVolumeSpec.{each}" for each in expected]
    assert refusals(VOLUME_ATTACHMENTS, inline(**members)) == paths


def test_inline_capacity_is_rounded() -> None:
    """As all amounts are."""
    given = inline(capacity={"storage": "1u"})
    found = prepared_object(VOLUME_ATTACHMENTS, given)["spec"]["source"]["inlineVolumeSpec"]
    assert found["capacity"] == {"storage": "1m"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"attachmentMetadata": {"a": "b"}, "attachError": {"message": "m"}}, []),
        (
            {"attachmentMetadata": {"a": "b" * 256 * 1024}},
            ["status.attachmentMetadata: Too long: may not be more than 262144 bytes"],
        ),
        (
            {
                "attachError": {"message": "m" * 1025},
                "detachError": {"errorCode": -1},
            },
            [
                "status.attachError.message: Too long: may not be more than 1024 bytes",
                "status.detachError.errorCode: Invalid value: -1:"
                " must be between 0 and 2147483647, inclusive",
            ],
        ),
    ],
)
def test_status(status: dict[str, Any], expected: list[str]) -> None:
    """It is not too long."""
    given = attachment() | {"status": {"attached": True, **status}}
    assert change_refusals(STATUS, given, attachment()) == expected


def test_spec_stays() -> None:
    """What is wrong with the new one is told beside it."""
    assert change_refusals(VOLUME_ATTACHMENTS, attachment(attacher=""), attachment()) == [
        "spec: Invalid value: null: field is immutable",
        "spec.attacher: Required value",
    ]


def test_each_endpoint_changes_its_part() -> None:
    """That of the status changes no metadata."""
    new = patched(
        attachment(),
        {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"nodeName": "m"},
            "status": {"attached": True},
        },
    )
    assert prepared_object(VOLUME_ATTACHMENTS, new)["status"] == {"attached": False}
    found = changed(VOLUME_ATTACHMENTS, new, attachment())
    assert (found["spec"]["nodeName"], found["status"]) == ("m", {"attached": False})
    assert changed(STATUS, new, attachment()) == attachment() | {"status": {"attached": True}}


def test_rows() -> None:
    """An inline volume has no name."""
    row = ["a", "d", "v", "n", False, "3m"]
    assert cells_of(VOLUME_ATTACHMENTS, attachment()) == row
    assert cells_of(VOLUME_ATTACHMENTS, inline())[2] == ""
