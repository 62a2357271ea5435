"""Tokens of service accounts: what holds, what no longer does, and what never did."""

import base64
import contextlib
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.apiserver.policy.authentication.results import AuthenticationError, Identified
from kvstack.apiserver.policy.authentication.service_account_tokens import (
    ACCOUNTS,
    NODES,
    PODS,
    SECRETS,
    ServiceAccountTokens,
    TokenVerifier,
)
from kvstack.apiserver.policy.service_accounts.claims import Claims, Reference
from kvstack.component.certs.service_account_keys import KeyRing, SigningKey
from tests.apiserver.policy.certificates import curve_key, private_pem, public_pem, rsa_key
from tests.apiserver.policy.clocks import BEGAN_S, FakeClock
from tests.apiserver.policy.views import FakeView
from tests.apiserver.policy.waiting import result

ISSUER = "https://issuer.test"
OURS = ("api",)
OLD, NEW, FOREIGN = (
    SigningKey(private_pem(each)) for each in (rsa_key(0), curve_key(0), rsa_key(1))
)
RING = KeyRing([OLD.public, NEW.public])
CLAIMS = Claims(
    ISSUER,
    OURS,
    "a",
    Reference("robot", "uid-robot"),
    id="j-1",
    issued=BEGAN_S,
    not_before=BEGAN_S,
    expires=BEGAN_S + 3600,
)


def cluster() -> FakeView:
    view = FakeView()
    view.put(ACCOUNTS, named("robot", "a"))
    view.put(PODS, named("web", "a"))
    view.put(SECRETS, named("box", "a"))
    view.put(NODES, named("n1"))
    return view


def named(name: str, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}"}
    if namespace:
        metadata["namespace"] = namespace
    return {"metadata": metadata}


def tokens(view: FakeView | None = None, clock: FakeClock | None = None) -> ServiceAccountTokens:
    place = view or cluster()
    verifier = TokenVerifier((ISSUER,), RING, OURS)
    return ServiceAccountTokens(verifier, place, place, clock or FakeClock())


def signed(claims: Claims = CLAIMS, key: SigningKey = OLD) -> str:
    return key.sign(claims.to_payload())


def segment(data: object) -> str:
    text = data if isinstance(data, bytes) else orjson.dumps(data)
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def identified(token: str, audiences: tuple[str, ...] = OURS) -> Identified | None:
    return result(tokens().authenticate(token, audiences))


def test_user_of_a_token() -> None:
    found = identified(signed())
    assert found is not None
    assert found.user.name == "system:serviceaccount:a:robot"
    assert found.user.uid == "uid-robot"
    assert found.user.groups == ("system:serviceaccounts", "system:serviceaccounts:a")
    assert found.user.extra == {"authentication.kubernetes.io/credential-id": ("JTI=j-1",)}
    assert found.audiences == OURS


def test_pod_and_node_are_reported() -> None:
    bound = CLAIMS._replace(pod=Reference("web", "uid-web"), node=Reference("n1", "uid-n1"))
    found = identified(signed(bound))
    assert found is not None
    prefix = "authentication.kubernetes.io"
    assert {key: found.user.extra[f"{prefix}/{key}"] for key in ("pod-name", "node-uid")} == {
        "pod-name": ("web",),
        "node-uid": ("uid-n1",),
    }


