"""What nodes may be, and what of them may change."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.core.nodes import NODES
from tests.apiserver.kinds.hooks import (
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
    warnings_of,
)

NODE: dict[str, Any] = {"metadata": {"name": "n"}, "spec": {}, "status": {}}
STATUS = NODES.subresources["status"]
CONFIG_MAP = {"namespace": "ns", "name": "c", "kubeletConfigKey": "kubelet"}


def node(**spec: Any) -> dict[str, Any]:
    """Return a node with a spec."""
    return patched(NODE, {"spec": spec})


def with_status(**status: Any) -> dict[str, Any]:
    """Return a node with a status."""
    return patched(NODE, {"status": status})


@pytest.mark.parametrize(
    ("spec", "single", "several"),
    [
        ({}, None, None),
        ({"podCIDR": "10.0.0.0/24"}, "10.0.0.0/24", ["10.0.0.0/24"]),
        ({"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}, "10.0.0.0/24", ["10.0.0.0/24", "fd00::/64"]),
        ({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.0.0.0/24"]}, "10.1.0.0/24", ["10.1.0.0/24"]),
    ],
)
def test_pod_cidrs_are_joined(
    spec: dict[str, Any], single: str | None, several: list[str] | None
) -> None:
    """The single field wins where they differ."""
    found = prepared_object(NODES, node(**spec))["spec"]
    assert (found.get("podCIDR"), found.get("podCIDRs")) == (single, several)


def test_allocatable_is_the_capacity_if_it_is_not_given() -> None:
    """Amounts below a thousandth are rounded up."""
    found = prepared_object(NODES, with_status(capacity={"cpu": "1", "memory": "1u"}))["status"]
    assert found["allocatable"] == found["capacity"] == {"cpu": "1", "memory": "1m"}
    given = with_status(capacity={"cpu": "2"}, allocatable={"cpu": "1"})
    assert prepared_object(NODES, given)["status"]["allocatable"] == {"cpu": "1"}


def test_status_is_kept_on_creation_and_only_its_endpoint_changes_it() -> None:
    """As kubelets make their node with a status."""
    given = with_status(phase="Running", config={"error": "e"})
    old = prepared_object(NODES, given)
    assert old["status"] == {"phase": "Running"}
    new = patched(old, {"spec": {"unschedulable": True}, "status": {"phase": "Terminated"}})
    assert changed(NODES, new, old)["status"] == {"phase": "Running"}
    by_status = changed(STATUS, new, old)
    assert (by_status["spec"], by_status["status"]) == ({}, {"phase": "Terminated"})


def test_fields_of_gone_features_stay_only_where_they_are() -> None:
    """They are dropped from what is new."""
    source = {"configMap": CONFIG_MAP}
    assert "configSource" not in prepared_object(NODES, node(configSource=source))["spec"]
    old, new = node(configSource=source), node(configSource=source, externalID="")
    assert changed(NODES, new, old)["spec"]["configSource"] == source
    assert "configSource" not in changed(NODES, new, NODE)["spec"]
    had = with_status(config={"error": "a"})
    assert changed(STATUS, with_status(config={"error": "b"}), had)["status"]["config"] == {
        "error": "b"
    }
    assert changed(STATUS, had, NODE)["status"] == {}


@pytest.mark.parametrize(
    ("taint", "expected"),
    [
        ({"key": "a", "effect": "NoSchedule"}, []),
        ({"key": "a"}, ["metadata.taints[0].effect: Required value"]),
        (
            {"key": "a", "effect": "Never"},
            [
                'metadata.taints[0].effect: Unsupported value: "Never":'
                ' supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
            ],
        ),
        (
            {"key": "a", "effect": "NoExecute", "value": "-"},
            [
                'metadata.taints[0].value: Invalid value: "-": a valid label must be an empty'
                " string or consist of alphanumeric characters, '-', '_' or '.', and must start"
                " and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or"
                " '12345', regex used for validation is"
                " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ],
        ),
    ],
)
def test_taint(taint: dict[str, str], expected: list[str]) -> None:
    """Key, value and effect."""
    assert refusals(NODES, node(taints=[taint])) == expected


def test_taints_are_unique_by_key_and_effect() -> None:
    """The value does not matter."""
    taint = {"key": "a", "effect": "NoSchedule"}
    several = [taint, taint | {"effect": "NoExecute"}, taint | {"value": "v"}]
    assert refusals(NODES, node(taints=several)) == [
        'metadata.taints[2]: Duplicate value: {"Key":"a","Value":"v","Effect":"NoSchedule",'
        '"TimeAdded":null}: taints must be unique by key and effect pair'
    ]


@pytest.mark.parametrize(
    ("cidrs", "expected"),
    [
        (["10.0.0.0/24", "fd00::/64"], []),
        (
            ["10.0.0.0/24", "10.1.0.0/24"],
            [
                'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]:'
                " may specify no more than one CIDR for each IP family"
            ],
        ),
        (
            ["10.0.0.0/24", "fd00::/64", "fd01::/64"],
            [
                'spec.podCIDRs: Invalid value: ["10.0.0.0/24","fd00::/64","fd01::/64"]:'
                " may specify no more than one CIDR for each IP family"
            ],
        ),
    ],
)
def test_pod_cidrs(cidrs: list[str], expected: list[str]) -> None:
    """One of each family."""
    assert refusals(NODES, node(podCIDRs=cidrs)) == expected


def test_swap_capacity_is_positive() -> None:
    """The path is an old mistake."""
    info = {"nodeInfo": {"swap": {"capacity": 0}}}
    assert refusals(NODES, with_status(**info)) == [
        "metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero"
    ]
    assert refusals(NODES, with_status(nodeInfo={"swap": {"capacity": 1}})) == []


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (["A", "B/c"], []),
        (["B", "A"], ['[1]: Invalid value: "A": list must be sorted alphabetically']),
        (["A", "A"], ['[1]: Duplicate value: "A"']),
        (
            ["A" * 254],
            [
                f'[0]: Invalid value: "{"A" * 254}": invalid feature name "{"A" * 254}":'
                " must be no more than 253 characters"
            ],
        ),
        (
            ["a"],
            [
                '[0]: Invalid value: "a": invalid feature name "a": must start with an'
                " UpperCamelCase segment, with subsequent segments separated by '/' (e.g.,"
                " MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters"
                " and slashes"
            ],
        ),
    ],
)
def test_declared_features(features: list[str], expected: list[str]) -> None:
    """Sorted, each once, of a form of their own."""
    given = with_status(declaredFeatures=features)
    assert refusals(NODES, given) == [f"status.declaredFeatures{each}" for each in expected]
    assert change_refusals(STATUS, given, NODE) == [
        f"status.declaredFeatures{each}" for each in expected
    ]


def test_what_cannot_be_changed() -> None:
    """Pod CIDRs and the provider's ID once they are set; the external ID never."""
    old = node(podCIDRs=["10.0.0.0/24"], providerID="p://1", externalID="x")
    fixed = 'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'
    other = node(podCIDRs=["10.1.0.0/24"], providerID="p://2", externalID="y")
    assert change_refusals(NODES, other, old) == [
        fixed,
        "spec.providerID: Invalid value: null: field cannot be modified once set",
        "spec.externalID: Forbidden: may not be updated",
    ]
    assert change_refusals(NODES, node(externalID="x"), old) == [
        fixed,
        "spec.providerID: Invalid value: null: field cannot be cleared once set",
    ]
    assert change_refusals(NODES, old, node(externalID="x")) == []


