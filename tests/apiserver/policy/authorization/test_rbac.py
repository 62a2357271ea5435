"""What roles allow whom."""

from typing import Any

import pytest

from kvstack.apimachinery.attributes import Attributes, User, service_account_name
from kvstack.apiserver.policy.authorization.rbac import authorizer as module
from kvstack.apiserver.policy.authorization.rbac.authorizer import RbacAuthorizer
from kvstack.apiserver.policy.authorization.rbac.grants import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Grants,
)
from kvstack.apiserver.policy.interfaces import Decision
from tests.apiserver.policy.authorization.roles import (
    account,
    binding,
    group,
    role,
    rule,
    urls,
    user,
)
from tests.apiserver.policy.views import FakeView

BOB = User("bob", groups=("testers", "system:authenticated"))


class World:
    """A view, and an authorizer that follows it."""

    def __init__(self) -> None:
        self.view = FakeView()
        grants = Grants()
        grants.follow(self.view)
        self.rbac = RbacAuthorizer(grants)

    def ask(self, verb: str, resource: str, user: User = BOB, **more: Any) -> Decision:
        resource, _, subresource = resource.partition("/")
        return self.rbac.authorize(
            Attributes(user, verb, resource=resource, subresource=subresource, **more)
        )

    def may(self, verb: str, resource: str, user: User = BOB, **more: Any) -> bool:
        return self.ask(verb, resource, user, **more).allowed


@pytest.fixture
def world() -> World:
    return World()


def _grant(world: World, *rules: dict[str, Any]) -> None:
    """Give rules to bob in the whole cluster."""
    world.view.put(CLUSTER_ROLES, role("r", *rules))
    world.view.put(CLUSTER_ROLE_BINDINGS, binding("b", "ClusterRole", "r", user("bob")))


@pytest.mark.parametrize(
    ("given", "resource", "is_allowed"),
    [
        ("pods", "pods", True),
        ("pods", "pods/log", False),
        ("pods/log", "pods/log", True),
        ("pods/log", "pods", False),
        ("*", "pods/log", True),
        ("*/scale", "deployments/scale", True),
        ("*/scale", "deployments", False),
        ("*/scale", "deployments/status", False),
        ("pods/*", "pods/log", False),
        ("*/", "pods", False),
    ],
)
def test_resources(world: World, given: str, resource: str, *, is_allowed: bool) -> None:
    _grant(world, rule("get", "core", given))
    assert world.may("get", resource) is is_allowed


def test_verbs_and_groups(world: World) -> None:
    _grant(world, rule("get list", "apps", "deployments"), rule("*", "*", "jobs"))
    assert world.may("list", "deployments", group="apps")
    assert not world.may("watch", "deployments", group="apps")
    assert not world.may("list", "deployments", group="")
    assert world.may("anything", "jobs", group="batch")


def test_names(world: World) -> None:
    _grant(world, rule("get", "core", "secrets", "one two"), rule("list", "core", "secrets"))
    assert world.may("get", "secrets", name="two")
    assert not world.may("get", "secrets", name="three")
    assert not world.may("get", "secrets")
    assert world.may("list", "secrets", name="three")


def test_a_rule_for_all_after_one_for_names(world: World) -> None:
    _grant(world, rule("get", "core", "secrets", "one"), rule("get", "core", "secrets"))
    assert world.may("get", "secrets", name="one")
    assert world.may("get", "secrets", name="two")


@pytest.mark.parametrize(
    ("given", "path", "is_allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/etcd", False),
        ("/healthz/*", "/healthz/etcd", True),
        ("/healthz/*", "/healthz", False),
        ("/healthz*", "/healthz", True),
        ("/a**", "/a/b", True),
        ("*", "/anything", True),
        ("/a*b", "/axb", False),
    ],
)
def test_paths(world: World, given: str, path: str, *, is_allowed: bool) -> None:
    _grant(world, urls("get", given))
    asked = Attributes.of_path(BOB, "get", path)
    assert world.rbac.authorize(asked).allowed is is_allowed
    assert not world.rbac.authorize(asked._replace(verb="post")).allowed


def test_a_path_is_no_resource_and_a_resource_no_path(world: World) -> None:
    _grant(world, urls("*", "*"))
    assert not world.may("get", "pods")
    world.view.put(CLUSTER_ROLES, role("r", rule("*", "*", "*")))
    assert not world.rbac.authorize(Attributes.of_path(BOB, "get", "/version")).allowed


def test_bindings_of_a_namespace_count_there_only(world: World) -> None:
    world.view.put(ROLES, role("r", rule("get", "core", "pods nodes"), namespace="a"))
    world.view.put(ROLE_BINDINGS, binding("b", "Role", "r", group("testers"), namespace="a"))
    assert world.ask("get", "pods", namespace="a") == Decision(
        allowed=True, reason='RBAC: allowed by RoleBinding "b/a" of Role "r" to Group "testers"'
    )
    assert not world.may("get", "pods", namespace="b")
    assert not world.may("get", "nodes")


def test_a_cluster_role_in_a_namespace(world: World) -> None:
    world.view.put(CLUSTER_ROLES, role("r", rule("get", "core", "pods")))
    world.view.put(ROLE_BINDINGS, binding("b", "ClusterRole", "r", user("bob"), namespace="a"))
    assert world.may("get", "pods", namespace="a")
    assert not world.may("get", "pods", namespace="b")


