"""Policies in a file."""

import pytest

from kvstack.apimachinery.attributes import AUTHENTICATED, Attributes, User
from kvstack.apiserver.policy.authorization.abac import AbacAuthorizer, read_policies

BOB = User("bob", groups=("devs", AUTHENTICATED))
V1 = '{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{%s}}'


def authorizer(*lines: str) -> AbacAuthorizer:
    return AbacAuthorizer(read_policies("\n".join(lines).encode(), "f"))


def may(made: AbacAuthorizer, verb: str = "get", user: User = BOB, **more: str) -> bool:
    asked = {"resource": "pods", "namespace": "a", **more}
    return made.authorize(Attributes(user, verb, **asked)).allowed  # type: ignore[arg-type]


def path(made: AbacAuthorizer, path: str, verb: str = "get") -> bool:
    return made.authorize(Attributes.of_path(BOB, verb, path)).allowed


@pytest.mark.parametrize(
    ("spec", "is_allowed"),
    [
        ('"user":"bob","namespace":"a","resource":"pods"', True),
        ('"user":"bob","namespace":"*","resource":"*","apiGroup":"*"', True),
        ('"user":"bob","namespace":"b","resource":"pods"', False),
        ('"user":"bob","namespace":"a","resource":"services"', False),
        ('"user":"bob","namespace":"a","resource":"pods","apiGroup":"apps"', False),
        ('"user":"al","namespace":"a","resource":"pods"', False),
        ('"group":"devs","namespace":"a","resource":"pods"', True),
        ('"user":"bob","group":"ops","namespace":"a","resource":"pods"', False),
        ('"user":"*","namespace":"a","resource":"pods"', True),
        ('"namespace":"a","resource":"pods"', False),
        ('"user":"bob","nonResourcePath":"*"', False),
    ],
)
def test_policies(spec: str, *, is_allowed: bool) -> None:
    assert may(authorizer(V1 % spec)) is is_allowed


def test_everybody_is_who_is_authenticated() -> None:
    made = authorizer(V1 % '"user":"*","namespace":"*","resource":"*"')
    assert may(made)
    assert not may(made, user=User("system:anonymous", groups=("system:unauthenticated",)))


def test_readonly() -> None:
    made = authorizer(V1 % '"user":"bob","namespace":"*","resource":"*","readonly":true')
    assert all(may(made, verb) for verb in ("get", "list", "watch"))
    assert not any(may(made, verb) for verb in ("create", "delete", "deletecollection", "GET"))


def test_paths() -> None:
    made = authorizer(V1 % '"user":"bob","nonResourcePath":"/api*"')
    assert path(made, "/api")
    assert path(made, "/apis/x")
    assert not path(made, "/version")
    assert not path(authorizer(V1 % '"user":"bob"'), "/version")
    assert not may(made)


def test_the_old_form() -> None:
    assert may(authorizer('{"user":"bob"}'), group="apps")
    assert path(authorizer('{"user":"bob"}'), "/x")
    assert may(authorizer("{}"))
    assert not path(authorizer('{"user":"bob","namespace":"a"}'), "/x")
    assert not may(authorizer('{"user":"bob","resource":"services"}'))


def test_comments_and_faults() -> None:
    assert not may(authorizer("# nobody", "", "  "))
    bad = (
        "nonsense",
        "[]",
        '{"apiVersion":"v1","kind":"Pod"}',
        V1 % '"user":5',
        V1 % '"readonly":"yes"',
        '{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":[1]}',
    )
    for line in bad:
        with pytest.raises(ValueError, match="error reading policy file f, line 2"):
            read_policies(f"{{}}\n{line}".encode(), "f")


def test_rules_of_a_user() -> None:
    made = authorizer(
        V1 % '"user":"bob","namespace":"a","resource":"pods","readonly":true',
        V1 % '"user":"bob","namespace":"b","resource":"pods"',
        V1 % '"user":"bob","namespace":"*","nonResourcePath":"/x"',
    )
    found = made.user_rules(BOB, "a")
    assert found.rules == [
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["*"], "nonResourceURLs": ["/x"]},
    ]
    assert not found.is_incomplete
