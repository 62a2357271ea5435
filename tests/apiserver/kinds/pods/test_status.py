"""The status of pods, as kubelets write it."""

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods.strategy import PODS
from tests.apiserver.kinds.hooks import change_refusals, changed, warnings_of_change
from tests.apiserver.kinds.pods.examples import pod_with

STATUS = PODS.subresources["status"]


def refused(
    status: Object, old_status: Object | None = None, spec: Object | None = None
) -> list[str]:
    """Return the errors of writing a status, without `status.`."""
    old = pod_with(spec or {}, status={"phase": "Running", **(old_status or {})})
    new = pod_with(spec or {}, status={"phase": "Running", **status})
    return [each.removeprefix("status.") for each in change_refusals(STATUS, new, old)]


def terminated(name: str, code: int) -> Object:
    """Return the status of a container that has ended."""
    return {"name": name, "state": {"terminated": {"exitCode": code}}}


def running(name: str) -> Object:
    """Return the status of a container that runs."""
    return {"name": name, "state": {"running": {}}}


WITH_DEVICE: Object = {
    "name": "c",
    "image": "a",
    "resources": {"requests": {"a.b/c": "1"}, "limits": {"a.b/c": "1"}},
}
RESTARTED = "containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"


@pytest.mark.parametrize(
    ("spec", "code", "expected"),
    [
        ({"restartPolicy": "Always"}, 0, []),
        ({"restartPolicy": "OnFailure"}, 1, []),
        ({"restartPolicy": "OnFailure"}, 0, [RESTARTED]),
        ({"restartPolicy": "Never"}, 1, [RESTARTED]),
        (
            {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "a", "restartPolicy": "OnFailure"}],
            },
            1,
            [],
        ),
        (
            {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "c",
                        "image": "a",
                        "restartPolicy": "Never",
                        "restartPolicyRules": [
                            {"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}
                        ],
                    }
                ],
            },
            3,
            [],
        ),
        (
            {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "c",
                        "image": "a",
                        "restartPolicy": "Never",
                        "restartPolicyRules": [
                            {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [3]}}
                        ],
                    }
                ],
            },
            3,
            [RESTARTED],
        ),
    ],
)
def test_restarts(spec: Object, code: int, expected: list[str]) -> None:
    """A container that is not to be restarted does not run again."""
    old = {"containerStatuses": [terminated("c", code)]}
    assert refused({"containerStatuses": [running("c")]}, old, spec) == expected


def test_restarts_of_init_containers() -> None:
    """Those that have ended well stay so, sidecars may run again."""
    first = {"name": "i", "image": "a"}
    old, new = (
        {"initContainerStatuses": [terminated("i", 0)]},
        {"initContainerStatuses": [running("i")]},
    )
    spec = {"restartPolicy": "Never", "initContainers": [first]}
    assert refused(new, old, spec) == [
        "initContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    ]
    spec["initContainers"] = [{**first, "restartPolicy": "Always"}]
    assert refused(new, old, spec) == []


ONE_OF_A_FAMILY = "may specify no more than one IP for each IP family"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "fd00::1"}], "podIP": "1.2.3.4"}, []),
        ({"podIP": "1.2.3.4"}, []),
        (
            {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}], "podIP": "1.2.3.4"},
            [f'podIPs: Invalid value: [{{"IP":"1.2.3.4"}},{{"IP":"1.2.3.5"}}]: {ONE_OF_A_FAMILY}'],
        ),
        (
            {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "x"}], "podIP": "1.2.3.4"},
            [
                'podIPs[1]: Invalid value: "x": must be a valid IP address,'
                " (e.g. 10.9.8.7 or 2001:db8::ffff)",
                "podIPs: Internal error: failed to check for dual stack with error:invalid IP[1]:"
                " x",
                f'podIPs: Invalid value: [{{"IP":"1.2.3.4"}},{{"IP":"x"}}]: {ONE_OF_A_FAMILY}',
            ],
        ),
        ({"podIPs": [{"ip": "1.2.3.4"}]}, []),
        (
            {"podIPs": [{}]},
            [
                'podIPs[0]: Invalid value: "": must be a valid IP address,'
                " (e.g. 10.9.8.7 or 2001:db8::ffff)",
                'podIPs: Invalid value: [{"IP":""}]:'
                " podIP and podIPs must either both be set or both be unset",
            ],
        ),
        ({"hostIPs": [{"ip": "1.2.3.4"}], "hostIP": "1.2.3.4"}, []),
        (
            {"hostIPs": [{"ip": "1.2.3.4"}], "hostIP": "1.2.3.5"},
            ['hostIPs[0].ip: Invalid value: "1.2.3.4": must be equal to `hostIP`'],
        ),
    ],
)
def test_addresses(status: Object, expected: list[str]) -> None:
    """One of each family, the first one twice."""
    assert refused(status) == expected


