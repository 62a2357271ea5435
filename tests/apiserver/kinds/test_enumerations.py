"""Values that errors list in another order than the schema are the schema's nonetheless."""

import pytest

from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.admissionregistration import params
from kvstack.apiserver.kinds.core import nodes, priority_classes
from kvstack.apiserver.kinds.network import network_policies
from kvstack.apiserver.kinds.pods import scheduling, spec
from kvstack.apiserver.kinds.workloads import daemon_sets
from kvstack.apiserver.kinds.workloads.jobs import specs

API = "io.k8s.api"


@pytest.mark.parametrize(
    ("values", "type_name", "field"),
    [
        (
            params._ACTIONS,
            f"{API}.admissionregistration.v1alpha1.ParamRef",
            "parameterNotFoundAction",
        ),
        (nodes.TAINT_EFFECTS, f"{API}.core.v1.Taint", "effect"),
        (
            priority_classes.PREEMPTION_POLICIES,
            f"{API}.scheduling.v1.PriorityClass",
            "preemptionPolicy",
        ),
        (network_policies._PROTOCOLS, f"{API}.networking.v1.NetworkPolicyPort", "protocol"),
        (network_policies._TYPES, f"{API}.networking.v1.NetworkPolicySpec", "policyTypes"),
        (scheduling.TAINT_EFFECTS, f"{API}.core.v1.Toleration", "effect"),
        (spec.RESTART_POLICIES, f"{API}.core.v1.PodSpec", "restartPolicy"),
        (spec.DNS_POLICIES, f"{API}.core.v1.PodSpec", "dnsPolicy"),
        (spec.PREEMPTION_POLICIES, f"{API}.core.v1.PodSpec", "preemptionPolicy"),
        (daemon_sets._UPDATE_STRATEGIES, f"{API}.apps.v1.DaemonSetUpdateStrategy", "type"),
        ((specs.NON_INDEXED, specs.INDEXED), f"{API}.batch.v1.JobSpec", "completionMode"),
    ],
)
def test_values_in_an_order_of_their_own_are_the_schema_s(
    values: tuple[str, ...], type_name: str, field: str
) -> None:
    assert tuple(sorted(values)) == enum_values(type_name, field)
    assert values != enum_values(type_name, field)
