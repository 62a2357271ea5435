"""Pods of the machine's own files through an API server, under the standards of Pod Security."""

import os
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from kvstack.agents.kubelet.runtime.process import features
from kvstack.agents.kubelet.runtime.process.host_image import NOBODY
from kvstack.agents.kubelet.runtime.process.user_ids import FIRST
from kvstack.apimachinery.objects.status import ApiError
from tests.agents.kubelet.test_kubelet import Node, log_of, pod, pytestmark, reach, run
from tests.agents.support.cluster import TestCluster, eventually

__all__ = ["pytestmark"]

needs_users = pytest.mark.skipif(
    bool(features.user_namespaces() or features.idmapped_mounts(Path("/"))),
    reason=f"needs user namespaces: {features.user_namespaces()}",
)
STRICT = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


async def in_space(
    cluster: TestCluster, here: Node, level: str, name: str, script: str, **spec: Any
) -> str:
    """Run a pod to its end in the namespace of a level; return what it wrote."""
    await cluster.admin.create(PODS, level, pod(name, script, **spec))
    store = cluster.informers.of(PODS).store

    def ended() -> Any:
        obj = store.get(f"{level}/{name}")
        phase = obj["status"].get("phase") if obj is not None else ""
        return obj if phase in ("Succeeded", "Failed") else None

    obj = await eventually(ended)
    return log_of(here, obj)


@needs_users
def test_no_standard_lets_a_pod_at_the_machine(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        for level in ("privileged", "baseline", "restricted"):
            labels = {"pod-security.kubernetes.io/enforce": level}
            await cluster.admin.create(
                NAMESPACES, "", {"metadata": {"name": level, "labels": labels}}
            )
            await cluster.admin.create(SERVICE_ACCOUNTS, level, {"metadata": {"name": "default"}})
        script = (
            "id -u; head -1 /proc/self/uid_map | awk '{print ($2 > 1000000)}';"
            f"cat /etc/shadow /etc/gshadow {cluster_key(tmp_path)} 2>/dev/null;"
            "touch /etc/x /usr/bin/x 2>/dev/null || echo no; kill -9 $PARENT 2>/dev/null || echo no"
        )
        env = {"env": [{"name": "PARENT", "value": str(os.getpid())}]}
        for level, context, user in (
            ("privileged", {}, 0),
            ("privileged", {"privileged": True}, 0),
            ("privileged", {"runAsUser": 0}, 0),
            ("baseline", {}, 0),
            ("baseline", {"runAsUser": NOBODY}, NOBODY),
            ("restricted", {**STRICT, "runAsUser": NOBODY}, NOBODY),
        ):
            name = f"pod-{level}-{len(context)}-{user}-{'privileged' in context}".lower()
            container = {**env, "securityContext": context}
            text = await in_space(cluster, here, level, name, script, container=container)
            assert text == f"{user}\n1\nno\nno\n", (level, context)
        for level, more in (
            ("baseline", {"hostNetwork": True}),
            ("baseline", {"hostPID": True}),
            ("baseline", {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
            ("restricted", {}),
        ):
            with pytest.raises(ApiError, match="violates PodSecurity"):
                await cluster.admin.create(PODS, level, pod("not", "true", **more))

    run(tmp_path, story)


def cluster_key(directory: Path) -> Path:
    return directory / "sa.key"


@needs_users
def test_volumes_are_the_pods_own(tmp_path: Path) -> None:
    """What the kubelet and an administrator give a pod is its root's, and what it names is not."""

    async def story(cluster: TestCluster, here: Node) -> None:
        node = await cluster.admin.get(NODES, "", "node-a")
        (handler,) = node["status"]["runtimeHandlers"]
        assert handler["features"]["userNamespaces"] is True
        (tmp_path / "local").mkdir(mode=0o700)
        (tmp_path / "named").mkdir(mode=0o700)
        await cluster.admin.create(
            CONFIG_MAPS, "default", {"metadata": {"name": "m"}, "data": {"a": "map"}}
        )
        await cluster.admin.create(
            SECRETS, "default", {"metadata": {"name": "s"}, "stringData": {"a": "secret"}}
        )
        size: dict[str, Any] = {"storage": "1Mi"}
        await cluster.admin.create(
            PERSISTENT_VOLUMES,
            "",
            {
                "metadata": {"name": "pv"},
                "spec": {
                    "capacity": size,
                    "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": str(tmp_path / "local")},
                },
            },
        )
        claim = await cluster.admin.create(
            PERSISTENT_VOLUME_CLAIMS,
            "default",
            {
                "metadata": {"name": "claim"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": size},
                    "volumeName": "pv",
                    "storageClassName": "",
                },
            },
        )
        bound = {**claim, "status": {"phase": "Bound"}}
        await cluster.admin.update(PERSISTENT_VOLUME_CLAIMS, bound, subresource="status")
        sources = [{"downwardAPI": {"items": [{"path": "d", "fieldRef": {"fieldPath": NAME}}]}}]
        volumes = [
            {"name": "disk", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
            {"name": "map", "configMap": {"name": "m", "defaultMode": 0o400}},
            {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o400}},
            {"name": "projected", "projected": {"sources": sources}},
            {"name": "claimed", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "named", "hostPath": {"path": str(tmp_path / "named")}},
        ]
        mounts = [{"name": each["name"], "mountPath": f"/v/{each['name']}"} for each in volumes]
        mounts.append({"name": "disk", "mountPath": "/v/sub", "subPath": "sub"})
        script = (
            "cd /v; cat map/a secret/a projected/d; echo; for each in disk memory claimed sub; do"
            " echo x > $each/file && chown 7 $each/file && echo $each; done;"
            "touch named/x 2>/dev/null || echo no; cat /etc/resolv.conf /etc/hosts > /dev/null;"
            "echo 127.0.0.1 me >> /etc/hosts && echo hosts; echo end > /dev/termination-log"
        )
        obj = pod("all", script, container={"volumeMounts": mounts}, volumes=volumes)
        await cluster.admin.create(PODS, "default", obj)
        done = await reach(cluster, "all", "Succeeded")
        assert log_of(here, done) == ("mapsecretall\ndisk\nmemory\nclaimed\nsub\nno\nhosts\n")
        (status,) = done["status"]["containerStatuses"]
        assert status["state"]["terminated"]["message"] == "end\n"
        assert status["user"]["linux"]["uid"] == 0
        assert (tmp_path / "local" / "file").stat().st_uid == 7
        layers = list((tmp_path / "node" / "pods").glob("*/containers/c/0/layer/upper"))
        assert layers[0].stat().st_uid >= FIRST

    run(tmp_path, story)


NAME = "metadata.name"
