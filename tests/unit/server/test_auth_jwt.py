"""Signed tokens: every method etcd takes, keys that fit and keys that do not, tokens that lie."""

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.auth.tokens import Claims, NoTokens, SignedTokens, SimpleTokens
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.errors import VERIFY_ONLY
from kvstore.server.auth.jwt import JwtKeys
from kvstore.server.auth.tokens import bcrypt_cost_of, tokens_of
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.auth_member import READ, AuthMember
from tests.support.node.harness import FakeClock

SECRET = b"a secret of 64 bytes that nobody else has, and nobody will guess!"
RSA = rsa.generate_private_key(65537, 2048)
CURVES: dict[int, ec.EllipticCurve] = {
    256: ec.SECP256R1(),
    384: ec.SECP384R1(),
    512: ec.SECP521R1(),
}
EC = {bits: ec.generate_private_key(curve) for bits, curve in CURVES.items()}
ED = ed25519.Ed25519PrivateKey.generate()
METHODS = [
    *(f"{family}{bits}" for family in ("HS", "RS", "PS", "ES") for bits in (256, 384, 512)),
    "EdDSA",
]
VOICE, CLOCK = LineLogger([], "info"), FakeClock()


def private_key(method: str) -> Any:
    if method.startswith("ES"):
        return EC[int(method[2:])]
    return ED if method == "EdDSA" else RSA


def private_pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def public_pem(key: Any) -> bytes:
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def files(tmp_path: Path, method: str) -> dict[str, str]:
    """Write the key files of a method; return the options that name them."""
    if method.startswith("HS"):
        (tmp_path / "secret").write_bytes(SECRET)
        return {"sign-method": method, "priv-key": str(tmp_path / "secret")}
    key = private_key(method)
    (tmp_path / "private.pem").write_bytes(private_pem(key))
    (tmp_path / "public.pem").write_bytes(public_pem(key))
    return {
        "sign-method": method,
        "priv-key": str(tmp_path / "private.pem"),
        "pub-key": str(tmp_path / "public.pem"),
    }


def flag(options: dict[str, str]) -> str:
    return "--auth-token=jwt," + ",".join(f"{name}={value}" for name, value in options.items())


@pytest.mark.parametrize("method", METHODS)
def test_what_is_signed_can_be_verified(tmp_path: Path, method: str) -> None:
    keys = JwtKeys.of_options(files(tmp_path, method), VOICE, CLOCK)
    token = keys.sign("älice", 7)
    claims = keys.verify(token)
    assert claims is not None
    assert claims[:2] == ("älice", 7)
    assert claims.expires_s == CLOCK.unix_s() + 300
    head, body, signature = token.split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": method, "typ": "JWT"}
    assert set(json.loads(base64.urlsafe_b64decode(body + "=="))) == {"exp", "revision", "username"}
    flipped = ("A" if signature[5] != "A" else "B").join((signature[:5], signature[6:]))
    assert keys.verify(f"{head}.{body}.{flipped}") is None
    other = base64.urlsafe_b64encode(b'{"username":"root","revision":7}').decode().rstrip("=")
    assert keys.verify(f"{head}.{other}.{signature}") is None


@pytest.mark.parametrize("method", [each for each in METHODS if not each.startswith("HS")])
def test_a_public_key_verifies_and_cannot_sign(tmp_path: Path, method: str) -> None:
    options = files(tmp_path, method)
    token = JwtKeys.of_options(options, VOICE, CLOCK).sign("u", 1)
    del options["priv-key"]
    keys = JwtKeys.of_options(options, VOICE, CLOCK)
    assert not keys.can_sign
    assert keys.verify(token) is not None
    assert SignedTokens(keys).assign("u", "", 1, 0) == VERIFY_ONLY
    with pytest.raises(ValueError, match="no private key"):
        keys.sign("u", 1)


