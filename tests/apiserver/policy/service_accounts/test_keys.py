"""Keys of tokens, and what is published of them."""

import base64

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from kvstack.apiserver.policy.service_accounts.discovery import documents
from kvstack.component.certs.service_account_keys import (
    KeyRing,
    SignatureError,
    SigningKey,
    UnusableKeyError,
    public_keys,
)
from tests.apiserver.policy.certificates import (
    Authority,
    Key,
    curve_key,
    private_pem,
    public_pem,
    rsa_key,
)

ISSUER = "https://issuer.test"
KEYS: list[Key] = [
    rsa_key(0),
    curve_key(0),
    curve_key(0, ec.SECP384R1),
    curve_key(0, ec.SECP521R1),
]
ALGORITHMS = ["RS256", "ES256", "ES384", "ES512"]


def text_of(encoded: str) -> bytes:
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))


@pytest.mark.parametrize(("key", "algorithm"), list(zip(KEYS, ALGORITHMS, strict=True)))
def test_sign_and_verify(key: Key, algorithm: str) -> None:
    signing = SigningKey(private_pem(key))
    token = signing.sign({"b": 1, "a": [2]})
    header, payload, _ = token.split(".")
    assert orjson.loads(text_of(header)) == {"alg": algorithm, "kid": signing.public.id}
    assert text_of(payload) == b'{"a":[2],"b":1}'
    ring = KeyRing(public_keys(public_pem(key)))
    assert ring.verify(token, signing.public.id) == b'{"a":[2],"b":1}'
    assert ring.verify(token, "") == b'{"a":[2],"b":1}'
    with pytest.raises(SignatureError):
        ring.verify(token, "unknown")


def test_many_keys_in_one_text() -> None:
    authority = Authority.root(5)
    text = b"# ours\n" + private_pem(KEYS[0]) + public_pem(KEYS[1]) + authority.pem
    found = public_keys(text)
    assert [each.algorithm for each in found] == ["RS256", "ES256", "ES256"]
    assert found[2].id == public_keys(public_pem(authority.key))[0].id


def test_traditional_encodings() -> None:
    for key in KEYS[:2]:
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        assert SigningKey(pem).public.id == SigningKey(private_pem(key)).public.id


def test_a_key_is_named_by_its_public_half() -> None:
    """As `openssl pkey -pubout -outform DER | sha256sum` says of it."""
    import hashlib

    body = b"".join(public_pem(KEYS[0]).splitlines()[1:-1])
    expected = base64.urlsafe_b64encode(hashlib.sha256(base64.b64decode(body)).digest())
    assert SigningKey(private_pem(KEYS[0])).public.id == expected.rstrip(b"=").decode()


ED25519 = ed25519.Ed25519PrivateKey.generate().private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)
OTHER_CURVE = private_pem(ec.generate_private_key(ec.SECP256K1()))
BROKEN = private_pem(KEYS[1]).replace(b"MI", b"AA", 1)


@pytest.mark.parametrize("pem", [b"", b"junk", ED25519, OTHER_CURVE, BROKEN])
def test_unusable(pem: bytes) -> None:
    with pytest.raises(UnusableKeyError):
        SigningKey(pem)
    with pytest.raises(UnusableKeyError):
        public_keys(pem)


def test_public_key_signs_nothing() -> None:
    with pytest.raises(UnusableKeyError):
        SigningKey(public_pem(KEYS[0]))


def test_documents() -> None:
    keys = public_keys(b"".join(map(public_pem, KEYS)))
    found = documents(ISSUER, keys, "192.0.2.1:6443")
    assert found.configuration == (
        b'{"issuer":"https://issuer.test","jwks_uri":"https://192.0.2.1:6443/openid/v1/jwks",'
        b'"response_types_supported":["id_token"],"subject_types_supported":["public"],'
        b'"id_token_signing_alg_values_supported":["ES256","ES384","ES512","RS256"]}'
    )
    published = orjson.loads(found.keys)["keys"]
    assert [list(each) for each in published[:2]] == [
        ["use", "kty", "kid", "alg", "n", "e"],
        ["use", "kty", "kid", "crv", "alg", "x", "y"],
    ]
    assert [each["kid"] for each in published] == [each.id for each in keys]
    assert published[0]["e"] == "AQAB"


def test_published_keys_verify() -> None:
    """What is published is what another library reads as the same keys."""
    import jwt

    keys = public_keys(b"".join(map(public_pem, KEYS)))
    published = orjson.loads(documents(ISSUER, keys, "a:1").keys)
    for key, read in zip(KEYS, jwt.PyJWKSet.from_dict(published).keys, strict=True):
        token = SigningKey(private_pem(key)).sign({"a": 1})
        assert jwt.decode(token, read) == {"a": 1}


def test_keys_elsewhere() -> None:
    found = documents(ISSUER, [], "a:1", "https://keys.test/jwks")
    assert orjson.loads(found.configuration)["jwks_uri"] == "https://keys.test/jwks"
    with pytest.raises(ValueError, match="jwksURI requires https scheme"):
        documents(ISSUER, [], "a:1", "http://keys.test/jwks")


@pytest.mark.parametrize("issuer", ["", "api", "http://a", "https://a?b=c", "https://a#b"])
def test_issuers_that_cannot_be_published(issuer: str) -> None:
    with pytest.raises(ValueError, match="issuer URL"):
        documents(issuer, [], "a:1")


def rsa_pem(*numbers: int) -> bytes:
    """Return a private key in PKCS #1 of numbers that need not belong together."""

    def tagged(tag: int, data: bytes) -> bytes:
        size = len(data).to_bytes((len(data).bit_length() + 7) // 8, "big")
        length = size if len(data) < 0x80 else bytes((0x80 | len(size),)) + size
        return bytes((tag,)) + length + data

    integers = [each.to_bytes(each.bit_length() // 8 + 1, "big") for each in (0, *numbers)]
    der = tagged(0x30, b"".join(tagged(2, each) for each in integers))
    text = base64.encodebytes(der)
    return b"-----BEGIN RSA PRIVATE KEY-----\n%b-----END RSA PRIVATE KEY-----\n" % text


@pytest.mark.parametrize("wrong", [None, "n", "p", "q", "one"])
def test_an_rsa_key_whose_parts_do_not_belong_together_is_refused(wrong: str | None) -> None:
    good, other = (rsa_key(each).private_numbers() for each in (0, 1))
    n, p, q = good.public_numbers.n, good.p, good.q
    if wrong == "n":
        n = other.public_numbers.n
    elif wrong == "p":
        p = other.p
    elif wrong == "q":
        q = other.q
    elif wrong == "one":
        p, q = n, 1
    pem = rsa_pem(n, good.public_numbers.e, good.d, p, q, good.dmp1, good.dmq1, good.iqmp)
    if wrong is None:
        assert SigningKey(pem).public.id == SigningKey(private_pem(rsa_key(0))).public.id
        return
    with pytest.raises(UnusableKeyError, match="a rsa private key cannot be read: "):
        SigningKey(pem)
