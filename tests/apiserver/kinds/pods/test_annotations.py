"""Annotations of pods that mean something."""

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods.annotations import app_armor_profile, is_deletion_cost
from tests.apiserver.kinds.pods.examples import pod_with, refused, refused_change

APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP = "container.seccomp.security.alpha.kubernetes.io/"
SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
COST = "controller.kubernetes.io/pod-deletion-cost"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (COST, "1", []),
        (COST, "x", [f'[{COST}]: Invalid value: "x": must be a 32bit integer']),
        (COST, "+1", [f'[{COST}]: Invalid value: "+1": must be a 32bit integer']),
        (SECCOMP_POD, "runtime/default", []),
        (SECCOMP_POD, "localhost/a", []),
        (
            SECCOMP_POD,
            "localhost//a",
            [f'.{SECCOMP_POD}: Invalid value: "/a": must be a relative path'],
        ),
        (f"{SECCOMP}c", "x", [f'.{SECCOMP}c: Invalid value: "x": must be a valid seccomp profile']),
        (f"{APP_ARMOR}c", "runtime/default", []),
        (
            f"{APP_ARMOR}d",
            "unconfined",
            [f'[{APP_ARMOR}d]: Invalid value: "d": container not found'],
        ),
        (
            f"{APP_ARMOR}c",
            "x",
            [f'[{APP_ARMOR}c]: Invalid value: "x": invalid AppArmor profile name: "x"'],
        ),
        (TOLERATIONS, '[{"Key": "a", "operator": "Exists"}]', []),
        (
            TOLERATIONS,
            "{}",
            [
                f': Invalid value: "{TOLERATIONS}":'
                " json: cannot unmarshal object into Go value of type []core.Toleration"
            ],
        ),
        (
            TOLERATIONS,
            "[1]",
            [
                f': Invalid value: "{TOLERATIONS}":'
                " json: cannot unmarshal number into Go value of type core.Toleration"
            ],
        ),
        (TOLERATIONS, "null", []),
        (
            TOLERATIONS,
            '[{"KEY": null, "a": 1, "operator": "Exists"}, null]',
            [
                f'.{TOLERATIONS}[1].operator: Invalid value: "": operator must be Exists when'
                ' `key` is empty, which means "match all values and all keys"'
            ],
        ),
        (
            TOLERATIONS,
            "[",
            [f': Invalid value: "{TOLERATIONS}": unexpected end of JSON input'],
        ),
        (
            TOLERATIONS,
            '[{"Key": true}]',
            [
                f': Invalid value: "{TOLERATIONS}": json: cannot unmarshal bool'
                " into Go struct field Toleration.Key of type string"
            ],
        ),
        (
            TOLERATIONS,
            '[{"effect": 1}]',
            [
                f': Invalid value: "{TOLERATIONS}": json: cannot unmarshal number'
                " into Go struct field Toleration.Effect of type core.TaintEffect"
            ],
        ),
        (
            TOLERATIONS,
            '[{"tolerationSeconds": 1.5}]',
            [
                f': Invalid value: "{TOLERATIONS}": json: cannot unmarshal number 1.5'
                " into Go struct field Toleration.TolerationSeconds of type int64"
            ],
        ),
        (
            TOLERATIONS,
            '[{"key": "a", "effect": "NoExecute", "tolerationSeconds": 1, "operator": "Exists"}]',
            [],
        ),
        (
            TOLERATIONS,
            '[{"key": "a", "operator": "x"}]',
            [
                f'.{TOLERATIONS}[0].operator: Unsupported value: "x":'
                ' supported values: "Equal", "Exists"'
            ],
        ),
    ],
)
def test_values(name: str, value: str, expected: list[str]) -> None:
    """Each has a form of its own."""
    errors = refused({}, {"annotations": {name: value}})
    assert [each.removeprefix("metadata.annotations") for each in errors] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", False), ("0", True), ("-5", True), ("2147483648", False), ("01", False), ("-", False)],
)
def test_deletion_costs(text: str, expected: bool) -> None:  # noqa: FBT001
    """Numbers of 32 bits without leading zeros or a plus."""
    assert is_deletion_cost(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("unconfined", {"type": "Unconfined"}),
        ("runtime/default", {"type": "RuntimeDefault"}),
        ("localhost/a", {"type": "Localhost", "localhostProfile": "a"}),
        ("localhost/", None),
        ("x", None),
    ],
)
def test_profiles_of_app_armor(text: str, expected: Object | None) -> None:
    """What an annotation says in the words of the field."""
    assert app_armor_profile(text) == expected


@pytest.mark.parametrize(
    ("profile", "annotation", "expected"),
    [
        ({"type": "Unconfined"}, "unconfined", []),
        ({"type": "RuntimeDefault"}, "docker/default", []),
        ({"type": "RuntimeDefault"}, "unconfined", ["type: Forbidden: seccomp type"]),
        ({"type": "Localhost", "localhostProfile": "a"}, "localhost/a", []),
        (
            {"type": "Localhost", "localhostProfile": "a"},
            "localhost/b",
            ["localhostProfile: Forbidden: seccomp profile"],
        ),
        (
            {"type": "Localhost", "localhostProfile": "a"},
            "unconfined",
            ["type: Forbidden: seccomp type"],
        ),
    ],
)
def test_seccomp_matches(profile: Object, annotation: str, expected: list[str]) -> None:
    """Field and annotation say the same, of the pod and of each container."""
    container = {"name": "c", "image": "a:1", "securityContext": {"seccompProfile": profile}}
    spec = {"containers": [container], "securityContext": {"seccompProfile": profile}}
    annotations = {SECCOMP_POD: annotation, f"{SECCOMP}c": annotation}
    paths = ("spec.securityContext", "spec.containers[0].securityContext")
    assert refused(spec, {"annotations": annotations}) == [
        f"{path}.seccompProfile.{each} in annotation and field must match"
        for path in paths
        for each in expected
    ]


def test_app_armor_matches() -> None:
    """The profile of the pod counts for containers without one; windows knows none."""
    spec = {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}
    annotations = {"annotations": {f"{APP_ARMOR}c": "unconfined"}}
    container = {
        "name": "c",
        "image": "a:1",
        "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}},
    }
    assert refused({**spec, "containers": [container]}, annotations) == [
        "spec.containers[0].securityContext.appArmorProfile.type: Forbidden:"
        " apparmor type in annotation and field must match"
    ]


def test_changes() -> None:
    """Some are there from the start, or never."""
    old = pod_with({"nodeName": "n"}, {"annotations": {f"{APP_ARMOR}c": "unconfined", "a": "b"}})
    new = pod_with({"nodeName": "n"}, {"annotations": {"kubernetes.io/config.mirror": "x"}})
    path = "metadata.annotations"
    assert sorted(refused_change(new, old)) == [
        f"{path}[{APP_ARMOR}c]: Forbidden: may not remove or update AppArmor annotations",
        f"{path}[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation",
    ]
    assert f"{path}[{APP_ARMOR}c]: Forbidden: may not add AppArmor annotations" in refused_change(
        old, new
    )
