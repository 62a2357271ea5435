"""A kubelet that runs processes, against an API server. It needs root and namespaces."""

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typing_extensions import override

from kvstack.agents.client.built_in import (
    CLUSTER_TRUST_BUNDLES,
    CONFIG_MAPS,
    EVENTS,
    NODES,
    POD_CERTIFICATE_REQUESTS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from kvstack.agents.kubelet.disk import mount_table
from kvstack.agents.kubelet.kubelet import Kubelet
from kvstack.agents.kubelet.node import node
from kvstack.agents.kubelet.options import KubeletOptions
from kvstack.agents.kubelet.runtime import selinux
from kvstack.agents.kubelet.runtime.cgroups import ROOT as CGROUPS
from kvstack.agents.kubelet.runtime.process.images import Images
from kvstack.agents.kubelet.runtime.process.options import ProcessOptions
from kvstack.agents.kubelet.runtime.process.process_runtime import ProcessRuntime
from kvstack.agents.kubelet.server import metrics
from kvstack.agents.kubelet.static.static_pods import StaticSettings
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import pem
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.certs.certificates import new_authority
from kvstack.component.clock import SystemClock
from tests.agents.support.cluster import TestCluster, eventually, stored_object
from tests.agents.support.namespaces import has_namespaces
from tests.support.waiting import answered

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
]


class FastClock(SystemClock):
    """A clock that may be put forward."""

    ahead_s = 0.0

    @override
    def now_s(self) -> float:
        return super().now_s() + self.ahead_s


class Node:
    """A node with its runtime."""

    def __init__(self, cluster: TestCluster, directory: Path) -> None:
        self.clock = FastClock()
        images = Images(directory / "images", has_host=True)
        root = directory / "node"
        root.mkdir(exist_ok=True)
        self.runtime = ProcessRuntime(
            ProcessOptions(root),
            images,
            cluster.clock,
            lambda uid: self.kubelet.container_ended(uid),
        )
        self._cluster = cluster
        self._machine = node.look(directory)
        self.options = KubeletOptions(
            "node-a",
            "127.0.0.1",
            root,
            static=StaticSettings(directory / "manifests"),
            static_every_s=0.2,
        )
        self.kubelet = self.new_kubelet()

    def new_kubelet(self) -> Kubelet:
        """Return a kubelet that knows nothing yet."""
        return Kubelet(
            self._cluster.admin,
            self.runtime,
            self._machine,
            self.clock,
            lambda: 0.5,
            self._cluster.log,
            self.options,
        )

    async def stop(self) -> None:
        await self.kubelet.stop()
        await self.runtime.close()


