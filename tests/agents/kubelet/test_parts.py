"""Parts of a kubelet that need no machine: evictions, configuration, static pods, images."""

import asyncio
import base64
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from kvstack.agents.kubelet import command
from kvstack.agents.kubelet.configuration import (
    DEFAULTS,
    ConfigurationFileError,
    read_configuration,
    seconds,
    whole,
    with_flags,
    without_effect,
)
from kvstack.agents.kubelet.eviction import evictions
from kvstack.agents.kubelet.eviction.evictions import Shortage
from kvstack.agents.kubelet.eviction.measures import memory_of
from kvstack.agents.kubelet.images.image_manager import ImageManager, credentials_of, is_image_name
from kvstack.agents.kubelet.lifecycle.prober import Prober
from kvstack.agents.kubelet.node import node
from kvstack.agents.kubelet.node.node_status import changed
from kvstack.agents.kubelet.runtime.runtime import Image, ImageMissingError, Runtime, StartError
from kvstack.agents.kubelet.static.static_pods import (
    StaticPodError,
    StaticPods,
    StaticSettings,
    completed,
    is_mirror_of,
    mirror_of,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from tests.agents.kubelet.pods.test_worker import container, pod
from tests.support.clocks import HandClock

if TYPE_CHECKING:
    from kvstack.agents.client.api import Api


# Evictions.


def test_who_goes_first_and_what_is_said() -> None:
    def asking(uid: str, memory: str, priority: int = 0) -> Object:
        obj: Object = pod()
        obj["metadata"]["uid"] = uid
        obj["spec"]["priority"] = priority
        obj["spec"]["containers"][0]["resources"] = {"requests": {"memory": memory}}
        return obj

    within, over, critical = asking("in", "2Gi"), asking("over", "1Ki"), asking("c", "0", 2**31)
    used = {"in": 1 << 30, "over": 2 << 20, "c": 4 << 30}
    pods = [within, critical, over]
    assert evictions.first_to_go(pods, used, "memory.available") is over
    assert evictions.first_to_go([critical], used, "memory.available") is None
    text = evictions.message(Shortage("memory.available", "100Mi", 88 << 10), over, {"a": 2 << 20})
    assert text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 88Ki. "
        "Container a was using 2Mi, request is 1Ki, has larger consumption of memory. "
    )


def test_pods_that_take_too_much_of_the_disk() -> None:
    obj = pod(names="ab")
    obj["spec"]["volumes"] = [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]
    assert evictions.over_local_limits(obj, {"v": 1 << 20}, {}) == ""
    text = 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    assert evictions.over_local_limits(obj, {"v": (1 << 20) + 1}, {}) == text
    for each in obj["spec"]["containers"]:
        each["resources"] = {"limits": {"ephemeral-storage": "1Ki"}}
    text = 'Container b exceeded its local ephemeral storage limit "1Ki". '
    assert evictions.over_local_limits(obj, {}, {"b": 2000}) == text
    text = "Pod ephemeral local storage usage exceeds the total limit of containers 2Ki. "
    assert evictions.over_local_limits(obj, {"v": 1500}, {"a": 1000, "b": 10}) == text


# Configuration.


def test_a_configuration_and_flags_over_it() -> None:
    obj = {"maxPods": 20, "authentication": {"anonymous": {"enabled": True}}, "syncFrequency": "1m"}
    found = with_flags(
        read_configuration(obj),
        {
            "max-pods": "30",
            "client-ca-file": "/ca",
            "cluster-dns": "10.0.0.10,10.0.0.11",
            "eviction-hard": "memory.available<5%",
            "eviction-soft": "memory.available<10%",
            "eviction-soft-grace-period": "memory.available=1m30s",
            "register-with-taints": "a=b:NoSchedule,c:NoExecute",
        },
    )
    assert found["maxPods"] == 30
    assert found["authentication"]["anonymous"] == {"enabled": True}
    assert found["authentication"]["x509"]["clientCAFile"] == "/ca"
    assert found["authentication"]["webhook"]["enabled"]
    assert found["clusterDNS"] == ["10.0.0.10", "10.0.0.11"]
    assert found["evictionHard"] == {"memory.available": "5%"}
    assert found["evictionSoft"] == {"memory.available": "10%"}
    assert found["evictionSoftGracePeriod"] == {"memory.available": "1m30s"}
    assert found["registerWithTaints"] == [
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "effect": "NoExecute"},
    ]
    assert without_effect(obj) == ["syncFrequency"]
    assert seconds(found, "nodeStatusReportFrequency") == 300
    assert DEFAULTS["maxPods"] == 110


