"""Tokens on request."""

from typing import Any

import orjson
import pytest

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.policy.authentication.service_account_tokens import (
    ACCOUNTS,
    NODES,
    PODS,
    SECRETS,
    ServiceAccountTokens,
    TokenVerifier,
)
from kvstack.apiserver.policy.service_accounts.issuer import Issued, TokenIssuer, TokenSettings
from kvstack.component.certs.service_account_keys import KeyRing, SigningKey
from tests.apiserver.policy.certificates import curve_key, private_pem
from tests.apiserver.policy.clocks import BEGAN_S, FakeClock
from tests.apiserver.policy.views import FakeView
from tests.apiserver.policy.waiting import result

ISSUER = "https://issuer.test"
KEY = SigningKey(private_pem(curve_key(0)))
SETTINGS = TokenSettings(issuer=ISSUER, api_audiences=("api",))


def cluster() -> FakeView:
    view = FakeView()
    metadata = {"namespace": "a", "uid": "u-1"}
    view.put(ACCOUNTS, {"metadata": {**metadata, "name": "robot"}})
    spec = {"serviceAccountName": "robot", "nodeName": "n1"}
    view.put(PODS, {"metadata": {**metadata, "name": "web"}, "spec": spec})
    other = {"serviceAccountName": "other"}
    view.put(PODS, {"metadata": {**metadata, "name": "theirs"}, "spec": other})
    view.put(SECRETS, {"metadata": {**metadata, "name": "box"}})
    view.put(NODES, {"metadata": {"name": "n1", "uid": "u-n1"}})
    return view


def allow(_: dict[str, Any]) -> None:
    """Be validating admission that has nothing to say."""


def ask(
    spec: dict[str, Any] | None = None,
    settings: TokenSettings = SETTINGS,
    *,
    view: FakeView | None = None,
    name: str = "robot",
    validate: Any = allow,
) -> Issued:
    place = view or cluster()
    issuer = TokenIssuer(KEY, settings, place, place, FakeClock(), lambda: "j-1")
    request = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "spec": spec or {},
        "status": {},
    }
    return result(issuer.create("a", name, request, validate))


def payload(issued: Issued) -> dict[str, Any]:
    signed = KeyRing([KEY.public]).verify(issued.request["status"]["token"], "")
    found: dict[str, Any] = orjson.loads(signed)
    return found


def bound(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name, **more}}


def test_token_for_an_hour() -> None:
    issued = ask()
    assert payload(issued) == {
        "aud": ["api"],
        "exp": BEGAN_S + 3600,
        "iat": BEGAN_S,
        "iss": ISSUER,
        "jti": "j-1",
        "kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "robot", "uid": "u-1"}},
        "nbf": BEGAN_S,
        "sub": "system:serviceaccount:a:robot",
    }
    assert issued.request["status"]["expirationTimestamp"] == format_time(BEGAN_S + 3600)
    assert issued.annotations == {"authentication.kubernetes.io/issued-credential-id": "JTI=j-1"}


def test_bound_to_a_pod() -> None:
    claims = payload(ask(bound("Pod", "web")))["kubernetes.io"]
    assert claims["pod"] == {"name": "web", "uid": "u-1"}
    assert claims["node"] == {"name": "n1", "uid": "u-n1"}


def test_bound_to_a_pod_of_a_node_that_is_gone() -> None:
    view = cluster()
    view.remove(NODES, "", "n1")
    claims = payload(ask(bound("Pod", "web"), view=view))["kubernetes.io"]
    assert claims["node"] == {"name": "n1"}


def test_bound_to_others() -> None:
    claims = payload(ask(bound("Secret", "box")))["kubernetes.io"]
    assert claims["secret"] == {"name": "box", "uid": "u-1"}
    claims = payload(ask(bound("Node", "n1")))["kubernetes.io"]
    assert claims["node"] == {"name": "n1", "uid": "u-n1"}


def test_what_a_kubelet_asks_for_lives_longer_than_it_says() -> None:
    """An hour and seven seconds mark the request of a kubelet."""
    issued = ask({"expirationSeconds": 3607, **bound("Pod", "web")})
    claims = payload(issued)
    assert claims["exp"] == BEGAN_S + 365 * 86_400
    assert claims["kubernetes.io"]["warnafter"] == BEGAN_S + 3607
    assert issued.request["status"]["expirationTimestamp"] == format_time(BEGAN_S + 3607)


def test_no_longer_than_the_server_allows() -> None:
    settings = TokenSettings(issuer=ISSUER, api_audiences=("api",), longest_seconds=7200)
    issued = ask({"expirationSeconds": 99_999}, settings)
    assert payload(issued)["exp"] == BEGAN_S + 7200
    assert issued.warnings


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (bound("Pod", "none"), 404),
        (bound("Pod", "theirs"), 400),
        (bound("Pod", "web", uid="other"), 409),
        (bound("ConfigMap", "x"), 400),
        ({"expirationSeconds": 599}, 422),
    ],
)
def test_refused(spec: dict[str, Any], code: int) -> None:
    with pytest.raises(ApiError) as caught:
        ask(spec)
    assert caught.value.code == code


def test_no_such_account() -> None:
    with pytest.raises(ApiError) as caught:
        ask(name="none")
    assert (caught.value.code, caught.value.message) == (404, 'serviceaccounts "none" not found')


def test_admission_may_refuse() -> None:
    def refuse(_: dict[str, Any]) -> None:
        raise ApiError({"code": 403, "message": "no"})

    with pytest.raises(ApiError, match="no"):
        ask(validate=refuse)


def test_issued_tokens_authenticate() -> None:
    view = cluster()
    issued = ask(bound("Pod", "web"), view=view)
    verifier = TokenVerifier((ISSUER,), KeyRing([KEY.public]), ("api",))
    tokens = ServiceAccountTokens(verifier, view, view, FakeClock())
    token = issued.request["status"]["token"]
    found = result(tokens.authenticate(token, ("api",)))
    assert found is not None
    assert found.user.extra["authentication.kubernetes.io/pod-name"] == ("web",)
