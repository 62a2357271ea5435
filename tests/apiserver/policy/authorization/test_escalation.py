"""Who may write which roles and bindings."""

import asyncio
from typing import Any

import pytest

from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.policy.admission.request import CREATE, DELETE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.authorization.chain import Chain
from kvstack.apiserver.policy.authorization.rbac.authorizer import RbacAuthorizer
from kvstack.apiserver.policy.authorization.rbac.escalation import EscalationCheck
from kvstack.apiserver.policy.authorization.rbac.grants import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    ROLE_BINDINGS,
    ROLES,
    Grants,
)
from tests.apiserver.policy.authorization.roles import binding, role, rule, urls, user
from tests.apiserver.policy.views import FakeView

AL = User("al", groups=("system:authenticated",))


class World:
    """Al has some rules in the namespace `n`, and may try to write."""

    def __init__(self) -> None:
        self.view = FakeView()
        grants = Grants()
        grants.follow(self.view)
        rbac = RbacAuthorizer(grants)
        self.check = EscalationCheck(Chain([rbac]), rbac, grants, self.view)

    def give(self, *rules: Object) -> None:
        self.view.put(ROLES, role("given", *rules, namespace="n"))
        self.view.put(ROLE_BINDINGS, binding("given", "Role", "given", user("al"), namespace="n"))

    def write(
        self,
        resource: GroupResource,
        obj: Object,
        old: Object | None = None,
        user: User = AL,
    ) -> None:
        request = AdmissionRequest(
            CREATE if old is None else UPDATE,
            user,
            resource,
            Kind(GROUP, "v1", "x"),
            namespace=obj["metadata"].get("namespace", ""),
            name=obj["metadata"]["name"],
            object=obj,
            old=old,
        )
        waiting = self.check.mutate(request)
        if waiting is not None:
            asyncio.run(_wait(waiting))

    def refusal(self, resource: GroupResource, obj: Object, old: Object | None = None) -> str:
        with pytest.raises(ApiError) as caught:
            self.write(resource, obj, old)
        return f"{caught.value.code} {caught.value.message}"


async def _wait(waiting: Any) -> None:
    await waiting


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_asked_about(world: World) -> None:
    assert world.check.handles(CREATE, ROLES, "")
    assert world.check.handles(UPDATE, CLUSTER_ROLE_BINDINGS, "")
    assert not world.check.handles(DELETE, ROLES, "")
    assert not world.check.handles(CREATE, GroupResource("", "roles"), "")


def test_a_role_with_no_more_than_its_writer_has(world: World) -> None:
    world.give(rule("get list", "core", "pods"))
    world.write(ROLES, role("new", rule("get", "core", "pods"), namespace="n"))


def test_a_role_with_more(world: World) -> None:
    world.give(rule("get", "core", "pods"))
    wanted = role("new", rule("get list", "core", "pods"), urls("get", "/x"), namespace="n")
    assert world.refusal(ROLES, wanted) == (
        '403 roles.rbac.authorization.k8s.io "new" is forbidden: user "al"'
        ' (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently'
        ' held:\n{APIGroups:[""], Resources:["pods"], Verbs:["list"]}\n{NonResourceURLs:["/x"],'
        ' Verbs:["get"]}'
    )


def test_what_counts_in_one_namespace_does_not_elsewhere(world: World) -> None:
    world.give(rule("*", "*", "*"))
    assert world.refusal(ROLES, role("new", rule("get", "core", "pods"), namespace="m")).startswith(
        "403"
    )
    assert world.refusal(CLUSTER_ROLES, role("new", rule("get", "core", "pods"))).startswith("403")


def test_who_may_escalate(world: World) -> None:
    world.give(rule("escalate", GROUP, "roles", "mine"))
    new = role("mine", rule("get", "core", "pods"), namespace="n")
    world.write(ROLES, new, old=role("mine", namespace="n"))
    # A name allows no create.
    assert world.refusal(ROLES, new).startswith("403")
    world.give(rule("escalate", GROUP, "roles"))
    world.write(ROLES, new)