PERIOD = {"priority": 0, "shutdownGracePeriodSeconds": 5}


@pytest.mark.parametrize(
    ("obj", "flags", "text"),
    [
        ({"maxPodz": 1}, {}, 'strict decoding error: unknown field "maxPodz"'),
        ({"kind": "Pod"}, {}, 'no kind "Pod" is registered'),
        ({"fileCheckFrequency": "soon"}, {}, "fileCheckFrequency: "),
        ({"authorization": {"mode": "Never"}}, {}, 'authorization.mode: invalid value "Never"'),
        ({}, {"max-pods": "many"}, "--max-pods many: a number"),
        ({}, {"tls-min-version": "SSL3"}, "tlsMinVersion: SSL3: one of VersionTLS12, VersionTLS13"),
        ({}, {"anonymous-auth": "1"}, "--anonymous-auth 1: true or false"),
        ({}, {"kube-reserved": "cpu"}, "--kube-reserved cpu: NAME=VALUE"),
        (
            {},
            {"eviction-soft": "memory.available<1Gi"},
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        ({"evictionHard": {"mood": "10%"}}, {}, 'evictionHard: unsupported eviction signal "mood"'),
        ({"evictionHard": {"pid.available": "some"}}, {}, "evictionHard: pid.available: some: "),
        ({"evictionSoftGracePeriod": {"pid.available": "1"}}, {}, "evictionSoftGracePeriod: pid"),
        (
            {"crashLoopBackOff": {"maxContainerRestartPeriod": "10m"}},
            {},
            "crashLoopBackOff.maxContainerRestartPeriod: 10m: from 1s to 300s",
        ),
        ({"shutdownGracePeriod": "500ms"}, {}, "500ms must be either zero or otherwise >= 1 sec"),
        (
            {"shutdownGracePeriod": "5s", "shutdownGracePeriodCriticalPods": "6s"},
            {},
            "shutdownGracePeriodCriticalPods 6s must be <= shutdownGracePeriod 5s",
        ),
        (
            {"shutdownGracePeriod": "5s", "shutdownGracePeriodByPodPriority": [PERIOD]},
            {},
            "cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod",
        ),
        ({"shutdownGracePeriodByPodPriority": [PERIOD, {"priority": 1}]}, {}, r"\[1\]: {'prior"),
        ({"shutdownGracePeriodByPodPriority": {"a": 1}}, {}, "'a': 1}: a list"),
        ({"shutdownGracePeriodByPodPriority": [{**PERIOD, "priority": "1"}]}, {}, "numbers"),
    ],
)
def test_configurations_that_cannot_be_meant(obj: Object, flags: Object, text: str) -> None:
    with pytest.raises(ConfigurationFileError, match=text):
        with_flags(read_configuration(obj), flags)


def test_the_whole_configuration() -> None:
    shown = whole(read_configuration({"maxPods": 20, "featureGates": {"A": True}}))
    assert (shown["maxPods"], shown["featureGates"]) == (20, {"A": True})
    assert (shown["nodeLeaseDurationSeconds"], shown["syncFrequency"]) == (40, "1m0s")
    assert shown["authentication"]["webhook"] == {"enabled": True, "cacheTTL": "2m0s"}
    assert None not in shown.values()
    # A kubelet that is given this is set up the same.
    assert whole(read_configuration(shown)) == shown
    memory = {"memory.available": "1Gi"}
    assert whole(read_configuration({"evictionHard": memory}))["evictionHard"] == memory
    # What is shown are copies.
    shown["authorization"]["mode"] = shown["featureGates"]["A"] = "x"
    assert whole({})["authorization"]["mode"] == "Webhook"
    assert whole({})["featureGates"] == {}


def test_flags_of_the_command() -> None:
    own, flags, taken = command.split_flags(
        ["--kubeconfig=/k", "--max-pods", "5", "--host-image", "--v=4", "--node-labels=a=b"]
    )
    assert (own["kubeconfig"], own["host-image"], own["node-labels"]) == ("/k", "true", "a=b")
    assert (flags, taken) == ({"max-pods": "5"}, ["--v"])
    for arguments, text in (
        ([], "--kubeconfig"),
        (["--kubeconfig=/k", "--no"], "unknown flag"),
        (["--kubeconfig=/k", "--host-root-namespaces=A"], "--host-root-namespaces A: a lowercase"),
        (["--kubeconfig=/k", "--cluster-cidr=10.7.0.1/16"], "--cluster-cidr 10.7.0.1/16: .* host"),
    ):
        with pytest.raises(command.FlagError, match=text):
            command.split_flags(arguments)


def test_what_pods_of_the_machines_files_may_be_and_do_not_see() -> None:
    own, flags, _ = command.split_flags(
        ["--kubeconfig=/k", "--host-root-namespaces=a,b", "--cert-dir=/pki"]
    )
    options = command.node_options(own, with_flags(read_configuration({}), flags))
    assert options.host_root_namespaces == ("a", "b")
    assert options.hidden == [Path("/k")]
    assert options.pki == Path("/pki")
    own, flags, _ = command.split_flags(["--kubeconfig=/k"])
    options = command.node_options(own, with_flags(read_configuration({}), flags))
    assert options.host_root_namespaces == ()


def test_the_settings_of_a_node(tmp_path: Path) -> None:
    names = tmp_path / "resolv.conf"
    names.write_text("nameserver 1.2.3.4\nsearch a b\noptions ndots:1\n# x\n")
    own, flags, _ = command.split_flags(
        [
            "--kubeconfig=/k",
            "--hostname-override=Me",
            "--node-ip=10.0.0.9,fd00::9",
            f"--resolv-conf={names}",
            "--kube-reserved=cpu=500m",
            "--system-reserved=cpu=250m,memory=1Gi",
            "--cluster-cidr=fd00::/48,10.7.0.0/16",
        ]
    )
    options = command.node_options(own, with_flags(read_configuration({}), flags))
    kubelet = options.kubelet
    assert kubelet is not None
    assert (kubelet.name, kubelet.ip, options.ends_with_node) == ("me", "10.0.0.9", False)
    assert kubelet.ips == ("10.0.0.9", "fd00::9")
    assert [str(each) for each in options.cluster_ranges] == ["fd00::/48", "10.7.0.0/16"]
    assert kubelet.names.servers == ["1.2.3.4"]
    assert kubelet.names.searches == ["a", "b"]
    machine = node.Machine("amd64", 4, 4 << 20, 100, "", "", "", "", "")
    assert node.allocatable(machine, 110, kubelet.reserved) == {
        "cpu": "3250m",
        "memory": f"{(4 << 20) - (100 << 10) - (1 << 20)}Ki",
        "ephemeral-storage": "90",
        "pods": "110",
    }


# Static pods.

MANIFEST = """\
metadata: {name: web}
spec:
  containers: [{name: c, image: "x:latest"}]
"""


def read(static: StaticPods) -> None:
    asyncio.run(static.read())


async def no_page(_url: str) -> bytes:
    raise OSError("refused")


def test_static_pods_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(MANIFEST)
    (tmp_path / "again.yaml").write_text(MANIFEST)
    (tmp_path / ".hidden").write_text(MANIFEST)
    (tmp_path / "bad").write_text("kind: Service\n")
    static = StaticPods(StaticSettings(tmp_path), "Node-A", no_page)
    read(static)
    (found,) = static.pods.values()
    meta, spec = found["metadata"], found["spec"]
    assert (meta["name"], meta["namespace"]) == ("web-node-a", "default")
    assert meta["annotations"]["kubernetes.io/config.source"] == "file"
    assert meta["annotations"]["kubernetes.io/config.hash"] == meta["uid"]
    assert (spec["nodeName"], spec["restartPolicy"]) == ("node-a", "Always")
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert spec["tolerations"] == [{"operator": "Exists", "effect": "NoExecute"}]
    files = [each.removeprefix(f"{tmp_path}/").partition(":")[0] for each in static.problems]
    assert sorted(files) == ["bad", "web.yaml"]
    (tmp_path / "again.yaml").write_text(MANIFEST.replace("latest", "2"))
    (tmp_path / "web.yaml").unlink()
    read(static)
    (other,) = static.pods.values()
    assert other["metadata"]["uid"] != meta["uid"]


def test_a_page_that_cannot_be_read_keeps_its_pods() -> None:
    pages = [MANIFEST.encode()]

    async def page(_url: str) -> bytes:
        if not pages:
            raise OSError("refused")
        return pages.pop()

    static = StaticPods(StaticSettings(None, "http://x"), "n", page)
    read(static)
    kept = dict(static.pods)
    read(static)
    assert static.pods == kept
    assert static.problems == ["http://x: refused"]


def test_mirrors() -> None:
    made = completed({"metadata": {"name": "w"}, "spec": pod()["spec"]}, "n", "file", "f")
    mirror = mirror_of(made, {"metadata": {"name": "n", "uid": "u"}})
    assert mirror["metadata"]["ownerReferences"][0] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n",
        "uid": "u",
        "controller": True,
    }
    assert is_mirror_of(mirror, made)
    mirror["metadata"]["deletionTimestamp"] = "now"
    assert not is_mirror_of(mirror, made)


