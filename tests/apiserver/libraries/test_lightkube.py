"""lightkube, which speaks through httpx and has models of its own."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightkube")

import lightkube
from lightkube.config.kubeconfig import KubeConfig
from lightkube.models.core_v1 import ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Service
from lightkube.types import PatchType

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("apiserver-libraries")]


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Any]:
    context = KubeConfig.from_file(str(kubeconfig)).get()
    connected = lightkube.Client(config=context, field_manager="lightkube")
    yield connected
    connected.close()


def named(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


def test_a_config_map_lives_and_ends(client: Any) -> None:
    client.create(named("a", x="1"))
    assert client.get(ConfigMap, "a").data == {"x": "1"}
    changed = client.patch(ConfigMap, "a", {"data": {"x": "2"}}, patch_type=PatchType.MERGE)
    assert changed.data == {"x": "2"}
    client.delete(ConfigMap, "a")
    with pytest.raises(lightkube.ApiError) as gone:
        client.get(ConfigMap, "a")
    assert gone.value.status.reason == "NotFound"


def test_a_service_is_given_an_address(client: Any, namespace: str) -> None:
    made = client.create(
        Service(
            metadata=ObjectMeta(name="web", namespace=namespace),
            spec=ServiceSpec(selector={"app": "web"}, ports=[ServicePort(port=80)]),
        )
    )
    assert made.spec.clusterIP.startswith("10.0.")
    assert made.spec.ports[0].targetPort == 80


def test_apply_owns_what_it_names(client: Any, namespace: str) -> None:
    body = ConfigMap(
        apiVersion="v1",
        kind="ConfigMap",
        metadata=ObjectMeta(name="a", namespace=namespace),
        data={"x": "1"},
    )
    client.apply(body)
    body.data = {"x": "2"}
    with pytest.raises(lightkube.ApiError) as conflict:
        client.apply(body, field_manager="other")
    assert conflict.value.status.reason == "Conflict"
    assert client.apply(body, field_manager="other", force=True).data == {"x": "2"}


def test_lists_of_many_pages_and_watches(client: Any) -> None:
    for number in range(25):
        client.create(named(f"c{number:02}"))
    found = client.list(ConfigMap, chunk_size=10)
    names = [each.metadata.name for each in found]
    assert names == [f"c{number:02}" for number in range(25)]
    stream = iter(client.watch(ConfigMap, resource_version=found.resourceVersion))
    writer = threading.Thread(target=lambda: client.create(named("last")))
    writer.start()
    kind, body = next(stream)
    writer.join()
    stream.close()
    assert (kind, body.metadata.name) == ("ADDED", "last")