def test_the_method_is_the_configured_one_and_no_other(tmp_path: Path) -> None:
    keys = JwtKeys.of_options(files(tmp_path, "RS256"), VOICE, CLOCK)
    claims = {"username": "root", "revision": 1}
    assert keys.verify(jwt.encode(claims, RSA, "RS256")) == Claims("root", 1, None, None)
    assert keys.verify(jwt.encode(claims, RSA, "RS512")) is None
    assert keys.verify(jwt.encode(claims, RSA, "PS256")) is None
    assert keys.verify(jwt.encode(claims, None, "none")) is None  # type: ignore[arg-type]
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    algorithm = jwt.get_algorithm_by_name("HS256")
    # The classic: the public key, which everybody has, taken for the secret of an HMAC.
    signed = algorithm.sign(f"{head}.{body}".encode(), public_pem(RSA))
    signature = base64.urlsafe_b64encode(signed).decode().rstrip("=")
    assert keys.verify(f"{head}.{body}.{signature}") is None


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"username": "u"},
        {"revision": 1},
        {"username": 5, "revision": 1},
        {"username": "u", "revision": "1"},
        {"username": "u", "revision": True},
        {"username": "u", "revision": -1},
        {"username": "u", "revision": 1e300},
        {"username": "u", "revision": float("nan")},
        {"username": "u", "revision": None},
        {"username": "u", "revision": 1, "exp": "tomorrow"},
        {"username": "u", "revision": 1, "exp": [1]},
        {"username": "u", "revision": 1, "exp": float("inf")},
        {"username": "u", "revision": 1, "nbf": {}},
    ],
)
def test_incomplete_claims_are_refused(tmp_path: Path, claims: dict[str, Any]) -> None:
    keys = JwtKeys.of_options(files(tmp_path, "HS256"), VOICE, CLOCK)
    body = json.dumps(claims).encode()
    token = jwt.PyJWS().encode(body, SECRET, "HS256")
    assert keys.verify(token) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"5",
        b"{",
        b"\xff",
        b'{"a":' * 100,
        b'{"revision":' + b"9" * 5000 + b"}",
    ],
)
def test_bodies_that_are_no_claims_are_refused(tmp_path: Path, body: bytes) -> None:
    keys = JwtKeys.of_options(files(tmp_path, "HS256"), VOICE, CLOCK)
    assert keys.verify(jwt.PyJWS().encode(body, SECRET, "HS256")) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "\ud800.b.c",
        "a" * 20_000,
        "e30.e30.e30",
        "bnVsbA.e30.",
        "é.é.é",
    ],
)
def test_texts_that_are_no_tokens_are_refused(tmp_path: Path, token: str) -> None:
    assert JwtKeys.of_options(files(tmp_path, "HS256"), VOICE, CLOCK).verify(token) is None


def test_numbers_may_be_written_as_go_writes_them(tmp_path: Path) -> None:
    keys = JwtKeys.of_options(files(tmp_path, "HS256"), VOICE, CLOCK)
    claims = {"username": "u", "revision": 7.0, "exp": 1.9e9, "nbf": 5.9}
    token = jwt.PyJWS().encode(json.dumps(claims).encode(), SECRET, "HS256")
    assert keys.verify(token) == Claims("u", 7, 1_900_000_000, 5)