def test_static_pods_refer_to_nothing_of_the_api() -> None:
    spec = {**pod()["spec"], "volumes": [{"name": "v", "secret": {"secretName": "s"}}]}
    with pytest.raises(StaticPodError, match="may not reference secrets"):
        completed({"metadata": {"name": "w"}, "spec": spec}, "n", "file", "f")


# Images.


class Store:
    """A runtime's images."""

    pulls_images = True

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.fails = False

    async def find_image(self, name: str) -> Image:
        if name not in self.names:
            raise ImageMissingError(name)
        return Image(f"id of {name}", [name])

    async def pull_image(self, name: str, credentials: Sequence[Mapping[str, str]]) -> Image:
        if self.fails:
            raise StartError("ErrImagePull", "no such image")
        self.names.add(name)
        return await self.find_image(name)


def test_images_are_pulled_as_policies_say() -> None:
    async def main() -> None:
        clock, store = HandClock(1e9), Store("here:1")
        events: list[tuple[str, str]] = []
        manager = ImageManager(
            cast("Api", None),
            cast("Runtime", store),
            clock,
            lambda _pod, _name, _type, reason, text: events.append((reason, text)),
        )

        async def ensure(image: str, policy: str) -> str:
            container = {"name": "c", "image": image, "imagePullPolicy": policy}
            try:
                return (await manager.ensure(pod(), container)).id
            except StartError as error:
                return f"{error.reason}: {error.message}"

        assert await ensure("here:1", "Never") == "id of here:1"
        text = 'Container image "none:1" is not present with pull policy of Never'
        assert await ensure("none:1", "Never") == f"ErrImageNeverPull: {text}"
        store.fails = True
        assert await ensure("none:1", "IfNotPresent") == "ErrImagePull: no such image"
        late = 'Back-off pulling image "none:1": ErrImagePull: no such image'
        assert await ensure("none:1", "IfNotPresent") == f"ImagePullBackOff: {late}"
        clock.now += 10
        assert await ensure("none:1", "IfNotPresent") == "ErrImagePull: no such image"
        clock.now += 19
        assert (await ensure("none:1", "IfNotPresent")).startswith("ImagePullBackOff")
        clock.now += 1
        store.fails = False
        assert await ensure("none:1", "Always") == "id of none:1"
        assert [reason for reason, _ in events][:3] == ["Pulled", "ErrImageNeverPull", "Failed"]
        assert events[-1][1].startswith('Successfully pulled image "none:1" in 0s')

    asyncio.run(main())