def test_users_of_containers() -> None:
    """Numbers of users and groups, on Linux alone."""
    user = {"linux": {"uid": -1, "gid": -1, "supplementalGroups": [-2]}}
    statuses = [{**running("c"), "user": user}]
    path = "containerStatuses[0].user.linux"
    assert refused({"containerStatuses": statuses}) == [
        f"{path}.uid: Invalid value: -1: must be between 0 and 4294967295, inclusive",
        f"{path}.gid: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        f"{path}.supplementalGroups[0]: Invalid value: -2:"
        " must be between 0 and 2147483647, inclusive",
    ]
    assert refused({"containerStatuses": statuses}, spec={"os": {"name": "windows"}}) == [
        f"{path}: Forbidden: cannot be set for a windows pod"
    ]


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        ({"resourceID": "a", "health": "Healthy"}, []),
        (
            {"resourceID": "a", "health": "Fine"},
            [
                'health: Unsupported value: "Fine": supported values: "Healthy", "Unhealthy",'
                ' "Unknown"'
            ],
        ),
        (
            {"resourceID": "a", "health": "Healthy", "message": ""},
            ["message: Required value: must be non-empty if specified"],
        ),
        (
            {"resourceID": "a", "health": "Healthy", "message": "x" * 1025},
            ["message: Too long: may not be more than 1024 bytes"],
        ),
    ],
)
def test_health_of_resources(health: Object, expected: list[str]) -> None:
    """What a device plugin says of a device."""
    status = {
        **running("c"),
        "allocatedResourcesStatus": [{"name": "a.b/c", "resources": [health]}],
    }
    path = "containerStatuses[0].allocatedResourcesStatus[0].resources[0]."
    errors = refused({"containerStatuses": [status]}, spec={"containers": [WITH_DEVICE]})
    assert [each.removeprefix(path) for each in errors] == expected


def test_health_of_unknown_resources() -> None:
    """The container must have asked for them."""
    status = {**running("c"), "allocatedResourcesStatus": [{"name": "a.b/c"}]}
    (error,) = refused({"containerStatuses": [status]})
    assert error.startswith(
        'containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: "a.b/c"'
    )


def test_observed_generations_stay() -> None:
    """A writer that does not know them does not drop them."""
    condition = {"type": "Ready", "status": "True"}
    old = pod_with(
        {}, status={"observedGeneration": 3, "conditions": [{**condition, "observedGeneration": 2}]}
    )
    new = pod_with({}, status={"conditions": [condition, {"type": "A", "status": "True"}]})
    status = changed(STATUS, new, old)["status"]
    assert status["observedGeneration"] == 3
    assert [each.get("observedGeneration") for each in status["conditions"]] == [2, None]


