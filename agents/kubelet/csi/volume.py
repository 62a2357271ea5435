"""The CSI volume of a pod or a PersistentVolume, as a value; and volume names of nodes.

volume = of_claim(pod_volume_name, pv, is_read_only)      bound to a claim
volume = of_pod(pod, pod_volume)                          inline, made for the pod alone
volume.unique_name          as the node's status has it
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.core.attachments import attachment_name, unique_name
from kvstack.apimachinery.objects.json_object import Object

PERSISTENT: Final = "Persistent"
EPHEMERAL: Final = "Ephemeral"
ONE_POD: Final = "ReadWriteOncePod"
_DRIVER_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_WITH_FS_TYPE: Final = "ReadWriteOnceWithFSType"
_POD_INFO: Final = "csi.storage.k8s.io/"


class SecretName(NamedTuple):
    """A secret that a driver is given."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Volume:
    """One volume of a pod, as its driver knows it."""

    name: str
    """The name of the PersistentVolume, or of the pod's volume if it is inline."""
    driver: str
    handle: str
    lifecycle: str = PERSISTENT
    """PERSISTENT or EPHEMERAL."""
    is_block: bool = False
    is_read_only: bool = False
    fs_type: str = ""
    access_modes: Sequence[str] = ()
    mount_options: Sequence[str] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    stage_secret: SecretName | None = None
    publish_secret: SecretName | None = None
    expand_secret: SecretName | None = None
    capacity: str = ""
    """The capacity of the PersistentVolume, as a quantity."""

    @property
    def access_mode(self) -> str:
        """Return the access mode for the driver."""
        return self.access_modes[0] if self.access_modes else "ReadWriteOnce"

    @property
    def unique_name(self) -> str:
        """Return how the status of nodes names it."""
        return unique_name(self.driver, self.handle)

    def attachment(self, node: str) -> str:
        """Return the name of its VolumeAttachment."""
        return attachment_name(self.driver, self.handle, node)


def of_claim(volume: Object, *, is_read_only: bool) -> Volume:
    """Return the volume of a PersistentVolume of the kind csi; ValueError: no driver has its name.

    is_read_only: whether the pod says so.
    """
    spec = volume["spec"]
    source = spec["csi"]
    return Volume(
        volume["metadata"]["name"],
        checked_driver_name(source["driver"]),
        source["volumeHandle"],
        is_block=(spec.get("volumeMode") or "Filesystem") == "Block",
        is_read_only=is_read_only,
        fs_type=source.get("fsType") or "",
        access_modes=tuple(spec.get("accessModes") or ()),
        mount_options=tuple(spec.get("mountOptions") or ()),
        attributes=source.get("volumeAttributes") or {},
        stage_secret=_secret(source.get("nodeStageSecretRef")),
        publish_secret=_secret(source.get("nodePublishSecretRef")),
        expand_secret=_secret(source.get("nodeExpandSecretRef")),
        capacity=(spec.get("capacity") or {}).get("storage", ""),
    )


def of_pod(pod: Object, volume: Object) -> Volume:
    """Return an inline volume of a pod; ValueError: no driver has its name."""
    meta, source = pod["metadata"], volume["csi"]
    reference = source.get("nodePublishSecretRef")
    secret = {**reference, "namespace": meta["namespace"]} if reference else None
    digest = hashlib.sha256(f"{meta['uid']}{volume['name']}".encode()).hexdigest()
    return Volume(
        volume["name"],
        checked_driver_name(source["driver"]),
        f"csi-{digest}",
        EPHEMERAL,
        is_read_only=bool(source.get("readOnly")),
        fs_type=source.get("fsType") or "",
        attributes=source.get("volumeAttributes") or {},
        publish_secret=_secret(secret),
    )


def _secret(reference: Object | None) -> SecretName | None:
    if not reference or not reference.get("name"):
        return None
    return SecretName(reference.get("namespace") or "", reference["name"])


def checked_driver_name(name: str) -> str:
    """Return the name of a driver; ValueError: none can have it."""
    if _DRIVER_NAME.fullmatch(name) is None:
        text = "letters, digits, dots and hyphens, at most 63"
        raise ValueError(f"{name[:80]!r} is not a valid name of a CSI driver: {text}")
    return name


# Settings of a driver in its CSIDriver object; None: it does not exist.


def lifecycle_problem(volume: Volume, driver: Object | None) -> str:
    """Return why a driver does not have volumes of this lifecycle; empty: it does."""
    mode, name = volume.lifecycle, volume.driver
    if driver is None:
        if mode == PERSISTENT:
            return ""
        return f'volume mode "{mode}" not supported by driver {name} (no CSIDriver object)'
    modes = driver["spec"].get("volumeLifecycleModes") or (PERSISTENT,)
    if mode in modes:
        return ""
    known = " ".join(f'"{each}"' for each in modes)
    return f'volume mode "{mode}" not supported by driver {name} (only supports [{known}])'


def is_attached_first(volume: Volume, driver: Object | None) -> bool:
    """Whether a volume must be attached to its node before it is staged."""
    if volume.lifecycle != PERSISTENT:
        return False
    return driver is None or bool(driver["spec"].get("attachRequired", True))


def is_republished(driver: Object | None) -> bool:
    """Whether a driver requires republishing."""
    return driver is not None and bool(driver["spec"].get("requiresRepublish"))


def gives_group(volume: Volume, driver: Object | None) -> bool:
    """Whether the node changes the group of a volume's files to the fsGroup of its pod."""
    policy = _WITH_FS_TYPE if driver is None else driver["spec"].get("fsGroupPolicy")
    if volume.is_read_only or policy == "None":
        return False
    if policy == "File":
        return True
    if not volume.fs_type:
        return False
    return volume.lifecycle == EPHEMERAL or "ReadWriteOnce" in volume.access_modes


def pod_attributes(pod: Object, volume: Volume, driver: Object | None) -> dict[str, str]:
    """Return the attributes of the pod for a driver, if it requests them."""
    if driver is None or not driver["spec"].get("podInfoOnMount"):
        return {}
    meta = pod["metadata"]
    return {
        f"{_POD_INFO}pod.name": meta["name"],
        f"{_POD_INFO}pod.namespace": meta["namespace"],
        f"{_POD_INFO}pod.uid": meta["uid"],
        f"{_POD_INFO}serviceAccount.name": pod["spec"].get("serviceAccountName") or "",
        f"{_POD_INFO}ephemeral": str(volume.lifecycle == EPHEMERAL).lower(),
    }
