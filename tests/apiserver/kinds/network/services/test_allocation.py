"""What Services take when they are created, changed and deleted."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.allocators.cluster_ips import address_range
from kvstack.apiserver.kinds.network.services.allocation import (
    Allocation,
    Pools,
    allocate_create,
    fill_stored,
    release_all,
)
from tests.apiserver.kinds.network.services.cluster import (
    DUAL,
    HTTP,
    HTTPS,
    PORTS,
    SINGLE,
    pools,
    service,
    stored,
    update,
)

LOCAL = {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}


def address_fields(spec: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a spec says of its addresses."""
    return tuple(
        spec.get(each) for each in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
    )


def numbers(spec: dict[str, Any]) -> list[int]:
    """Return the node ports of a spec."""
    return [each.get("nodePort", 0) for each in spec["ports"]]


def refusal(given: dict[str, Any], chosen: Pools = DUAL, *, is_dry_run: bool = False) -> str:
    """Return why a Service is not created."""
    with pytest.raises(ApiError) as error:
        allocate_create(given, chosen, is_dry_run=is_dry_run)
    return f"{error.value.code} {error.value.message}"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ("10.0.0.17", ["10.0.0.17"], ["IPv4"], "SingleStack")),
        (
            {"ipFamilyPolicy": "PreferDualStack"},
            ("10.0.0.17", ["10.0.0.17", "fd00::101"], ["IPv4", "IPv6"], "PreferDualStack"),
        ),
        (
            {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]},
            ("fd00::101", ["fd00::101", "10.0.0.17"], ["IPv6", "IPv4"], "RequireDualStack"),
        ),
        (
            {"ipFamilies": ["IPv6"]},
            ("fd00::101", ["fd00::101"], ["IPv6"], "SingleStack"),
        ),
        (
            {"clusterIP": "fd00:0::5"},
            ("fd00:0::5", ["fd00:0::5"], ["IPv6"], "SingleStack"),
        ),
        (
            {"clusterIP": "10.0.0.5", "ipFamilyPolicy": "PreferDualStack"},
            ("10.0.0.5", ["10.0.0.5", "fd00::101"], ["IPv4", "IPv6"], "PreferDualStack"),
        ),
        (
            {"clusterIP": "None", "selector": {"a": "b"}},
            ("None", ["None"], ["IPv4"], "SingleStack"),
        ),
        ({"clusterIP": "None"}, ("None", ["None"], ["IPv4", "IPv6"], "RequireDualStack")),
        ({"type": "ExternalName", "externalName": "a.b"}, (None, None, None, None)),
    ],
)
def test_addresses_of_new_services(spec: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """The single field is the first of the list; families follow addresses."""
    made = service(**spec)
    allocation = allocate_create(made, DUAL)
    assert address_fields(made["spec"]) == expected
    ips = [each for each in expected[1] or [] if each != "None"]
    canonical = [each.replace("fd00:0::", "fd00::") for each in ips]
    assert allocation.claimed_addresses == canonical


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"ipFamilyPolicy": "PreferDualStack"},
            ("10.0.0.17", ["10.0.0.17"], ["IPv4"], "PreferDualStack"),
        ),
        ({"clusterIP": "None"}, ("None", ["None"], ["IPv4", "IPv6"], "RequireDualStack")),
    ],
)
def test_addresses_in_a_cluster_of_one_family(
    spec: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """There, a preference for two is one; nobody balances headless Services without selector."""
    made = service(**spec)
    allocate_create(made, SINGLE)
    assert address_fields(made["spec"]) == expected


@pytest.mark.parametrize(
    ("spec", "detail"),
    [
        (
            {"ipFamilyPolicy": "RequireDualStack"},
            'spec.ipFamilyPolicy: Invalid value: "RequireDualStack":'
            " this cluster is not configured for dual-stack services",
        ),
        (
            {"ipFamilies": ["IPv6"]},
            'spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster',
        ),
        (
            {"clusterIP": "fd00::5"},
            'spec.clusterIPs[0]: Invalid value: ["fd00::5"]:'
            " IPv6 is not configured on this cluster",
        ),
        (
            {"clusterIP": "10.1.0.1"},
            'spec.clusterIPs: Invalid value: ["10.1.0.1"]: failed to allocate IP 10.1.0.1:'
            " the provided network does not match the current range",
        ),
        (
            {"clusterIP": "x"},
            'spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7'
            " or 2001:db8::ffff)",
        ),
    ],
)
def test_refused_addresses(spec: dict[str, Any], detail: str) -> None:
    """As invalid Services."""
    assert refusal(service(**spec), SINGLE) == f'422 Service "s" is invalid: {detail}'


def test_refused_pairs() -> None:
    """Several of anything need a policy for several."""
    given = service(
        clusterIP="10.0.0.5", clusterIPs=["10.0.0.5", "fd00::5"], ipFamilies=["IPv4", "IPv6"]
    )
    text = "must be 'RequireDualStack' or 'PreferDualStack' when multiple {} are specified"
    assert refusal(given) == (
        '422 Service "s" is invalid: [spec.ipFamilyPolicy: Invalid value: "SingleStack": '
        f'{text.format("cluster IPs")}, spec.ipFamilyPolicy: Invalid value: "SingleStack": '
        f"{text.format('IP families')}]"
    )


def test_taken_address() -> None:
    """By its canonical name."""
    given = service(clusterIP="10.0.0.5")
    assert refusal(given, pools(taken={"10.0.0.5"})).endswith(
        "failed to allocate IP 10.0.0.5: provided IP is already allocated"
    )


def test_full_ranges() -> None:
    """Are the server's fault."""
    small = pools("10.0.0.0/30", taken={"10.0.0.1", "10.0.0.2"}, ports=list(range(30000, 30100)))
    assert refusal(service(), small) == (
        '500 Internal error occurred: failed to allocate a serviceIP for Service "s": range is full'
    )
    small = pools(ports=list(range(30000, 30100)))
    assert refusal(service(type="NodePort"), small) == (
        "500 Internal error occurred: failed to allocate a nodePort: range is full"
    )
    given = service(**LOCAL, allocateLoadBalancerNodePorts=False)
    assert refusal(given, small) == (
        "500 Internal error occurred: failed to allocate a HealthCheck NodePort 0: range is full"
    )


def test_dry_run() -> None:
    """It shows the network's own address and made-up ports, and claims nothing of the ranges."""
    made = service(type="NodePort", ports=[HTTP, HTTPS])
    allocate_create(made, DUAL, is_dry_run=True)
    assert made["spec"]["clusterIPs"] == ["10.0.0.0"]
    assert numbers(made["spec"]) == [32769, 32770]
    given = service(clusterIP="10.1.0.1")
    assert refusal(given, is_dry_run=True).endswith(
        "failed to allocate IP 10.1.0.1: the provided IP (10.1.0.1) is not in the valid range."
        " The range of valid IPs is 10.0.0.0/24"
    )


def test_dry_run_without_a_ready_range() -> None:
    """The Service is refused."""
    closed = Pools(
        families=["IPv4"],
        ranges=[address_range("10.0.0.0/24", is_ready=False)],
        taken_addresses=set(),
        port_range=PORTS,
        taken_ports=0,
        random_below=lambda n: 0,
    )
    assert refusal(service(), closed, is_dry_run=True) == (
        '422 Service "s" is invalid: spec.clusterIPs: Invalid value: [""]:'
        " failed to allocate IP: allocator not ready"
    )


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([HTTP, HTTPS], [30016, 30017]),
        ([HTTP, HTTPS | {"nodePort": 30001}], [30016, 30001]),
        ([HTTP, HTTP | {"name": "u", "protocol": "UDP"}], [30016, 30016]),
        ([HTTP, HTTP | {"name": "u", "protocol": "UDP", "nodePort": 30001}], [30001, 30001]),
        ([HTTP | {"nodePort": 30001}, HTTP | {"name": "u", "protocol": "UDP"}], [30001, 30001]),
        (
            [HTTP | {"nodePort": 30001}, HTTP | {"protocol": "UDP", "nodePort": 30002}],
            [30001, 30002],
        ),
    ],
)
def test_node_ports_of_new_services(ports: list[dict[str, Any]], expected: list[int]) -> None:
    """Ports of one number share a node port if they do not ask for different ones."""
    made = service(type="NodePort", ports=ports)
    allocation = allocate_create(made, DUAL)
    assert numbers(made["spec"]) == expected
    assert sorted(allocation.ports.claimed) == sorted(set(expected))


