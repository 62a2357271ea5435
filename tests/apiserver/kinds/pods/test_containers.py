"""Rules of single containers that few requests break."""

import pytest

from kvstack.apimachinery.objects.json_object import Object
from tests.apiserver.kinds.pods.examples import refused, refused_container

WEB = {"name": "c", "image": "a:1"}
DATA = {"name": "data", "emptyDir": {}}
BLOCK = {"name": "block", "persistentVolumeClaim": {"claimName": "x"}}


def test_names_are_unique_across_the_lists() -> None:
    """Ephemeral ones are told apart from the others; a target is no ephemeral one."""
    first, again = {"name": "c", "image": "a:1"}, {"name": "d", "image": "a:1"}
    assert refused({"containers": [first, again], "initContainers": [again]}) == [
        'spec.initContainers[0].name: Duplicate value: "d"'
    ]
    ephemeral = {"terminationMessagePolicy": "File", "imagePullPolicy": "Always"}
    added = [
        {"name": "e", "image": "a:1", "targetContainerName": "x", **ephemeral},
        {"name": "c", "image": "a:1", "targetContainerName": "e", **ephemeral},
    ]
    assert refused({"containers": [first], "ephemeralContainers": added}) == [
        'spec.ephemeralContainers[0].targetContainerName: Not found: "x"',
        'spec.ephemeralContainers[1].name: Duplicate value: "c"',
        'spec.ephemeralContainers[1].targetContainerName: Not found: "e"',
        "spec.ephemeralContainers: Forbidden: cannot be set on create",
    ]


