"""Tokens of an issuer: which are believed, and who they stand for."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authentication.jwt.authenticator import JwtTokens
from kvstack.apiserver.policy.authentication.jwt.issuers import Issuers
from kvstack.apiserver.policy.authentication.jwt.keys import WELL_KNOWN, IssuerKeys
from kvstack.apiserver.policy.authentication.jwt.settings import (
    Condition,
    ExpressionError,
    JwtSettings,
    Source,
)
from kvstack.apiserver.policy.authentication.results import AuthenticationError
from kvstack.apiserver.policy.remote.connection import RemoteAnswer, RemoteError
from tests.apiserver.policy.authentication.issuer import (
    URL,
    Issuer,
    curve_key,
    jwk,
    rsa_key,
    unsigned,
)
from tests.apiserver.policy.clocks import BEGAN_S, FakeClock
from tests.apiserver.policy.waiting import result

API = ("https://api",)


class Web:
    """Serves the issuer's documents, and notes what is asked."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.asked: list[str] = []
        self.instead: dict[str, RemoteAnswer | RemoteError] = {}

    def connect(self, url: str) -> "Page":
        return Page(self, url)


class Page:
    def __init__(self, web: Web, url: str) -> None:
        self.web, self.url = web, url

    async def ask(self, method: str, body: bytes = b"", *, timeout_s: float) -> RemoteAnswer:
        assert method == "GET"
        path = self.url.removeprefix(self.web.issuer.url)
        self.web.asked.append(path)
        instead = self.web.instead.get(path)
        if isinstance(instead, RemoteError):
            raise instead
        return instead or RemoteAnswer(200, orjson.dumps(self.web.issuer.documents()[path]))

    async def close(self) -> None:
        pass


class World:
    def __init__(self, **settings: Any) -> None:
        self.issuer = Issuer()
        self.web = Web(self.issuer)
        self.clock = FakeClock()
        made = {"username": Source("sub"), "audiences": ("kubernetes",), **settings}
        self.settings = JwtSettings(URL, **made)
        discovery = self.settings.discovery_url
        keys = IssuerKeys(URL, discovery, self.web.connect, self.clock)
        self.tokens = JwtTokens(self.settings, keys, API, self.clock)

    def user(self, token: str, audiences: tuple[str, ...] = API) -> User | None:
        found = result(self.tokens.authenticate(token, audiences))
        if found is not None:
            assert found.audiences == tuple(each for each in API if each in audiences)
        return None if found is None else found.user

    def of(self, **claims: Any) -> User | None:
        return self.user(self.issuer.token(self.issuer.claims(**claims)))

    def refusal(self, token: str) -> str:
        with pytest.raises(AuthenticationError) as caught:
            self.user(token)
        return str(caught.value)

    def refused(self, **claims: Any) -> str:
        return self.refusal(self.issuer.token(self.issuer.claims(**claims)))


@pytest.fixture
def world() -> World:
    return World()


def test_a_good_token(world: World) -> None:
    assert world.of(jti="7") == User(
        "bob", extra={"authentication.kubernetes.io/credential-id": ("JTI=7",)}
    )
    assert world.web.asked == [WELL_KNOWN, "/keys"]
    assert world.of(sub="al") == User("al")
    assert len(world.web.asked) == 2


def test_tokens_of_others_are_theirs_to_judge(world: World) -> None:
    other = Issuer("https://other.example")
    tokens = (other.token(), "x.y.z", "bob", "", "a.b", unsigned({"sub": "x"}), "a.b.c.d")
    for token in tokens:
        assert world.user(token) is None
    assert world.user(world.issuer.token(), ("https://elsewhere",)) is None
    assert not world.web.asked


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"exp": BEGAN_S - 1}, "token is expired"),
        ({"exp": None}, "token is expired"),
        ({"exp": "soon"}, "exp is not a number"),
        ({"exp": True}, "exp is not a number"),
        ({"nbf": BEGAN_S + 301}, "token is not valid yet"),
        ({"aud": "others"}, 'expected audience in ["kubernetes"] got ["others"]'),
        ({"aud": ["a", "b"]}, 'got ["a" "b"]'),
        ({"aud": None}, "got []"),
        ({"aud": 5}, "got []"),
        ({"aud": [5, {"kubernetes": 1}]}, "got []"),
        ({"sub": None}, 'parse username claims "sub": claim not present'),
        ({"sub": 5}, "the claim is not a string"),
        ({"sub": ""}, "empty username"),
    ],
)
def test_claims_that_are_no_good(world: World, claims: Object, message: str) -> None:
    assert message in world.refused(**claims)


def test_times_at_their_edges(world: World) -> None:
    assert world.of(exp=BEGAN_S, nbf=BEGAN_S + 300) is not None
    assert world.of(aud=["x", "kubernetes"]) is not None