class NoSecrets:
    """An API without secrets."""

    async def get(self, *_names: object) -> Object:
        raise ApiError({"code": 404, "message": "there is none"})


def test_secrets_that_are_missing_are_reported_when_a_pull_fails() -> None:
    async def main() -> None:
        store = Store()
        events: list[tuple[str, str]] = []
        manager = ImageManager(
            cast("Api", NoSecrets()),
            cast("Runtime", store),
            HandClock(1e9),
            lambda _pod, _name, _type, reason, text: events.append((reason, text)),
        )
        obj: Object = pod()
        obj["spec"]["imagePullSecrets"] = [{"name": "one"}, {"name": "two"}]
        container = {"name": "c", "image": "a:1", "imagePullPolicy": "Always"}
        await manager.ensure(obj, container)
        reasons = [reason for reason, _ in events]
        assert reasons == ["Pulling", "Pulled"]
        store.fails = True
        with pytest.raises(StartError):
            await manager.ensure(obj, container)
        text = (
            "Unable to retrieve some image pull secrets (one, two); "
            "attempting to pull the image may not succeed."
        )
        assert ("FailedToRetrieveImagePullSecret", text) in events

    asyncio.run(main())


def test_credentials_of_a_registry() -> None:
    entry = {"auth": base64.b64encode(b"me:pw").decode()}
    config = {"auths": {"https://reg.io/v1/": entry, "other.io": {"username": "x"}}}
    data = base64.b64encode(json.dumps(config).encode()).decode()
    found = credentials_of({"data": {".dockerconfigjson": data}}, "reg.io")
    assert found == [{"username": "me", "password": "pw", "token": ""}]
    assert credentials_of({"data": {".dockerconfigjson": "e30="}}, "reg.io") == []
    assert credentials_of({"data": {}}, "reg.io") == []