def test_ephemeral_containers_are_bare() -> None:
    """What would keep a pod from ending, or cost it anything, is refused."""
    added = {
        "name": "e",
        "image": "a:1",
        "ports": [{"containerPort": 80, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
        "livenessProbe": {"exec": {"command": ["x"]}},
        "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
        "volumeMounts": [{"name": "data", "mountPath": "/x", "subPath": "y"}],
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    told = "Forbidden: cannot be set for an Ephemeral Container"
    path = "spec.ephemeralContainers[0]"
    assert refused({"volumes": [DATA], "ephemeralContainers": [added]}) == [
        f"{path}.ports: {told}",
        f"{path}.resources: {told}",
        f"{path}.livenessProbe: {told}",
        f"{path}.lifecycle: {told}",
        f"{path}.volumeMounts[0].subPath: {told}",
        "spec.ephemeralContainers: Forbidden: cannot be set on create",
    ]


@pytest.mark.parametrize(
    ("container", "spec", "expected"),
    [
        (
            {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]},
            {"restartPolicy": "Never"},
            [
                "resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod"
                " `restartPolicy` is 'Never'"
            ],
        ),
        (
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [
                    {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
                ]
                * 21,
            },
            {"restartPolicy": "Never"},
            ["restartPolicyRules: Too many: 21: must have at most 20 items"],
        ),
        (
            {
                "restartPolicy": "Never",
                "restartPolicyRules": [
                    {
                        "action": "Restart",
                        "exitCodes": {"operator": "In", "values": list(range(256))},
                    }
                ],
            },
            {"restartPolicy": "Never"},
            ["restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items"],
        ),
    ],
)
def test_policies(container: Object, spec: Object, expected: list[str]) -> None:
    """Limits of the lists, and what a pod that is never restarted cannot have."""
    assert refused_container(container, **spec) == expected


def test_init_containers_are_not_restarted_by_a_resize() -> None:
    """Only sidecars are."""
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    first = {"name": "i", "image": "a:1", "resizePolicy": policy}
    assert refused({"initContainers": [first]}) == [
        "spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value:"
        " \"RestartContainer\": must not be set to 'RestartContainer' for non-sidecar"
        " initContainers"
    ]
    assert refused({"initContainers": [{**first, "restartPolicy": "Always"}]}) == []


def test_mounts_and_devices_do_not_meet() -> None:
    """Neither by name nor by path."""
    container = {
        "volumeMounts": [{"name": "block", "mountPath": "/a"}, {"name": "data", "mountPath": "/b"}],
        "volumeDevices": [{"name": "block", "devicePath": "/b"}],
    }
    assert refused_container(container, volumes=[DATA, BLOCK]) == [
        'volumeMounts[0].name: Invalid value: "block": must not already exist in volumeDevices',
        'volumeMounts[1].mountPath: Invalid value: "/b":'
        " must not already exist as a path in volumeDevices",
        'volumeDevices[0].name: Invalid value: "block": must not already exist in volumeMounts',
        'volumeDevices[0].devicePath: Invalid value: "/b":'
        " must not already exist as a path in volumeMounts",
    ]


def test_recursively_read_only_mounts() -> None:
    """They are read-only, and nothing propagates."""
    mount = {"name": "data", "mountPath": "/a", "recursiveReadOnly": "Enabled"}
    assert refused_container({"volumeMounts": [mount]}, volumes=[DATA]) == [
        "volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true"
    ]
    propagating = {**mount, "readOnly": True, "mountPropagation": "HostToContainer"}
    assert refused_container({"volumeMounts": [propagating]}, volumes=[DATA]) == [
        "volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is"
        " None or not specified"
    ]


def test_variables_from_files() -> None:
    """The file is in an empty directory of the pod."""
    reference = {"volumeName": "block", "path": "env", "key": "A", "optional": False}
    variable = {"name": "A", "valueFrom": {"fileKeyRef": reference}}
    assert refused_container({"env": [variable]}, volumes=[BLOCK]) == [
        'env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "block":'
        " referenced volume must be of type emptyDir"
    ]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (
            {"requests": {"hugepages-2Mi": "4Mi"}, "limits": {"hugepages-2Mi": "4Mi"}},
            ["resources: Forbidden: HugePages require cpu or memory"],
        ),
        (
            {
                "requests": {"hugepages-2Mi": "3Mi", "cpu": "1"},
                "limits": {"hugepages-2Mi": "3Mi", "cpu": "1"},
            },
            [
                'resources.requests[hugepages-2Mi]: Invalid value: "3Mi":'
                " 3Mi is not positive integer multiple of hugepages-2Mi",
                'resources.limits[hugepages-2Mi]: Invalid value: "3Mi":'
                " 3Mi is not positive integer multiple of hugepages-2Mi",
            ],
        ),
        *(
            (
                {
                    "requests": {f"hugepages-{size}": "4Mi", "cpu": "1"},
                    "limits": {f"hugepages-{size}": "4Mi", "cpu": "1"},
                },
                [
                    f'resources.{list_name}[hugepages-{size}]: Invalid value: "4Mi":'
                    f" 4Mi is not positive integer multiple of hugepages-{size}"
                    for list_name in ("requests", "limits")
                ],
            )
            for size in ("x", "0")
        ),
    ],
)
def test_huge_pages(resources: Object, expected: list[str]) -> None:
    """They need other resources beside them, and come in whole pages."""
    assert sorted(refused_container({"resources": resources})) == sorted(expected)


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (
            {"exec": {"command": ["x"]}, "httpGet": {"path": "/", "port": 1}},
            ["httpGet: Forbidden: may not specify more than 1 handler type"],
        ),
        (
            {"httpGet": {"port": 0}},
            ["httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive"],
        ),
        ({"tcpSocket": {"port": "-"}}, None),
        (
            {"sleep": {"seconds": 31}},
            [
                "sleep: Invalid value: 31: must be non-negative and less than"
                " terminationGracePeriodSeconds (30)"
            ],
        ),
        ({}, [": Required value: must specify a handler type"]),
    ],
)
def test_handlers(handler: Object, expected: list[str] | None) -> None:
    """A handler is one of its kinds."""
    errors = refused_container({"lifecycle": {"preStop": handler}})
    path = "lifecycle.preStop"
    if expected is None:
        assert all(each.startswith(f"{path}.tcpSocket.port: Invalid value") for each in errors)
    else:
        assert [each.removeprefix(path).removeprefix(".") for each in errors] == expected


def test_probes() -> None:
    """Numbers of probes, and what readiness cannot have."""
    probe = {
        "exec": {"command": ["x"]},
        "terminationGracePeriodSeconds": 0,
        "successThreshold": 2,
        "periodSeconds": -1,
    }
    grace = "terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"
    assert refused_container({"readinessProbe": probe, "livenessProbe": probe}) == [
        "livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        f"livenessProbe.{grace}",
        "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        "readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
        f"readinessProbe.{grace}",
        "readinessProbe.terminationGracePeriodSeconds: Invalid value: 0:"
        " must not be set for readinessProbes",
    ]


@pytest.mark.parametrize(
    ("resource", "what"), [("memory", "memory"), ("hugepages-2Mi", "hugepages")]
)
def test_divisors(resource: str, what: str) -> None:
    """Sizes are told in units of 1000 or of 1024."""
    reference = {"resource": f"limits.{resource}", "divisor": "3"}
    variable = {"name": "A", "valueFrom": {"resourceFieldRef": reference}}
    units = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
    assert refused_container({"env": [variable]}) == [
        f'env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.{resource}":'
        f" only divisor's values {units} are supported with the {what} resource"
    ]