def test_signatures_that_are_no_good(world: World) -> None:
    issuer = world.issuer
    good = issuer.token()
    head, body, signature = good.split(".")
    forged = issuer.token(issuer.claims(sub="root"), signer=rsa_key(2))
    other_body = issuer.token(issuer.claims(sub="root")).split(".")[1]
    for token in (
        forged,
        f"{head}.{other_body}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-4]}",
        issuer.token(headers={"kid": "two"}),
    ):
        assert "failed to verify" in world.refusal(token)


def test_algorithms_that_are_no_good(world: World) -> None:
    issuer = world.issuer
    claims = issuer.claims(sub="root")
    pem = rsa_key(1).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    assert isinstance(pem, bytes)
    # A public key is no secret: tokens may not be "signed" with it.
    import hmac

    from jwt.utils import base64url_encode

    header = base64url_encode(b'{"alg":"HS256","kid":"one"}')
    signing = header + b"." + base64url_encode(orjson.dumps(claims))
    mac = base64url_encode(hmac.digest(pem, signing, "sha256"))
    for token in (
        (signing + b"." + mac).decode(),
        unsigned(claims),
        unsigned(claims, "None"),
        unsigned(claims, ""),
        issuer.token(headers={"crit": ["x"], "x": 1}),
    ):
        assert "unsupported algorithm" in world.refusal(token)
    allowed = World(algorithms=("ES256",))
    assert "unsupported algorithm" in allowed.refusal(issuer.token())


def test_a_key_has_its_own_algorithms(world: World) -> None:
    world.issuer.keys["curve"] = curve_key(1)
    world.issuer.keys["wide"] = curve_key(2, ec.SECP384R1)
    claims = world.issuer.claims()
    for key, algorithm in (("one", "PS512"), ("curve", "ES256"), ("wide", "ES384")):
        world.clock.seconds += 5
        assert world.user(world.issuer.token(claims, key=key, algorithm=algorithm)) is not None
    mixed = world.issuer.token(
        claims, algorithm="ES256", headers={"kid": "wide"}, signer=curve_key(1)
    )
    world.clock.seconds += 5
    assert "failed to verify" in world.refusal(mixed)


def test_a_key_without_an_id_is_looked_for_among_all(world: World) -> None:
    world.issuer.keys["two"] = rsa_key(2)
    token = world.issuer.token(headers={"kid": ""}, signer=rsa_key(2))
    assert world.user(token) is not None


def test_keys_that_change_are_fetched_again_but_not_at_will(world: World) -> None:
    assert world.of() is not None
    world.issuer.keys["two"] = rsa_key(2)
    new = world.issuer.token(key="two")
    assert "failed to verify" in world.refusal(new)  # too soon after the last fetch
    world.clock.seconds += 2
    assert world.user(new) is not None
    count = len(world.web.asked)
    for _ in range(20):
        world.refusal(world.issuer.token(headers={"kid": "none"}))
    assert len(world.web.asked) == count
    # A key that the issuer took away is still known until others are fetched.
    del world.issuer.keys["one"]
    world.clock.seconds += 5
    world.refusal(world.issuer.token(key="two", headers={"kid": "none"}))
    with pytest.raises(AuthenticationError):
        world.user(world.issuer.token(signer=rsa_key(1), key="one"))


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        (WELL_KNOWN, RemoteError("refused"), "not initialized: refused"),
        (WELL_KNOWN, RemoteAnswer(404, b""), "the issuer answered 404"),
        (WELL_KNOWN, RemoteAnswer(200, b"<html>"), "not JSON"),
        (WELL_KNOWN, RemoteAnswer(200, b"[]"), "not a JSON object"),
        (WELL_KNOWN, RemoteAnswer(200, b'{"issuer": "https://evil"}'), "did not match"),
        (
            WELL_KNOWN,
            RemoteAnswer(200, b'{"issuer": "https://issuer.example", "jwks_uri": "http://x"}'),
            "not an https URL",
        ),
        ("/keys", RemoteAnswer(200, b'{"keys": 5}'), "not a key set"),
        ("/keys", RemoteAnswer(200, b'{"keys": [{"kty": "oct", "k": "AA"}]}'), "no usable key"),
        ("/keys", RemoteAnswer(200, b'{"keys": [{"kty": "RSA"}, 7]}'), "no usable key"),
    ],
)
def test_an_issuer_that_answers_otherwise(
    world: World, path: str, answer: RemoteAnswer | RemoteError, message: str
) -> None:
    world.web.instead[path] = answer
    assert message in world.refusal(world.issuer.token())
    del world.web.instead[path]
    assert message in world.refusal(world.issuer.token())  # not asked again at once
    world.clock.seconds += 10
    assert world.of() is not None
    assert not world.tokens.keys.problem


