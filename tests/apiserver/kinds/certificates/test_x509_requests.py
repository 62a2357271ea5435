"""Signatures of requests for certificates."""

import base64

from kvstack.component.certs.x509_requests import has_good_signature, read_request

SHA1_REQUEST = base64.b64decode(
    "MIIByjCCATMCAQAwgYkxCzAJBgNVBAYTAlVTMRMwEQYDVQQIEwpDYWxpZm9ybmlhMRYwFAYDVQQHEw1Nb3VudGFpbiBW"
    "aWV3MRMwEQYDVQQKEwpHb29nbGUgSW5jMR8wHQYDVQQLExZJbmZvcm1hdGlvbiBUZWNobm9sb2d5MRcwFQYDVQQDEw53"
    "d3cuZ29vZ2xlLmNvbTCBnzANBgkqhkiG9w0BAQEFAAOBjQAwgYkCgYEApZtYJCHJ4VpVXHfVIlstQTlO4qC03hjX+ZkP"
    "yvdYd1Q4+qbAeTwXmCUKYHThVRd5aXSqlPzyIBwieMZrWFlRQddZ1IzXAlVRDWwAo60KecqeAXnnUK+5fXoTI/UgWshr"
    "e8tJ+x/TMHaQKR/JcIWPhqaQhsJuzZbvAdGA80BLxdMCAwEAAaAAMA0GCSqGSIb3DQEBBQUAA4GBAIhl4PvFq+e7ipAR"
    "gI5ZM+GZx6mpCz44DTo0JkwfRDf+BtrsaC0q68eTf2XhYOsq4fkHQ0uA0aVog3f5iJxCa3Hp5gxbJQ6zV6kJ0TEsuaaO"
    "hEko9sdpCoPOnRBm2i/XRD2D6iNh8f8z0ShGsFqjDgFHyF3o+lUyj+UC6H1QW7bn"
)
"""RSA with SHA-1, as Kubernetes' own tests have it."""


def test_requests_signed_with_sha1() -> None:
    """They are taken, and only if the signature is good."""
    request = read_request(SHA1_REQUEST)
    assert request is not None
    assert has_good_signature(request)
    spoilt = read_request(SHA1_REQUEST.replace(b"Google", b"Gaggle"))
    assert spoilt is not None
    assert not has_good_signature(spoilt)