@pytest.mark.parametrize(
    ("subject", "name", "is_allowed"),
    [
        (user("bob"), "bob", True),
        (user("*"), "bob", False),
        (group("bob"), "bob", False),
        (user("testers"), "bob", False),
        (account("sa"), service_account_name("a", "sa"), True),
        (account("sa", "b"), service_account_name("b", "sa"), True),
        (account("sa", "b"), service_account_name("a", "sa"), False),
        (user("system:serviceaccount:a:sa"), service_account_name("a", "sa"), True),
        ({"kind": "Robot", "name": "bob"}, "bob", False),
    ],
)
def test_subjects(world: World, subject: dict[str, Any], name: str, *, is_allowed: bool) -> None:
    world.view.put(ROLES, role("r", rule("get", "core", "pods"), namespace="a"))
    world.view.put(ROLE_BINDINGS, binding("b", "Role", "r", subject, namespace="a"))
    assert world.may("get", "pods", User(name), namespace="a") is is_allowed


def test_a_service_account_of_no_namespace_is_nobody_in_the_cluster(world: World) -> None:
    world.view.put(CLUSTER_ROLES, role("r", rule("get", "core", "pods")))
    world.view.put(CLUSTER_ROLE_BINDINGS, binding("b", "ClusterRole", "r", account("sa")))
    assert not world.may("get", "pods", User("system:serviceaccount::sa"))


def test_the_first_subject_that_applies_is_named(world: World) -> None:
    world.view.put(CLUSTER_ROLES, role("r", rule("get", "core", "pods")))
    subjects = (user("al"), account("sa", "a"), group("system:serviceaccounts"))
    world.view.put(CLUSTER_ROLE_BINDINGS, binding("b", "ClusterRole", "r", *subjects))
    someone = User(service_account_name("a", "sa"), groups=("system:serviceaccounts",))
    assert world.ask("get", "pods", someone).reason == (
        'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to ServiceAccount "sa/a"'
    )


def test_missing_roles_are_reported_when_nothing_allows(world: World) -> None:
    world.view.put(ROLE_BINDINGS, binding("b", "Role", "none", user("bob"), namespace="a"))
    assert world.ask("get", "pods", namespace="a") == Decision(
        allowed=False, reason='RBAC: role.rbac.authorization.k8s.io "none" not found'
    )
    world.view.put(CLUSTER_ROLE_BINDINGS, binding("b", "ClusterRole", "none", user("bob")))
    world.view.put(CLUSTER_ROLE_BINDINGS, binding("c", "Roll", "x", user("bob")))
    assert world.ask("get", "pods", namespace="a").reason == (
        'RBAC: [clusterrole.rbac.authorization.k8s.io "none" not found, unsupported role reference'
        ' kind: "Roll", role.rbac.authorization.k8s.io "none" not found]'
    )
    world.view.put(ROLES, role("none", rule("get", "core", "pods"), namespace="a"))
    assert world.may("get", "pods", namespace="a")


def test_changes_count_at_once(world: World) -> None:
    _grant(world, rule("get", "core", "pods"))
    assert world.may("get", "pods")
    world.view.put(CLUSTER_ROLES, role("r", rule("list", "core", "pods")))
    assert not world.may("get", "pods")
    assert world.may("list", "pods")
    world.view.put(CLUSTER_ROLE_BINDINGS, binding("b", "ClusterRole", "r", user("al"), user("bob")))
    assert world.may("list", "pods", User("al"))
    world.view.put(CLUSTER_ROLE_BINDINGS, binding("b", "ClusterRole", "r", user("al")))
    assert not world.may("list", "pods")
    world.view.remove(CLUSTER_ROLES, "", "r")
    assert not world.may("list", "pods", User("al"))
    world.view.put(CLUSTER_ROLES, role("r", rule("list", "core", "pods")))
    world.view.remove(CLUSTER_ROLE_BINDINGS, "", "b")
    assert not world.may("list", "pods", User("al"))


def test_users_with_one_name_and_other_groups_are_not_confused(world: World) -> None:
    world.view.put(CLUSTER_ROLES, role("r", rule("get", "core", "pods")))
    world.view.put(CLUSTER_ROLE_BINDINGS, binding("b", "ClusterRole", "r", group("testers")))
    assert world.may("get", "pods")
    assert not world.may("get", "pods", User("bob"))
    assert not world.may("get", "pods", User("bob", groups=("testers,x",)))


def test_only_so_much_is_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERDICTS_MAX", 10)
    _grant(world, urls("get", "/1*"))
    for number in range(100):
        asked = Attributes.of_path(BOB, "get", f"/{number}")
        assert world.rbac.authorize(asked).allowed is str(number).startswith("1")
        spaces = world.rbac._spaces.values()
        counts = [len(found) for space in spaces for found in space.verdicts.values()]
        assert sum(counts) == world.rbac._count <= 10


def test_a_change_in_a_namespace_leaves_what_is_known_of_others(world: World) -> None:
    world.view.put(CLUSTER_ROLES, role("r", rule("get", "core", "pods")))
    for namespace in ("a", "b"):
        made = binding("x", "ClusterRole", "r", user("bob"), namespace=namespace)
        world.view.put(ROLE_BINDINGS, made)
        assert world.may("get", "pods", namespace=namespace)
    known = world.rbac._spaces["b"]
    world.view.remove(ROLE_BINDINGS, "a", "x")
    assert not world.may("get", "pods", namespace="a")
    assert world.may("get", "pods", namespace="b")
    assert world.rbac._spaces["b"] is known
    world.view.put(CLUSTER_ROLES, role("r"))
    assert not world.may("get", "pods", namespace="b")
    assert world.rbac._spaces["b"] is not known
