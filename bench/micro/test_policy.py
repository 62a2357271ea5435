"""What it costs to tell whether a request is allowed, at 10,000 bindings.

pytest bench/micro/test_policy.py --benchmark-only

The user is in five groups and has a role in each of 50 namespaces, among 10,000 bindings and 1,000
roles of others.
"""

from collections.abc import Callable, Sequence
from itertools import count

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authorization.chain import Chain
from kvstack.apiserver.policy.authorization.rbac.authorizer import RbacAuthorizer
from kvstack.apiserver.policy.authorization.rbac.bootstrap import default_objects
from kvstack.apiserver.policy.authorization.rbac.grants import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    Grants,
)
from kvstack.apiserver.policy.interfaces import Change, Decision

GROUPS = ("system:serviceaccounts", "system:serviceaccounts:n7", "devs", "ops")
USER = User("system:serviceaccount:n7:sa", groups=(*GROUPS, "system:authenticated"))


def _binding(name: str, role: str, subject: Object, namespace: str = "") -> Object:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {
        "metadata": metadata,
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def _objects() -> list[tuple[GroupResource, Object]]:
    rules = [
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": [f"things{n}", "pods"]}
        for n in range(10)
    ]
    made: list[tuple[GroupResource, Object]] = [
        (CLUSTER_ROLES, {"metadata": {"name": f"role{n}"}, "rules": rules}) for n in range(1000)
    ]
    for number in range(10_000):
        subject = {"kind": "User", "name": f"user{number % 2000}"}
        role = f"role{number % 1000}"
        if number % 5 == 0:
            made.append((CLUSTER_ROLE_BINDINGS, _binding(f"b{number}", role, subject)))
        else:
            namespace = f"n{number % 200}"
            made.append((ROLE_BINDINGS, _binding(f"b{number}", role, subject, namespace)))
    for number in range(50):
        subject = {"kind": "Group", "name": GROUPS[number % 4]}
        made.append((ROLE_BINDINGS, _binding(f"own{number}", "role1", subject, f"n{number}")))
    return made


Callback = Callable[[Sequence[Change]], None]


class _View:
    """A view that tells what it holds."""

    def __init__(self, objects: list[tuple[GroupResource, Object]]) -> None:
        self._objects = objects
        self.callbacks: dict[GroupResource, Callback] = {}

    def get(self, _resource: GroupResource, _namespace: str, _name: str) -> Object | None:
        return None

    def list(self, resource: GroupResource, _namespace: str | None = None) -> list[Object]:
        return [obj for place, obj in self._objects if place == resource]

    def version(self, _resource: GroupResource) -> int:
        return 0

    def subscribe(self, resource: GroupResource, callback: Callback, **_: str) -> None:
        self.callbacks[resource] = callback
        callback([Change(each, None) for each in self.list(resource)])


@pytest.fixture(scope="module")
def view() -> _View:
    return _View([*default_objects(), *_objects()])


@pytest.fixture(scope="module")
def grants(view: _View) -> Grants:
    made = Grants()
    made.follow(view)
    return made


def test_cached(benchmark: BenchmarkFixture, grants: Grants) -> None:
    chain = Chain([RbacAuthorizer(grants)])
    asked = Attributes(USER, "get", resource="pods", namespace="n7", name="web-0")

    decision = benchmark(chain.authorize, asked)

    assert isinstance(decision, Decision)
    assert decision.allowed


def test_not_cached(benchmark: BenchmarkFixture, grants: Grants) -> None:
    chain = Chain([RbacAuthorizer(grants)])
    numbers = count()

    def ask() -> object:
        resource = f"unknown{next(numbers)}"
        return chain.authorize(Attributes(USER, "get", resource=resource, namespace="n7"))

    benchmark(ask)


def test_after_a_change(benchmark: BenchmarkFixture, view: _View, grants: Grants) -> None:
    chain = Chain([RbacAuthorizer(grants)])
    asked = Attributes(USER, "get", resource="pods", namespace="n7", name="web-0")
    binding = _binding("own7", "role1", {"kind": "Group", "name": "devs"}, "n7")

    def change_and_ask() -> object:
        view.callbacks[ROLE_BINDINGS]([Change(binding, binding)])
        return chain.authorize(asked)

    benchmark(change_and_ask)
