"""Discovery documents of OpenID Connect, for verifying service account tokens.

    GET /.well-known/openid-configuration   → who issues tokens, and where the keys are
    GET /openid/v1/jwks                     → the public keys

They are served if the issuer is a URL that OpenID Connect allows: https, no query, no fragment.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import orjson

from kvstack.component.certs.service_account_keys import PublicKey

CONFIGURATION_PATH: Final = "/.well-known/openid-configuration"
KEYS_PATH: Final = "/openid/v1/jwks"
CONFIGURATION_TYPE: Final = "application/json"
KEYS_TYPE: Final = "application/jwk-set+json"
CACHE_CONTROL: Final = "public, max-age=3600"


class Documents(NamedTuple):
    """Both documents, encoded."""

    configuration: bytes
    keys: bytes


def documents(
    issuer: str, keys: Sequence[PublicKey], external_address: str, keys_url: str = ""
) -> Documents:
    """Return the documents; raises ValueError, with upstream's text, if the issuer is unsuitable.

    external_address: host and port of the API server; keys_url: overrides the location of the keys.
    """
    _check(issuer)
    if keys_url and urlsplit(keys_url).scheme != "https":
        raise ValueError(f"jwksURI requires https scheme, parsed as: {keys_url}")
    configuration = {
        "issuer": issuer,
        "jwks_uri": keys_url or f"https://{external_address}{KEYS_PATH}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": sorted({each.algorithm for each in keys}),
    }
    key_set = {"keys": [each.to_jwk() for each in keys]}
    return Documents(orjson.dumps(configuration), orjson.dumps(key_set))


def _check(issuer: str) -> None:
    if not issuer:
        raise ValueError("empty issuer URL")
    url = urlsplit(issuer)
    if url.scheme != "https":
        raise ValueError(f"issuer URL must use https scheme, got: {issuer}")
    if url.query:
        raise ValueError(f"issuer URL may not include a query, got: {issuer}")
    if url.fragment:
        raise ValueError(f"issuer URL may not include a fragment, got: {issuer}")