def test_keys_for_encryption_do_not_sign(world: World) -> None:
    documents = {"keys": [jwk(rsa_key(1), "one", use="enc")]}
    world.web.instead["/keys"] = RemoteAnswer(200, orjson.dumps(documents))
    assert "no usable key" in world.refusal(world.issuer.token())


def test_a_configuration_elsewhere() -> None:
    world = World(discovery_url=f"{URL}/other")
    documents = world.issuer.documents()
    world.web.instead["/other"] = RemoteAnswer(200, orjson.dumps(documents[WELL_KNOWN]))
    assert world.of() is not None
    assert world.web.asked[0] == "/other"


# Who it is.


def test_prefixes_groups_and_uids() -> None:
    world = World(username=Source("sub", "oidc:"), groups=Source("roles", "g:"), uid=Source("id"))
    assert world.of(roles=["a", "b"], id="7") == User("oidc:bob", "7", ("g:a", "g:b"))
    assert world.of(roles="a", id="7") == User("oidc:bob", "7", ("g:a",))
    assert world.of(id="7") == User("oidc:bob", "7")
    assert "parse groups claim" in world.refused(id="7", roles={"a": 1})
    assert "parse groups claim" in world.refused(id="7", roles=["a", 5])
    assert "parse uid claim" in world.refused()


def test_an_email_has_to_be_verified_if_that_is_said() -> None:
    world = World(username=Source("email"))
    assert world.of(email="a@b") == User("a@b")
    assert world.of(email="a@b", email_verified=True) == User("a@b")
    for said in (False, "true", 1):
        assert "email not verified" in world.refused(email="a@b", email_verified=said)


def test_required_claims() -> None:
    world = World(required_claims={"tenant": "t"})
    assert world.of(tenant="t") is not None
    assert "required claim tenant not present" in world.refused()
    assert "Got = u, want = t" in world.refused(tenant="u")
    assert "value does not match" in world.refused(tenant=["t"])


class Lookup:
    """An expression that returns a member."""

    def __init__(self, *path: str) -> None:
        self.path = path

    def evaluate(self, value: Mapping[str, object]) -> object:
        found: Any = value
        for each in self.path:
            if each not in found:
                raise ExpressionError(f"no such key: {each}")
            found = found[each]
        return found


def test_expressions() -> None:
    world = World(
        username=Source(expression=Lookup("who", "name")),
        groups=Source(expression=Lookup("roles")),
        uid=Source(expression=Lookup("id")),
        extra=(("x.io/a", Lookup("a")),),
    )
    good = {"who": {"name": "al"}, "roles": ["a", ""], "id": "7", "a": "v"}
    assert world.of(**good) == User("al", "7", ("a",), {"x.io/a": ("v",)})
    assert world.of(**{**good, "a": ["", "w"]}) == User("al", "7", ("a",), {"x.io/a": ("w",)})
    assert world.of(**{**good, "a": ""}) == User("al", "7", ("a",))
    for change, told in (
        ({"who": {}}, "username claim expression: no such key: name"),
        ({"who": {"name": 5}}, "must return a string"),
        ({"who": {"name": ""}}, "empty username via CEL"),
        ({"roles": [5]}, "group claim expression: expression must return a string or a list"),
        ({"id": 5}, "uid claim expression must return a string"),
        ({"a": 5}, "extra claim expression: expression must return"),
    ):
        assert told in world.refused(**{**good, **change})


def test_conditions() -> None:
    world = World(
        claim_conditions=(Condition(Lookup("ok"), "claims.ok", "not ok"),),
        user_conditions=(Condition(Lookup("groups"), "user.groups"),),
    )
    assert "claim validation expression: not ok" in world.refused(ok=False)
    assert "not ok" in world.refused(ok="true")
    assert "no such key: ok" in world.refused()
    told = "user info validation rule: validation expression 'user.groups' failed"
    assert told in world.refused(ok=True)


def test_several_issuers() -> None:
    one, two = World(), World()
    issuers = Issuers()
    assert issuers.authenticate(one.issuer.token(), API) is None
    assert issuers.replace([one.tokens]) == []
    assert result(issuers.authenticate(one.issuer.token(), API)) is not None
    assert issuers.replace([two.tokens]) == [one.tokens]
    assert issuers.authenticate("nonsense", API) is None


GOOD = Issuer().token()


@given(st.data())
def test_no_changed_token_is_believed(data: st.DataObject) -> None:
    """Change one character of a good token, or cut it."""
    world = World()
    position = data.draw(st.integers(0, len(GOOD) - 1))
    character = data.draw(st.sampled_from("abcXYZ019-_.=+/ "))
    changed = data.draw(
        st.sampled_from([GOOD[:position], GOOD[:position] + character + GOOD[position + 1 :]])
    )
    if changed == GOOD:
        return
    try:
        found = world.user(changed)
    except AuthenticationError:
        return
    # The last character of a signature may have bits that stand for nothing.
    assert found is None or (found == User("bob") and changed[:-1] == GOOD[:-1])
