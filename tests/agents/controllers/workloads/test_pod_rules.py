"""What is decided of many pods in one pass is what is decided of each."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kvstack.agents.controllers.workloads.pod_rules import (
    active_pods,
    count_ready,
    is_active,
    is_available,
)
from kvstack.apimachinery.objects.core.pod_status import is_ready
from kvstack.apimachinery.objects.times import format_time

NOW_S = 1_800_000_000.0
_TIMES = st.integers(-30, 30).map(lambda seconds: format_time(NOW_S + seconds))
_CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Ready", "ContainersReady", "PodScheduled"]),
            "status": st.sampled_from(["True", "False", "Unknown"]),
        },
        optional={"lastTransitionTime": _TIMES | st.none()},
    ),
    max_size=4,
)
_STATUSES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
        "conditions": st.none() | _CONDITIONS,
    },
)
_METADATA = st.fixed_dictionaries({}, optional={"deletionTimestamp": st.none() | _TIMES})
_PODS = st.lists(st.fixed_dictionaries({"metadata": _METADATA, "status": _STATUSES}), max_size=6)


@given(_PODS, st.integers(0, 20))
def test_many_pods_count_as_each_does(pods: list[dict[str, Any]], min_ready_s: int) -> None:
    ready = [pod for pod in pods if is_ready(pod)]
    available = [pod for pod in pods if is_available(pod, min_ready_s, NOW_S)]
    assert count_ready(pods, min_ready_s, NOW_S) == (len(ready), len(available))


@given(_PODS)
def test_many_pods_are_active_as_each_is(pods: list[dict[str, Any]]) -> None:
    assert active_pods(pods) == [pod for pod in pods if is_active(pod)]
