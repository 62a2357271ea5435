from typing import Any

import pytest

from kvstack.apimachinery.objects.core.group_resources import NODES
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.policy.admission.plugins.node_declared_feature_validator import (
    NodeDeclaredFeatureValidator,
)
from tests.apiserver.policy.admission.requests import admission_request, pod
from tests.apiserver.policy.views import FakeView

RESOURCES = {"requests": {"cpu": "1"}}


def on_node(generation: int = 1, **spec: Any) -> dict[str, Any]:
    found = pod(nodeName="n", **spec)
    found["metadata"]["generation"] = generation
    return found


def volume(size: str) -> list[dict[str, Any]]:
    return [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]


CHANGES = [
    ({}, {"resources": RESOURCES}, "InPlacePodLevelResourcesVerticalScaling"),
    (
        {"initContainers": [{"name": "i"}]},
        {"initContainers": [{"name": "i", "resources": RESOURCES}]},
        "InPlacePodVerticalScalingInitContainers",
    ),
    (
        {"volumes": volume("1Mi")},
        {"volumes": volume("2Mi")},
        "InPlacePodVerticalScalingMemoryBackedVolumes",
    ),
]


@pytest.mark.parametrize(("old", "new", "feature"), CHANGES)
def test_a_change_needs_a_feature_of_the_node(
    old: dict[str, Any], new: dict[str, Any], feature: str
) -> None:
    view = FakeView()
    plugin = NodeDeclaredFeatureValidator(view)
    request = admission_request(on_node(2, **new), on_node(1, **old), subresource="resize")
    with pytest.raises(ApiError, match='node "n" not found'):
        plugin.validate(request)
    view.put(NODES, {"metadata": {"name": "n"}, "status": {"declaredFeatures": ["Other"]}})
    with pytest.raises(ApiError) as caught:
        plugin.validate(request)
    assert caught.value.message == (
        f'pods "p" is forbidden: pod update requires features {feature} which are not available on'
        ' node "n"'
    )
    view.put(NODES, {"metadata": {"name": "n"}, "status": {"declaredFeatures": [feature]}})
    plugin.validate(request)


def test_other_changes_need_nothing() -> None:
    plugin = NodeDeclaredFeatureValidator(FakeView())
    plugin.validate(admission_request(on_node(2), on_node(1)))
    plugin.validate(admission_request(on_node(1, resources=RESOURCES), on_node(1)))
    unbound = pod(resources=RESOURCES)
    unbound["metadata"]["generation"] = 2
    plugin.validate(admission_request(unbound, pod()))
    plugin.validate(
        admission_request(on_node(2, volumes=volume("1024Ki")), on_node(1, volumes=volume("1Mi")))
    )
    sidecar = {"name": "i", "restartPolicy": "Always"}
    changed = {**sidecar, "resources": RESOURCES}
    plugin.validate(
        admission_request(
            on_node(2, initContainers=[changed]), on_node(1, initContainers=[sidecar])
        )
    )
