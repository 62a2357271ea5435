"""Whose requests are: headers, certificates, proxies, and in which order they count."""

import base64
from collections.abc import Sequence

import pytest

from kvstack.apimachinery.attributes import AUTHENTICATED, UNAUTHENTICATED, User
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.policy.authentication.certificates import Authorities, CertificateUsers
from kvstack.apiserver.policy.authentication.front_proxy import (
    FrontProxy,
    FrontProxySettings,
    unescape,
)
from kvstack.apiserver.policy.authentication.requests import (
    PROTOCOL_PREFIX,
    Anonymous,
    RequestAuthenticator,
    bearer_token,
    protocol_token,
    without_token,
)
from kvstack.apiserver.policy.authentication.results import AuthenticationError, Identified
from kvstack.apiserver.policy.authentication.token_chain import TokenChain
from kvstack.apiserver.policy.authentication.token_file import StaticTokens
from kvstack.apiserver.policy.credentials import Credentials
from tests.apiserver.policy.certificates import Authority
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.policy.waiting import result

CLIENTS, PROXIES = Authority.root(0), Authority.root(1)
BOB, PROXY = (CLIENTS.client("bob"),), (PROXIES.client("proxy"),)
NOBODY = User("system:anonymous", groups=(UNAUTHENTICATED,))


def authenticator(*, anonymous: Anonymous | None = None, names: str = "") -> RequestAuthenticator:
    clock = FakeClock()
    return RequestAuthenticator(
        TokenChain([StaticTokens({"t": User("alice")}, ("api",))], clock),
        ("api",),
        front_proxy=FrontProxy(
            Authorities(PROXIES.pem, clock), FrontProxySettings(tuple(names.split()))
        ),
        certificates=CertificateUsers(Authorities(CLIENTS.pem, clock)),
        anonymous=anonymous or Anonymous(),
    )


def user_of(**parts: object) -> User:
    return result(authenticator().authenticate(Credentials(**parts)))  # type: ignore[arg-type]


def refused(**parts: object) -> bool:
    with pytest.raises(ApiError) as caught:
        user_of(**parts)
    assert (caught.value.code, caught.value.message) == (401, "Unauthorized")
    return True


def subprotocol(token: str) -> str:
    return PROTOCOL_PREFIX + base64.urlsafe_b64encode(token.encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("", ""),
        ("Bearer", ""),
        ("Bearer t", "t"),
        ("bEARER t", "t"),
        ("  Bearer t  ", "t"),
        ("Bearer t and more", "t"),
        ("Bearer  t", ""),
        ("Basic dTpw", ""),
        ("Bearer\tt", ""),
        ("t", ""),
    ],
)
def test_header(header: str, token: str) -> None:
    assert bearer_token(Credentials(header)) == token


def test_extra_space_is_warned_of() -> None:
    credentials = Credentials("Bearer  t")
    assert bearer_token(credentials) == ""
    assert credentials.warnings == [
        "the provided Authorization header contains extra space before the bearer token, and is"
        " ignored"
    ]


@pytest.mark.parametrize(
    ("protocols", "token"),
    [
        ((), ""),
        (("v4.channel.k8s.io",), ""),
        ((f"v4.channel.k8s.io, {subprotocol('t')}",), "t"),
        ((subprotocol("t"), "v4.channel.k8s.io"), "t"),
        ((PROTOCOL_PREFIX, "v4.channel.k8s.io"), ""),
    ],
)
def test_protocols(protocols: tuple[str, ...], token: str) -> None:
    assert protocol_token(Credentials(protocols=protocols)) == token


@pytest.mark.parametrize(
    "protocols",
    [
        (subprotocol("t"),),
        (subprotocol("t"), subprotocol("t"), "x"),
        (f"{PROTOCOL_PREFIX}!!!", "x"),
        (f"{PROTOCOL_PREFIX}/w8", "x"),
        (f"{PROTOCOL_PREFIX}\u20ac", "x"),
    ],
)
def test_protocols_that_are_no_good(protocols: tuple[str, ...]) -> None:
    with pytest.raises(AuthenticationError):
        protocol_token(Credentials(protocols=protocols))
    assert refused(protocols=protocols)


def test_protocols_without_the_token() -> None:
    assert without_token([f"a, {subprotocol('t')}", "b"]) == ["a", "b"]


def test_no_credentials() -> None:
    assert user_of() == NOBODY


