"""The rules of Services, new and changed."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.network.services.strategy import SERVICES
from tests.apiserver.kinds.hooks import change_refusals, patched
from tests.apiserver.kinds.hooks import refusals as all_refusals
from tests.apiserver.kinds.network.services.cluster import HTTP, HTTPS, SINGLE, service, stored

STATUS = SERVICES.subresources["status"]
LOCAL = {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001}


def refusals(**spec: Any) -> list[str]:
    """Return what is wrong with a Service that has a cluster IP."""
    return all_refusals(SERVICES, stored(SINGLE, **spec))


def wrong_changes(patch: dict[str, Any], old: Object) -> list[str]:
    """Return what is wrong with a change of the spec."""
    return change_refusals(SERVICES, patched(old, {"spec": patch}), old)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, []),
        ({"ports": []}, ["spec.ports: Required value"]),
        ({"ports": [], "clusterIP": "None"}, []),
        (
            {"type": "NodePort", "clusterIP": "None"},
            [
                'spec.clusterIPs[0]: Invalid value: "None":'
                " may not be set to 'None' for NodePort services"
            ],
        ),
        (
            {"ports": [HTTP, HTTPS | {"name": ""}]},
            ["spec.ports[1].name: Required value"],
        ),
        (
            {"ports": [HTTP, HTTPS | {"name": "http"}]},
            ['spec.ports[1].name: Duplicate value: "http"'],
        ),
        (
            {"ports": [HTTP, HTTP | {"name": "other"}]},
            [
                'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,'
                '"Port":80,"TargetPort":0,"NodePort":0}'
            ],
        ),
        (
            {"ports": [HTTP | {"targetPort": "not a name"}]},
            [
                'spec.ports[0].targetPort: Invalid value: "not a name":'
                " must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            ],
        ),
        (
            {"ports": [HTTP | {"targetPort": 70000}]},
            [
                "spec.ports[0].targetPort: Invalid value: 70000:"
                " must be between 1 and 65535, inclusive"
            ],
        ),
        (
            {"ports": [HTTP | {"appProtocol": "/x", "protocol": "X"}]},
            [
                'spec.ports[0].protocol: Unsupported value: "X":'
                ' supported values: "SCTP", "TCP", "UDP"',
                'spec.ports[0].appProtocol: Invalid value: "/x": prefix part must be non-empty',
            ],
        ),
        (
            {"ports": [HTTP | {"nodePort": 30001}]},
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"],
        ),
        ({"type": "X"}, [
            'spec.type: Unsupported value: "X": supported values: "ClusterIP", "ExternalName",'
            ' "LoadBalancer", "NodePort"',
        ]),
        ({"selector": {"/a": "b"}}, [
            'spec.selector: Invalid value: "/a": prefix part must be non-empty'
        ]),
        ({"trafficDistribution": "Near"}, [
            'spec.trafficDistribution: Unsupported value: "Near":'
            ' supported values: "PreferClose", "PreferSameZone", "PreferSameNode"'
        ]),
        ({"internalTrafficPolicy": "X"}, [
            'spec.internalTrafficPolicy: Unsupported value: "X":'
            ' supported values: "Cluster", "Local"'
        ]),
        ({"externalTrafficPolicy": "Local"}, [
            'spec.externalTrafficPolicy: Invalid value: "Local":'
            " may only be set for externally-accessible services"
        ]),
        ({"externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.1"]}, []),
    ],
)  # fmt: skip
def test_ports_and_types(spec: dict[str, Any], expected: list[str]) -> None:
    """One rule each."""
    assert refusals(**spec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"sessionAffinity": "ClientIP"}, []),
        (
            {
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}},
            },
            [
                "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401:"
                " must be greater than 0 and less than 86400"
            ],
        ),
        (
            {"sessionAffinity": "X"},
            ['spec.sessionAffinity: Unsupported value: "X": supported values: "ClientIP", "None"'],
        ),
        (
            {"sessionAffinity": "X", "sessionAffinityConfig": {}},
            ['spec.sessionAffinity: Unsupported value: "X": supported values: "ClientIP", "None"'],
        ),
    ],
)
def test_session_affinity(spec: dict[str, Any], expected: list[str]) -> None:
    """Its time has bounds."""
    assert refusals(**spec) == expected


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (None, ""),
        ({}, ".clientIP"),
        ({"clientIP": {}}, ".clientIP.timeoutSeconds"),
    ],
)
def test_session_affinity_that_has_no_time(config: dict[str, Any] | None, path: str) -> None:
    """Defaults prevent it, what is stored may lack it."""
    given = stored()
    given["spec"] |= {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}
    (found,) = SERVICES.validate(given, None)  # type: ignore[arg-type]
    assert str(found) == (
        f"spec.sessionAffinityConfig{path}: Required value: when session affinity type is ClientIP"
    )


def test_affinity_config_without_affinity() -> None:
    """It is forbidden where defaults have not dropped it."""
    given = stored()
    given["spec"]["sessionAffinityConfig"] = {}
    (found,) = SERVICES.validate(given, None)  # type: ignore[arg-type]
    assert str(found) == (
        "spec.sessionAffinityConfig: Forbidden: must not be set when session affinity is None"
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"externalName": "a.b."}, []),
        ({"externalName": "."}, ["spec.externalName: Required value"]),
        (
            {"externalName": "a", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]},
            ["spec.clusterIPs: Forbidden: may not be set for ExternalName services"],
        ),
        (
            {
                "externalName": "a",
                "ipFamilies": ["IPv4"],
                "ipFamilyPolicy": "SingleStack",
            },
            [
                "spec.ipFamilies: Forbidden: may not be set for ExternalName services",
                "spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
            ],
        ),
        (
            {"externalName": "a", "ports": [HTTP | {"nodePort": 30001}]},
            [],
        ),
    ],
)
def test_external_names(spec: dict[str, Any], expected: list[str]) -> None:
    """They have no addresses."""
    assert refusals(type="ExternalName", **spec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"loadBalancerClass": "example.com/lb"}, []),
        (
            {"loadBalancerClass": "/lb"},
            ['spec.loadBalancerClass: Invalid value: "/lb": prefix part must be non-empty'],
        ),
        (
            {"type": "ClusterIP", "loadBalancerClass": "lb", "allocateLoadBalancerNodePorts": True},
            [
                "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is"
                " 'LoadBalancer'",
                "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
            ],
        ),
        ({"loadBalancerSourceRanges": [" 192.0.2.0/24 "]}, []),
        (
            {"loadBalancerSourceRanges": ["192.0.2.0"]},
            [
                'spec.LoadBalancerSourceRanges[0]: Invalid value: "192.0.2.0": must be a valid CIDR'
                " value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            ],
        ),
        (
            {"type": "NodePort", "loadBalancerSourceRanges": ["192.0.2.0/24"]},
            [
                "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is"
                " 'LoadBalancer'"
            ],
        ),
        (
            {"healthCheckNodePort": 30001},
            [
                "spec.healthCheckNodePort: Invalid value: 30001: may only be set when `type` is"
                " 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            ],
        ),
        (LOCAL, []),
    ],
)
def test_load_balancers(spec: dict[str, Any], expected: list[str]) -> None:
    """What only they may have."""
    assert refusals(**({"type": "LoadBalancer"} | spec)) == expected


def test_what_allocation_sets_is_needed() -> None:
    """As objects could be written without it."""
    given = stored(**LOCAL)
    for each in (
        "healthCheckNodePort",
        "allocateLoadBalancerNodePorts",
        "internalTrafficPolicy",
        "clusterIPs",
    ):
        del given["spec"][each]
    assert [str(each) for each in SERVICES.validate(given, None)] == [  # type: ignore[arg-type]
        "spec.clusterIPs: Required value",
        "allocateLoadBalancerNodePorts: Required value",
        "spec.healthCheckNodePort: Required value",
        "spec.internalTrafficPolicy: Required value",
    ]


RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("LoadBalancer", "192.0.2.0/24, 198.51.100.0/24", []),
        ("LoadBalancer", " ", []),
        (
            "LoadBalancer",
            "192.0.2.0/24,x",
            [
                f'metadata.annotations[{RANGES}]: Invalid value: "x": must be a valid CIDR value,'
                " (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            ],
        ),
        (
            "ClusterIP",
            "",
            [
                f"metadata.annotations[{RANGES}]: Forbidden: may only be used when `type` is"
                " 'LoadBalancer'"
            ],
        ),
    ],
)
def test_source_ranges_in_the_annotation(kind: str, text: str, expected: list[str]) -> None:
    """The old place of them; what is wrong may stay unchanged."""
    given = patched(stored(SINGLE, type=kind), {"metadata": {"annotations": {RANGES: text}}})
    assert all_refusals(SERVICES, given) == expected
    if kind == "LoadBalancer":
        assert change_refusals(SERVICES, given, given) == []


def test_topology_annotations_agree() -> None:
    """Where both are given."""
    names = {
        "service.kubernetes.io/topology-aware-hints": "auto",
        "service.kubernetes.io/topology-mode": "Auto",
    }
    given = patched(stored(), {"metadata": {"annotations": names}})
    assert all_refusals(SERVICES, given) == [
        'metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: "Auto": must'
        " match annotations[service.kubernetes.io/topology-aware-hints] when both are specified"
    ]


@pytest.mark.parametrize(
    ("ips", "expected"),
    [
        (["192.0.2.1", "2001:db8::1"], []),
        (
            ["127.0.0.1"],
            [
                '[0]: Invalid value: "127.0.0.1":'
                " may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ],
        ),
        (
            ["x"],
            [
                '[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or'
                " 2001:db8::ffff)"
            ],
        ),
    ],
)
def test_external_ips(ips: list[str], expected: list[str]) -> None:
    """Traffic to them cannot go to a node itself."""
    assert refusals(externalIPs=ips) == [f"spec.externalIPs{each}" for each in expected]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ({"clusterIP": "10.0.0.1"}, ["spec.clusterIPs: Required value"]),
        (
            {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.2"]},
            ['spec.clusterIPs: Invalid value: ["10.0.0.2"]: first value must match `clusterIP`'],
        ),
        (
            {"clusterIPs": ["10.0.0.2"]},
            [
                'spec.clusterIPs: Invalid value: ["10.0.0.2"]:'
                " must be empty when `clusterIP` is not specified"
            ],
        ),
        (
            {"clusterIP": "None", "clusterIPs": ["None", "10.0.0.1"]},
            [
                'spec.clusterIPs: Invalid value: ["None","10.0.0.1"]:'
                " 'None' must be the first and only value"
            ],
        ),
        (
            {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "10.0.0.2"]},
            [
                'spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]:'
                " may specify no more than one IP for each IP family"
            ],
        ),
        (
            {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1", "fd00::2"]},
            [
                'spec.clusterIPs: Invalid value: ["10.0.0.1","fd00::1","fd00::2"]:'
                " may only hold up to 2 values"
            ],
        ),
        (
            {"ipFamilies": ["IPv4", "IPv4", "IPv5"], "ipFamilyPolicy": "Any"},
            [
                'spec.ipFamilies[1]: Duplicate value: "IPv4"',
                'spec.ipFamilies[2]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"',
                'spec.ipFamilyPolicy: Unsupported value: "Any": supported values:'
                ' "PreferDualStack", "RequireDualStack", "SingleStack"',
            ],
        ),
        (
            {
                "clusterIP": "10.0.0.1",
                "clusterIPs": ["10.0.0.1", "fd00::1"],
                "ipFamilies": ["IPv6", "IPv4"],
            },
            [
                'spec.clusterIPs[0]: Invalid value: "10.0.0.1":'
                " expected an IPv6 value as indicated by `ipFamilies[0]`",
                'spec.clusterIPs[1]: Invalid value: "fd00::1":'
                " expected an IPv4 value as indicated by `ipFamilies[1]`",
            ],
        ),
    ],
)
def test_cluster_ips(addresses: dict[str, Any], expected: list[str]) -> None:
    """They agree with each other and with the families."""
    assert all_refusals(SERVICES, service(**addresses)) == expected


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({}, []),
        (
            {"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9", "fd00::101"]},
            [
                'spec.clusterIPs[0]: Invalid value: ["10.0.0.9","fd00::101"]:'
                " may not change once set"
            ],
        ),
        (
            {"clusterIPs": ["10.0.0.17"], "ipFamilies": ["IPv4"]},
            [
                'spec.ipFamilyPolicy: Invalid value: "RequireDualStack":'
                " must be set to 'SingleStack' when releasing the secondary clusterIP",
                'spec.ipFamilyPolicy: Invalid value: "RequireDualStack":'
                " must be set to 'SingleStack' when releasing the secondary ipFamily",
            ],
        ),
        (
            {
                "clusterIP": None,
                "clusterIPs": None,
                "ipFamilies": None,
                "ipFamilyPolicy": "SingleStack",
            },
            [
                "spec.clusterIPs[0]: Invalid value: null: primary clusterIP can not be unset",
                "spec.ipFamilies[0]: Invalid value: null: primary ipFamily can not be unset",
            ],
        ),
        (
            {
                "clusterIP": "fd00::101",
                "clusterIPs": ["fd00::101"],
                "ipFamilies": ["IPv6"],
                "ipFamilyPolicy": "SingleStack",
            },
            [
                'spec.clusterIPs[0]: Invalid value: ["fd00::101"]: may not change once set',
                'spec.ipFamilies[0]: Invalid value: ["fd00::101"]: may not change once set',
            ],
        ),
        (
            {"ipFamilies": ["IPv4", "IPv4"]},
            [
                'spec.ipFamilies[0]: Invalid value: ["IPv4","IPv4"]: may not change once set',
                'spec.ipFamilies[1]: Duplicate value: "IPv4"',
                'spec.clusterIPs[1]: Invalid value: "fd00::101":'
                " expected an IPv4 value as indicated by `ipFamilies[1]`",
            ],
        ),
    ],
)
def test_changed_addresses(patch: dict[str, Any], expected: list[str]) -> None:
    """The first one stays."""
    assert wrong_changes(patch, stored(ipFamilyPolicy="RequireDualStack")) == expected


def test_headless_services_may_change_their_families() -> None:
    """As nothing is allocated for them."""
    old = stored(clusterIP="None", selector={"a": "b"})
    assert wrong_changes({"ipFamilies": ["IPv6"]}, old) == []


def test_class_and_health_check_port_stay() -> None:
    """While the Service is a LoadBalancer."""
    old = stored(**LOCAL, loadBalancerClass="a")
    assert wrong_changes({"loadBalancerClass": None, "healthCheckNodePort": 30002}, old) == [
        "spec.loadBalancerClass: Invalid value: null: may not change once set",
        "spec.healthCheckNodePort: Forbidden: field is immutable",
    ]
    assert wrong_changes({"loadBalancerClass": "b"}, stored(type="LoadBalancer")) == [
        'spec.loadBalancerClass: Invalid value: "b": may not change once set'
    ]


def balanced(*ingress: dict[str, Any], kind: str = "LoadBalancer") -> Object:
    """Return a Service whose load balancer says something."""
    return patched(stored(type=kind), {"status": {"loadBalancer": {"ingress": list(ingress)}}})


@pytest.mark.parametrize(
    ("ingress", "expected"),
    [
        ({"ip": "192.0.2.1"}, []),
        ({"hostname": "a.b"}, []),
        (
            {"ip": "x", "ipMode": "Other"},
            [
                'ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or'
                " 2001:db8::ffff)",
                'ipMode: Unsupported value: "Other": supported values: "Proxy", "VIP"',
            ],
        ),
        (
            {"ipMode": "VIP", "hostname": "192.0.2.1"},
            [
                "ipMode: Forbidden: may not be specified when `ip` is not set",
                'hostname: Invalid value: "192.0.2.1": must be a DNS name, not an IP address',
            ],
        ),
    ],
)
def test_status(ingress: dict[str, Any], expected: list[str]) -> None:
    """Addresses are with a mode, names without."""
    paths = [f"status.loadBalancer.ingress[0].{each}" for each in expected]
    assert change_refusals(STATUS, balanced(ingress), stored(type="LoadBalancer")) == paths


def test_status_of_other_types() -> None:
    """It has no load balancer."""
    given = balanced({"hostname": "a"}, kind="NodePort")
    assert change_refusals(STATUS, given, stored(type="NodePort")) == [
        "status.loadBalancer.ingress: Forbidden:"
        " may only be used when `spec.type` is 'LoadBalancer'"
    ]


def test_mode_that_older_versions_did_not_store() -> None:
    """Where no default filled it in."""
    given = balanced({"ip": "192.0.2.1"})
    given["status"]["loadBalancer"]["ingress"][0].pop("ipMode", None)
    (found,) = STATUS.validate_update(given, stored(type="LoadBalancer"), None)  # type: ignore[arg-type]
    assert str(found) == (
        "status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set"
    )
