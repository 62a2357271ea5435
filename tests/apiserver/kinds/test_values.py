"""Values of internal types, and when two values mean the same."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.deprecations import claim_warnings, fractional_bytes
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import go_struct_text, internal_diff, internal_value
from kvstack.apiserver.kinds.signer_names import (
    check_signer_name,
    check_trust_bundle_name,
    is_kubernetes_signer,
    signer_of_trust_bundle,
)

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.field_errors import FieldError

CORE = "io.k8s.api.core.v1."
REQUIREMENTS = f"{CORE}ResourceRequirements"


def test_internal_values() -> None:
    """All fields, under Go's names, in their order."""
    profile = internal_value({"type": "Localhost"}, f"{CORE}SeccompProfile")
    assert list(profile.items()) == [("Type", "Localhost"), ("LocalhostProfile", None)]
    assert internal_value(None, f"{CORE}SeccompProfile") is None
    assert internal_value([{"name": "a"}], f"{CORE}LocalObjectReference") == [{"Name": "a"}]
    selector = {"matchLabels": {"a": "b"}}
    meta = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"
    assert internal_value(selector, meta) == selector


def test_pointers_of_the_stored_version_alone() -> None:
    """The internal version has plain numbers there."""
    rolling = internal_value({}, "io.k8s.api.apps.v1.RollingUpdateDeployment")
    assert rolling == {"MaxUnavailable": 0, "MaxSurge": 0}


def test_diffs() -> None:
    """Lines of JSON, without a head of files."""
    old, new = ({"type": each} for each in ("Localhost", "Unconfined"))
    assert internal_diff(old, new, f"{CORE}SeccompProfile") == (
        '@@ -1,4 +1,4 @@\n {\n- "Type": "Localhost",\n+ "Type": "Unconfined",\n'
        '  "LocalhostProfile": null\n }\n'
    )


def test_structs_as_text() -> None:
    port = {"containerPort": 80, "hostIP": "1.2.3.4", "protocol": "TCP"}
    assert go_struct_text(port, f"{CORE}ContainerPort") == (
        "{Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.2.3.4}"
    )


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({}, {}, True),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1073741824"}}, True),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1G"}}, False),
        ({"limits": {}}, {}, True),
        ({"limits": {"cpu": "1"}}, {}, False),
        ({"claims": [{"name": "a"}]}, {"claims": [{"name": "b"}]}, False),
        ({"claims": [{"name": "a"}]}, {"claims": []}, False),
        ({"limits": {"cpu": "1"}}, {"limits": {"memory": "1"}}, False),
    ],
)
def test_equality(left: Object, right: Object, expected: bool) -> None:  # noqa: FBT001
    """Quantities are numbers, and an empty list is none."""
    assert same(left, right, REQUIREMENTS) is expected
    assert same(right, left, REQUIREMENTS) is expected


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "1000m", "2", "1Ki", "1024"])
)


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_equality_is_an_equivalence(one: Object, two: Object, three: Object) -> None:
    a, b, c = ({"requests": each} for each in (one, two, three))
    assert same(a, a, REQUIREMENTS)
    assert same(a, b, REQUIREMENTS) == same(b, a, REQUIREMENTS)
    if same(a, b, REQUIREMENTS) and same(b, c, REQUIREMENTS):
        assert same(a, c, REQUIREMENTS)


def test_fractions_of_bytes() -> None:
    assert list(fractional_bytes({"memory": "1500m", "cpu": "1m"}, "p")) == [
        'p[memory]: fractional byte value "1500m" is invalid, must be an integer'
    ]
    assert list(fractional_bytes(None, "p")) == []
    claim = {"resources": {"requests": {"storage": "1500m"}, "limits": {"storage": "1"}}}
    assert list(claim_warnings(claim, "p")) == [
        'p.resources.requests[storage]: fractional byte value "1500m" is invalid,'
        " must be an integer"
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.b/c", []),
        ("", ["p: Required value"]),
        (
            "a/c",
            [
                'p: Invalid value: "a":'
                " should be a domain with at least two segments separated by dots"
            ],
        ),
        (
            "a.b",
            [
                'p: Invalid value: "a.b": must be a fully qualified domain and path of the form'
                " 'example.com/signer-name'"
            ],
        ),
        (
            f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 63}/c",
            ["p: Too long: may not be more than 253 bytes"],
        ),
    ],
)
def test_names_of_signers(name: str, expected: list[str]) -> None:
    errors: list[FieldError] = []
    check_signer_name(errors, "p", name)
    assert [str(each) for each in errors] == expected


def test_names_of_trust_bundles() -> None:
    """They begin with their signer, colons for slashes."""
    assert signer_of_trust_bundle("a.b:c:d") == "a.b/c"
    assert signer_of_trust_bundle("d") == ""
    assert check_trust_bundle_name("a.b:c:d", "a.b/c") == []
    assert check_trust_bundle_name("a:d", "") == [
        'ClusterTrustBundle without signer name must not have ":" in its name'
    ]
    assert check_trust_bundle_name("d", "a.b/c") == [
        "ClusterTrustBundle for signerName a.b/c must be named with prefix a.b:c:"
    ]
    assert is_kubernetes_signer("kubernetes.io/x")
    assert is_kubernetes_signer("a.kubernetes.io/x")
    assert not is_kubernetes_signer("akubernetes.io/x")
