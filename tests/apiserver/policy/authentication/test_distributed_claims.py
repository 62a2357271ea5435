"""Distributed claims: groups that a token says are to be had elsewhere."""

from typing import Any

import orjson
import pytest

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authentication.jwt.authenticator import JwtTokens
from kvstack.apiserver.policy.authentication.jwt.distributed import ISSUERS_MAX, ClaimResolver
from kvstack.apiserver.policy.authentication.jwt.keys import IssuerKeys
from kvstack.apiserver.policy.authentication.jwt.settings import JwtSettings, Source
from kvstack.apiserver.policy.authentication.results import AuthenticationError
from kvstack.apiserver.policy.remote.connection import RemoteAnswer, RemoteError
from tests.apiserver.policy.authentication.issuer import URL, Issuer, rsa_key, unsigned
from tests.apiserver.policy.clocks import BEGAN_S, FakeClock
from tests.apiserver.policy.waiting import result

API = ("https://api",)
OTHER = "https://groups.example"
ENDPOINT = f"{OTHER}/of/bob"


class World:
    """An issuer of tokens, another one of groups, and who believes the first."""

    def __init__(self) -> None:
        self.issuer, self.other = Issuer(), Issuer(OTHER)
        self.other.keys = {"two": rsa_key(2)}
        self.answer: str | RemoteAnswer | RemoteError = ""
        self.asked: list[tuple[str, str]] = []
        self.opened = 0
        clock = FakeClock()
        settings = JwtSettings(URL, ("kubernetes",), Source("sub"), groups=Source("groups", "g:"))
        keys = IssuerKeys(URL, "", lambda url: Page(self, url, ""), clock)
        self.resolver = ClaimResolver(settings, lambda *to: Page(self, *to), clock)
        self.tokens = JwtTokens(settings, keys, API, clock, self.resolver)

    def token_of_other(self, **claims: Any) -> str:
        """Return a token of the other issuer."""
        return self.other.token(self.other.claims(**claims), key="two")

    def of(self, **claims: Any) -> User:
        token = self.issuer.token(self.issuer.claims(**claims))
        found = result(self.tokens.authenticate(token, API))
        assert found is not None
        return found.user

    def refusal(self, **claims: Any) -> str:
        with pytest.raises(AuthenticationError) as caught:
            self.of(**claims)
        text = str(caught.value)
        assert text.startswith("oidc: could not expand distributed claims: ")
        return text


class Page:
    def __init__(self, world: World, url: str, token: str) -> None:
        self.world, self.url, self.token = world, url, token
        world.opened += 1

    async def ask(self, method: str, body: bytes = b"", *, timeout_s: float) -> RemoteAnswer:
        assert method == "GET"
        self.world.asked.append((self.url, self.token))
        if self.url == ENDPOINT:
            found = self.world.answer
            if isinstance(found, RemoteError):
                raise found
            return RemoteAnswer(200, found.encode()) if isinstance(found, str) else found
        for issuer in (self.world.issuer, self.world.other):
            if self.url.startswith(issuer.url):
                page = issuer.documents()[self.url.removeprefix(issuer.url)]
                return RemoteAnswer(200, orjson.dumps(page))
        raise RemoteError(f"{self.url} is not there")

    async def close(self) -> None:
        self.world.opened -= 1


def elsewhere(**source: Any) -> Object:
    """Return the claims that name where groups are."""
    found = {"endpoint": ENDPOINT, **source}
    return {"_claim_names": {"groups": "a"}, "_claim_sources": {"a": found}}


@pytest.fixture
def world() -> World:
    return World()


def test_groups_are_had_elsewhere(world: World) -> None:
    world.answer = world.token_of_other(groups=["devs", "ops"])
    assert world.of(**elsewhere(access_token="secret")).groups == ("g:devs", "g:ops")
    assert (ENDPOINT, "secret") in world.asked
    assert all(not token for url, token in world.asked if url != ENDPOINT), "it is nobody else's"
    before = len(world.asked)
    assert world.of(**elsewhere()).groups == ("g:devs", "g:ops")
    assert world.asked[before:] == [(ENDPOINT, "")], "the keys are known by now"


def test_nothing_is_asked_that_need_not_be(world: World) -> None:
    assert world.of(groups=["own"], **elsewhere()).groups == ("g:own",)
    other = {"_claim_names": {"address": "a"}, "_claim_sources": {"a": {"endpoint": ENDPOINT}}}
    assert world.of(**other).groups == ()
    assert world.of(**elsewhere(endpoint="", JWT="x")).groups == ()
    assert ENDPOINT not in [url for url, _ in world.asked]


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"_claim_names": []}, "_claim_names is not an object"),
        ({"_claim_names": {"groups": "a"}}, "no claim sources"),
        ({"_claim_names": {"groups": "a"}, "_claim_sources": []}, "_claim_sources is not an obj"),
        ({"_claim_names": {"groups": "b"}, "_claim_sources": {}}, "a source b missing"),
        ({"_claim_names": {"groups": ["a"]}, "_claim_sources": {"a": {}}}, "missing"),
        (elsewhere(endpoint=5), "no URL or token of type string"),
        (elsewhere(access_token=["a"]), "no URL or token of type string"),
        (elsewhere(endpoint="http://groups.example"), "is not an https URL"),
        (elsewhere(endpoint="file:///etc/passwd"), "is not an https URL"),
    ],
)
def test_what_does_not_say_where(world: World, claims: Object, message: str) -> None:
    assert message in world.refusal(**claims)
    assert ENDPOINT not in [url for url, _ in world.asked]


def test_what_is_found_there_must_be_a_good_token(world: World) -> None:
    stranger = Issuer("https://stranger.example")
    for answer, told in (
        ("", "it is not a token"),
        ("x.y.z", "it is not a token"),
        (RemoteAnswer(404, b""), "error while getting distributed claim JWT: 404"),
        (RemoteError("connection refused"), "connection refused"),
        (world.token_of_other(), "did not contain claim: groups"),
        (world.token_of_other(groups=["a"], aud="others"), "expected audience"),
        (world.token_of_other(groups=["a"], exp=BEGAN_S - 1), "token is expired"),
        (
            world.other.token(world.other.claims(groups=["a"]), key="two", signer=rsa_key(1)),
            "failed to verify signature",
        ),
        (unsigned(world.other.claims(groups=["a"])), "unsupported algorithm"),
        (stranger.token(stranger.claims(groups=["a"])), "is not there"),
        (Issuer("http://plain.example").token(), "is not an https URL"),
    ):
        world.answer = answer
        assert told in world.refusal(**elsewhere()), answer


def test_the_claim_is_what_it_would_be_in_the_first_token(world: World) -> None:
    world.answer = world.token_of_other(groups={"a": 1})
    token = world.issuer.token(world.issuer.claims(**elsewhere()))
    with pytest.raises(AuthenticationError, match="parse groups claim"):
        result(world.tokens.authenticate(token, API))


def test_of_many_issuers_few_are_kept(world: World) -> None:
    for number in range(2 * ISSUERS_MAX):
        other = Issuer(f"https://i{number}.example")
        world.answer = other.token(other.claims(groups=["a"]))
        world.refusal(**elsewhere())
    assert len(world.resolver._keys) == ISSUERS_MAX