def test_what_a_status_cannot_change() -> None:
    """The spec, owners, and that the pod is being deleted."""
    owners = [{"kind": "A", "name": "a"}]
    old = pod_with({"nodeName": "n"}, {"ownerReferences": owners, "deletionTimestamp": "x"})
    new = pod_with(
        {"nodeName": "m"}, {"deletionTimestamp": "x", "labels": {"a": "b"}}, {"phase": "Failed"}
    )
    found = changed(STATUS, new, old)
    assert found["spec"]["nodeName"] == "n"
    assert found["metadata"]["ownerReferences"] == owners
    assert found["metadata"]["deletionTimestamp"] == "x"
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["status"] == {"phase": "Failed"}
    del old["metadata"]["deletionTimestamp"]
    assert "deletionTimestamp" not in changed(STATUS, new, old)["metadata"]


def test_warnings_about_addresses() -> None:
    """Forms that have more than one spelling."""
    new = pod_with({}, status={"podIPs": [{"ip": "::ffff:1.2.3.4"}], "podIP": "::ffff:1.2.3.4"})
    (warning,) = warnings_of_change(STATUS, new, pod_with({}))
    assert warning.startswith("status.podIPs[0].ip: ")


def test_claims() -> None:
    """Statuses of claims name claims of the spec, each once."""
    claims = [{"name": "a", "resourceClaimTemplateName": "t"}]
    statuses = [{"name": "a", "resourceClaimName": "A"}, {"name": "b"}, {"name": "a"}]
    errors = refused({"resourceClaimStatuses": statuses}, spec={"resourceClaims": claims})
    first, *others = errors
    assert first.startswith(
        'resourceClaimStatuses[0].resourceClaimName: Invalid value: "A": a lower'
    )
    assert others == [
        'resourceClaimStatuses[1].name: Invalid value: "b":'
        " must match the name of an entry in `spec.resourceClaims`",
        'resourceClaimStatuses[2].name: Duplicate value: "a"',
    ]


NO_ENTRY = "must match the extended resource name of an entry in"


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ({"containerName": "c", "resourceName": "a.b/c", "requestName": "r"}, []),
        (
            {"containerName": "d", "resourceName": "a.b/c", "requestName": "r"},
            [
                'requestMappings[0].containerName: Invalid value: "d": must match the name of an'
                " entry in spec.initContainers.name or spec.containers.name"
            ],
        ),
        (
            {"containerName": "c", "resourceName": "a.b/d", "requestName": "r"},
            [
                f'requestMappings[0].resourceName: Invalid value: "a.b/d": {NO_ENTRY}'
                " spec.initContainers.resources.requests or spec.containers.resources.requests"
            ],
        ),
    ],
)
def test_claims_of_extended_resources(mapping: Object, expected: list[str]) -> None:
    """Which container's request each part of the claim is for."""
    claim = {"resourceClaimName": "claim", "requestMappings": [mapping]}
    path = "extendedResourceClaimStatus."
    errors = refused({"extendedResourceClaimStatus": claim}, spec={"containers": [WITH_DEVICE]})
    assert [each.removeprefix(path) for each in errors] == expected


def test_a_request_is_mapped_once() -> None:
    """All three names tell mappings apart."""
    mapping = {"containerName": "c", "resourceName": "a.b/c", "requestName": "r"}
    claim = {"resourceClaimName": "claim", "requestMappings": [mapping, mapping]}
    path = "extendedResourceClaimStatus.requestMappings[1]"
    errors = refused({"extendedResourceClaimStatus": claim}, spec={"containers": [WITH_DEVICE]})
    assert errors == [
        f'{path}.{name}: Duplicate value: "{value}"' for name, value in mapping.items()
    ]


def test_claims_outlive_writers_that_do_not_know_them() -> None:
    """As long as they do not write them."""
    claim = {"resourceClaimName": "claim", "requestMappings": []}
    old = pod_with({}, status={"extendedResourceClaimStatus": claim})
    found = changed(STATUS, pod_with({}, status={"phase": "Running"}), old)
    assert found["status"]["extendedResourceClaimStatus"] == claim