def test_which_changes_of_a_node_are_reported() -> None:
    def conditions(ready: str, *, has_pressure: bool = False) -> list[Object]:
        memory = "KubeletHasInsufficientMemory" if has_pressure else "KubeletHasSufficientMemory"
        return [
            {"type": "MemoryPressure", "status": str(has_pressure), "reason": memory},
            {"type": "Ready", "status": ready, "reason": "KubeletReady"},
        ]

    new = conditions("False")
    assert list(changed([], new)) == ["NodeHasSufficientMemory"]  # it did not become unready
    assert list(changed(new, conditions("True"))) == ["NodeReady"]
    assert list(changed(conditions("True"), new)) == ["NodeNotReady"]
    low = conditions("True", has_pressure=True)
    assert list(changed(conditions("True"), low)) == ["NodeHasInsufficientMemory"]
    assert not list(changed(low, low))


@pytest.mark.parametrize(
    ("key", "image", "is_for_it"),
    [
        ("reg.io", "reg.io/a/b:1", True),
        ("https://reg.io/v1/", "reg.io/a/b:1", True),
        ("reg.io/a", "reg.io/a/b:1", True),
        ("reg.io/c", "reg.io/a/b:1", False),
        ("*.reg.io", "eu.reg.io/a:1", True),
        ("*.reg.io", "reg.io/a:1", False),
        ("*.io", "eu.reg.io/a:1", False),
        ("https://index.docker.io/v1/", "nginx", True),
    ],
)
def test_for_which_images_credentials_are(key: str, image: str, is_for_it: bool) -> None:  # noqa: FBT001
    config = {"auths": {key: {"username": "x"}}}
    data = base64.b64encode(json.dumps(config).encode()).decode()
    registry = image.partition("/")[0] if "/" in image else "docker.io"
    found = credentials_of({"data": {".dockerconfigjson": data}}, registry, image)
    assert bool(found) is is_for_it


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        *((each, True) for each in ("nginx", "a/b:1", "localhost:5000/a_b/c-d:V1", "reg.io/x")),
        (f"reg.io/a@sha256:{'0' * 64}", True),
        (f"a:1@sha256:{'0' * 64}", True),
        *((each, False) for each in ("", "Nginx", "a b", "a:", "a//b", "a@sha256:1", "-a")),
    ],
)
def test_names_of_images(text: str, is_name: bool) -> None:  # noqa: FBT001
    assert is_image_name(text) is is_name


