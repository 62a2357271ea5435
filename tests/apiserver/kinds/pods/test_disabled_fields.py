"""Fields of features that are off."""

from copy import deepcopy
from typing import Any

from kvstack.apiserver.kinds.pods.disabled_fields import drop_disabled_fields

SPEC: dict[str, Any] = {
    "schedulingGroup": {"podGroupName": "g"},
    "volumes": [
        {"name": "a", "emptyDir": {"mode": 493, "medium": "Memory"}},
        {"name": "b", "projected": {"sources": [{"secret": {"items": [{"key": "k", "user": 1}]}}]}},
        {"name": "c", "secret": {"secretName": "s", "defaultUser": 1}},
    ],
    "initContainers": [{"name": "i", "readinessProbe": {"grpc": {"port": 1, "mode": "x"}}}],
    "containers": [
        {
            "name": "m",
            "lifecycle": {"stopSignal": "SIGUSR1"},
            "livenessProbe": {"httpGet": {"port": 1, "protocol": "H2"}},
            "volumeMounts": [{"name": "a", "bindMountOptions": ["x"]}, {"name": "b"}],
        }
    ],
}


def test_all_are_dropped_of_a_new_pod() -> None:
    """Wherever they are; what is beside them stays."""
    spec = deepcopy(SPEC)
    drop_disabled_fields(spec, None)
    assert spec == {
        "volumes": [
            {"name": "a", "emptyDir": {"medium": "Memory"}},
            {"name": "b", "projected": {"sources": [{"secret": {"items": [{"key": "k"}]}}]}},
            {"name": "c", "secret": {"secretName": "s"}},
        ],
        "initContainers": [{"name": "i", "readinessProbe": {"grpc": {"port": 1}}}],
        "containers": [
            {
                "name": "m",
                "livenessProbe": {"httpGet": {"port": 1}},
                "volumeMounts": [{"name": "a"}, {"name": "b"}],
            }
        ],
    }


def test_what_is_in_use_stays_by_feature() -> None:
    """A field in use of a feature keeps all its fields, and none of another."""
    spec = deepcopy(SPEC)
    drop_disabled_fields(spec, {"volumes": [{"name": "x", "secret": {"defaultUser": 2}}]})
    assert spec["volumes"][2] == SPEC["volumes"][2]
    assert spec["volumes"][1] == SPEC["volumes"][1]
    assert spec["volumes"][0]["emptyDir"] == {"medium": "Memory"}
    assert "schedulingGroup" not in spec
