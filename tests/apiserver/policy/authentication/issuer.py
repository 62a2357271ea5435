"""An issuer of tokens for tests: keys, its two documents, and tokens with any fault."""

import base64
from collections.abc import Mapping
from typing import Any

import orjson
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.api_jws import PyJWS

from kvstack.apimachinery.objects.json_object import Object
from tests.apiserver.policy.certificates import Key, curve_key, rsa_key
from tests.apiserver.policy.clocks import BEGAN_S

URL = "https://issuer.example"


def jwk(key: Key, key_id: str, **more: str) -> Object:
    """Return the public half of a key as a JSON Web Key."""
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        found = RSAAlgorithm.to_jwk(public, as_dict=True)
    else:
        assert isinstance(public, ec.EllipticCurvePublicKey)
        found = ECAlgorithm.to_jwk(public, as_dict=True)
    return {**found, "kid": key_id, "use": "sig", **more}


class Issuer:
    """Signs tokens."""

    def __init__(self, url: str = URL) -> None:
        self.url = url
        self.keys: dict[str, Key] = {"one": rsa_key(1)}

    def documents(self) -> dict[str, Object]:
        """Return what is served, by path."""
        return {
            "/.well-known/openid-configuration": {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
            },
            "/keys": {"keys": [jwk(key, name) for name, key in self.keys.items()]},
        }

    def claims(self, **more: Any) -> Object:
        """Return good claims, with others; None takes a claim away."""
        found = {"iss": self.url, "aud": "kubernetes", "sub": "bob", "exp": BEGAN_S + 600, **more}
        return {name: value for name, value in found.items() if value is not None}

    def token(
        self,
        claims: Object | None = None,
        *,
        key: str = "one",
        algorithm: str = "RS256",
        headers: Mapping[str, Any] | None = None,
        signer: Key | None = None,
    ) -> str:
        """Return a signed token."""
        payload = orjson.dumps(self.claims() if claims is None else claims)
        header = {"kid": key, **(headers or {})}
        return PyJWS().encode(payload, signer or self.keys[key], algorithm, header)


def unsigned(claims: Object, algorithm: str = "none") -> str:
    """Return a token without a signature."""
    parts = [orjson.dumps({"alg": algorithm, "kid": "one"}), orjson.dumps(claims)]
    encoded = [base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts]
    return f"{'.'.join(encoded)}."


__all__ = ["URL", "Issuer", "curve_key", "jwk", "rsa_key", "unsigned"]
