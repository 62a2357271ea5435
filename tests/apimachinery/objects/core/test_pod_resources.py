"""What a pod requests and is limited to, and that all who ask get the same answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.agents.kubelet.pods import sandboxes
from kvstack.agents.scheduler.snapshot import pod_resources as scheduler
from kvstack.apimachinery.objects.core.pod_resources import (
    LIMITS,
    REQUESTS,
    pod_limits,
    pod_requests,
    pod_total,
)
from kvstack.apimachinery.objects.json_object import Object


def container(limits: Object | None = None, **requests: str) -> Object:
    members = {REQUESTS: requests, LIMITS: limits}
    return {"name": "c", "resources": {key: value for key, value in members.items() if value}}


def sidecar(**requests: str) -> Object:
    return {"name": "s", "resources": {REQUESTS: requests}, "restartPolicy": "Always"}


PAGES = "hugepages-2Mi"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{"name": "c"}]}, {}),
        ({"containers": [container(cpu="2"), container(cpu="1", memory="1Gi")]},
         {"cpu": "3", "memory": "1Gi"}),
        # Init containers run one after the other, before the others.
        ({"containers": [container(cpu="2", memory="1G"), container(cpu="1", memory="1G")],
          "initContainers": [container(cpu="2", memory="1G"), container(cpu="2", memory="3G")]},
         {"cpu": "3", "memory": "3G"}),
        # A sidecar runs beside those that come after it, and not beside those before.
        ({"containers": [container(cpu="2", memory="1G"), container(cpu="1", memory="1G")],
          "initContainers": [sidecar(cpu="500m", memory="100M"), container(cpu="2", memory="1G"),
                             container(cpu="2", memory="3G")]},
         {"cpu": "3500m", "memory": "3100M"}),
        ({"containers": [container(cpu="1")],
          "initContainers": [container(cpu="2"), sidecar(cpu="500m")]}, {"cpu": "2"}),
        # What the pod names takes the place of what its containers come to, name by name.
        ({"containers": [container(cpu="1", memory="1Gi")],
          "resources": {REQUESTS: {"cpu": "4"}}}, {"cpu": "4", "memory": "1Gi"}),
        ({"containers": [container(cpu="1")],
          "resources": {REQUESTS: {"cpu": "500m", PAGES: "4Mi"}}}, {"cpu": "500m", PAGES: "4Mi"}),
        ({"containers": [{"name": "c", "resources": {REQUESTS: {"ephemeral-storage": "1Gi"}}}],
          "resources": {REQUESTS: {"ephemeral-storage": "2Gi", "example.com/gpu": "1"}}},
         {"ephemeral-storage": "1Gi"}),
        # A limit of the pod is no request of it.
        ({"containers": [container(cpu="1")], "resources": {LIMITS: {"cpu": "4"}}}, {"cpu": "1"}),
        # Overhead comes on top of either.
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "64Mi"}},
         {"cpu": "1250m", "memory": "64Mi"}),
        ({"containers": [container(cpu="1")], "resources": {REQUESTS: {"cpu": "4"}},
          "overhead": {"cpu": "250m"}}, {"cpu": "4250m"}),
    ],
)  # fmt: skip
def test_requests(spec: Object, expected: dict[str, str]) -> None:
    found = pod_requests(spec)
    assert {name: str(amount) for name, amount in found.items()} == expected


def test_limits() -> None:
    """Overhead counts where there is a limit."""
    limits = {"cpu": "1", "memory": "0"}
    spec = {"containers": [container(limits=limits), container(limits={"cpu": "1"})]}
    assert {k: str(v) for k, v in pod_limits(spec).items()} == {"cpu": "2", "memory": "0"}
    overhead = {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    found = pod_limits({**spec, "overhead": overhead, "resources": {LIMITS: {"cpu": "3"}}})
    assert {k: str(v) for k, v in found.items()} == {"cpu": "3100m", "memory": "0"}


def test_unset_requests_of_pods_that_met_no_defaults() -> None:
    """They are the limits: of a container, then, where no container names any, of the pod."""
    spec = {
        "containers": [container(limits={"cpu": "1", "memory": "1Gi"}, cpu="500m")],
        "resources": {LIMITS: {"cpu": "4", PAGES: "2Mi", "example.com/gpu": "1"}},
    }
    found = {name: str(amount) for name, amount in pod_requests(spec, limited=True).items()}
    assert found == {"cpu": "500m", "memory": "1Gi", PAGES: "2Mi"}
    assert {k: str(v) for k, v in pod_total(spec, REQUESTS).items()} == {"cpu": "500m"}


AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(("0", "1", "250m", "1500m")),
        "memory": st.sampled_from(("0", "128Mi", "1G")),
        PAGES: st.sampled_from(("2Mi", "4Mi")),
        "example.com/gpu": st.sampled_from(("1", "2")),
        "ephemeral-storage": st.just("1Gi"),
    },
)
CONTAINERS = st.builds(
    lambda requests, stays: {
        **container(**requests),
        **({"restartPolicy": "Always"} if stays else {}),
    },
    AMOUNTS,
    st.booleans(),
)
SPECS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINERS, min_size=1, max_size=3)},
    optional={
        "initContainers": st.lists(CONTAINERS, max_size=3),
        "resources": st.fixed_dictionaries({REQUESTS: AMOUNTS}),
        "overhead": AMOUNTS,
    },
)


@given(SPECS)
def test_scheduler_and_kubelet_count_the_same(spec: Object) -> None:
    expected = {
        name: amount.milli_value() if name == "cpu" else amount.value()
        for name, amount in pod_requests(spec).items()
    }
    assert scheduler.requests_of({"spec": spec}) == expected
    assert sandboxes.requests_of({"spec": spec}) == expected
