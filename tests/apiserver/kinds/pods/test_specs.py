"""Rules of the spec of a pod that few requests break."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from tests.apiserver.kinds.pods.examples import pod_with, refused, refused_change

SYSCTL_FORM = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"dnsConfig": {"nameservers": ["1.1.1.1"] * 4}},
            [
                'dnsConfig.nameservers: Invalid value: ["1.1.1.1","1.1.1.1","1.1.1.1","1.1.1.1"]:'
                " must not have more than 3 nameservers"
            ],
        ),
        (
            {"setHostnameAsFQDN": True, "hostnameOverride": "a.b"},
            ["hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true"],
        ),
        (
            {"hostNetwork": True, "hostnameOverride": "a"},
            ["hostnameOverride: Forbidden: may not be specified when hostNetwork is true"],
        ),
        (
            {"hostNetwork": True, "hostUsers": False},
            ["hostNetwork: Forbidden: when `hostUsers` is false"],
        ),
        (
            {"serviceAccountName": "a", "serviceAccount": "b"},
            [],
        ),
        (
            {"runtimeClassName": "a_b"},
            [
                'runtimeClassName: Invalid value: "a_b": a lowercase RFC 1123 subdomain must'
                " consist of lower case alphanumeric characters, '-' or '.', and must start and end"
                " with an alphanumeric character (e.g. 'example.com', regex used for validation is"
                " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ],
        ),
        (
            {"schedulingGates": [{"name": "a.b/c"}], "nodeName": "n"},
            ["nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
        ),
        (
            {
                "containers": [
                    {"name": "c", "image": "a", "ports": [{"containerPort": 80, "hostPort": 81}]}
                ],
                "hostNetwork": True,
            },
            [
                "containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort`"
                " when `hostNetwork` is true"
            ],
        ),
        ({"preemptionPolicy": ""}, ["preemptionPolicy: Required value"]),
        (
            {"hostUsers": False, "hostPID": True, "hostIPC": True},
            [
                "HostPID: Forbidden: when `hostUsers` is false",
                "HostIPC: Forbidden: when `hostUsers` is false",
            ],
        ),
        (
            {"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}},
            [
                "securityContext.windowsOptions: Forbidden:"
                " windows options cannot be set for a linux pod"
            ],
        ),
        (
            {"securityContext": {"sysctls": [{"name": "!", "value": "x"}]}},
            [
                'securityContext.sysctls[0].name: Invalid value: "!":'
                f" must have at most 253 characters and match regex {SYSCTL_FORM}"
            ],
        ),
    ],
)
def test_spec(spec: Object, expected: list[str]) -> None:
    """One field after the other."""
    assert [each.removeprefix("spec.") for each in refused(spec)] == expected


def test_search_list() -> None:
    """At most 32 domains, of at most 2048 characters with the blanks between them."""
    domains = [f"{'a' * 63}.{number}" for number in range(32)]
    (error,) = refused({"dnsConfig": {"searches": domains}})
    assert error.startswith("spec.dnsConfig.searches: Invalid value: [")
    assert error.endswith(
        ": must not have more than 2048 characters (including spaces) in the search list"
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost"}}},
            [
                "seccompProfile.localhostProfile: Required value: must be set when seccomp type"
                " is Localhost"
            ],
        ),
        (
            {
                "securityContext": {
                    "appArmorProfile": {"type": "Unconfined", "localhostProfile": "x"}
                }
            },
            [
                'appArmorProfile.localhostProfile: Invalid value: "x":'
                " can only be set when AppArmor type is Localhost"
            ],
        ),
        (
            {
                "securityContext": {
                    "appArmorProfile": {"type": "Localhost", "localhostProfile": "x" * 4096}
                }
            },
            ["appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes"],
        ),
        (
            {
                "securityContext": {"sysctls": [{"name": "net.a", "value": "1"}]},
                "hostNetwork": True,
            },
            [
                'sysctls[0].name: Invalid value: "net.a":'
                " may not be specified when 'hostNetwork' is true"
            ],
        ),
        (
            {
                "securityContext": {"sysctls": [{"name": "kernel.shmmax", "value": "1"}]},
                "hostIPC": True,
            },
            [
                'sysctls[0].name: Invalid value: "kernel.shmmax":'
                " may not be specified when 'hostIPC' is true"
            ],
        ),
        (
            {
                "securityContext": {
                    "sysctls": [{"name": "a", "value": "1"}, {"name": "a", "value": "1"}]
                }
            },
            ['sysctls[1].name: Duplicate value: "a"'],
        ),
        ({"securityContext": {"sysctls": [{"value": "1"}]}}, ["sysctls[0].name: Required value"]),
    ],
)
def test_security_of_the_pod(spec: Object, expected: list[str]) -> None:
    """Profiles and sysctls."""
    path = "spec.securityContext."
    assert [each.removeprefix(path) for each in refused(spec)] == expected


@pytest.mark.parametrize(
    ("context", "spec", "expected"),
    [
        (
            {"procMount": "x"},
            {},
            ['procMount: Unsupported value: "x": supported values: "Default", "Unmasked"'],
        ),
        (
            {"procMount": "Unmasked"},
            {},
            ['procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`'],
        ),
        ({"procMount": "Unmasked"}, {"hostUsers": False}, []),
    ],
)
def test_proc_mounts(context: Object, spec: Object, expected: list[str]) -> None:
    """An unmasked /proc needs a user namespace."""
    container = {"name": "c", "image": "a", "securityContext": context}
    path = "spec.containers[0].securityContext."
    errors = refused({"containers": [container], **spec})
    assert [each.removeprefix(path) for each in errors] == expected


def test_privileged_containers_are_disallowed_unless_they_are_allowed() -> None:
    """By a setting of the server."""
    container = {"name": "c", "image": "a", "securityContext": {"privileged": True}}
    assert refused({"containers": [container]}) == [
        "spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy"
    ]
    assert refused({"containers": [container]}, allow_privileged=True) == []


WINDOWS = {"os": {"name": "windows"}}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"gmsaCredentialSpec": ""},
            ['gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty string'],
        ),
        (
            {"gmsaCredentialSpec": "x" * 65537},
            ["gmsaCredentialSpec size must be under 64 KiB"],
        ),
        ({"runAsUserName": "a\\b\\c"}, ["runAsUserName cannot contain more than one backslash"]),
        (
            {"runAsUserName": f"{'a' * 256}\\b"},
            [
                "runAsUserName's Domain length must be under 256 characters",
                "runAsUserName's Domain doesn't match the NetBios nor the DNS format",
            ],
        ),
        (
            {"runAsUserName": ".a\\c"},
            ["runAsUserName's Domain doesn't match the NetBios nor the DNS format"],
        ),
        ({"runAsUserName": "a\\"}, ["runAsUserName's User cannot be empty"]),
    ],
)
def test_windows_options(options: Object, expected: list[str]) -> None:
    """Names of users and credential specs."""
    errors = refused({**WINDOWS, "securityContext": {"windowsOptions": options}})
    assert len(errors) == len(expected)
    for error, end in zip(errors, expected, strict=True):
        assert error.startswith("spec.securityContext.windowsOptions.")
        assert error.endswith(end)


def test_host_processes_of_windows() -> None:
    """All containers are in the network of the host, or none; a setting forbids them."""
    host = {"windowsOptions": {"hostProcess": True}}
    one = {"name": "c", "image": "a", "securityContext": host}
    other = {"name": "d", "image": "a"}
    allowed: dict[str, Any] = {"allow_privileged": True}
    assert refused({**WINDOWS, "hostNetwork": True, "containers": [one, other]}, **allowed) == [
        'spec: Invalid value: "": If pod contains any hostProcess containers then all containers'
        " must be HostProcess containers"
    ]
    conflict = {"windowsOptions": {"hostProcess": False}}
    assert refused(
        {**WINDOWS, "hostNetwork": True, "containers": [one], "securityContext": conflict},
        **allowed,
    )[0] == (
        "spec.containers[0].securityContext.windowsOptions.hostProcess: Invalid value: true:"
        " pod hostProcess value must be identical if both are specified, was false"
    )
    alone = {**WINDOWS, "hostNetwork": True, "containers": [one]}
    assert refused(alone, **allowed) == []
    assert refused(alone) == [
        "spec: Forbidden: hostProcess containers are disallowed by cluster policy"
    ]


def test_static_pods() -> None:
    """What only the server can give to pods, they cannot have."""
    annotations = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    claims = [{"name": "a", "resourceClaimName": "b"}]
    assert refused({"nodeName": "n", "resourceClaims": claims}, annotations) == [
        ": Forbidden: static pods do not support resource claims"
    ]
    assert refused({}, annotations) == [
        'metadata.annotations[kubernetes.io/config.mirror]: Invalid value: "x":'
        " must set spec.nodeName if mirror pod annotation is set"
    ]


def test_tokens_need_an_account() -> None:
    """A pod without one, made by a kubelet, cannot have a token."""
    source = {"serviceAccountToken": {"path": "t", "expirationSeconds": 600}}
    volume = {"name": "v", "projected": {"sources": [source], "defaultMode": 420}}
    pod = pod_with({"volumes": [volume], "serviceAccountName": None, "serviceAccount": None})
    assert "serviceAccountName" not in pod["spec"]
    assert refused({"volumes": [volume], "serviceAccountName": None, "serviceAccount": None}) == [
        "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden:"
        " must not be specified when serviceAccountName is not set"
    ]


@pytest.mark.parametrize(
    ("term", "labels", "expected"),
    [
        (
            {"matchLabelKeys": ["a"]},
            {},
            [".matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"],
        ),
        (
            {"labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["a"]},
            {"a": "x"},
            ['[0]: Invalid value: "a": exists in both matchLabelKeys and labelSelector'],
        ),
        (
            {"labelSelector": {}, "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"]},
            {},
            [
                '.matchLabelKeys[0]: Invalid value: "a":'
                " exists in both matchLabelKeys and mismatchLabelKeys"
            ],
        ),
    ],
)
def test_label_keys_of_affinity(term: Object, labels: Object, expected: list[str]) -> None:
    """They complete a selector that does not name them."""
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", **term}]}
    errors = refused({"affinity": {"podAffinity": terms}}, {"labels": labels})
    path = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
    assert [each.removeprefix(path) for each in errors] == expected


def test_resources_of_the_whole_pod() -> None:
    """They are not below what the containers need together."""
    container = {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}}
    containers = [{"name": name, "image": "a", **container} for name in "ab"]
    resources = {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    assert refused({"containers": containers, "resources": resources}) == [
        'spec.resources.requests[cpu]: Invalid value: "3":'
        " must be greater than or equal to aggregate container requests of 4",
    ]
    assert refused({"containers": containers, "resources": resources, **WINDOWS}) == [
        "spec.resources: Forbidden: may not be set for a windows pod"
    ]


def with_terms(affinity: str, term: Object) -> Object:
    """Return a spec with a required term of affinity to pods or nodes."""
    terms: Any = {"nodeSelectorTerms": [term]} if affinity == "nodeAffinity" else [term]
    return {"affinity": {affinity: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def with_container(**members: Any) -> Object:
    """Return a spec with a container that has other members."""
    return {"containers": [{"name": "c", "image": "a:1", **members}]}


BAD_VALUE = {"key": "a", "operator": "In", "values": ["-"]}
SPREAD = {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
BLOCK = {
    "hostUsers": False,
    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}],
}
TOKEN = {"serviceAccountToken": {"path": "../t", "expirationSeconds": 600}}


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "v", "projected": {"sources": [TOKEN], "defaultMode": 420}}]},
        with_terms(
            "podAffinity",
            {"topologyKey": "z", "labelSelector": {"matchExpressions": [BAD_VALUE]}},
        ),
        with_terms("nodeAffinity", {"matchExpressions": [BAD_VALUE]}),
        {
            "topologySpreadConstraints": [
                {**SPREAD, "labelSelector": {"matchExpressions": [BAD_VALUE]}}
            ]
        },
        with_container(
            resources={
                "requests": {"hugepages-2Mi": "3Mi", "cpu": "1"},
                "limits": {"hugepages-2Mi": "3Mi", "cpu": "1"},
            }
        ),
        {
            "hostNetwork": True,
            "securityContext": {"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]},
        },
        {**BLOCK, **with_container(volumeDevices=[{"name": "v", "devicePath": "/x"}])},
        {"hostUsers": False, "hostNetwork": True},
        {"volumes": [{"name": "v", "image": {"pullPolicy": "Always"}}]},
        with_container(
            securityContext={
                "allowPrivilegeEscalation": False,
                "capabilities": {"add": ["CAP_SYS_ADMIN"]},
            }
        ),
        {
            "initContainers": [
                {
                    "name": "i",
                    "image": "a:1",
                    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                }
            ]
        },
    ],
)
def test_stored_faults_are_forgiven(spec: Object) -> None:
    """Rules that came later do not stop updates of pods that were stored before."""
    assert len(refused(spec)) > 0
    assert refused_change(pod_with(spec, {"labels": {"a": "b"}}), pod_with(spec)) == []


def test_stored_label_keys_are_held_to_an_older_rule() -> None:
    """The selector of a spread constraint does not name what its label keys complete."""

    def pod(keys: list[str], selector: Object | None) -> Object:
        constraint = {**SPREAD, "matchLabelKeys": keys, "labelSelector": selector}
        if selector is None:
            del constraint["labelSelector"]
        return pod_with({"topologySpreadConstraints": [constraint]})

    path = "spec.topologySpreadConstraints[0].matchLabelKeys"
    bare = pod(["a"], None)
    assert refused_change(bare, bare) == [
        f"{path}: Forbidden: must not be specified when labelSelector is not set"
    ]
    twice = {
        "matchExpressions": [{"key": "a", "operator": "Exists"}],
        "matchLabels": {"a": "b"},
    }
    named = pod(["b", "a"], twice)
    assert refused_change(named, named) == [
        f'{path}[1]: Invalid value: "a": exists in both matchLabelKeys and labelSelector'
    ]
