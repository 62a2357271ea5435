"""Under which names controllers act, write events and are counted, as upstream's do."""

import pytest

from kvstack.agents.controllers.options import NodeRanges, Options, SignerOptions
from kvstack.agents.controllers.table import controllers
from kvstack.agents.reconcile.plan import Controller

ALL = Options(
    root_ca="ca",
    service_account_key=b"",
    signers={"kubernetes.io/legacy-unknown": SignerOptions()},
    node_ranges=NodeRanges((), ()),
)
RUNNING = {
    each.identity.name.removesuffix("-controller"): each
    for each in controllers(ALL, "*,bootstrapsigner,tokencleaner")
}


@pytest.mark.parametrize(
    ("name", "account", "component", "workers"),
    [
        ("endpoints", "endpoint-controller", "endpoint-controller", 5),
        ("endpointslice", "endpointslice-controller", "endpoint-slice-controller", 5),
        (
            "endpointslice-mirroring",
            "endpointslicemirroring-controller",
            "endpoint-slice-mirroring-controller",
            5,
        ),
        ("service-cidr", "service-cidrs-controller", "service-cidr-controller", 5),
        ("replicationcontroller", "replication-controller", "replication-controller", 5),
        ("replicaset", "replicaset-controller", "replicaset-controller", 5),
        ("deployment", "deployment-controller", "deployment-controller", 5),
        ("statefulset", "statefulset-controller", "statefulset-controller", 5),
        ("daemonset", "daemon-set-controller", "daemonset-controller", 2),
        ("job", "job-controller", "job-controller", 5),
        ("cronjob", "cronjob-controller", "cronjob-controller", 5),
        (
            "ttl-after-finished",
            "ttl-after-finished-controller",
            "ttl-after-finished-controller",
            5,
        ),
        ("disruption", "disruption-controller", "controllermanager", 1),
        ("horizontal-pod-autoscaler", "horizontal-pod-autoscaler", "horizontal-pod-autoscaler", 5),
        ("garbage-collector", "generic-garbage-collector", "garbage-collector-controller", 20),
        ("node-lifecycle", "node-controller", "node-controller", 8),
        ("taint-eviction", "node-controller", "taint-eviction-controller", 8),
        (
            "persistentvolume-binder",
            "persistent-volume-binder",
            "persistentvolume-controller",
            1,
        ),
        ("ephemeral-volume", "ephemeral-volume-controller", "ephemeral_volume", 5),
        ("persistentvolume-expander", "expand-controller", "volume_expand", 10),
        ("resourceclaim", "resource-claim-controller", "resource_claim", 50),
    ],
)
def test_names(name: str, account: str, component: str, workers: int) -> None:
    found = RUNNING[name]
    assert found.identity.service_account == account
    assert found.identity.event_component == component
    assert found.workers == workers


@pytest.mark.parametrize(
    ("name", "service_account", "workers"),
    [
        ("namespace", "namespace-controller", 10),
        ("pod-garbage-collector", "pod-garbage-collector", 1),
        ("resourcequota", "resourcequota-controller", 5),
        ("serviceaccount", "service-account-controller", 1),
        ("root-ca-certificate-publisher", "root-ca-cert-publisher", 1),
        ("clusterrole-aggregation", "clusterrole-aggregation-controller", 5),
        ("validatingadmissionpolicy-status", "validatingadmissionpolicy-status-controller", 5),
        ("certificatesigningrequest-approving", "certificate-controller", 5),
        ("certificatesigningrequest-cleaner", "certificate-controller", 1),
        ("ttl", "ttl-controller", 5),
        ("persistentvolumeclaim-protection", "pvc-protection-controller", 1),
        ("persistentvolume-protection", "pv-protection-controller", 1),
    ],
)
def test_accounts_of_those_that_write_no_events(
    name: str, service_account: str, workers: int
) -> None:
    found = RUNNING[name]
    assert (found.identity.service_account, found.workers) == (service_account, workers)


def _limits(found: Controller) -> tuple[float, float, bool, int | None]:
    terms = found.back_off
    return terms.base_s, terms.max_s, terms.has_bucket, terms.retries_max


DEFAULT = (0.005, 1000.0, True, None)
GIVES_UP = (0.005, 1000.0, True, 15)


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("deployment", GIVES_UP),
        ("endpoints", GIVES_UP),
        ("service-cidr", GIVES_UP),
        ("endpointslice", (1.0, 1000.0, False, 15)),
        ("endpointslice-mirroring", (1.0, 100.0, True, 15)),
        ("namespace", (0.005, 60.0, True, None)),
        ("certificatesigningrequest-approving", (0.2, 1000.0, True, None)),
        ("job", (1.0, 60.0, False, None)),
        ("horizontal-pod-autoscaler", (15.0, 15.0, False, None)),
        ("replicaset", DEFAULT),
        ("statefulset", DEFAULT),
        ("daemonset", DEFAULT),
        ("cronjob", DEFAULT),
        ("garbage-collector", DEFAULT),
    ],
)
def test_how_long_failed_keys_wait(
    name: str, limits: tuple[float, float, bool, int | None]
) -> None:
    assert _limits(RUNNING[name]) == limits
