"""What ClusterTrustBundles may be."""

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.certificates.trust_bundles import TRUST_BUNDLES
from tests.apiserver.kinds.certificates.keys import ED25519, certificate
from tests.apiserver.kinds.hooks import cells_of, change_refusals, refusals

ROOT = certificate(is_authority=True).decode()
OTHER = certificate(ED25519, is_authority=True).decode()
OMITTED = 'spec.trustBundle: Invalid value: "<value omitted>": '


def bundle(text: str = ROOT, name: str = "b", signer: str = "") -> Object:
    """Return a bundle."""
    spec = {"trustBundle": text, **({"signerName": signer} if signer else {})}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ROOT + OTHER, []),
        ("", ["at least one trust anchor must be provided"]),
        (ROOT + OTHER + ROOT, ["duplicate trust anchor (indices [0 2])"]),
        (
            "-----BEGIN X-----\n-----END X-----\n" + certificate().decode() + ROOT + ROOT,
            ["entry 0 has bad block type: X", "entry 1 does not have the CA bit set"],
        ),
        (certificate(is_authority=False).decode(), ["entry 0 does not have the CA bit set"]),
        (
            "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n",
            ["entry 0 does not parse as X.509"],
        ),
        (
            ROOT.replace("-----\n", "-----\na: b\n\n", 1),
            ["entry 0 has PEM block headers"],
        ),
    ],
)
def test_bundles(text: str, expected: list[str]) -> None:
    """Certificates of authorities, each once."""
    assert refusals(TRUST_BUNDLES, bundle(text)) == [OMITTED + each for each in expected]


def test_size() -> None:
    """A mebibyte at most."""
    assert refusals(TRUST_BUNDLES, bundle("x" * (2**20 + 1))) == [
        "spec.trustBundle: Too long: may not be more than 1048576 bytes"
    ]


@pytest.mark.parametrize(
    ("name", "signer", "expected"),
    [
        ("e.com:s:b", "e.com/s", []),
        ("b", "e.com/s",
         ['metadata.name: Invalid value: "b": ClusterTrustBundle for signerName e.com/s must be'
          " named with prefix e.com:s:"]),
        ("a:b", "",
         ['metadata.name: Invalid value: "a:b": ClusterTrustBundle without signer name must not'
          ' have'
          ' ":" in its name']),
        ("s:b", "s", [
            "spec.signerName: Invalid value: \"s\": must be a fully qualified domain and path of"
             " the"
            " form 'example.com/signer-name'",
        ]),
    ],
)  # fmt: skip
def test_names(name: str, signer: str, expected: list[str]) -> None:
    """Bundles of a signer are named after it."""
    assert refusals(TRUST_BUNDLES, bundle(name=name, signer=signer)) == expected


def test_changes() -> None:
    """The signer stays; a bundle that is not changed is not read again."""
    old = bundle("bad", name="e.com:s:b", signer="e.com/s")
    assert change_refusals(TRUST_BUNDLES, old, old) == []
    assert change_refusals(TRUST_BUNDLES, bundle("worse", "e.com:s:b", "e.com/s"), old) == [
        f"{OMITTED}at least one trust anchor must be provided"
    ]
    assert change_refusals(TRUST_BUNDLES, bundle("bad"), old) == [
        'spec.signerName: Invalid value: "": field is immutable'
    ]
    assert TRUST_BUNDLES.selectable is not None
    assert TRUST_BUNDLES.selectable(old) == {"spec.signerName": "e.com/s"}
    assert cells_of(TRUST_BUNDLES, old) == ["e.com:s:b", "e.com/s"]