def test_one_node_port_for_two_numbers_is_refused() -> None:
    """Also for different protocols."""
    ports = [HTTP | {"nodePort": 30001}, HTTPS | {"protocol": "UDP", "nodePort": 30001}]
    given = service(type="NodePort", ports=ports)
    assert refusal(given) == (
        '422 Service "s" is invalid: spec.ports[1].nodePort: Invalid value: 30001:'
        " provided port is already allocated"
    )


def test_load_balancer_without_node_ports() -> None:
    """Those that are asked for are claimed all the same."""
    ports = [HTTP, HTTPS | {"nodePort": 30001}]
    made = service(type="LoadBalancer", allocateLoadBalancerNodePorts=False, ports=ports)
    assert allocate_create(made, DUAL).ports.claimed == [30001]
    assert numbers(made["spec"]) == [0, 30001]


def test_health_check_port() -> None:
    """Of a LoadBalancer with local traffic only."""
    made = service(**LOCAL)
    allocation = allocate_create(made, DUAL)
    assert made["spec"]["healthCheckNodePort"] == 30017
    assert allocation.ports.claimed == [30016, 30017]
    assert refusal(service(**LOCAL, healthCheckNodePort=30001), pools(ports=[30001])) == (
        "500 Internal error occurred: failed to allocate requested HealthCheck NodePort 30001:"
        " provided port is already allocated"
    )
    assert stored(**LOCAL, healthCheckNodePort=30001)["spec"]["healthCheckNodePort"] == 30001