def test_static_pods_refer_to_nothing_by_any_way() -> None:
    ways: list[tuple[Object, str]] = [
        ({"imagePullSecrets": [{"name": "s"}]}, "secrets"),
        ({"serviceAccountName": "a"}, "serviceaccounts"),
        ({"resourceClaims": [{"name": "c"}]}, "resourceclaims"),
        (
            {"volumes": [{"name": "v", "ephemeral": {}}]},
            "persistentvolumeclaims",
        ),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]},
            "clustertrustbundles",
        ),
    ]
    variable = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}
    own = [{"name": "c", "image": "x", "env": [variable]}]
    for more, name in [*ways, ({"containers": own}, "configmaps")]:
        with pytest.raises(StaticPodError, match=f"static pods may not reference {name}"):
            completed(
                {"metadata": {"name": "w"}, "spec": {**pod()["spec"], **more}}, "n", "file", "f"
            )


# What a node says of its machine.


def test_huge_pages(tmp_path: Path) -> None:
    for name, count in (("hugepages-2048kB", "3"), ("hugepages-1048576kB", "0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "nr_hugepages").write_text(f"{count}\n")
    assert node.huge_pages(tmp_path) == {"1Gi": 0, "2Mi": 6 << 20}
    assert node.huge_pages(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [
        ("mine", True),
        ("example.com/x", True),
        ("node.kubernetes.io/x", True),
        ("a.kubelet.kubernetes.io/x", True),
        ("topology.kubernetes.io/zone", True),
        ("node-restriction.kubernetes.io/x", False),
        ("kubernetes.io/x", False),
        ("x.k8s.io/y", False),
    ],
)
def test_labels_that_a_node_gives_itself(name: str, is_allowed: bool) -> None:  # noqa: FBT001
    assert (node.label_problem(name) == "") is is_allowed
    if not is_allowed:
        with pytest.raises(command.FlagError, match="--node-labels"):
            command.split_flags(["--kubeconfig=/k", f"--node-labels={name}=1"])


def test_memory_is_measured_as_control_groups_count_it() -> None:
    lines = ("MemTotal: 1000", "MemFree: 400", "MemAvailable: 900", "Buffers: 50", "Cached: 250")
    more = ("AnonPages: 200", "Inactive(file): 100")
    found = memory_of("\n".join(f"{each} kB" for each in (*lines, *more)))
    assert found == (1000 << 10, 500 << 10, 400 << 10, 200 << 10, 0, 0)


def test_who_offends() -> None:
    obj: Object = pod(names="ab")
    shortage = Shortage("memory.available", "100Mi", 88 << 10)
    assert evictions.offenders(shortage, obj, {"a": 2 << 20, "b": 0}) == {
        "offending_containers": "a",
        "offending_containers_usage": "2Mi",
        "starved_resource": "memory",
    }


class Commands:
    """A runtime that runs commands, which fail."""

    def __init__(self) -> None:
        self.seen: list[Sequence[str]] = []

    async def exec(self, _number: str, command: Sequence[str], *, tty: bool) -> object:
        assert not tty
        self.seen.append(command)
        raise StartError("x", "no")


def test_probes_of_a_pod_that_ends() -> None:
    async def main() -> None:
        runtime, told, heard = Commands(), [], asyncio.Event()

        def tell(_pod: Object, _name: str, reason: str, text: str) -> None:
            told.append((reason, text))
            heard.set()

        prober = Prober(cast("Runtime", runtime), HandClock(1e9), lambda: 0.0, tell)
        probe = {"exec": {"command": ["$(A)", "$(B)", "$$(A)"]}, "periodSeconds": 1}
        env = [{"name": "A", "value": "1"}, {"name": "C", "valueFrom": {}}]
        wanted = {"name": "a", "env": env, "livenessProbe": probe}
        found = container("a")
        found.started_s = HandClock(1e9).now_s()
        begin = functools.partial(prober.begin, pod(), wanted, found, {}, "", lambda: None)
        begin(is_ending=lambda: False)
        await asyncio.wait_for(heard.wait(), 30)
        assert runtime.seen == [["1", "$(B)", "$(A)"]] * 3
        text = "Liveness probe errored and resulted in unknown state: no"
        assert told == [("Unhealthy", text)]
        await prober.stop()
        begin(is_ending=lambda: True)
        await asyncio.wait(list(prober._tasks), timeout=30)
        assert len(told) == 1
        assert len(runtime.seen) == 3

    asyncio.run(main())