def run(directory: Path, story: Callable[[TestCluster, Node], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with TestCluster(directory) as cluster:
            await cluster.admin.create(
                SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default"}}
            )
            here = Node(cluster, directory)
            await here.runtime.open()
            await here.kubelet.start()
            try:
                await story(cluster, here)
            finally:
                await here.stop()
            assert not cluster.log.of("error")

    asyncio.run(main())


def pod(name: str, script: str, *, policy: str = "Never", **spec: Any) -> Object:
    container = {
        "name": "c",
        "image": "host",
        "command": ["sh", "-c", script],
        **spec.pop("container", {}),
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "nodeName": "node-a",
            "restartPolicy": policy,
            "automountServiceAccountToken": False,
            "containers": [container],
            **spec,
        },
    }


async def reach(cluster: TestCluster, name: str, phase: str) -> Object:
    store = cluster.informers.of(PODS).store

    def reached_pod() -> Object | None:
        obj = store.get(f"default/{name}")
        return obj if obj is not None and obj["status"].get("phase") == phase else None

    done: Object = await eventually(reached_pod)
    return done


def log_of(here: Node, obj: Object, name: str = "c") -> str:
    containers = here.runtime.of_pod(obj["metadata"]["uid"])
    last = [each for each in containers if each.name == name][-1]
    lines = last.log.read_text().splitlines()
    return "".join(line.split(" ", 3)[3] + "\n" for line in lines)


def test_a_pod_runs_to_its_end(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        ready = await cluster.admin.get(NODES, "", "node-a")
        assert ready["status"]["nodeInfo"]["containerRuntimeVersion"] == "process://1.0"
        script = "echo hello $WHO; hostname; echo $$$$; echo done > /dev/termination-log"
        env = [{"name": "WHO", "value": "world"}]
        await cluster.admin.create(PODS, "default", pod("job", script, container={"env": env}))
        job = await reach(cluster, "job", "Succeeded")
        assert log_of(here, job) == "hello world\njob\n1\n"
        (status,) = job["status"]["containerStatuses"]
        ended = status["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
        assert ended["message"] == "done\n"
        assert status["containerID"].startswith("process://")
        await cluster.admin.create(PODS, "default", pod("bad", "exit 3"))
        bad = await reach(cluster, "bad", "Failed")
        ended = bad["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (3, "Error")
        events = cluster.informers.of(EVENTS).store
        await eventually(lambda: {"Created", "Started"} <= {each["reason"] for each in events})

    run(tmp_path, story)


def test_labels_of_selinux_are_ignored_only_where_there_is_none(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        context = {"seLinuxOptions": {"level": "s0:c1,c2"}}
        container = {"securityContext": context}
        obj = pod("web", "true", container=container, securityContext=context)
        await cluster.admin.create(PODS, "default", obj)
        phase = "Failed" if selinux.is_enabled() else "Succeeded"
        done = await reach(cluster, "web", phase)
        assert (done["status"].get("reason") == "PodFeatureUnsupported") is selinux.is_enabled()

    run(tmp_path, story)


def test_init_containers_and_volumes(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        await cluster.admin.create(
            CONFIG_MAPS, "default", {"metadata": {"name": "settings"}, "data": {"a": "1"}}
        )
        volumes = [
            {"name": "work", "emptyDir": {}},
            {"name": "settings", "configMap": {"name": "settings"}},
        ]
        mounts = [
            {"name": "work", "mountPath": "/work-dir"},
            {"name": "settings", "mountPath": "/etc/settings"},
        ]
        init = {
            "name": "first",
            "image": "host",
            "command": ["sh", "-c", "echo made > /work-dir/x"],
            "volumeMounts": mounts,
        }
        script = "cat /work-dir/x /etc/settings/a; ls /etc/settings"
        obj = pod(
            "two",
            script,
            container={"volumeMounts": mounts},
            volumes=volumes,
            initContainers=[init],
        )
        await cluster.admin.create(PODS, "default", obj)
        done = await reach(cluster, "two", "Succeeded")
        assert log_of(here, done) == "made\n1a\n"
        (first,) = done["status"]["initContainerStatuses"]
        assert first["state"]["terminated"]["reason"] == "Completed"
        assert "work-dir" not in os.listdir("/")
        directory = here.kubelet.pod_directory(done["metadata"]["uid"])
        await eventually(lambda: not (directory / "volumes").exists())
        assert log_of(here, done) == "made\n1a\n"

    run(tmp_path, story)


def test_nothing_of_a_pod_outlives_its_object(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        secret = {"metadata": {"name": "held"}, "data": {"a": "MQ=="}}
        await cluster.admin.create(SECRETS, "default", secret)
        obj = pod(
            "web",
            "sleep 1000",
            container={"volumeMounts": [{"name": "held", "mountPath": "/held"}]},
            volumes=[{"name": "held", "secret": {"secretName": "held"}}],
        )
        await cluster.admin.create(PODS, "default", obj)
        web = await reach(cluster, "web", "Running")
        uid = web["metadata"]["uid"]

        def left() -> list[str]:
            volumes = here.kubelet.pod_directory(uid) / "volumes"
            # Groups of other tests come and go meanwhile, which a walk does not mind.
            walks = (os.walk(each) for each in CGROUPS.glob("*/kubepods"))
            groups = [path for walk in walks for path, _, _ in walk if path.endswith(f"/pod{uid}")]
            return [*map(str, mount_table.points_below(volumes)), *groups]

        assert len(left()) >= (2 if here.runtime.cgroups.is_usable else 1)
        found: list[list[str]] = []
        cluster.informers.of(PODS).on_change(
            lambda _old, new: None if new else found.append(left())
        )
        await cluster.admin.delete(PODS, "default", "web", grace_s=1)
        await eventually(lambda: found)
        assert found == [[]]

    run(tmp_path, story)


def test_a_pod_that_is_deleted_ends_in_order(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        await cluster.admin.create(PODS, "default", pod("web", script, policy="Always"))
        web = await reach(cluster, "web", "Running")
        await eventually(lambda: log_of(here, web) == "up\n")
        session = await here.runtime.exec(
            here.runtime.of_pod(web["metadata"]["uid"])[0].id, ["hostname"], tty=False
        )
        assert await session.read() == (1, b"web\n")
        assert await session.wait() == 0
        session.close()
        store = cluster.informers.of(PODS).store
        phases = set()
        cluster.informers.of(PODS).on_change(
            lambda _old, new: phases.add(new["status"]["phase"]) if new else None
        )
        await cluster.admin.delete(PODS, "default", "web", grace_s=20)
        await eventually(lambda: store.get("default/web") is None)
        assert "Succeeded" in phases
        await eventually(lambda: not here.runtime.of_pod(web["metadata"]["uid"]))

    run(tmp_path, story)


def test_what_cannot_be_started_waits_and_what_is_not_supported_is_refused(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        admin, store = cluster.admin, cluster.informers.of(PODS).store
        await admin.create(PODS, "default", pod("none", "", container={"image": "nginx"}))

        def waits() -> str:
            statuses = stored_object(store, "default/none")["status"].get("containerStatuses") or [
                {}
            ]
            return (statuses[0].get("state") or {}).get("waiting", {}).get("message", "")

        await eventually(lambda: store.get("default/none") is not None)
        message = await eventually(waits)
        assert message.startswith('image "nginx:latest" is not in this node\'s image store')
        security = {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}
        await admin.create(PODS, "default", pod("root", "true", container=security))
        refused = await reach(cluster, "root", "Failed")
        assert refused["status"]["reason"] == "PodFeatureUnsupported"

    run(tmp_path, story)


def test_pods_of_a_kubelet_that_ended_run_again_or_have_failed(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        script = "while :; do sleep 0.05; done"
        await cluster.admin.create(PODS, "default", pod("web", script, policy="Always"))
        await cluster.admin.create(PODS, "default", pod("job", script))
        await reach(cluster, "web", "Running")
        await reach(cluster, "job", "Running")
        # The kubelet first, so that nobody tells how the containers ended.
        await here.stop()
        again = Node(cluster, tmp_path)
        await again.runtime.open()
        await again.kubelet.start()
        try:
            job = await reach(cluster, "job", "Failed")
            ended = job["status"]["containerStatuses"][0]["state"]["terminated"]
            assert (ended["exitCode"], ended["reason"]) == (137, "Error")
            store = cluster.informers.of(PODS).store

            def restarted() -> bool:
                (status,) = stored_object(store, "default/web")["status"]["containerStatuses"]
                return status["restartCount"] == 1 and "running" in status["state"]

            await eventually(restarted)
        finally:
            await again.stop()

    run(tmp_path, story)


def test_a_container_of_another_user_is_killed_with_all_its_processes(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        script = "id -u; sleep 1000 & sleep 1000"
        security = {"securityContext": {"runAsUser": 1234, "runAsGroup": 1234}}
        obj = pod("user", script, container=security, terminationGracePeriodSeconds=0)
        await cluster.admin.create(PODS, "default", obj)
        user = await reach(cluster, "user", "Running")
        await eventually(lambda: log_of(here, user) == "1234\n")
        (found,) = here.runtime.of_pod(user["metadata"]["uid"])
        await here.runtime.stop(found.id, 0.05)
        assert (found.exit_code, found.reason) == (137, "Error")

    run(tmp_path, story)


def test_probes_decide_on_readiness_and_life(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        def probe(path: str) -> Object:
            command = ["sh", "-c", f"test -e {path}"]
            return {"exec": {"command": command}, "periodSeconds": 1, "failureThreshold": 1}

        container = {
            "startupProbe": {**probe("/begun"), "failureThreshold": 100},
            "readinessProbe": probe("/ready"),
            "livenessProbe": probe("/begun"),
        }
        script = "touch /begun; trap 'exit 0' TERM; while :; do sleep 0.05; done"
        obj = pod("probed", script, policy="Always", container=container)
        await cluster.admin.create(PODS, "default", obj)
        store = cluster.informers.of(PODS).store

        def status() -> Object:
            found = (store.get("default/probed") or {}).get("status", {})
            return (found.get("containerStatuses") or [{}])[0]

        await eventually(lambda: status().get("started"))
        assert not status()["ready"]
        uid = stored_object(store, "default/probed")["metadata"]["uid"]
        first = here.runtime.of_pod(uid)[0]
        session = await here.runtime.exec(first.id, ["touch", "/ready"], tty=False)
        await session.wait()
        session.close()
        await eventually(lambda: status()["ready"])
        session = await here.runtime.exec(first.id, ["rm", "/begun"], tty=False)
        await session.wait()
        session.close()
        await eventually(lambda: status()["restartCount"] == 1)
        events = cluster.informers.of(EVENTS).store
        text = "Container c failed liveness probe, will be restarted"
        await eventually(lambda: text in {each["message"] for each in events})
        page = metrics.probe_metrics(here.kubelet)
        assert 'prober_probe_total{probe_type="Readiness",result="successful"' in page
        assert 'prober_probe_duration_seconds_bucket{probe_type="Liveness"' in page
        await cluster.admin.delete(PODS, "default", "probed", grace_s=0)
        prober = here.kubelet.prober
        await eventually(lambda: not prober.counts and not prober.durations)

    run(tmp_path, story)


def test_a_container_that_crashes_starts_again(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        await cluster.admin.create(PODS, "default", pod("crash", "exit 1", policy="Always"))
        store = cluster.informers.of(PODS).store

        def waiting() -> Object | None:
            obj = store.get("default/crash") or {"status": {}}
            for each in obj["status"].get("containerStatuses") or ():
                if each["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff":
                    return each
            return None

        status = await eventually(waiting)
        assert status["restartCount"] == 1
        assert status["state"]["waiting"]["message"].startswith("back-off 10s restarting failed")
        assert status["lastState"]["terminated"]["exitCode"] == 1
        assert stored_object(store, "default/crash")["status"]["phase"] == "Running"

    run(tmp_path, story)


def test_hooks_of_a_container(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        def hook(text: str) -> Object:
            return {"exec": {"command": ["sh", "-c", f"echo {text} >> /shared/story"]}}

        script = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
        container = {
            "lifecycle": {"postStart": hook("begun"), "preStop": hook("ending")},
            "volumeMounts": [{"name": "v", "mountPath": "/shared"}],
        }
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o777)  # root of the pod is not root of the machine
        volumes = [{"name": "v", "hostPath": {"path": str(shared)}}]
        obj = pod("hooked", script, policy="Always", container=container, volumes=volumes)
        await cluster.admin.create(PODS, "default", obj)
        await reach(cluster, "hooked", "Running")
        failing = {"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}}
        bad = pod("bad", script.replace("exit 0", "exit 9"), container=failing)
        await cluster.admin.create(PODS, "default", bad)
        await reach(cluster, "bad", "Failed")
        events = cluster.informers.of(EVENTS).store
        await eventually(lambda: "FailedPostStartHook" in {each["reason"] for each in events})
        await cluster.admin.delete(PODS, "default", "hooked", grace_s=20)
        store = cluster.informers.of(PODS).store
        await eventually(lambda: store.get("default/hooked") is None)
        assert (shared / "story").read_text() == "begun\nending\n"

    run(tmp_path, story)


def test_volumes_that_change_and_volumes_that_are_missing(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        admin = cluster.admin
        volumes = [{"name": "m", "configMap": {"name": "late"}}]
        container = {"volumeMounts": [{"name": "m", "mountPath": "/m"}]}
        script = "while :; do sleep 0.05; done"
        obj = pod("web", script, policy="Always", container=container, volumes=volumes)
        await admin.create(PODS, "default", obj)
        events = cluster.informers.of(EVENTS).store
        text = 'MountVolume.SetUp failed for volume "m" : configmap "late" not found'
        await eventually(lambda: text in {each["message"] for each in events})
        found = {"metadata": {"name": "late"}, "data": {"a": "1"}}
        made = await admin.create(CONFIG_MAPS, "default", found)
        web = await reach(cluster, "web", "Running")

        async def inside(path: str) -> bytes:
            (running,) = here.runtime.of_pod(web["metadata"]["uid"])
            session = await here.runtime.exec(running.id, ["cat", path], tty=False)
            try:
                return (await session.read())[1]
            finally:
                session.close()

        assert await inside("/m/a") == b"1"
        await admin.update(CONFIG_MAPS, {**made, "data": {"a": "2"}})
        place = here.kubelet.pod_directory(web["metadata"]["uid"])
        file = place / "volumes/kubernetes.io~configmap/m/a"
        await eventually(lambda: file.read_text() == "2")  # long before a minute is over
        assert await inside("/m/a") == b"2"
        # One that is deleted is shown on, and one that comes again is shown anew.
        await admin.delete(CONFIG_MAPS, "default", "late")
        await admin.create(CONFIG_MAPS, "default", {**found, "data": {"a": "3"}})
        await eventually(lambda: file.read_text() == "3")

    run(tmp_path, story)


def test_objects_are_watched_as_long_as_pods_show_them(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        admin = cluster.admin
        for name, more in (("plain", {}), ("fixed", {"immutable": True})):
            found = {"metadata": {"name": name}, "data": {"a": "1"}, **more}
            await admin.create(CONFIG_MAPS, "default", found)
        volumes = [{"name": each, "configMap": {"name": each}} for each in ("plain", "fixed")]
        for name in ("one", "two"):
            obj = pod(name, "exec sleep 1000", policy="Always", volumes=volumes)
            await admin.create(PODS, "default", obj)
        for name in ("one", "two"):
            await reach(cluster, name, "Running")

        def watches() -> list[str]:
            names = (each.get_name() for each in asyncio.all_tasks())
            return [each for each in names if each.startswith("watch of ConfigMap/")]

        await eventually(lambda: watches() == ["watch of ConfigMap/default/plain"])
        await admin.delete(PODS, "default", "one", grace_s=0)
        store = cluster.informers.of(PODS).store
        await eventually(lambda: store.get("default/one") is None)
        assert watches() == ["watch of ConfigMap/default/plain"]
        await admin.delete(PODS, "default", "two", grace_s=0)
        await eventually(lambda: not watches())

    run(tmp_path, story)


def trust_bundle(name: str, pem: bytes, **labels: str) -> Object:
    signer = name.rpartition(":")[0].replace(":", "/")
    spec = {"trustBundle": pem.decode(), **({"signerName": signer} if signer else {})}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def test_volumes_show_trust_bundles(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        admin = cluster.admin
        one, two = (new_authority(name, here.clock.now_s()).cert for name in ("one", "two"))
        for made in (
            trust_bundle("roots", b"a comment\n" + one),
            trust_bundle("example.com:x:a", one, live="yes"),
            trust_bundle("example.com:x:b", two, live="yes"),
            trust_bundle("example.com:x:c", two, live="no"),
        ):
            await admin.create(CLUSTER_TRUST_BUNDLES, "", made)
        selector = {"matchLabels": {"live": "yes"}}
        signed = {"signerName": "example.com/x", "labelSelector": selector}
        sources = [
            {"name": "roots", "path": "named"},
            {**signed, "path": "selected"},
            {"signerName": "example.com/x", "path": "none", "optional": True},
            {"name": "later", "path": "later"},
        ]
        projected = {"sources": [{"clusterTrustBundle": each} for each in sources]}
        volumes = [{"name": "p", "projected": projected}]
        obj = pod("web", "exec sleep 1000", policy="Always", volumes=volumes)
        await admin.create(PODS, "default", obj)
        events = cluster.informers.of(EVENTS).store
        text = 'no ClusterTrustBundle "later" was found'
        await eventually(lambda: any(text in each["message"] for each in events))
        await admin.create(CLUSTER_TRUST_BUNDLES, "", trust_bundle("later", two))
        web = await reach(cluster, "web", "Running")
        place = here.kubelet.pod_directory(web["metadata"]["uid"])
        place /= "volumes/kubernetes.io~projected/p"
        assert (place / "named").read_bytes() == one
        assert set(pem_blocks((place / "selected").read_bytes())) == set(pem_blocks(one + two))
        assert (place / "none").read_bytes() == b""
        assert (place / "later").read_bytes() == two
        found = await admin.get(CLUSTER_TRUST_BUNDLES, "", "later")
        found["spec"]["trustBundle"] = one.decode()
        await admin.update(CLUSTER_TRUST_BUNDLES, found)
        await eventually(lambda: (place / "later").read_bytes() == one)

    run(tmp_path, story)


def pem_blocks(data: bytes) -> list[bytes]:
    return [each.content for each in pem.blocks(data)]


class Signer:
    """Answers requests for certificates of pods."""

    NAME = "example.com/pods"

    def __init__(self, cluster: TestCluster) -> None:
        self.cluster = cluster
        self.key = ec.generate_private_key(ec.SECP256R1())

    async def requests(self) -> list[Object]:
        found: list[Object] = await self.cluster.admin.list_all(POD_CERTIFICATE_REQUESTS)
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    async def unanswered(self) -> Object:
        async def first() -> Object | None:
            for each in await self.requests():
                if not (each.get("status") or {}).get("conditions"):
                    return each
            return None

        return await answered(first)

    async def sign(self, request: Object) -> None:
        stub = x509.load_der_x509_csr(base64.b64decode(request["spec"]["stubPKCS10Request"]))
        begin = datetime.now(UTC).replace(microsecond=0)
        end = begin + timedelta(hours=24)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pod")])
        leaf = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(stub.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .sign(self.key, hashes.SHA256())
        )
        times = {"notBefore": begin, "notAfter": end, "beginRefreshAt": begin + REFRESH}
        status = {
            "certificateChain": leaf.public_bytes(serialization.Encoding.PEM).decode(),
            **{name: f"{each:%Y-%m-%dT%H:%M:%SZ}" for name, each in times.items()},
        }
        await self.answer(request, "Issued", **status)

    async def answer(self, request: Object, kind: str, **status: Any) -> None:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        condition = {"type": kind, "status": "True", "reason": "Because", "message": "of this"}
        status["conditions"] = [{**condition, "lastTransitionTime": now}]
        await self.cluster.admin.update(
            POD_CERTIFICATE_REQUESTS, {**request, "status": status}, subresource="status"
        )


REFRESH = timedelta(minutes=15)


def certified(name: str, **source: Any) -> Object:
    asked = {"signerName": Signer.NAME, "keyType": "ECDSAP256", **source}
    volumes = [{"name": "p", "projected": {"sources": [{"podCertificate": asked}]}}]
    return pod(name, "exec sleep 1000", policy="Always", volumes=volumes)


def test_volumes_show_certificates_that_a_signer_gives(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        signer = Signer(cluster)
        paths = {"credentialBundlePath": "all", "keyPath": "key", "certificateChainPath": "chain"}
        obj = certified("web", userAnnotations={"example.com/a": "b"}, **paths)
        await cluster.admin.create(PODS, "default", obj)
        request = await asyncio.wait_for(signer.unanswered(), 20)
        spec = request["spec"]
        assert (spec["podName"], spec["nodeName"]) == ("web", "node-a")
        assert spec["unverifiedUserAnnotations"] == {"example.com/a": "b"}
        await signer.sign(request)
        web = await reach(cluster, "web", "Running")
        place = here.kubelet.pod_directory(web["metadata"]["uid"])
        place /= "volumes/kubernetes.io~projected/p"
        first = (place / "all").read_bytes()
        assert first == (place / "key").read_bytes() + (place / "chain").read_bytes()
        assert is_pair(first)
        # The next one has another key, and until it is signed the first one stays.
        here.clock.ahead_s += REFRESH.total_seconds() + 1.0
        await here.kubelet.renew_volumes(here.kubelet.pod("default", "web") or {})
        second = await asyncio.wait_for(signer.unanswered(), 20)
        assert second["spec"]["stubPKCS10Request"] != spec["stubPKCS10Request"]
        assert (place / "all").read_bytes() == first
        here.clock.ahead_s = 0.0  # or the next one would be due at once, too
        await signer.sign(second)
        await eventually(lambda: (place / "all").read_bytes() != first)
        assert is_pair((place / "all").read_bytes())
        assert len(await signer.requests()) == 2

    run(tmp_path, story)


def is_pair(bundle: bytes) -> bool:
    """Whether a key stands before the certificate of its public half."""
    key, leaf = pem_blocks(bundle)
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    own = serialization.load_der_private_key(key, None).public_key().public_bytes(*form)
    return own == x509.load_der_x509_certificate(leaf).public_key().public_bytes(*form)


def test_certificates_that_are_refused_are_reported(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        signer = Signer(cluster)
        events = cluster.informers.of(EVENTS).store

        async def reported(text: str) -> None:
            await eventually(lambda: any(text in event["message"] for event in events))

        await cluster.admin.create(PODS, "default", certified("web", keyPath="key"))
        for kind in ("Failed", "Denied"):
            request = await asyncio.wait_for(signer.unanswered(), 40)
            await signer.answer(request, kind)
            text = f"{kind}: Because: of this"
            await reported(text)
            here.clock.ahead_s += 11.0  # as long as another request waits
        assert len(await signer.requests()) == 2
        assert here.kubelet.pod("default", "web") is not None

    run(tmp_path, story)


def test_volumes_follow_labels_and_annotations_of_their_pod(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        items = [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
        ]
        volumes = [
            {"name": "d", "downwardAPI": {"items": items}},
            {"name": "p", "projected": {"sources": [{"downwardAPI": {"items": items}}]}},
        ]
        obj = pod("web", "exec sleep 1000", policy="Always", volumes=volumes)
        obj["metadata"] |= {"labels": {"a": "1"}, "annotations": {"note": "before"}}
        await cluster.admin.create(PODS, "default", obj)
        web = await reach(cluster, "web", "Running")
        root = here.kubelet.pod_directory(web["metadata"]["uid"]) / "volumes"
        places = [root / "kubernetes.io~downward-api/d", root / "kubernetes.io~projected/p"]

        def files_shown() -> set[tuple[str, str]]:
            return {((each / "labels").read_text(), (each / "note").read_text()) for each in places}

        assert files_shown() == {('a="1"', "before")}
        body = b'{"metadata": {"labels": {"a": "2"}, "annotations": {"note": "after"}}}'
        path = PODS.path("default", "web")
        await cluster.admin.call("PATCH", path, None, body, media_type=STRATEGIC_MERGE_PATCH)
        await eventually(lambda: files_shown() == {('a="2"', "after")}, within_s=20.0)

    run(tmp_path, story)


def test_a_pod_that_the_node_evicts(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        await cluster.admin.create(PODS, "default", pod("web", "sleep 1000", policy="Always"))
        web = await reach(cluster, "web", "Running")
        here.kubelet.end(web["metadata"]["uid"], "Evicted", "too much", 1.0, disrupts=True)
        failed = await reach(cluster, "web", "Failed")
        assert (failed["status"]["reason"], failed["status"]["message"]) == ("Evicted", "too much")
        conditions = {each["type"]: each for each in failed["status"]["conditions"]}
        assert conditions["DisruptionTarget"]["reason"] == "TerminationByKubelet"
        assert conditions["Ready"]["reason"] == "PodFailed"

    run(tmp_path, story)


def test_static_pods_and_their_mirrors(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node) -> None:
        manifests = tmp_path / "manifests"
        (manifests / "web.yaml").write_text(
            "metadata: {name: web}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n"
            '  - {name: c, image: host, command: [sleep, "1000"]}\n'
        )
        mirror = await reach(cluster, "web-node-a", "Running")
        assert mirror["metadata"]["ownerReferences"][0]["kind"] == "Node"
        uid = mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"]
        assert here.runtime.of_pod(uid)[0].is_running
        await cluster.admin.delete(PODS, "default", "web-node-a", grace_s=0)
        store = cluster.informers.of(PODS).store

        def is_new() -> bool:
            found = store.get("default/web-node-a")
            return found is not None and found["metadata"]["uid"] != mirror["metadata"]["uid"]

        await eventually(is_new)
        (manifests / "web.yaml").unlink()
        await eventually(lambda: store.get("default/web-node-a") is None)
        await eventually(lambda: not here.runtime.of_pod(uid))

    (tmp_path / "manifests").mkdir()
    run(tmp_path, story)


def test_a_kubelet_that_was_killed_finds_its_containers_again(tmp_path: Path) -> None:
    """Its program is another process, which is killed; containers that may live on do."""
    root, images = tmp_path / "node", tmp_path / "images"
    root.mkdir()
    program = (
        "import asyncio, sys; from pathlib import Path\n"
        "from kvstack.component.clock import SystemClock\n"
        "from kvstack.agents.kubelet.runtime.process.images import Images\n"
        "from kvstack.agents.kubelet.runtime.process.process_runtime import *\n"
        "async def main(root, ends):\n"
        "    root, state = Path(root), Path(root, 'run')\n"
        "    options = ProcessOptions(root, ends_with_node=ends == 'ends', state=state)\n"
        "    images = Images(root, has_host=True)\n"
        "    runtime = ProcessRuntime(options, images, SystemClock(), lambda uid: None)\n"
        "    await runtime.open()\n"
        "    sandbox = Sandbox('uid-' + ends, 'p', 'n', 'h', str(root / 'logs'))\n"
        "    await runtime.make_sandbox(sandbox)\n"
        "    config = ContainerConfig(sandbox, 'c', 0, 'host', command=['sleep', '1000'])\n"
        "    await runtime.make_sandbox(sandbox)\n"
        "    await runtime.start(config)\n"
        "    print('started', flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )
    for ends in ("ends", "lives"):
        (root / "pods" / f"uid-{ends}").mkdir(parents=True)
        command = [sys.executable, "-c", program, str(root), ends]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as node:
            assert node.stdout is not None
            assert node.stdout.readline() == b"started\n"
            node.kill()

    async def main() -> None:
        runtime = ProcessRuntime(
            ProcessOptions(root, ends_with_node=False, state=root / "run"),
            Images(images, has_host=True),
            SystemClock(),
            lambda _uid: None,
        )
        await runtime.open()
        try:
            assert runtime.has_sandbox("uid-lives")
            assert not runtime.has_sandbox("uid-ends")
            (gone,), (kept,) = runtime.of_pod("uid-ends"), runtime.of_pod("uid-lives")
            await eventually(lambda: not gone.is_running)
            assert gone.exit_code == 137
            assert kept.is_running
            await runtime.stop(kept.id, 0)
            assert not kept.is_running
            for uid in ("uid-ends", "uid-lives"):
                await runtime.remove_pod(uid)
        finally:
            await runtime.close()

    asyncio.run(main())
    assert str(root) not in Path("/proc/mounts").read_text()