def test_what_the_client_left_out_is_put_back() -> None:
    """So that it may send the same again."""
    old = stored(**LOCAL)
    new, allocation = update(
        old,
        {
            "clusterIP": None,
            "clusterIPs": None,
            "healthCheckNodePort": None,
            "ports": [HTTP],
        },
    )
    assert new["spec"] == old["spec"]
    assert (allocation.claimed_addresses, allocation.ports.claimed) == ([], [])
    assert allocation.ports.released == []


def test_node_ports_move_with_the_names_of_their_ports() -> None:
    """One that is asked for elsewhere does not."""
    old = stored(type="NodePort", ports=[HTTP, HTTPS])
    swapped, allocation = update(old, {"ports": [HTTPS, HTTP]})
    assert numbers(swapped["spec"]) == [30017, 30016]
    assert (allocation.ports.claimed, allocation.ports.released) == ([], [])
    ports = [HTTP, HTTPS | {"nodePort": 30016}]
    new, allocation = update(old, {"ports": ports}, pools(ports=[30016, 30017]))
    assert numbers(new["spec"]) == [30018, 30016]
    assert (allocation.ports.claimed, allocation.ports.released) == ([30018], [30017])


def test_new_and_gone_ports() -> None:
    """Are claimed and released."""
    old = stored(type="NodePort")
    ports = [HTTPS | {"nodePort": 30005}]
    new, allocation = update(old, {"ports": ports})
    assert numbers(new["spec"]) == [30005]
    assert (allocation.ports.claimed, allocation.ports.released) == ([30005], [30016])
    with pytest.raises(ApiError) as error:
        update(old, {"ports": ports}, pools(ports=[30005]))
    assert error.value.message == (
        'Service "s" is invalid: spec.ports[0].nodePort: Invalid value: 30005:'
        " provided port is already allocated"
    )


def test_one_node_port_twice_in_a_change() -> None:
    """For one protocol that is an error, told in other words than at creation."""
    ports = [HTTP | {"nodePort": 30005}, HTTPS | {"nodePort": 30005}]
    with pytest.raises(ApiError) as error:
        update(stored(type="NodePort"), {"ports": ports})
    assert (error.value.code, error.value.message) == (500, "duplicate nodePort: {TCP 30005}")


def test_load_balancer_that_gives_up_node_ports() -> None:
    """What it has stays, what it asks for anew is none."""
    old = stored(type="LoadBalancer")
    ports = [HTTP | {"nodePort": 30016}, HTTPS]
    new, allocation = update(old, {"ports": ports, "allocateLoadBalancerNodePorts": False})
    assert numbers(new["spec"]) == [30016, 0]
    assert allocation.ports.claimed == []


@pytest.mark.parametrize("policy", ["SingleStack", "PreferDualStack"])
def test_to_and_from_external_name(policy: str) -> None:
    """All addresses go and come."""
    old = stored(ipFamilyPolicy=policy, type="NodePort")
    ips = old["spec"]["clusterIPs"]
    external, allocation = update(old, {"type": "ExternalName", "externalName": "a.b"})
    assert allocation.released_addresses == ips
    assert allocation.ports.released == [30016]
    outside = service(type="ExternalName", externalName="a.b", ports=None)
    new, allocation = update(outside, {"type": "ClusterIP", "ipFamilyPolicy": policy})
    assert allocation.claimed_addresses == new["spec"]["clusterIPs"] == ips
    assert external["spec"]["type"] == "ExternalName"


def test_second_address_comes_and_goes() -> None:
    """With the policy."""
    old = stored()
    both, allocation = update(old, {"ipFamilyPolicy": "PreferDualStack"})
    expected = ("10.0.0.17", ["10.0.0.17", "fd00::101"], ["IPv4", "IPv6"], "PreferDualStack")
    assert address_fields(both["spec"]) == expected
    assert allocation.claimed_addresses == ["fd00::101"]
    one, allocation = update(both, {"ipFamilyPolicy": "SingleStack"})
    assert address_fields(one["spec"]) == ("10.0.0.17", ["10.0.0.17"], ["IPv4"], "SingleStack")
    assert allocation.released_addresses == ["fd00::101"]


