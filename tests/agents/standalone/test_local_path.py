"""Volumes that come by themselves: what is decided, the directories, and `kvstack up` with them."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstack.agents.client.built_in import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from kvstack.agents.reconcile.plan import (
    Action,
    Create,
    Delete,
    ForeseenError,
    InThread,
    Record,
    Update,
)
from kvstack.agents.standalone.local_path.directories import Directories
from kvstack.agents.standalone.local_path.provisioner import LocalNode, LocalPathProvisioner
from kvstack.agents.standalone.local_path.volumes import (
    FINALIZER,
    PROVISIONER,
    storage_class,
    volume_of,
)
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.standalone.test_stack import kubectl, lines_of, up
from tests.agents.support.namespaces import has_namespaces
from tests.agents.support.plans import drive, refusal, view_of
from tests.support.servers import free_ports
from tests.support.waiting import wait_for

UID = "0a1b2c3d-1111-4222-8333-444455556666"
NAME = f"pvc-{UID}"
WAIT_S = 60.0


def claim(node: str = "me", **spec: Any) -> Object:
    annotations = {"volume.kubernetes.io/storage-provisioner": PROVISIONER}
    if node:
        annotations["volume.kubernetes.io/selected-node"] = node
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "n", "uid": UID, "annotations": annotations},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "local-path",
            **spec,
        },
        "status": {"phase": "Pending"},
    }


def node(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": f"{name}.h", **labels}}}


def volume(
    directory: Path, phase: str, policy: str = "Delete", *, is_deleted: bool = False
) -> Object:
    made = volume_of(claim(), storage_class(is_default=True), node("me"), directory / NAME)
    made["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    made["spec"]["persistentVolumeReclaimPolicy"] = policy
    if is_deleted:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {**made, "status": {"phase": phase}}


class World:
    """A provisioner, and what it sees."""

    def __init__(self, root: Path) -> None:
        self.directories = Directories(root / "volumes")
        self.provisioner = LocalPathProvisioner(LocalNode("me", self.directories))
        self.answer: Callable[[Action], Any] = lambda action: {}

    def plan(
        self,
        key: str,
        claims: tuple[Object, ...] = (),
        volumes: tuple[Object, ...] = (),
        classes: tuple[Object, ...] | None = None,
    ) -> list[Action]:
        found = (storage_class(is_default=True),) if classes is None else classes
        view = view_of(
            {
                PERSISTENT_VOLUME_CLAIMS: claims,
                PERSISTENT_VOLUMES: volumes,
                STORAGE_CLASSES: found,
                NODES: (node("me"), node("hollow-1", hollow="true"), node("far")),
            }
        )

        def answer(action: Action) -> Any:
            if isinstance(action, InThread):
                try:
                    action.work()
                except OSError as error:
                    return error
            return self.answer(action)

        return drive(self.provisioner.reconcile(key, view, 0.0), answer)[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def reasons(actions: list[Action]) -> list[str]:
    return [each.reason for each in actions if isinstance(each, Record)]


def test_a_claim_whose_node_is_chosen_gets_a_directory_and_a_volume(world: World) -> None:
    [made, create, told] = world.plan("claim/n/c", (claim(),))
    assert isinstance(made, InThread)
    assert isinstance(create, Create)
    assert reasons([told]) == ["ProvisioningSucceeded"]
    place = world.directories.root / NAME
    assert stat.S_IMODE(place.stat().st_mode) == 0o777
    assert stat.S_IMODE(world.directories.root.stat().st_mode) == 0o700
    spec = create.obj["spec"]
    assert spec["local"] == {"path": str(place)}
    assert spec["claimRef"]["uid"] == UID
    assert spec["capacity"] == {"storage": "1Gi"}
    term = spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]
    assert term == {"key": "kubernetes.io/hostname", "operator": "In", "values": ["me.h"]}
    # Twice is as once, also where the volume is there and not seen yet.
    (place / "kept").touch()
    world.answer = lambda action: refusal(409) if isinstance(action, Create) else {}
    assert reasons(world.plan("claim/n/c", (claim(),))) == []
    assert (place / "kept").exists()


def test_hollow_nodes_have_volumes_and_no_directories(world: World) -> None:
    actions = world.plan("claim/n/c", (claim("hollow-1"),))
    assert not any(isinstance(each, InThread) for each in actions)
    assert isinstance(actions[0], Create)
    assert not world.directories.root.exists()


@pytest.mark.parametrize("name", ["far", "gone"])
def test_another_node_is_chosen_again(world: World, name: str) -> None:
    told, update = world.plan("claim/n/c", (claim(name),))
    assert reasons([told]) == ["ProvisioningFailed"]
    assert isinstance(update, Update)
    assert list(update.obj["metadata"]["annotations"].values()) == [PROVISIONER]


@pytest.mark.parametrize(
    ("spec", "class_", "text"),
    [
        ({"accessModes": ["ReadWriteMany"]}, {}, "access mode ReadWriteMany"),
        ({"volumeMode": "Block"}, {}, "volumeMode Block"),
        ({"selector": {"matchLabels": {"a": "b"}}}, {}, "spec.selector"),
        ({"dataSourceRef": {"kind": "PersistentVolumeClaim"}}, {}, "spec.dataSourceRef"),
        ({}, {"parameters": {"path": "/etc"}}, "parameter path"),
        ({}, {"mountOptions": ["sync"]}, "mountOptions"),
        ({}, {"volumeBindingMode": "Immediate"}, "WaitForFirstConsumer"),
    ],
)
def test_what_a_directory_cannot_be_is_reported(
    world: World, spec: Object, class_: Object, text: str
) -> None:
    found = {**storage_class(is_default=True), **class_}
    [told] = world.plan("claim/n/c", (claim(**spec),), classes=(found,))
    assert isinstance(told, Record)
    assert told.reason == "ProvisioningFailed"
    assert text in told.message


def test_claims_that_are_not_to_be_provisioned_are_left_alone(world: World) -> None:
    others = claim()
    others["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"] = "x"
    deleted = claim()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    theirs = {**storage_class(is_default=True), "provisioner": "x"}
    assert world.plan("claim/n/c", (others,)) == []
    assert world.plan("claim/n/c", (deleted,)) == []
    assert world.plan("claim/n/c", (claim(""),)) == []
    assert world.plan("claim/n/c", (claim(),), classes=(theirs,)) == []
    assert world.plan("claim/n/c", (claim(),), (volume(Path("/x"), "Available"),)) == []
    assert world.plan("claim/n/c") == []


def test_a_directory_that_cannot_be_made_is_tried_again(world: World) -> None:
    world.directories.root.write_text("a file")
    with pytest.raises(ForeseenError, match=r"File exists|Not a directory"):
        world.plan("claim/n/c", (claim(),))


def test_a_released_volume_goes_with_its_directory(world: World) -> None:
    root = world.directories.root
    world.directories.make(NAME, 1 << 30)
    (root / NAME / "data").write_text("x")
    assert world.plan(f"volume/{NAME}", volumes=(volume(root, "Bound"),)) == []
    kept = volume(root, "Released", "Retain")
    assert world.plan(f"volume/{NAME}", volumes=(kept,)) == []
    assert (root / NAME / "data").exists()
    [_, delete] = world.plan(f"volume/{NAME}", volumes=(volume(root, "Released"),))
    assert isinstance(delete, Delete)
    assert not (root / NAME).exists()
    # Its object goes only then.
    going = volume(root, "Released", is_deleted=True)
    update = world.plan(f"volume/{NAME}", volumes=(going,))[-1]
    assert isinstance(update, Update)
    assert FINALIZER not in update.obj["metadata"]["finalizers"]


def test_a_volume_that_somebody_deletes_leaves_nothing_unless_it_is_retained(world: World) -> None:
    root = world.directories.root
    for policy, is_kept in (("Retain", True), ("Delete", False)):
        world.directories.make(NAME, 1 << 30)
        going = volume(root, "Available", policy, is_deleted=True)
        assert isinstance(world.plan(f"volume/{NAME}", volumes=(going,))[-1], Update)
        assert (root / NAME).exists() is is_kept
    bound = volume(root, "Bound", is_deleted=True)
    assert world.plan(f"volume/{NAME}", volumes=(bound,)) == []


@pytest.mark.parametrize(
    ("name", "path"),
    [(NAME, "/etc"), (NAME, "{root}/../pvc"), ("pvc-..", "{root}/pvc-.."), ("x", "{root}/x")],
)
def test_nothing_else_is_removed_whatever_a_volume_says(
    world: World, tmp_path: Path, name: str, path: str
) -> None:
    world.directories.make(NAME, 1 << 30)
    (tmp_path / "pvc").mkdir()
    (world.directories.root / "x").mkdir()
    forged = volume(world.directories.root, "Released")
    forged["metadata"]["name"] = name
    forged["spec"]["local"]["path"] = path.format(root=world.directories.root)
    assert reasons(world.plan(f"volume/{name}", volumes=(forged,))) == ["VolumeFailedDelete"]
    assert (world.directories.root / NAME).exists()
    assert (world.directories.root / "x").exists()
    assert (tmp_path / "pvc").exists()


def test_links_instead_of_directories_are_not_followed(world: World, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "kept").touch()
    world.directories.root.mkdir()
    (world.directories.root / NAME).symlink_to(outside)
    with pytest.raises(FileExistsError):
        world.directories.make(NAME, 1 << 30)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700
    world.directories.remove(NAME)
    assert (outside / "kept").exists()
    assert not os.path.lexists(world.directories.root / NAME)
    world.directories.remove(NAME)
    with pytest.raises(ValueError, match="the uid of its claim"):
        world.directories.make("../x", 1)


def test_a_claim_that_asks_for_more_gets_it(world: World) -> None:
    bound = claim(volumeName=NAME, resources={"requests": {"storage": "3Gi"}})
    bound["status"] = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
    here = volume(world.directories.root, "Bound")
    resize, first, second, told = world.plan("claim/n/c", (bound,), (here,))
    assert isinstance(resize, InThread)
    assert isinstance(first, Update)
    assert isinstance(second, Update)
    assert first.obj["spec"]["capacity"] == {"storage": "3Gi"}
    assert second.obj["status"] == {"phase": "Bound", "capacity": {"storage": "3Gi"}}
    assert reasons([told]) == ["VolumeResizeSuccessful"]
    smaller = {**bound, "spec": {**bound["spec"], "resources": {"requests": {"storage": "1Gi"}}}}
    assert world.plan("claim/n/c", (smaller,), (here,)) == []
    here["spec"]["claimRef"]["uid"] = "another"
    assert world.plan("claim/n/c", (bound,), (here,)) == []


def test_the_class_is_made_once_and_is_the_default_unless_there_is_one(world: World) -> None:
    [create] = world.plan("class", classes=())
    assert isinstance(create, Create)
    assert create.obj["metadata"]["annotations"]
    assert world.plan("class") == []
    other = {**storage_class(is_default=True), "metadata": {"name": "other"}}
    other["metadata"]["annotations"] = storage_class(is_default=True)["metadata"]["annotations"]
    [create] = world.plan("class", classes=(other,))
    assert isinstance(create, Create)
    assert "annotations" not in create.obj["metadata"]


STATEFUL_SET = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: db
        image: host
        command: [sh, -c, 'echo $HOSTNAME >> /data/starts; while :; do sleep 1; done']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      resources: {requests: {storage: 1Gi}}
"""