def test_the_privileged_are_not_asked(world: World) -> None:
    world.write(
        CLUSTER_ROLES, role("new", rule("*", "*", "*")), user=User("root", groups=(PRIVILEGED,))
    )


def test_changes_of_ownership_alone(world: World) -> None:
    old = role("new", rule("*", "*", "*"), namespace="n")
    old["metadata"] |= {"resourceVersion": "5", "finalizers": ["a/b"], "managedFields": [{}]}
    metadata = {"name": "new", "namespace": "n", "resourceVersion": "5"}
    owner = {"ownerReferences": [{"name": "x"}]}
    world.write(ROLES, {**old, "metadata": {**metadata, **owner}}, old)
    world.write(ROLES, {**old, "metadata": {**metadata, "labels": {}}}, old)
    assert world.refusal(
        ROLES, {**old, "metadata": {**metadata, "labels": {"a": "b"}}}, old
    ).startswith("403")


def test_aggregation_needs_everything(world: World) -> None:
    aggregating = role("new") | {"aggregationRule": {"clusterRoleSelectors": [{}]}}
    told = (
        '403 clusterroles.rbac.authorization.k8s.io "new" is forbidden: must have cluster-admin'
        " privileges to use the aggregationRule"
    )
    assert world.refusal(CLUSTER_ROLES, aggregating) == told
    assert world.refusal(CLUSTER_ROLES, role("new"), old=aggregating) == told
    world.write(CLUSTER_ROLES, role("new"), old=role("new") | {"aggregationRule": {}, "x": 1})
    world.view.put(CLUSTER_ROLES, role("all", rule("*", "*", "*"), urls("*", "*")))
    world.view.put(CLUSTER_ROLE_BINDINGS, binding("all", "ClusterRole", "all", user("al")))
    world.write(CLUSTER_ROLES, aggregating)


def test_bindings(world: World) -> None:
    world.view.put(ROLES, role("r", rule("get", "core", "pods"), namespace="n"))
    new = binding("new", "Role", "r", user("zed"), namespace="n")
    assert "not currently held" in world.refusal(ROLE_BINDINGS, new)
    world.give(rule("bind", GROUP, "roles", "r"))
    world.write(ROLE_BINDINGS, new)
    world.give(rule("bind", GROUP, "clusterroles", "r"))
    assert "not currently held" in world.refusal(ROLE_BINDINGS, new)
    world.give(rule("get", "core", "pods"))
    world.write(ROLE_BINDINGS, new)


def test_a_binding_in_the_cluster_needs_the_rules_in_the_cluster(world: World) -> None:
    world.view.put(CLUSTER_ROLES, role("r", rule("get", "core", "pods")))
    world.give(rule("get", "core", "pods"), rule("bind", GROUP, "clusterroles"))
    new = binding("new", "ClusterRole", "r", user("zed"))
    assert "not currently held" in world.refusal(CLUSTER_ROLE_BINDINGS, new)


def test_a_role_that_is_not_there(world: World) -> None:
    new = binding("new", "ClusterRole", "none", user("zed"), namespace="n")
    told = '404 rolebindings.rbac.authorization.k8s.io "none" not found'
    assert world.refusal(ROLE_BINDINGS, new) == told
    world.give(rule("bind", GROUP, "clusterroles"))
    world.write(ROLE_BINDINGS, new)


def test_a_role_that_the_copy_does_not_hold_yet(world: World) -> None:
    world.view.before_catching_up = lambda: world.give(rule("get", "core", "pods"))
    world.write(ROLES, role("new", rule("get", "core", "pods"), namespace="n"))


def test_bindings_of_the_writer_that_lead_nowhere_are_reported(world: World) -> None:
    world.view.put(ROLE_BINDINGS, binding("b", "Role", "none", user("al"), namespace="n"))
    told = world.refusal(ROLES, role("new", rule("get", "core", "pods"), namespace="n"))
    assert told.endswith('; resolution errors: [role.rbac.authorization.k8s.io "none" not found]')
