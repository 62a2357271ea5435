"""Rules of volumes that few requests break."""

import pytest

from kvstack.apimachinery.objects.json_object import Object
from tests.apiserver.kinds.pods.examples import pod_with, refused, refused_change


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({}, []),
        (
            {"emptyDir": {"sizeLimit": "-1"}},
            ["emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
        ),
        (
            {
                "azureDisk": {
                    "diskName": "a",
                    "diskURI": "http://a",
                    "cachingMode": "None",
                    "kind": "Managed",
                }
            },
            [
                'azureDisk.diskURI: Unsupported value: "http://a": supported values:'
                ' "/subscriptions/{sub-id}/resourcegroups/{group-name}'
                '/providers/microsoft.compute/disks/{disk-id}"'
            ],
        ),
        ({"image": {"reference": "", "pullPolicy": "Always"}}, ["image.reference: Required value"]),
        ({"iscsi": {"targetPortal": "[::1]:1", "iqn": "iqn.2001-04.a:b", "lun": 0}}, []),
        (
            {"iscsi": {"targetPortal": "a", "iqn": "iqn.a", "lun": 0}},
            ['iscsi.iqn: Invalid value: "iqn.a": must be valid format'],
        ),
        (
            {
                "iscsi": {
                    "targetPortal": "a:1",
                    "iqn": "iqn.2001-04.com.example:a",
                    "lun": 0,
                    "chapAuthSession": True,
                }
            },
            ["iscsi.secretRef: Required value"],
        ),
    ],
)
def test_sources(volume: Object, expected: list[str]) -> None:
    """Each source has rules of its own; none at all is an empty directory."""
    path = "spec.volumes[0]."
    errors = refused({"volumes": [{"name": "v", **volume}]})
    assert [each.removeprefix(path) for each in errors] == expected


def test_a_volume_has_one_source() -> None:
    """The others are refused."""
    assert refused({"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/a"}}]}) == [
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"
    ]


def test_claims_of_ephemeral_volumes() -> None:
    """They are named after the pod and the volume, and no other volume may be one of them."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volumes = [
        {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
        {"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}},
    ]
    assert refused({"volumes": volumes}) == [
        'spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "p-v":'
        " must not reference a PVC that gets created for an ephemeral volume"
    ]


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (
            {"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]},
            ["accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"],
        ),
        (
            {
                "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
                "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "b"},
            },
            ["Invalid value: {}: must match dataSourceRef"],
        ),
        (
            {
                "dataSource": {"kind": "PersistentVolumeClaim", "name": "a"},
                "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "a", "namespace": "x"},
            },
            None,
        ),
    ],
)
def test_templates_of_claims(claim: Object, expected: list[str] | None) -> None:
    """What a claim may ask for."""
    whole = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        **claim,
    }
    path = "spec.volumes[0].ephemeral.volumeClaimTemplate.spec"
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": whole}}}
    errors = [each.removeprefix(path).lstrip(".: ") for each in refused({"volumes": [volume]})]
    if expected is None:
        message = "may not be specified when dataSourceRef.namespace is specified"
        assert errors == [f"Invalid value: {{}}: {message}"]
    else:
        assert errors == expected


def projected(source: Object) -> Object:
    """Return a volume with one source of files."""
    return {"name": "v", "projected": {"sources": [source], "defaultMode": 420}}


BUNDLE_NAME = "not a valid clustertrustbundlename:"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            {"serviceAccountToken": {"path": "t", "expirationSeconds": 2**32 + 1}},
            [
                "serviceAccountToken.expirationSeconds: Invalid value: 4294967297:"
                " may not specify a duration larger than 2^32 seconds"
            ],
        ),
        (
            {"serviceAccountToken": {"path": "t", "expirationSeconds": None}},
            ["serviceAccountToken.expirationSeconds: Required value"],
        ),
        ({"clusterTrustBundle": {"path": "t", "name": "a"}}, []),
        (
            {"clusterTrustBundle": {"path": "t", "name": "a", "labelSelector": {}}},
            [
                "clusterTrustBundle.labelSelector: Invalid value: {}:"
                " labelSelector must be unset if name is specified"
            ],
        ),
        ({"clusterTrustBundle": {"path": "t", "name": "a.b/c:d"}}, None),
        ({"clusterTrustBundle": {"path": "t", "name": "a.b:c:d"}}, []),
        (
            {
                "podCertificate": {
                    "signerName": "a.b/c",
                    "keyType": "ED25519",
                    "keyPath": "../k",
                    "certificateChainPath": "c",
                    "maxExpirationSeconds": 60,
                }
            },
            [
                "podCertificate.keyPath: Invalid value: \"../k\": must not contain '..'",
                "podCertificate.maxExpirationSeconds: Invalid value: 60:"
                " if provided, maxExpirationSeconds must be >= 3600",
            ],
        ),
        (
            {
                "podCertificate": {
                    "signerName": "kubernetes.io/c",
                    "keyType": "ED25519",
                    "credentialBundlePath": "k",
                    "maxExpirationSeconds": 86401,
                }
            },
            [
                "podCertificate.maxExpirationSeconds: Invalid value: 86401:"
                " if provided, maxExpirationSeconds must be <= 86400"
            ],
        ),
        (
            {
                "podCertificate": {
                    "signerName": "a.b/c",
                    "keyType": "ED25519",
                    "credentialBundlePath": "k",
                    "maxExpirationSeconds": 3600,
                    "userAnnotations": {"a": "b", "": "", "X.Y/z": ""},
                }
            },
            [
                'podCertificate.userAnnotations: Invalid value: "a":'
                ' must be a domain-prefixed key (such as "acme.io/foo")',
                "podCertificate.userAnnotations: Required value",
            ],
        ),
        (
            {
                "podCertificate": {
                    "signerName": f"{'a.' * 126}b/{'c.' * 160}d",
                    "keyType": "ED25519",
                    "credentialBundlePath": "k",
                    "maxExpirationSeconds": 3600,
                    "userAnnotations": {"a.b/c": "x" * 2**18},
                }
            },
            [
                "podCertificate.signerName: Too long: may not be more than 571 bytes",
                "podCertificate.userAnnotations: Too long: may not be more than 262144 bytes",
            ],
        ),
    ],
)
def test_projected_sources(source: Object, expected: list[str] | None) -> None:
    """Tokens, bundles of trust and certificates."""
    errors = refused({"volumes": [projected(source)]})
    texts = [each.partition("sources[0].")[2] for each in errors]
    if expected is None:
        assert texts
        assert all(BUNDLE_NAME in each for each in texts)
    else:
        assert sorted(texts) == sorted(expected)


def test_files_of_one_volume_do_not_meet() -> None:
    """Neither among the sources nor within one."""
    item = {"path": "a", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}
    volume = {"name": "v", "downwardAPI": {"items": [item, item], "defaultMode": 420}}
    assert refused({"volumes": [volume]}) == []


def test_ephemeral_volumes_keep_their_template() -> None:
    """As all of a spec, volumes cannot change."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    old = pod_with(
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}]}
    )
    new = pod_with({"volumes": [{"name": "v", "emptyDir": {}}]})
    (error,) = refused_change(new, old)
    assert error.startswith("spec: Forbidden: pod updates may not change fields other than")
    assert '-   "Ephemeral": {' in error
