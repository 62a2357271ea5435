"""Defaults of Services, what a change of type drops, warnings and cells."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.network.services.strategy import SERVICES
from tests.apiserver.kinds.hooks import (
    cells_of,
    changed,
    patched,
    prepared_object,
    warnings_of,
    warnings_of_change,
)
from tests.apiserver.kinds.network.services.cluster import HTTP, HTTPS, service, stored

STATUS = SERVICES.subresources["status"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {},
            {
                "sessionAffinity": "None",
                "type": "ClusterIP",
                "internalTrafficPolicy": "Cluster",
            },
        ),
        (
            {"type": "NodePort"},
            {
                "sessionAffinity": "None",
                "type": "NodePort",
                "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster",
            },
        ),
        (
            {"type": "LoadBalancer", "sessionAffinity": "ClientIP"},
            {
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                "type": "LoadBalancer",
                "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster",
                "allocateLoadBalancerNodePorts": True,
            },
        ),
        ({"type": "ExternalName"}, {"sessionAffinity": "None", "type": "ExternalName"}),
        (
            {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {}}},
            {
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                "type": "ClusterIP",
                "internalTrafficPolicy": "Cluster",
            },
        ),
        (
            {"sessionAffinity": "None", "sessionAffinityConfig": {"clientIP": {}}},
            {
                "sessionAffinity": "None",
                "type": "ClusterIP",
                "internalTrafficPolicy": "Cluster",
            },
        ),
    ],
)
def test_defaults(spec: dict[str, Any], expected: dict[str, Any]) -> None:
    """Each type has its own."""
    assert prepared_object(SERVICES, {"metadata": {"name": "s"}, "spec": spec})["spec"] == expected


def test_defaults_of_ports() -> None:
    """A port leads to itself over TCP."""
    ports = [{"port": 80}, {"port": 81, "protocol": "UDP", "targetPort": "web"}]
    given = {"metadata": {"name": "s"}, "spec": {"ports": ports}}
    assert prepared_object(SERVICES, given)["spec"]["ports"] == [
        {"port": 80, "protocol": "TCP", "targetPort": 80},
        {"port": 81, "protocol": "UDP", "targetPort": "web"},
    ]


def test_mode_of_addresses_in_the_status() -> None:
    """It is VIP by default, of LoadBalancers only."""
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "h"}]}}
    balanced = service(type="LoadBalancer") | {"status": status}
    found = changed(STATUS, balanced, stored(type="LoadBalancer"))["status"]["loadBalancer"]
    assert found["ingress"] == [{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "h"}]


LOAD_BALANCER = {
    "type": "LoadBalancer",
    "externalTrafficPolicy": "Local",
    "loadBalancerClass": "c",
    "healthCheckNodePort": 30050,
}


@pytest.mark.parametrize(
    ("kind", "gone"),
    [
        (
            "ExternalName",
            {
                "clusterIP",
                "clusterIPs",
                "ipFamilies",
                "ipFamilyPolicy",
                "healthCheckNodePort",
                "allocateLoadBalancerNodePorts",
                "loadBalancerClass",
                "externalTrafficPolicy",
                "internalTrafficPolicy",
            },
        ),
        (
            "ClusterIP",
            {
                "healthCheckNodePort",
                "allocateLoadBalancerNodePorts",
                "loadBalancerClass",
                "externalTrafficPolicy",
            },
        ),
        (
            "NodePort",
            {"healthCheckNodePort", "allocateLoadBalancerNodePorts", "loadBalancerClass"},
        ),
    ],
)
def test_change_of_type(kind: str, gone: set[str]) -> None:
    """What the new type cannot have goes."""
    old = stored(**LOAD_BALANCER)
    old["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    new = changed(SERVICES, patched(old, {"spec": {"type": kind}}), old)
    assert old["spec"].keys() - new["spec"].keys() == gone
    assert new["status"] == {"loadBalancer": {}}
    has_port = "nodePort" in new["spec"]["ports"][0]
    assert has_port == (kind == "NodePort")


def test_what_the_client_changed_with_the_type_stays() -> None:
    """For the rules to refuse."""
    old = stored(**LOAD_BALANCER)
    patch = {
        "type": "ClusterIP",
        "loadBalancerClass": "d",
        "allocateLoadBalancerNodePorts": False,
        "healthCheckNodePort": 30051,
        "externalTrafficPolicy": "Cluster",
        "ports": [HTTP | {"nodePort": 30033}],
    }
    new = changed(SERVICES, patched(old, {"spec": patch}), old)["spec"]
    assert {name: new.get(name) for name in patch} == patch


def test_each_endpoint_changes_its_part() -> None:
    """The status of a new Service is empty."""
    given = service() | {"status": {"conditions": [{"type": "A"}]}}
    assert prepared_object(SERVICES, given)["status"] == {"loadBalancer": {}}
    old = stored()
    new = patched(given, {"spec": {"externalName": "x"}})
    assert changed(SERVICES, new, old)["status"] == old["status"]
    assert changed(STATUS, new, old)["spec"] == old["spec"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        (
            {
                "clusterIP": "None",
                "loadBalancerIP": "192.0.2.1",
                "externalIPs": ["192.0.2.1"],
                "sessionAffinity": "ClientIP",
            },
            [
                "spec.loadBalancerIP is ignored for headless services",
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
            ],
        ),
        (
            {"externalIPs": ["192.0.2.01"], "externalName": "x"},
            [
                'spec.externalIPs[0]: non-standard IP address "192.0.2.01" is invalid:'
                ' use "192.0.2.1"',
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
                'spec.externalName is ignored when spec.type is not "ExternalName"',
            ],
        ),
        (
            {"type": "ExternalName", "externalName": "x", "externalIPs": ["192.0.2.1"]},
            ['spec.externalIPs is ignored when spec.type is "ExternalName"'],
        ),
        (
            {
                "type": "LoadBalancer",
                "loadBalancerIP": "192.0.2.01",
                "loadBalancerSourceRanges": ["192.0.2.1/24"],
            },
            [
                'spec.loadBalancerIP: non-standard IP address "192.0.2.01" is invalid:'
                ' use "192.0.2.1"',
                'spec.loadBalancerSourceRanges[0]: CIDR value "192.0.2.1/24" is ambiguous in this'
                ' context (should be "192.0.2.0/24" or "192.0.2.1/32"?)',
            ],
        ),
        (
            {"trafficDistribution": "PreferClose"},
            ['spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'],
        ),
    ],
)
def test_warnings(spec: dict[str, Any], expected: list[str]) -> None:
    """On creation and on change."""
    given = service(**spec)
    assert warnings_of(SERVICES, given) == expected
    assert warnings_of_change(SERVICES, given, given) == expected


def test_warning_of_the_old_annotation() -> None:
    """It has a new name."""
    name = "service.kubernetes.io/topology-aware-hints"
    given = patched(service(), {"metadata": {"annotations": {name: "auto"}}})
    assert warnings_of(SERVICES, given) == [
        f"annotation {name} is deprecated, please use service.kubernetes.io/topology-mode instead"
    ]


def test_warning_of_addresses_in_the_status() -> None:
    """In bad form."""
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.01"}]}}
    given = stored(type="LoadBalancer") | {"status": status}
    assert warnings_of_change(STATUS, given, stored(type="LoadBalancer")) == [
        'status.loadBalancer.ingress[0]: non-standard IP address "192.0.2.01" is invalid:'
        ' use "192.0.2.1"'
    ]


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, ["s", "ClusterIP", "10.0.0.17", "<none>", "80/TCP", "3m", "<none>"]),
        (
            {
                "type": "NodePort",
                "ports": [HTTP, HTTPS],
                "selector": {"b": "c", "a": "b"},
                "externalIPs": ["192.0.2.1"],
            },
            {},
            [
                "s",
                "NodePort",
                "10.0.0.17",
                "192.0.2.1",
                "80:30016/TCP,443:30017/TCP",
                "3m",
                "a=b,b=c",
            ],
        ),
        (
            {"type": "LoadBalancer", "externalIPs": ["192.0.2.9"]},
            {"ingress": [{"hostname": "h"}, {"ip": "192.0.2.1"}, {"ip": "192.0.2.1"}]},
            [
                "s",
                "LoadBalancer",
                "10.0.0.17",
                "192.0.2.1,h,192.0.2.9",
                "80:30016/TCP",
                "3m",
                "<none>",
            ],
        ),
        (
            {"type": "LoadBalancer"},
            {},
            ["s", "LoadBalancer", "10.0.0.17", "<pending>", "80:30016/TCP", "3m", "<none>"],
        ),
        (
            {"type": "ExternalName", "externalName": "a.b", "ports": []},
            {},
            ["s", "ExternalName", "<none>", "a.b", "<none>", "3m", "<none>"],
        ),
        (
            {"clusterIP": "None"},
            {},
            ["s", "ClusterIP", "None", "<none>", "80/TCP", "3m", "<none>"],
        ),
    ],
)
def test_cells(spec: dict[str, Any], status: dict[str, Any], expected: list[Any]) -> None:
    """External addresses depend on the type."""
    given = stored(**spec) | {"status": {"loadBalancer": status}}
    assert cells_of(SERVICES, given) == expected


def test_cells_of_an_unknown_type() -> None:
    """Which an older version may have stored."""
    given = service(type="X") | {"status": {}}
    assert cells_of(SERVICES, given)[3] == "<unknown>"


def test_selectable() -> None:
    """By address and type."""
    assert SERVICES.selectable is not None
    assert SERVICES.selectable(stored()) == {
        "spec.clusterIP": "10.0.0.17",
        "spec.type": "ClusterIP",
    }
