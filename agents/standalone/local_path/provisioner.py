"""Creates, expands and removes local-path volumes.

    claim, its node chosen      directory ─► volume (`claimRef` names the claim; the binder binds)
    claim that asks for more    the volume's capacity ─► the claim's
    volume that was released    Delete: directory removed ─► volume deleted
                                Retain: both stay, also the directory of a volume that is deleted

A volume has a finalizer until its directory is gone, so that deleting the object leaves no
directory behind. Every step may be done twice. Capacity is what the claim requests; directories
are limited to it where their file system can do that.

Keys: `class`, `claim/<namespace>/<name>`, `volume/<name>`.
"""

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from typing_extensions import override

from kvstack.agents.client.built_in import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.storage.finalizers import finalizers_of, let_go
from kvstack.agents.controllers.storage.volume_rules import (
    PROVISIONED_BY,
    annotations_of,
    capacity,
    class_of,
    requested,
)
from kvstack.agents.kubelet.hollow.nodes import is_hollow
from kvstack.agents.reconcile.plan import (
    BaseController,
    Create,
    Delete,
    ForeseenError,
    Identity,
    InThread,
    Outcome,
    Plan,
    Record,
    Step,
    Update,
    View,
    Watch,
    do,
)
from kvstack.agents.standalone.local_path.access import ACCOUNT
from kvstack.agents.standalone.local_path.directories import Directories
from kvstack.agents.standalone.local_path.volumes import (
    CLASS,
    FINALIZER,
    HOLLOW_DIRECTORY,
    PROVISIONER,
    name_of,
    problem_of,
    storage_class,
    volume_of,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.well_known import (
    DEFAULT_STORAGE_CLASS_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    STORAGE_PROVISIONER_ANNOTATION,
)

_Steps: TypeAlias = Generator[Step, list[Outcome], None]

_CLASS_KEY: Final = "class"


class LocalNode(NamedTuple):
    """The node of this process on which directories are made."""

    name: str
    directories: Directories


class LocalPathProvisioner(BaseController):
    """Provisions volumes on hollow nodes, and on the node of this process."""

    reads: Sequence[ResourceType] = (NODES, STORAGE_CLASSES)

    def __init__(self, node: LocalNode | None) -> None:
        """node: None: there are hollow nodes alone."""
        self._node = node
        self.identity: Identity = Identity("local-path-provisioner", ACCOUNT, PROVISIONER)
        self.watches: Sequence[Watch] = (
            Watch(PERSISTENT_VOLUME_CLAIMS, _keys_of_claim),
            Watch(PERSISTENT_VOLUMES, _keys_of_volume),
        )

    @override
    def initial_keys(self) -> Iterable[str]:
        """Return the class as the first key."""
        return (_CLASS_KEY,)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for a key."""
        what, _, name = key.partition("/")
        if what == _CLASS_KEY:
            yield from _make_class(view)
        elif what == "volume":
            volume = view.get(PERSISTENT_VOLUMES, name)
            if volume is not None and _is_ours(volume):
                yield from self._reclaim(volume)
        elif (claim := view.get(PERSISTENT_VOLUME_CLAIMS, name)) is not None:
            bound = view.get(PERSISTENT_VOLUMES, claim["spec"].get("volumeName") or "")
            if bound is not None:
                yield from self._grow(claim, bound)
            elif not claim["spec"].get("volumeName"):
                yield from self._provision(claim, view)
        return None

    # Volumes that come.

    def _provision(self, claim: Object, view: View) -> _Steps:
        storage_class = view.get(STORAGE_CLASSES, class_of(claim))
        is_ours = annotations_of(claim).get(STORAGE_PROVISIONER_ANNOTATION) == PROVISIONER
        if not is_ours or storage_class is None or storage_class["provisioner"] != PROVISIONER:
            return
        name = name_of(claim)
        if is_deleting(claim) or view.get(PERSISTENT_VOLUMES, name) is not None:
            return
        if problem := problem_of(claim, storage_class):
            yield [_failed(claim, problem)]
            return
        node_name = annotations_of(claim).get(SELECTED_NODE_ANNOTATION)
        if not node_name:
            return  # no pod has been scheduled that uses it
        node = view.get(NODES, node_name)
        path = None if node is None else self._path(node, name)
        if node is None or path is None:
            yield from _choose_again(claim, node_name)
            return
        if self._node is not None and node_name == self._node.name:
            size = requested(claim).value()
            make = partial(self._node.directories.make, name, size)
            yield from _on_disk(make, claim, "ProvisioningFailed")
        [made] = yield [Create(PERSISTENT_VOLUMES, "", volume_of(claim, storage_class, node, path))]
        if not made.is_conflict:  # else it is there, and only this view does not show it yet
            made.result()
            text = f"volume {name} was made on node {node_name}"
            yield [Record(claim, "Normal", "ProvisioningSucceeded", text)]

    def _path(self, node: Object, name: str) -> Path | None:
        """Return where the directory of a volume is on a node; None: none is made there."""
        if self._node is not None and node["metadata"]["name"] == self._node.name:
            return self._node.directories.path(name)
        return HOLLOW_DIRECTORY / name if is_hollow(node) else None

    def _grow(self, claim: Object, volume: Object) -> _Steps:
        """Grant a claim the size that it requests now."""
        reference = volume["spec"].get("claimRef") or {}
        status = claim.get("status") or {}
        if not _is_ours(volume) or reference.get("uid") != claim["metadata"]["uid"]:
            return
        if status.get("phase") != "Bound" or is_deleting(claim):
            return
        requested_bytes = requested(claim)
        amount = claim["spec"]["resources"]["requests"]["storage"]
        if capacity(volume) < requested_bytes:
            if self._node is not None and self._is_on_disk(volume):
                name = volume["metadata"]["name"]
                resize = partial(self._node.directories.resize, name, requested_bytes.value())
                yield from _on_disk(resize, claim, "VolumeResizeFailed")
            spec = {**volume["spec"], "capacity": {**volume["spec"]["capacity"], "storage": amount}}
            yield from do(Update(PERSISTENT_VOLUMES, {**volume, "spec": spec}))
        known = status.get("capacity") or {}
        if parse(known.get("storage", "0")) < requested_bytes:
            grown = {**status, "capacity": {**known, "storage": amount}}
            changed = {**claim, "status": grown}
            yield from do(Update(PERSISTENT_VOLUME_CLAIMS, changed, "status"))
            text = f"volume {volume['metadata']['name']} has {amount}"
            yield [Record(claim, "Normal", "VolumeResizeSuccessful", text)]

    # Volumes that go.

    def _reclaim(self, volume: Object) -> _Steps:
        is_going = is_deleting(volume)
        phase = (volume.get("status") or {}).get("phase")
        is_held = FINALIZER in finalizers_of(volume)
        if phase == "Bound" or not (is_going or phase == "Released"):
            return
        name = volume["metadata"]["name"]
        if volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete" and is_held:
            if problem := self._misplaced(volume):
                yield [Record(volume, "Warning", "VolumeFailedDelete", problem)]
                return
            if self._node is not None and self._is_on_disk(volume):
                remove = partial(self._node.directories.remove, name)
                yield from _on_disk(remove, volume, "VolumeFailedDelete")
            if not is_going:
                uid = volume["metadata"]["uid"]
                [deleted] = yield [Delete(PERSISTENT_VOLUMES, "", name, uid)]
                if not deleted.is_not_found:
                    deleted.result()
                return  # its finalizer goes when that is seen
        if is_going and is_held:
            yield from let_go(PERSISTENT_VOLUMES, volume, FINALIZER)

    def _is_on_disk(self, volume: Object) -> bool:
        place = Path((volume["spec"].get("local") or {}).get("path", ""))
        return self._node is not None and place.parent == self._node.directories.root

    def _misplaced(self, volume: Object) -> str:
        """Return why the directory of a volume is not removed; empty: it is, or does not exist."""
        name = volume["metadata"]["name"]
        path = Path((volume["spec"].get("local") or {}).get("path", ""))
        if path == HOLLOW_DIRECTORY / name:
            return ""
        try:
            if self._node is not None and path == self._node.directories.path(name):
                return ""
        except ValueError as error:
            return str(error)
        return f"{path} is not a directory that this node made for {name}; remove it by hand"


def _on_disk(work: "partial[None]", about: Object, reason: str) -> _Steps:
    """Do work on the disk; ForeseenError: it failed, and is tried again later.

    about, reason: of the event that reports a failure.
    """
    [done] = yield [InThread(work)]
    if done.error is not None:
        yield [Record(about, "Warning", reason, str(done.error))]
        raise ForeseenError(f"{about['metadata']['name']}: {done.error}")


def _make_class(view: View) -> _Steps:
    if view.get(STORAGE_CLASSES, CLASS) is not None:
        return
    others = view.list(STORAGE_CLASSES)
    is_default = all(
        annotations_of(each).get(DEFAULT_STORAGE_CLASS_ANNOTATION) != "true" for each in others
    )
    [made] = yield [Create(STORAGE_CLASSES, "", storage_class(is_default=is_default))]
    if not made.is_conflict:
        made.result()


def _choose_again(claim: Object, node_name: str) -> _Steps:
    """Return the claim to the scheduler, which chooses another node."""
    text = f"node {node_name}: directories are made on hollow nodes and on that of kvstack up"
    yield [_failed(claim, text)]
    annotations = dict(annotations_of(claim))
    del annotations[SELECTED_NODE_ANNOTATION]
    meta = {**claim["metadata"], "annotations": annotations}
    yield from do(Update(PERSISTENT_VOLUME_CLAIMS, {**claim, "metadata": meta}))


def _failed(claim: Object, text: str) -> Record:
    return Record(claim, "Warning", "ProvisioningFailed", text)


def _is_ours(volume: Object) -> bool:
    return annotations_of(volume).get(PROVISIONED_BY) == PROVISIONER


def _keys_of_claim(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None:
        yield f"claim/{key_of(new)}"


def _keys_of_volume(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    volume = new or old or {}
    if not _is_ours(volume):
        return
    if new is not None:
        yield f"volume/{key_of(new)}"
    elif reference := volume["spec"].get("claimRef"):
        yield f"claim/{reference['namespace']}/{reference['name']}"