@pytest.mark.parametrize("header", ["Bearer t", "bearer t"])
def test_token(header: str) -> None:
    assert user_of(authorization=header) == User("alice", groups=(AUTHENTICATED,))


def test_wrong_credentials_are_not_anonymous() -> None:
    assert refused(authorization="Bearer wrong")
    assert refused(certificates=(CLIENTS.client("bob", days=-0.1),))
    assert refused(certificates=(b"junk",))


def test_other_schemes_are_anonymous() -> None:
    assert user_of(authorization="Basic dTpw") == NOBODY


def test_certificate_counts_before_token() -> None:
    assert user_of(certificates=BOB, authorization="Bearer t").name == "bob"
    assert user_of(certificates=BOB, authorization="Bearer wrong").name == "bob"


def test_token_counts_after_a_wrong_certificate() -> None:
    assert user_of(certificates=(b"junk",), authorization="Bearer t").name == "alice"


def test_token_of_the_header_counts_before_that_of_the_protocol() -> None:
    protocols = (subprotocol("t"), "x")
    assert user_of(protocols=protocols).name == "alice"
    assert user_of(authorization="Bearer wrong", protocols=protocols).name == "alice"


def test_paths_for_anonymous() -> None:
    some = authenticator(anonymous=Anonymous(paths=("/livez",)))
    assert result(some.authenticate(Credentials(path="/livez"))) == NOBODY
    with pytest.raises(ApiError):
        result(some.authenticate(Credentials(path="/api")))
    none = authenticator(anonymous=Anonymous(is_allowed=False))
    with pytest.raises(ApiError):
        result(none.authenticate(Credentials(path="/livez")))


def proxied(*headers: tuple[str, str], certificates: tuple[bytes, ...] = PROXY) -> User:
    return user_of(certificates=certificates, headers=lambda: headers)


def test_front_proxy() -> None:
    assert proxied(
        ("x-remote-user", "carol"),
        ("x-remote-uid", "u"),
        ("x-remote-group", "a"),
        ("x-remote-group", ""),
        ("x-remote-group", "b"),
        ("x-remote-extra-acme.com%2fproject", "p"),
        ("x-remote-extra-acme.com%2fproject", "q"),
        ("x-remote-extra-other", "r"),
    ) == User(
        "carol",
        "u",
        ("a", "b", AUTHENTICATED),
        {"acme.com/project": ("p", "q"), "other": ("r",)},
    )


def test_of_duplicate_headers_the_first_counts() -> None:
    assert proxied(("x-remote-user", "carol"), ("x-remote-user", "admin")).name == "carol"


def test_headers_of_others_do_not_count() -> None:
    header = ("x-remote-user", "carol")
    assert proxied(header, certificates=BOB).name == "bob"
    assert proxied(header, certificates=()) == NOBODY


def test_proxy_that_names_nobody() -> None:
    """Its certificate is none of a client, so that the request is refused."""
    assert refused(certificates=PROXY)
    assert refused(certificates=PROXY, headers=lambda: [("x-remote-user", "")])


def test_proxy_of_another_name() -> None:
    picky = authenticator(names="front other")
    credentials = Credentials(certificates=PROXY, headers=lambda: [("x-remote-user", "carol")])
    with pytest.raises(ApiError):
        result(picky.authenticate(credentials))


def test_anonymous_of_a_proxy_gets_no_group() -> None:
    assert proxied(("x-remote-user", "system:anonymous")).groups == ()


@pytest.mark.parametrize(
    ("text", "plain"),
    [("a%2Fb", "a/b"), ("a%2", "a%2"), ("%zz", "%zz"), ("%e2%82%ac", "\u20ac"), ("%ff", "\ufffd")],
)
def test_escapes(text: str, plain: str) -> None:
    assert unescape(text) == plain


def test_what_a_token_tells_goes_to_the_client_and_to_the_audit_log() -> None:
    class Tells:
        def authenticate(self, _token: str, audiences: Sequence[str]) -> Identified:
            return Identified(User("al"), tuple(audiences), ("old",), {"stale": "5"})

    chain = TokenChain([Tells()], FakeClock())
    made = RequestAuthenticator(chain, ("api",), anonymous=Anonymous())
    for _ in range(2):  # the second time it is remembered
        credentials = Credentials("Bearer t")
        assert result(made.authenticate(credentials)).name == "al"
        assert credentials.warnings == ["old"]
        assert credentials.annotations == {"stale": "5"}