def test_keys_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    def refused(options: dict[str, str]) -> str:
        with pytest.raises(ConfigError) as error:
            JwtKeys.of_options(options, VOICE, CLOCK)
        return str(error.value)

    rs = files(tmp_path, "RS256")
    ec_file, encrypted, junk = tmp_path / "ec.pem", tmp_path / "encrypted.pem", tmp_path / "junk"
    ec_file.write_bytes(private_pem(EC[256]))
    secret = BestAvailableEncryption(b"secret")
    encrypted.write_bytes(RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
    junk.write_bytes(b"-----BEGIN NOTHING-----")
    assert 'unknown sign-method ""; known are' in refused({})
    assert 'unknown sign-method "none"; known are ES256' in refused({"sign-method": "none"})
    assert "needs priv-key, or pub-key" in refused({"sign-method": "RS256"})
    assert "needs priv-key, the file of the secret" in refused({"sign-method": "HS256"})
    assert "No such file" in refused({**rs, "priv-key": str(tmp_path / "none")})
    assert "priv-key is not a key for RS256" in refused({**rs, "priv-key": str(ec_file)})
    assert "priv-key cannot be read" in refused({**rs, "priv-key": str(junk)})
    assert "priv-key cannot be read" in refused({**rs, "priv-key": str(encrypted)})
    assert "pub-key cannot be read" in refused({**rs, "pub-key": str(junk)})
    assert "curve of 384 bits" in refused({"sign-method": "ES384", "priv-key": str(ec_file)})
    assert 'ttl "5"' in refused({**rs, "ttl": "5"})
    other = tmp_path / "other.pem"
    other.write_bytes(public_pem(rsa.generate_private_key(65537, 2048)))
    assert "do not match" in refused({**rs, "pub-key": str(other)})


def test_a_certificate_serves_as_a_public_key(tmp_path: Path) -> None:
    options = files(tmp_path, "RS256")
    subprocess.run(
        ["openssl", "req", "-x509", "-key", options["priv-key"], "-subj", "/CN=x", "-out", "c.pem"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    keys = JwtKeys.of_options({**options, "pub-key": str(tmp_path / "c.pem")}, VOICE, CLOCK)
    assert keys.verify(keys.sign("u", 1)) is not None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("jwt,sign-method", 'option "sign-method" is not name=value'),
        ("jwt,a=b=c", 'option "a=b=c" is not name=value'),
        ("jwt,ttl=1s,ttl=2s", 'duplicate option "ttl"'),
        ("cookie", 'unknown kind of token "cookie"'),
    ],
)
def test_a_wrong_flag_is_explained(text: str, error: str) -> None:
    config = configure(read_command_line([f"--auth-token={text}"]), {})
    with pytest.raises(ConfigError, match="auth-token") as raised:
        tokens_of(config, VOICE, CLOCK)
    assert error in str(raised.value)


def test_the_flags_choose_the_tokens(tmp_path: Path) -> None:
    def tokens(*flags: str) -> object:
        return tokens_of(configure(read_command_line(list(flags)), {}), VOICE, CLOCK)

    assert isinstance(tokens(), SimpleTokens)
    assert isinstance(tokens("--auth-token="), NoTokens)
    assert isinstance(tokens(flag(files(tmp_path, "ES256"))), SignedTokens)


@pytest.mark.parametrize(
    ("given", "cost"), [("4", 4), ("31", 31), ("3", 10), ("32", 10), ("0", 10)]
)
def test_a_cost_that_bcrypt_cannot_do_is_the_default(given: str, cost: int) -> None:
    assert bcrypt_cost_of(configure(read_command_line([f"--bcrypt-cost={given}"]), {})) == cost


def test_a_members_tokens_are_signed_and_expire_with_changes_of_users(tmp_path: Path) -> None:
    options = files(tmp_path, "ES256")
    member = AuthMember(tmp_path, flag({**options, "ttl": "10m"}))
    root = member.set_up((READ, b"k", b""))
    alice = member.login("alice")
    [*_, login] = member.log.requests(1012)
    assert login.authenticate.simple_token == ""
    claims = JwtKeys.of_options(options, VOICE, CLOCK).verify(alice)
    assert claims is not None
    assert claims[:2] == ("alice", member.parts.state.auth.revision)
    read = pb.RangeRequest(key=b"k")
    member.call(rpc.RANGE, read, alice)
    # Whatever changes users makes all signed tokens old; root's rights are looked up, not carried.
    member.add_role("new", token=root)
    member.add_role("newer", token=root)
    refusal = member.refused(rpc.RANGE, read, alice)
    assert refusal.text == "etcdserver: revision of auth store is old"
    member.call(rpc.RANGE, read, member.login("alice"))


def test_a_member_refuses_an_expired_token(tmp_path: Path) -> None:
    member = AuthMember(tmp_path, flag(files(tmp_path, "HS256")))
    member.set_up((READ, b"k", b""))
    now_s = member.clock.unix_s()

    def token(**claims: object) -> str:
        revision = member.parts.state.auth.revision
        return jwt.encode({"username": "alice", "revision": revision, **claims}, SECRET, "HS256")

    read = pb.RangeRequest(key=b"k")
    member.call(rpc.RANGE, read, token(exp=now_s + 100))
    member.call(rpc.RANGE, read, token(nbf=now_s - 100))
    member.call(rpc.RANGE, read, token())
    for late in (token(exp=now_s - 1), token(nbf=now_s + 100)):
        assert member.refused(rpc.RANGE, read, late).text == "etcdserver: invalid auth token"
    soon = token(exp=now_s + 50)
    member.call(rpc.RANGE, read, soon)
    member.pass_time(60)
    assert member.refused(rpc.RANGE, read, soon).text == "etcdserver: invalid auth token"


def test_a_member_that_only_verifies_cannot_log_in_users(tmp_path: Path) -> None:
    options = files(tmp_path, "ES256")
    signer = JwtKeys.of_options(options, VOICE, CLOCK)
    del options["priv-key"]
    member = AuthMember(tmp_path, flag(options))
    member.add_user("root", "pw", "root")
    member.enable()
    request = pb.AuthenticateRequest(name="root", password="pw")
    assert member.refused(rpc.AUTHENTICATE, request) == VERIFY_ONLY
    token = signer.sign("root", member.parts.state.auth.revision)
    member.call(rpc.RANGE, pb.RangeRequest(key=b"k"), token)