CLAIM_FORM = (
    "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when"
    " container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty"
)


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("claim:x", True),
        ("claim:y/r", True),
        ("claim:y", False),
        ("claim:made/e", True),
        ("claim:made/f", False),
        ("claim:other/e", False),
    ],
)
def test_health_of_claimed_devices(name: str, is_known: bool) -> None:  # noqa: FBT001
    """Of a claim, of one request of it, or of what stands for an extended resource."""
    resources = {
        **WITH_DEVICE["resources"],
        "claims": [{"name": "x"}, {"name": "y", "request": "r"}],
    }
    mapping = {"containerName": "c", "resourceName": "a.b/c", "requestName": "e"}
    claims = [{"name": each, "resourceClaimName": each} for each in "xy"]
    status = {
        "containerStatuses": [{**running("c"), "allocatedResourcesStatus": [{"name": name}]}],
        "extendedResourceClaimStatus": {
            "resourceClaimName": "made",
            "requestMappings": [mapping],
        },
    }
    spec = {"containers": [{**WITH_DEVICE, "resources": resources}], "resourceClaims": claims}
    path = "containerStatuses[0].allocatedResourcesStatus[0].name"
    error = f'{path}: Invalid value: "{name}": {CLAIM_FORM}'
    assert refused(status, spec=spec) == ([] if is_known else [error])


def test_ephemeral_containers_have_no_devices() -> None:
    """Nor do they run again."""
    name = {"name": "e", "state": {"terminated": {"exitCode": 0}}}
    again = {**running("e"), "allocatedResourcesStatus": [{"name": "a.b/c"}]}
    errors = refused(
        {"ephemeralContainerStatuses": [again]}, {"ephemeralContainerStatuses": [name]}
    )
    assert sorted(errors) == [
        "ephemeralContainerStatuses[0].allocatedResourcesStatus: Forbidden:"
        " must not be specified in container status",
        "ephemeralContainerStatuses[0].state: Forbidden:"
        " may not be transitioned to non-terminated state",
    ]


def test_health_of_volumes() -> None:
    """Nobody writes it yet; where it is stored it names volumes of the pod."""
    conditions = [{"reason": "A"}, {"reason": "-"}, {}]
    health = [{"name": "v", "healthConditions": conditions}, {"name": "w"}]
    status = {"volumeHealth": health}
    found, reason = refused(status, status, {"volumes": [{"name": "v", "emptyDir": {}}]})
    assert found.startswith('volumeHealth[0].healthConditions[1].reason: Invalid value: "-"')
    assert reason == 'volumeHealth[1].name: Not found: "w"'
    assert refused(status) == []


def test_claims_of_what_nodes_can_allocate() -> None:
    """As the health of volumes."""
    amounts = [
        {"name": "cpu", "quantity": "1"},
        {"name": "a.b/c", "quantity": "-1"},
    ]
    overhead = [{"name": "hugepages-2Mi", "perPod": "1"}, {"name": "memory"}]
    claims = [
        {"resourceClaimName": "x", "mapping": amounts, "overhead": overhead},
        {"resourceClaimName": "y"},
        {},
    ]
    status = {"nodeAllocatableResourceClaimStatuses": claims}
    path = "nodeAllocatableResourceClaimStatuses"
    spec = {"resourceClaims": [{"name": "a", "resourceClaimName": "x"}]}
    assert refused(status, status, spec) == [
        f'{path}[0].mapping[1].name: Invalid value: "a.b/c":'
        " must be a node allocatable resource name",
        f'{path}[0].mapping[1].quantity: Invalid value: "-1": must be non-negative',
        f'{path}[0].overhead[1]: Invalid value: "":'
        " at least one of perPod or perContainer must be set",
        f'{path}[1].resourceClaimName: Invalid value: "y": no mapping found in pod reference',
    ]
    assert refused(status, None, spec) == []