def test_second_address_that_is_asked_for() -> None:
    """By the list."""
    patch = {"ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["10.0.0.17", "fd00::5"]}
    both, allocation = update(stored(), patch)
    assert both["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    assert allocation.claimed_addresses == ["fd00::5"]


def test_second_address_cannot_go_without_the_policy() -> None:
    """Each list is told of."""
    old = stored(ipFamilyPolicy="RequireDualStack")
    with pytest.raises(ApiError) as error:
        update(old, {"clusterIPs": ["10.0.0.17"], "ipFamilies": ["IPv4"]})
    text = "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": must be 'SingleStack' to"
    assert error.value.message == (
        f'Service "s" is invalid: [{text} release the secondary cluster IP,'
        f" {text} release the secondary IP family]"
    )


def test_preference_is_not_carried_out_by_other_changes() -> None:
    """A Service from before the cluster had two families keeps its one address."""
    old = stored(SINGLE, ipFamilyPolicy="PreferDualStack")
    new, allocation = update(old, {"selector": {"a": "b"}}, DUAL)
    assert address_fields(new["spec"]) == address_fields(old["spec"])
    assert allocation.claimed_addresses == []


def test_headless_service_takes_nothing() -> None:
    """Whatever its families become."""
    old = stored(clusterIP="None", selector={"a": "b"})
    new, allocation = update(old, {"ipFamilyPolicy": "RequireDualStack"})
    assert new["spec"]["ipFamilies"] == ["IPv4", "IPv6"]
    assert allocation == Allocation(allocation.ports)


def test_cluster_ip_that_the_client_changes_in_one_field_only() -> None:
    """The list follows; the rules then refuse it."""
    new, _ = update(stored(), {"clusterIP": "10.0.0.9"})
    assert new["spec"]["clusterIPs"] == ["10.0.0.9"]


def test_health_check_port_comes_and_goes() -> None:
    """With the traffic policy."""
    old = stored(type="LoadBalancer")
    local, allocation = update(old, {"externalTrafficPolicy": "Local"}, pools(ports=[30016]))
    assert local["spec"]["healthCheckNodePort"] == 30017
    assert allocation.ports.claimed == [30017]
    _, allocation = update(local, {"externalTrafficPolicy": "Cluster"})
    assert allocation.ports.released == [30017]


def test_all_is_released() -> None:
    """Of a deleted Service."""
    allocation = release_all(stored(**LOCAL, ipFamilyPolicy="PreferDualStack"), DUAL)
    assert allocation.released_addresses == ["10.0.0.17", "fd00::101"]
    assert allocation.ports.released == [30016, 30017]
    assert release_all(stored(clusterIP="None"), DUAL).released_addresses == []


def test_a_service_of_an_older_version_is_changed_and_released() -> None:
    """It has no lists of addresses and families; what is stored stays as it is."""
    old = stored()
    for each in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        del old["spec"][each]
    new, allocation = update(old, {"sessionAffinity": "ClientIP"})
    assert new["spec"]["clusterIPs"] == [old["spec"]["clusterIP"]]
    assert new["spec"]["ipFamilies"] == ["IPv4"]
    assert allocation.ports.claimed == []
    before = dict(old["spec"])
    assert release_all(old, DUAL).released_addresses == [old["spec"]["clusterIP"]]
    assert old["spec"] == before


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"clusterIP": "10.0.0.5"}, ("10.0.0.5", ["10.0.0.5"], ["IPv4"], "SingleStack")),
        ({"clusterIP": "fd00::5"}, ("fd00::5", ["fd00::5"], ["IPv6"], "SingleStack")),
        (
            {"clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::5"]},
            ("10.0.0.5", ["10.0.0.5", "fd00::5"], ["IPv4", "IPv6"], "RequireDualStack"),
        ),
        (
            {"clusterIP": "None", "selector": {"a": "b"}},
            ("None", ["None"], ["IPv6"], "SingleStack"),
        ),
        ({"clusterIP": "None"}, ("None", ["None"], ["IPv6", "IPv4"], "RequireDualStack")),
        ({"type": "ExternalName"}, (None, None, None, None)),
        ({}, (None, None, None, None)),
    ],
)
def test_stored_service_of_older_versions(spec: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """It is filled in when it is read, in a cluster whose default is IPv6."""
    old = {"metadata": {"name": "s"}, "spec": dict(spec)}
    fill_stored(old, "IPv6")
    assert address_fields(old["spec"]) == expected


def test_stored_external_name_has_no_internal_policy() -> None:
    """Older versions set one."""
    old = {"spec": {"type": "ExternalName", "internalTrafficPolicy": "Cluster"}}
    fill_stored(old, "IPv4")
    assert old["spec"] == {"type": "ExternalName"}
