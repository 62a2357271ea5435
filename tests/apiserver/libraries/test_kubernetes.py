"""The official Python client: typed and dynamic calls, watches, informers, elections."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

kubernetes = pytest.importorskip("kubernetes")

from kubernetes import client, config, dynamic, watch  # noqa: E402
from kubernetes.client.exceptions import ApiException  # noqa: E402
from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer  # noqa: E402
from kubernetes.leaderelection import electionconfig, leaderelection  # noqa: E402
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock  # noqa: E402

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("apiserver-libraries")]

TIMEOUT_S = 60.0


@pytest.fixture
def api(kubeconfig: Path) -> Iterator[Any]:
    with config.new_client_from_config(str(kubeconfig)) as connected:
        yield connected


@pytest.fixture
def core(api: Any) -> Any:
    return client.CoreV1Api(api)


def config_map(name: str, **data: str) -> Any:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


def test_a_config_map_lives_and_ends(core: Any, namespace: str) -> None:
    made = core.create_namespaced_config_map(namespace, config_map("a", x="1"))
    assert made.metadata.uid
    assert core.read_namespaced_config_map("a", namespace).data == {"x": "1"}
    patched = core.patch_namespaced_config_map("a", namespace, {"data": {"y": "2", "x": None}})
    assert patched.data == {"y": "2"}
    patched.data = {"z": "3"}
    replaced = core.replace_namespaced_config_map("a", namespace, patched)
    assert replaced.data == {"z": "3"}
    with pytest.raises(ApiException) as stale:
        core.replace_namespaced_config_map("a", namespace, made)
    assert stale.value.status == 409
    core.delete_namespaced_config_map("a", namespace)
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("a", namespace)
    assert gone.value.status == 404


def test_lists_are_selected_and_paged(core: Any, namespace: str) -> None:
    for number in range(7):
        body = config_map(f"c{number}")
        body.metadata.labels = {"odd": str(number % 2)}
        core.create_namespaced_config_map(namespace, body)
    odd = core.list_namespaced_config_map(namespace, label_selector="odd=1")
    assert [each.metadata.name for each in odd.items] == ["c1", "c3", "c5"]
    names, token = [], None
    while token != "":
        page = core.list_namespaced_config_map(namespace, limit=3, _continue=token or None)
        names += [each.metadata.name for each in page.items]
        token = page.metadata._continue or ""
    assert names == [f"c{number}" for number in range(7)]


def test_a_deployment_is_defaulted_and_scaled(api: Any, namespace: str) -> None:
    apps: Any = client.AppsV1Api(api)
    container = client.V1Container(name="c", image="registry.example/web:1")
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels={"app": "web"}),
        spec=client.V1PodSpec(containers=[container]),
    )
    made = apps.create_namespaced_deployment(
        namespace,
        client.V1Deployment(
            metadata=client.V1ObjectMeta(name="web"),
            spec=client.V1DeploymentSpec(
                selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template
            ),
        ),
    )
    assert (made.spec.replicas, made.spec.revision_history_limit) == (1, 10)
    scaled = apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 4}})
    assert scaled.spec.replicas == 4
    assert apps.read_namespaced_deployment("web", namespace).metadata.generation == 2


def test_a_watch_tells_of_every_change_in_order(core: Any, namespace: str) -> None:
    begin = core.list_namespaced_config_map(namespace).metadata.resource_version
    for number in range(20):
        core.create_namespaced_config_map(namespace, config_map(f"w{number}"))
        core.delete_namespaced_config_map(f"w{number}", namespace)
    events = []
    stream = watch.Watch()
    for event in stream.stream(
        core.list_namespaced_config_map, namespace, resource_version=begin, timeout_seconds=30
    ):
        events.append((event["type"], event["object"].metadata.name))
        if len(events) == 40:
            stream.stop()
    expected = [(kind, f"w{n}") for n in range(20) for kind in ("ADDED", "DELETED")]
    assert events == expected


def test_the_dynamic_client_discovers_and_applies(api: Any, namespace: str) -> None:
    resources = dynamic.DynamicClient(api).resources
    jobs = resources.get(api_version="batch/v1", kind="Job")
    container = {"name": "c", "image": "registry.example/job:1"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once", "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
    first = jobs.server_side_apply(body=job, namespace=namespace, field_manager="test")
    again = jobs.server_side_apply(body=job, namespace=namespace, field_manager="test")
    assert first.metadata.resourceVersion == again.metadata.resourceVersion
    assert again.metadata.managedFields[0].manager == "test"
    assert [job.metadata.name for job in jobs.get(namespace=namespace).items] == ["once"]


def test_an_informer_follows(core: Any, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("before"))
    seen: list[tuple[str, str]] = []
    changed = threading.Condition()

    def note(kind: str) -> Any:
        def handle(body: Any) -> None:
            with changed:
                seen.append((kind, body.metadata.name))
                changed.notify_all()

        return handle

    informer = SharedInformer(core.list_namespaced_config_map, namespace=namespace)
    for kind in (ADDED, MODIFIED, DELETED):
        informer.add_event_handler(kind, note(kind))
    informer.start()
    try:
        with changed:
            assert changed.wait_for(lambda: ("ADDED", "before") in seen, TIMEOUT_S)
        core.create_namespaced_config_map(namespace, config_map("later"))
        core.patch_namespaced_config_map("later", namespace, {"data": {"a": "1"}})
        core.delete_namespaced_config_map("before", namespace)
        with changed:
            assert changed.wait_for(lambda: ("DELETED", "before") in seen, TIMEOUT_S)
        assert seen[1:] == [("ADDED", "later"), ("MODIFIED", "later"), ("DELETED", "before")]
        assert informer.cache.list_keys() == [f"{namespace}/later"]
    finally:
        informer.stop()


@pytest.mark.slow
def test_one_of_two_candidates_leads_and_the_other_follows(
    kubeconfig: Path, namespace: str
) -> None:
    config.load_kube_config(str(kubeconfig))
    leaders: list[str] = []
    changed = threading.Condition()
    over = threading.Event()

    class OverError(Exception):
        """The test has ended."""

    class EndingLock(LeaseLock):  # type: ignore[misc] # its package is not read for types
        """A lock whose candidate ends with the test: an election itself never does."""

        @override
        def get(self, name: str, namespace: str) -> Any:
            if over.is_set():
                raise OverError
            return super().get(name, namespace)

    def run(name: str) -> None:
        def lead() -> None:
            with changed:
                leaders.append(name)
                changed.notify_all()

        election = leaderelection.LeaderElection(
            electionconfig.Config(
                EndingLock("election", namespace, name),
                lease_duration=6,
                renew_deadline=4,
                retry_period=2,
                onstarted_leading=lead,
                onstopped_leading=lambda: None,
            )
        )
        with suppress(OverError):
            election.run()

    candidates = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for candidate in candidates:
        candidate.start()
    try:
        with changed:
            assert changed.wait_for(lambda: leaders, TIMEOUT_S)
        lease: Any = client.CoordinationV1Api().read_namespaced_lease("election", namespace)
        assert lease.spec.holder_identity == leaders[0]
        renewed = lease.spec.renew_time
        events = watch.Watch().stream(
            client.CoordinationV1Api().list_namespaced_lease,
            namespace,
            resource_version=lease.metadata.resource_version,
            timeout_seconds=30,
        )
        assert next(iter(events))["object"].spec.renew_time > renewed
        assert len(leaders) == 1
    finally:
        # A thread that reads the environment while pytest writes it there fails at any time.
        over.set()
        for candidate in candidates:
            candidate.join()
