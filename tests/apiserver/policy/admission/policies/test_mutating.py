"""MutatingAdmissionPolicies."""

import asyncio
import inspect
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.load import built_in_types
from kvstack.apiserver.policy.admission.policies.metrics import PolicyChecks
from kvstack.apiserver.policy.admission.policies.mutating import MutatingAdmissionPolicy
from kvstack.apiserver.policy.admission.policies.store import MUTATING
from kvstack.apiserver.policy.admission.request import AdmissionRequest
from tests.apiserver.policy.admission.policies.policy_requests import (
    OnlyReaders,
    config_map,
    find_kind,
    request_of,
    view_with,
)
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.policy.views import FakeView

CHECKS = PolicyChecks("mutating", FakeClock())
TYPE = built_in_types()["io.k8s.api.core.v1.ConfigMap"]


def applying(text: str) -> Object:
    """Return a mutation by an apply configuration."""
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": text}}


def patching(text: str) -> Object:
    """Return a mutation by JSON patch."""
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": text}}


def policy(*mutations: Object, name: str = "p", **spec: Any) -> Object:
    """Return a policy."""
    given = {"mutations": list(mutations), "reinvocationPolicy": "Never", **spec}
    return {"name": name, "spec": given}


def run(view: FakeView, request: AdmissionRequest) -> None:
    """Ask all policies once."""
    plugin = MutatingAdmissionPolicy(view, view, OnlyReaders(), find_kind, CHECKS)

    async def ask() -> None:
        found = plugin.mutate(request)
        if inspect.isawaitable(found):
            await found

    asyncio.run(ask())


def changed(*policies: Object, **data: str) -> Object:
    """Return the data of a ConfigMap after policies."""
    request = request_of(config_map(**data), TYPE)
    run(view_with(MUTATING, *policies), request)
    found: Object = request.new["data"]
    return found


@pytest.mark.parametrize(
    ("mutation", "expected"),
    [
        (applying("Object{data: {'b': object.data.a + '!'}}"), {"a": "x", "b": "x!"}),
        (applying("object.data.a == 'y' ? Object{data: {'b': '1'}} : Object{}"), {"a": "x"}),
        (patching("[JSONPatch{op: 'add', path: '/data/b', value: '1'}]"), {"a": "x", "b": "1"}),
        (patching("[JSONPatch{op: 'remove', path: '/data/a'}]"), {}),
        (
            patching(
                "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a/b'), value: '1'}]"
            ),
            {"a": "x", "a/b": "1"},
        ),
        (
            patching(
                "[JSONPatch{op: 'test', path: '/data/a', value: 'z'},"
                " JSONPatch{op: 'remove', path: '/data/a'}]"
            ),
            {"a": "x"},
        ),
    ],
)
def test_a_policy_changes_an_object(mutation: Object, expected: Object) -> None:
    assert changed(policy(mutation), a="x") == expected


def test_mutations_see_what_those_before_made() -> None:
    first = applying("Object{data: {'b': '1'}}")
    second = applying("Object{data: {'c': object.data.b + '2'}}")
    assert changed(policy(first, second), a="x") == {"a": "x", "b": "1", "c": "12"}
    found = changed(policy(second, name="q"), policy(first), a="x")
    assert found == {"a": "x", "b": "1", "c": "12"}


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        (applying("Object{data: {'b': object.data.z}}"), "no such key: z"),
        (applying("Object{data: Object.spec{}}"), "type mismatch"),
        (patching("[JSONPatch{op: 'remove', path: '/data/z'}]"), "JSON Patch"),
    ],
)
def test_what_goes_wrong_is_a_refusal_unless_it_is_ignored(mutation: Object, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        changed(policy(mutation), a="x")
    assert changed(policy(mutation, failurePolicy="Ignore"), a="x") == {"a": "x"}


def test_policies_run_again_if_others_changed_the_object() -> None:
    again = policy(
        patching("[JSONPatch{op: 'add', path: '/data/n', value: object.data.a}]"),
        reinvocationPolicy="IfNeeded",
    )
    once = policy(
        patching("[JSONPatch{op: 'add', path: '/data/o', value: object.data.a}]"), name="o"
    )
    view = view_with(MUTATING, again, once)
    request = request_of(config_map(a="x"), TYPE)
    run(view, request)
    assert request.new["data"] == {"a": "x", "n": "x", "o": "x"}
    assert request.wants_second_round
    request.new["data"]["a"] = "y"  # as a webhook may
    request.is_second_round = True
    run(view, request)
    assert request.new["data"] == {"a": "y", "n": "y", "o": "x"}


def test_deletes_and_policies_themselves_are_left_alone() -> None:
    plugin = MutatingAdmissionPolicy(FakeView(), FakeView(), OnlyReaders(), find_kind, CHECKS)
    assert not plugin.handles("DELETE", MUTATING.policies, "")
    assert not plugin.handles("CREATE", MUTATING.bindings, "")