def test_addresses_of_the_status_are_unique() -> None:
    """By type and address."""
    one = {"type": "InternalIP", "address": "10.0.0.1"}
    given = with_status(addresses=[one, one | {"type": "ExternalIP"}, one])
    assert change_refusals(STATUS, given, NODE) == [
        'status.addresses[2]: Duplicate value: {"Type":"InternalIP","Address":"10.0.0.1"}'
    ]


def test_config_source() -> None:
    """What is still there of it is checked on every change."""
    old = node(configSource={})
    bad = {"configMap": {"uid": "u", "name": "A", "kubeletConfigKey": ".."}}
    assert change_refusals(NODES, old, old) == [
        'spec.configSource: Invalid value: {"ConfigMap":null}:'
        " exactly one reference subfield must be non-nil"
    ]
    paths = [
        each.partition(": ")[0] for each in change_refusals(NODES, node(configSource=bad), old)
    ]
    prefix = "spec.configSource.configMap."
    assert paths == [prefix + each for each in ("uid", "namespace", "name", "kubeletConfigKey")]
    assert change_refusals(NODES, node(configSource={"configMap": CONFIG_MAP}), old) == []


def test_config_of_the_status() -> None:
    """Each source of it names one version of a ConfigMap."""
    old = with_status(config={})
    good = {"configMap": CONFIG_MAP | {"uid": "u", "resourceVersion": "1"}}
    bad = {"active": {"configMap": CONFIG_MAP}, "assigned": good, "lastKnownGood": {}}
    assert change_refusals(STATUS, with_status(config=bad), old) == [
        "status.config.active.configMap.uid: Required value",
        "status.config.active.configMap.resourceVersion: Required value",
        'status.config.lastKnownGood: Invalid value: {"ConfigMap":null}:'
        " exactly one reference subfield must be non-nil",
    ]


def test_warnings() -> None:
    """What is gone or deprecated, and addresses in bad form."""
    given = node(externalID="x", podCIDRs=["010.0.0.0/24"])
    assert warnings_of(NODES, given) == [
        "spec.externalID: this field is deprecated, and is unused by Kubernetes",
        'spec.podCIDRs[0]: non-standard CIDR value "010.0.0.0/24" is invalid: use "10.0.0.0/24"',
    ]


def test_selectable() -> None:
    """Unschedulable is false where it is not said."""
    assert NODES.selectable is not None
    assert NODES.selectable(NODE) == {"spec.unschedulable": "false"}
    assert NODES.selectable(node(unschedulable=True)) == {"spec.unschedulable": "true"}