class User:
    """Somebody with kubectl."""

    def __init__(self, directory: Path, home: Path) -> None:
        self.file = directory / "kubernetes" / "admin.conf"
        self.home = home

    def does(self, *arguments: str) -> str:
        return kubectl(self.file, self.home, *arguments)

    def applies(self, text: str) -> None:
        file = self.home / "applied.yaml"
        file.write_text(text)
        self.does("apply", "-f", str(file))


def settled(found: Callable[[], bool], what: str) -> None:
    wait_for(found, what, WAIT_S)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces")
def test_a_stateful_set_with_claims_runs_at_once_and_its_data_outlive_its_pods(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "data"
    (api,) = free_ports(1)
    volumes = directory / "kubernetes" / "node" / "local-path"
    with up(directory, f"--secure-port={api}") as process:
        lines_of(process)
        user = User(directory, tmp_path)
        user.applies(STATEFUL_SET)
        user.does("rollout", "status", "statefulset/db", "--timeout=60s")
        user.does("delete", "pod", "db-0")
        user.does("rollout", "status", "statefulset/db", "--timeout=60s")
        user.does("wait", "pod/db-0", "--for=condition=Ready", "--timeout=60s")
        assert user.does("exec", "db-0", "--", "cat", "/data/starts") == "db-0\ndb-0\n"
        assert len(list(volumes.iterdir())) == 2
        body = json.dumps({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
        user.does("patch", "pvc", "data-db-0", "-p", body)
        grown = "--for=jsonpath={.status.capacity.storage}=2Gi"
        user.does("wait", "pvc/data-db-0", grown, "--timeout=60s")
        user.does("delete", "statefulset", "db")
        user.does("delete", "pvc", "--all", "--timeout=60s")
        user.does("wait", "pv", "--all", "--for=delete", "--timeout=60s")
        assert not list(volumes.iterdir())
    assert process.returncode == 0


@pytest.mark.e2e
@pytest.mark.slow
def test_hollow_nodes_run_pods_with_claims(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    (api,) = free_ports(1)
    with up(directory, f"--secure-port={api}", "--nodes=2", "--without=node") as process:
        lines_of(process)
        user = User(directory, tmp_path)
        user.applies(STATEFUL_SET)
        user.does("rollout", "status", "statefulset/db", "--timeout=60s")
        found = yaml.safe_load(user.does("get", "pv", "-o", "yaml"))["items"]
        assert {each["status"]["phase"] for each in found} == {"Bound"}
        user.does("delete", "statefulset", "db")
        user.does("delete", "pvc", "--all", "--timeout=60s")
        settled(lambda: not user.does("get", "pv", "-o", "name"), "volumes are left")
    assert not (directory / "kubernetes" / "node" / "local-path").exists()