@pytest.mark.parametrize("key", [OLD, NEW])
def test_any_key_of_the_ring(key: SigningKey) -> None:
    assert identified(signed(key=key)) is not None


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"expires": BEGAN_S - 61}, "service account token has expired"),
    "not yet": ({"not_before": BEGAN_S + 61}, "service account token is not valid yet"),
    "future": ({"issued": BEGAN_S + 61}, "service account token is issued in the future"),
    "audience": (
        {"audiences": ("other",)},
        'token audiences ["other"] is invalid for the target audiences ["api"]',
    ),
    "account": ({"account": Reference("none", "u")}, 'serviceaccounts "none" not found'),
    "account uid": (
        {"account": Reference("robot", "u")},
        "service account UID (uid-robot) does not match claim (u)",
    ),
    "namespace": ({"namespace": "b"}, 'serviceaccounts "robot" not found'),
    "pod": ({"pod": Reference("gone", "u")}, "service account token has been invalidated"),
    "pod uid": (
        {"pod": Reference("web", "u")},
        "pod UID (uid-web) does not match service account pod ref claim (u)",
    ),
    "secret": ({"secret": Reference("gone", "u")}, "service account token has been invalidated"),
    "secret uid": (
        {"secret": Reference("box", "u")},
        "secret UID (uid-box) does not match service account secret ref claim (u)",
    ),
    "node": ({"node": Reference("gone", "u")}, "service account token has been invalidated"),
    "node uid": (
        {"node": Reference("n1", "u")},
        "node UID (uid-n1) does not match service account node ref claim (u)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    changes, text = REFUSED[case]
    with pytest.raises(AuthenticationError) as caught:
        identified(signed(CLAIMS._replace(**changes)))
    assert str(caught.value) == text


@pytest.mark.parametrize("changes", [{"expires": BEGAN_S - 59}, {"not_before": BEGAN_S + 59}])
def test_clocks_may_differ_by_a_minute(changes: dict[str, Any]) -> None:
    assert identified(signed(CLAIMS._replace(**changes))) is not None


def test_a_pod_of_a_missing_node_is_enough() -> None:
    bound = CLAIMS._replace(pod=Reference("web", "uid-web"), node=Reference("gone", "u"))
    assert identified(signed(bound)) is not None


def test_several_audiences() -> None:
    both = signed(CLAIMS._replace(audiences=("x", "api", "y")))
    found = identified(both, ("y", "x"))
    assert found is not None
    assert found.audiences == ("x", "y")


def test_another_key() -> None:
    with pytest.raises(AuthenticationError, match="invalid signature, no keys found"):
        identified(signed(key=FOREIGN))


def test_another_key_of_the_same_name() -> None:
    """Whoever names our key in the header has not signed with it."""
    header, payload, _ = signed().split(".")
    theirs = signed(key=FOREIGN).split(".")[2]
    with pytest.raises(AuthenticationError, match="cryptographic primitive"):
        identified(f"{header}.{payload}.{theirs}")


def test_without_a_key_id_all_keys_are_tried() -> None:
    import jwt

    for key, algorithm in ((rsa_key(0), "RS256"), (curve_key(0), "ES256")):
        assert identified(jwt.encode(CLAIMS.to_payload(), key, algorithm)) is not None
    with pytest.raises(AuthenticationError, match="cryptographic primitive"):
        identified(jwt.encode(CLAIMS.to_payload(), rsa_key(1), "RS256"))


def test_other_issuers_are_others_to_judge() -> None:
    assert identified(signed(CLAIMS._replace(issuer="https://other.test"))) is None


ALGORITHMS: tuple[object, ...] = (
    "none",
    "None",
    "NONE",
    "",
    "HS256",
    "RS384",
    "PS256",
    "EdDSA",
    None,
    5,
    [],
)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("with_key_id", [True, False])
def test_a_token_does_not_choose_its_algorithm(*, algorithm: object, with_key_id: bool) -> None:
    header: dict[str, object] = {"alg": algorithm}
    if with_key_id:
        header["kid"] = OLD.public.id
    payload = segment(CLAIMS.to_payload())
    for signature in ("", "AAAA", signed().split(".")[2]):
        with pytest.raises(AuthenticationError):
            identified(f"{segment(header)}.{payload}.{signature}")


def test_public_key_is_no_shared_secret() -> None:
    """The oldest trick: HS256 with the text of the public key as the secret."""
    import hashlib
    import hmac

    head = f"{segment({'alg': 'HS256'})}.{segment(CLAIMS.to_payload())}"
    made = hmac.new(public_pem(rsa_key(0)), head.encode(), hashlib.sha256).digest()
    with pytest.raises(AuthenticationError):
        identified(f"{head}.{segment(made)}")


NO_TOKENS = (
    "",
    ".",
    "..",
    "...",
    "a.b.c",
    "a.b",
    "\u20ac.\u20ac.\u20ac",
    "x" * 100_000,
    "e30.e30.",
)


@pytest.mark.parametrize("text", NO_TOKENS)
def test_texts_that_are_no_tokens(text: str) -> None:
    assert identified(text) is None


@pytest.mark.parametrize("length", range(1, len(signed()), 17))
def test_truncated(length: int) -> None:
    with contextlib.suppress(AuthenticationError):
        assert identified(signed()[:length]) is None


TOKEN = signed()


@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii"))
@settings(max_examples=300)
def test_a_changed_character_never_makes_another_user(position: int, character: str) -> None:
    changed = TOKEN[:position] + character + TOKEN[position + 1 :]
    try:
        found = identified(changed)
    except AuthenticationError:
        return
    assert found is None or found.user.name == "system:serviceaccount:a:robot"


WRONG_PAYLOADS: list[dict[str, Any]] = [
    {"kubernetes.io": 5},
    {"kubernetes.io": {"namespace": 5}},
    {"kubernetes.io": {"namespace": "a", "serviceaccount": []}},
    {"kubernetes.io": {"namespace": "a", "serviceaccount": {"name": {}}}},
    {"exp": "soon"},
    {"exp": True},
    {"nbf": []},
    {"aud": 5},
    {"aud": ["api", 5]},
    {"jti": {}},
]


@pytest.mark.parametrize("wrong", WRONG_PAYLOADS)
def test_signed_payloads_of_wrong_types(wrong: dict[str, Any]) -> None:
    token = OLD.sign({**CLAIMS.to_payload(), **wrong})
    with pytest.raises(AuthenticationError):
        identified(token)


def test_stale_tokens_are_noted() -> None:
    found = identified(signed(CLAIMS._replace(warn_after=BEGAN_S - 5)))
    assert found is not None
    assert found.annotations == {
        "authentication.k8s.io/stale-token": "subject: system:serviceaccount:a:robot,"
        " seconds after warning threshold: 5"
    }


def test_the_copy_is_brought_up_to_date_before_a_token_is_refused() -> None:
    view = FakeView()
    view.before_catching_up = lambda: view.put(ACCOUNTS, named("robot", "a"))
    assert result(tokens(view).authenticate(signed(), OURS)) is not None


@pytest.mark.parametrize(("ago", "holds"), [(59, True), (61, False)])
def test_objects_that_are_being_deleted(*, ago: int, holds: bool) -> None:
    from kvstack.apimachinery.objects.times import format_time

    view = cluster()
    pod = named("web", "a")
    pod["metadata"]["deletionTimestamp"] = format_time(BEGAN_S - ago)
    view.put(PODS, pod)
    token = signed(CLAIMS._replace(pod=Reference("web", "uid-web")))
    if holds:
        assert result(tokens(view).authenticate(token, OURS)) is not None
    else:
        with pytest.raises(AuthenticationError, match="has been invalidated"):
            result(tokens(view).authenticate(token, OURS))
