"""Who somebody is: tokens, certificates, headers that pretend.

Each test opens with the advisory, in our own words, or with the attack.
"""

import base64
import json
import time
from typing import Any

import pytest

from tests.apiserver.advisories.target import ADMIN, BOB, Target

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ASKED = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
SECRETS = "/api/v1/secrets"


def who(target: Target, **more: Any) -> Any:
    reply = target.ask("POST", WHO, ASKED, **more)
    return reply.json["status"]["userInfo"]["username"] if reply.code == 201 else reply.code


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def account_token(target: Target) -> str:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    target.create(accounts, {"metadata": {"name": "sa"}})
    made = target.create(f"{accounts}/sa/token", {"spec": {}})
    token: str = made["status"]["token"]
    assert who(target, token=token) == "system:serviceaccount:default:sa"
    return token


def test_cve_2025_30204_a_token_of_many_parts(target: Target) -> None:
    """A token of dots alone took memory for each of them."""
    began = time.process_time()
    for token in ("." * 60_000, "e30." * 15_000, "a" * 60_000):
        assert who(target, token=token) in {401, 431, 400}
    assert time.process_time() - began < 5
    assert who(target) == "admin"


def test_cve_2024_28180_a_token_that_grows(target: Target, account_token: str) -> None:
    """An encrypted token could be unpacked to any size: such tokens are nobody's."""
    header = {"alg": "dir", "enc": "A128GCM", "zip": "DEF"}
    assert who(target, token=f"{part(header)}..AAAA.AAAA.AAAA") == 401
    _, body, signature = account_token.split(".")
    assert who(target, token=f"{part({'alg': 'RS256', 'zip': 'DEF'})}.{body}.{signature}") == 401


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "RS512"])
def test_unsigned_tokens(target: Target, account_token: str, algorithm: str) -> None:
    """A token chooses how it is to be checked."""
    _, body, signature = account_token.split(".")
    for rest in (f"{body}.", f"{body}.{signature}", f"{body}.AAAA"):
        assert who(target, token=f"{part({'alg': algorithm})}.{rest}") == 401


def test_tokens_that_were_changed(target: Target, account_token: str) -> None:
    """Claims, headers and signatures that do not belong together."""
    header, body, signature = account_token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    other = {**claims, "sub": "system:serviceaccount:kube-system:admin"}
    later = {**claims, "exp": claims["exp"] + 10**6}
    for token in (
        f"{header}.{part(other)}.{signature}",
        f"{header}.{part(later)}.{signature}",
        f"{header}.{body}.{signature[:-8]}",
        f"{header}.{body}",
        account_token[:-20],
        f"{account_token}.x",
        f"{account_token},{ADMIN}",
    ):
        assert who(target, token=token) == 401


def test_a_token_for_another_audience(target: Target, account_token: str) -> None:
    """A token that was made for another service is not one for this API."""
    path = "/api/v1/namespaces/default/serviceaccounts/sa/token"
    other = target.create(path, {"spec": {"audiences": ["vault"]}})["status"]["token"]
    assert who(target, token=other) == 401
    review = {"spec": {"token": other, "audiences": ["vault"]}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    found = target.create(path, review)["status"]
    assert found["authenticated"]
    assert found["audiences"] == ["vault"]
    found = target.create(path, {"spec": {"token": other, "audiences": ["x"]}})["status"]
    assert not found.get("authenticated")


def test_headers_of_a_proxy_from_anybody(target: Target) -> None:
    """X-Remote-* counts only on a connection of the proxy itself."""
    headers = [("X-Remote-User", "root"), ("X-Remote-Group", "system:masters")]
    assert who(target, token=BOB, headers=headers) == "bob"
    assert target.ask("GET", SECRETS, token="", headers=headers).code == 403
    # A client's certificate is no proxy's, nor one of another name.
    assert who(target, token="", headers=headers, client=("clients", "mallory")) == "mallory"
    for authority, name in (("proxies", "other"), ("strangers", "front")):
        assert who(target, token="", headers=headers, client=(authority, name)) == 401
    assert who(target, token="", headers=headers, client=("proxies", "front")) == "root"


@pytest.mark.parametrize(
    "name", ["X-Remote-User", "X_Remote_User", "x-remote-user ", "X-Remote-User\t"]
)
def test_headers_that_look_like_others(target: Target, name: str) -> None:
    """A name with another separator or a blank must not become another header."""
    found = who(target, token=BOB, headers=[(name, "root")])
    assert found in {"bob", 400}


def test_several_authorization_headers(target: Target) -> None:
    """Two parts of a system must not take different ones: the first counts, alone."""
    headers = [("Authorization", f"Bearer {BOB}"), ("Authorization", f"Bearer {ADMIN}")]
    assert who(target, token="", headers=headers) == "bob"
    headers = [("Authorization", "Bearer nobody"), ("Authorization", f"Bearer {ADMIN}")]
    assert who(target, token="", headers=headers) == 401
    headers = [("Authorization", f"Bearer {BOB}, Bearer {ADMIN}")]
    assert who(target, token="", headers=headers) == 401


def test_bad_credentials_are_not_anonymous(target: Target) -> None:
    """Who shows what is no good is refused, also where anybody would be served."""
    assert target.ask("GET", "/version", token="").code == 200
    for headers in ([("Authorization", "Bearer nobody")], [("Authorization", "bearer nobody")]):
        assert target.ask("GET", "/version", token="", headers=headers).code == 401
    assert target.ask("GET", "/version", token="", client=("strangers", "x")).code == 401


@pytest.mark.parametrize(
    "headers",
    [
        [("Impersonate-User", "admin"), ("Impersonate-Group", "system:masters")],
        [("impersonate-user", "bob"), ("IMPERSONATE-GROUP", "system:masters")],
        [("Impersonate-User", "bob"), ("Impersonate-Uid", "1")],
        [("Impersonate-User", "bob"), ("Impersonate-Extra-Scopes", "all")],
        [("Impersonate-Group", "system:masters")],
        [("Impersonate-User", ""), ("Impersonate-Group", "system:masters")],
        [("Impersonate-User", "system:serviceaccount:kube-system:x")],
        [("Impersonate-User", "system:node:a")],
        [("Impersonate-Other", "x"), ("Impersonate-Group", "system:masters")],
    ],
)
def test_acting_as_another(target: Target, headers: list[tuple[str, str]]) -> None:
    """Nobody acts as another without the right to, by whatever spelling."""
    reply = target.ask("GET", SECRETS, token=BOB, headers=headers)
    assert reply.code in {400, 403}
    assert target.ask("GET", SECRETS, token="", headers=headers).code in {400, 403}


def test_two_users_to_impersonate(target: Target) -> None:
    """Of two headers the first counts for the check and for what follows."""
    rule = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    role = {"metadata": {"name": "as-al"}, "rules": [{**rule, "resourceNames": ["al"]}]}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    target.create(f"{rbac}/clusterroles", role)
    subject = {"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {**subject, "kind": "ClusterRole", "name": "as-al"}
    binding = {"metadata": {"name": "as-al"}, "subjects": [subject], "roleRef": reference}
    target.create(f"{rbac}/clusterrolebindings", binding)
    al, admin = ("Impersonate-User", "al"), ("Impersonate-User", "admin")
    assert who(target, token=BOB, headers=[al]) == "al"
    assert who(target, token=BOB, headers=[al, admin]) == "al"
    assert who(target, token=BOB, headers=[admin, al]) == 403
    assert who(target, token=BOB, headers=[al, ("Impersonate-Group", "system:masters")]) == 403
