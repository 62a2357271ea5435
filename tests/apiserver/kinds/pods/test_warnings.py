"""What is told about pods that are taken."""

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.workloads.pod_templates import POD_TEMPLATES
from tests.apiserver.kinds.hooks import warnings_of
from tests.apiserver.kinds.pods.examples import pod_with, warned

TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE = "failure-domain.beta.kubernetes.io/zone"
ZONE_NOW = 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'


def containers(*members: Object) -> Object:
    """Return a spec with these containers."""
    return {
        "containers": [
            {"name": f"c{position}", "image": "a:1", **each}
            for position, each in enumerate(members)
        ]
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {ZONE: "a"}}, [f"nodeSelector[{ZONE}]: {ZONE_NOW}"]),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        TERMS: {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}
                            ]
                        }
                    }
                }
            },
            [
                f"affinity.nodeAffinity.{TERMS}.nodeSelectorTerms[0].matchExpressions[0].key:"
                f" {ZONE} is {ZONE_NOW}"
            ],
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            [
                f"topologySpreadConstraints[0].topologyKey: {ZONE} is {ZONE_NOW}",
                "topologySpreadConstraints[0].labelSelector: a null labelSelector results in"
                " matching no pod",
            ],
        ),
        (
            {"affinity": {"podAffinity": {TERMS: [{"topologyKey": "a"}]}}},
            [
                f"affinity.podAffinity.{TERMS}[0].labelSelector: a null labelSelector results in"
                " matching no pod"
            ],
        ),
        (
            containers({"env": [{"name": "A", "value": "b"}, {"name": "A", "value": "c"}]}),
            [
                'containers[0].env[1]: hides previous definition of "A", which may be dropped when'
                " using apply"
            ],
        ),
        (
            containers({"env": [{"name": "A", "value": "b"}, {"name": "A", "value": "$(A)c"}]}),
            [],
        ),
        (
            containers(
                {"ports": [{"containerPort": 80, "hostPort": 90, "protocol": "TCP"}] * 2},
            ),
            None,
        ),
        (
            {"imagePullSecrets": [{"name": "a"}, {"name": "a"}]},
            ['imagePullSecrets[1].name: duplicate name "a"'],
        ),
        (
            {"hostAliases": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}]},
            ['hostAliases[1].ip: duplicate ip "1.2.3.4"'],
        ),
        ({"imagePullSecrets": [{}]}, ['imagePullSecrets[0].name: invalid empty name ""']),
        (
            containers({"resources": {"requests": {"memory": "1m"}, "limits": {"memory": "2"}}}),
            [
                'containers[0].resources.requests[memory]: fractional byte value "1m" is invalid,'
                " must be an integer"
            ],
        ),
        ({"dnsConfig": {"nameservers": ["::ffff:1.2.3.4"]}}, None),
        (
            {"nodeSelector": {"beta.kubernetes.io/os": "linux"}},
            [
                "nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14;"
                ' use "kubernetes.io/os" instead'
            ],
        ),
    ],
)
def test_warnings(spec: Object, expected: list[str] | None) -> None:
    """One rule after the other."""
    texts = [each.removeprefix("spec.") for each in warned(spec)]
    if expected is None:
        assert len(texts) == 1
    else:
        assert texts == expected


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (
            [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}],
            [],
        ),
        (
            [{"containerPort": 80, "protocol": "TCP"}] * 2,
            [
                "spec.containers[1].ports[0]: duplicate port definition with"
                " spec.containers[0].ports[0]"
            ],
        ),
        (
            [
                {"containerPort": 80, "protocol": "TCP"},
                {"containerPort": 80, "hostPort": 90, "protocol": "TCP"},
            ],
            [
                "spec.containers[1].ports[0]: overlapping port definition with"
                " spec.containers[0].ports[0]"
            ],
        ),
        (
            [
                {"containerPort": 80, "hostPort": 90, "protocol": "TCP"},
                {"containerPort": 80, "hostPort": 90, "hostIP": "1.2.3.4", "protocol": "TCP"},
            ],
            [
                "spec.containers[1].ports[0]: dangerously ambiguous port definition with"
                " spec.containers[0].ports[0]"
            ],
        ),
    ],
)
def test_ports(ports: list[Object], expected: list[str]) -> None:
    """The same port of two containers."""
    assert warned(containers(*({"ports": [each]} for each in ports))) == expected


def test_names_of_ports() -> None:
    """One name for two ports."""
    port = {"name": "web", "protocol": "TCP"}
    spec = containers(
        {"ports": [{**port, "containerPort": 80}]}, {"ports": [{**port, "containerPort": 81}]}
    )
    (warning,) = warned(spec)
    assert warning == (
        'spec.containers[1].ports[0]: duplicate port name "web" with spec.containers[0].ports[0],'
        " services and probes that select ports by name will use spec.containers[0].ports[0]"
    )


def test_overlapping_files() -> None:
    """Two sources of a volume with one file, or one below the other."""
    sources = [
        {"configMap": {"name": "a", "items": [{"key": "k", "path": "x"}]}},
        {"secret": {"name": "b", "items": [{"key": "k", "path": "x"}]}},
    ]
    volume = {"name": "v", "projected": {"sources": sources, "defaultMode": 420}}
    (warning,) = warned({"volumes": [volume]})
    assert warning.startswith('volume "v" (Projected): overlapping paths: "x" (')


def test_annotations_that_became_fields() -> None:
    """Profiles; those of AppArmor are taken over into the field."""
    annotations = {
        "seccomp.security.alpha.kubernetes.io/pod": "runtime/default",
        "container.seccomp.security.alpha.kubernetes.io/c": "runtime/default",
        "container.apparmor.security.beta.kubernetes.io/c": "runtime/default",
    }
    found = warned({}, {"annotations": annotations})
    non_functional = 'non-functional in v1.27+; use the "seccompProfile" field instead'
    assert sorted(found) == [
        f"metadata.annotations[{name}]: {non_functional}"
        for name in sorted(annotations)
        if "seccomp" in name
    ]


def test_templates_get_more_warnings() -> None:
    """Profiles of AppArmor stay annotations in them, and times below zero stay."""
    name = "container.apparmor.security.beta.kubernetes.io/c"
    template = pod_with(
        {"terminationGracePeriodSeconds": -1}, {"annotations": {name: "runtime/default"}}
    )
    obj = {"metadata": {"name": "t", "namespace": "ns"}, "template": template}
    assert warnings_of(POD_TEMPLATES, obj) == [
        f'template.metadata.annotations[{name}]: deprecated since v1.30; use the "appArmorProfile"'
        " field instead",
        "template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid"
        " and will be treated as 1",
    ]


def test_files_of_one_certificate() -> None:
    """The key and the chain are two files."""
    certificate = {
        "keyType": "ED25519",
        "signerName": "a.b/c",
        "keyPath": "x",
        "certificateChainPath": "x",
    }
    volume = {"name": "v", "projected": {"sources": [{"podCertificate": certificate}]}}
    assert warned({"volumes": [volume]}) == [
        'volume "v" (Projected): overlapping paths: "x" (PodCertificate key) with "x"'
        " (PodCertificate chain)"
    ]
