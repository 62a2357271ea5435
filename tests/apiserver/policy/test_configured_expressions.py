"""Expressions about claims, users and requests to authorize."""

import re
from typing import Any

import pytest

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apiserver.policy.authentication.configuration import Means, read_authentication
from kvstack.apiserver.policy.authentication.jwt.mapping import user_of
from kvstack.apiserver.policy.authentication.jwt.settings import ExpressionError
from kvstack.apiserver.policy.authentication.results import AuthenticationError
from kvstack.apiserver.policy.authorization.webhook import ConditionError, review_spec
from kvstack.apiserver.policy.configured_expressions import RequestConditions, compile_about

CLAIMS = {"sub": "bob", "roles": ["a", "b"], "level": 3, "nested": {"x": True}, "none": None}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("claims.sub", "bob"),
        ("claims.sub + '@x'", "bob@x"),
        ("claims.roles", ["a", "b"]),
        ("claims.roles.filter(r, r != 'a')", ["b"]),
        ("claims.level >= 3", True),
        ("claims.level == 3.0", True),
        ("claims.nested.x", True),
        ("claims.?missing.orValue('d')", "d"),
        ("has(claims.sub) && !has(claims.missing)", True),
        ("'b' in claims.roles", True),
        ("claims.sub.startsWith('b') ? 'yes' : 'no'", "yes"),
    ],
)
def test_values_of_claims(text: str, value: object) -> None:
    assert compile_about(text, "claims", False).evaluate(CLAIMS) == value


@pytest.mark.parametrize(
    ("text", "variable", "is_condition", "message"),
    [
        ("claims.", "claims", False, "compilation failed: ERROR: <input>:1:8: Syntax error"),
        ("user.username", "claims", False, "undeclared reference to 'user'"),
        ("user.name", "user", False, "undefined field 'name'"),
        ("user.username", "user", True, "must evaluate to bool"),
        ("claims.sub", "claims", True, "must evaluate to bool"),
        ("request.resourceAttributes.verbs", "request", True, "undefined field 'verbs'"),
    ],
)
def test_what_does_not_compile(text: str, variable: str, is_condition: bool, message: str) -> None:  # noqa: FBT001
    with pytest.raises(ValueError, match=re.escape(message)):
        compile_about(text, variable, is_condition)


def test_what_fails() -> None:
    with pytest.raises(ExpressionError, match="no such key: missing"):
        compile_about("claims.missing", "claims", False).evaluate(CLAIMS)


def conditions(*texts: str, **more: Any) -> bool:
    asked = {"resource": "pods", "namespace": "a", **more}
    user = User("bob", groups=("devs",), extra={"k": ("v",)})
    return RequestConditions(texts).match(review_spec(Attributes(user, "get", **asked)))


def test_conditions_on_requests() -> None:
    assert conditions("request.user == 'bob'", "has(request.resourceAttributes)")
    assert conditions("request.resourceAttributes.name == ''", "'devs' in request.groups")
    assert conditions("request.extra['k'] == ['v']", "request.uid == ''")
    assert not conditions("request.resourceAttributes.namespace == 'kube-system'")
    assert not conditions("!has(request.resourceAttributes)")
    path = review_spec(Attributes.of_path(User("bob"), "get", "/x"))
    assert RequestConditions(["request.nonResourceAttributes.path == '/x'"]).match(path)


def test_a_condition_that_fails_counts_only_if_none_is_false() -> None:
    fails = "request.extra['none'] == ['v']"
    with pytest.raises(ConditionError, match="no such key: none"):
        conditions(fails, "request.user == 'bob'")
    assert not conditions(fails, "request.user == 'al'")


CONFIG = b"""
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: https://i, audiences: [a]}
  claimMappings:
    username: {expression: "'x:' + claims.sub"}
    groups: {expression: "claims.roles.map(r, 'g:' + r)"}
    extra: [{key: x.io/level, valueExpression: "string(int(claims.level))"}]
  claimValidationRules:
  - {expression: "claims.level < 5.0", message: too high}
  userValidationRules:
  - {expression: "!user.username.endsWith('root')", message: not root}
  - {expression: "user.uid == '' && user.groups.all(g, g.startsWith('g:'))"}
"""


def test_a_whole_configuration() -> None:
    (settings,) = read_authentication(CONFIG, Means(compile_about, lambda _ca: "")).issuers
    assert user_of(settings, CLAIMS) == User(
        "x:bob", groups=("g:a", "g:b"), extra={"x.io/level": ("3",)}
    )
    for change, told in (({"level": 5}, "too high"), ({"sub": "root"}, "not root")):
        with pytest.raises(AuthenticationError, match=told):
            user_of(settings, {**CLAIMS, **change})
