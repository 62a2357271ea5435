"""ValidatingAdmissionPolicies."""

import asyncio
import inspect
import json
from collections.abc import Mapping
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.load import built_in_types
from kvstack.apiserver.policy.admission.policies.metrics import PolicyChecks
from kvstack.apiserver.policy.admission.policies.store import VALIDATING
from kvstack.apiserver.policy.admission.policies.validating import ValidatingAdmissionPolicy
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

CHECKS = PolicyChecks("validating", FakeClock())
TYPE = built_in_types()["io.k8s.api.core.v1.ConfigMap"]
FAILED = "failed expression: "
DATA = "object.data.k == 'v'"


def policy(*validations: Object | str, binding: Object | None = None, **spec: Any) -> Object:
    """Return the policy `p`."""
    found = [{"expression": each} if isinstance(each, str) else each for each in validations]
    return {"name": "p", "spec": {"validations": found, **spec}, "binding": binding or {}}


def asked_of(
    view: FakeView, new: Object, old: Object | None = None, checks: PolicyChecks = CHECKS
) -> tuple[str, AdmissionRequest]:
    """Return what is refused, and the request."""
    request = request_of(new, TYPE, old)
    plugin = ValidatingAdmissionPolicy(view, view, OnlyReaders(), find_kind, checks)

    async def ask() -> None:
        found = plugin.validate(request)
        if inspect.isawaitable(found):
            await found

    try:
        asyncio.run(ask())
    except ApiError as error:
        return str(error), request
    return "", request


def refusal_of(
    new: Object, *policies: Object, old: Object | None = None, params: tuple[Object, ...] = ()
) -> str:
    """Return what is refused by policies."""
    found, _ = asked_of(view_with(VALIDATING, *policies, params=params), new, old)
    start = 'configmaps "c" is forbidden: '
    who = "ValidatingAdmissionPolicy 'p' with binding 'p-b' denied request: "
    return found.removeprefix(start).removeprefix(who)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (policy(DATA), "failed expression: object.data.k == 'v'"),
        (policy("object.data.k == 'w'"), ""),
        (policy({"expression": DATA, "message": "no"}), "no"),
        (
            policy({"expression": DATA, "messageExpression": "'not ' + object.data.k"}),
            "not w",
        ),
        (
            policy("object.data.absent == 'v'"),
            "expression 'object.data.absent == 'v'' resulted in error: no such key: absent",
        ),
        (policy("object.data.absent == 'v'", failurePolicy="Ignore"), ""),
        (
            policy("variables.k == 'v'", variables=[{"name": "k", "expression": "object.data.k"}]),
            "failed expression: variables.k == 'v'",
        ),
        (policy(DATA, matchConditions=[{"name": "m", "expression": "object.data.k == 'x'"}]), ""),
        (
            policy("namespaceObject.metadata.labels.x == 'z'"),
            FAILED + "namespaceObject.metadata.labels.x == 'z'",
        ),
        (
            policy("request.userInfo.username == 'bob'"),
            FAILED + "request.userInfo.username == 'bob'",
        ),
        (policy("oldObject == null"), ""),
        (policy("authorizer.group('').resource('pods').check('get').allowed()"), ""),
        (policy("authorizer.group('').resource('secrets').check('get').allowed()"), ""),
        (
            policy("authorizer.requestResource.check('delete').allowed()"),
            FAILED + "authorizer.requestResource.check('delete').allowed()",
        ),
    ],
)
def test_a_policy_is_asked(given: Object, expected: str) -> None:
    assert refusal_of(config_map(k="w"), given) == expected


def test_parameters_are_objects_that_bindings_name() -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    limits = {**config_map(least="3"), "metadata": {"name": "limits", "namespace": "a"}}

    def bound(**reference: Any) -> Object:
        return policy(
            "object.data.k >= params.data.least",
            paramKind=kind,
            binding={"paramRef": {"parameterNotFoundAction": "Deny", **reference}},
        )

    assert refusal_of(config_map(k="4"), bound(name="limits"), params=(limits,)) == ""
    assert refusal_of(config_map(k="2"), bound(name="limits"), params=(limits,)).startswith(
        "failed exp"
    )
    assert refusal_of(config_map(k="2"), bound(selector={}), params=(limits,)).startswith(
        "failed exp"
    )
    refused = refusal_of(config_map(k="4"), bound(name="limits"))
    assert refused.startswith("failed to configure binding: no params found")
    allowing = bound(name="limits", parameterNotFoundAction="Allow")
    assert refusal_of(config_map(k="1"), allowing) == ""
    unknown = policy("true", paramKind={"apiVersion": "v1", "kind": "X"}, binding={"paramRef": {}})
    assert "not known" in refusal_of(config_map(), unknown)


def test_bindings_say_what_is_done() -> None:
    given = policy(
        DATA,
        auditAnnotations=[{"key": "seen", "valueExpression": "string(object.data.k)"}],
        binding={"validationActions": ["Warn", "Audit"]},
    )
    found, request = asked_of(view_with(VALIDATING, given), config_map(k="w"))
    assert not found
    assert request.warnings == [
        "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-b':"
        " failed expression: object.data.k == 'v'"
    ]
    assert request.annotations["p/seen"] == "w"
    failures = json.loads(
        request.annotations["validation.policy.admission.k8s.io/validation_failure"]
    )
    assert failures[0]["validationActions"] == ["Warn", "Audit"]


def test_reasons_decide_the_status() -> None:
    given = policy({"expression": DATA, "reason": "Unauthorized"})
    view = view_with(VALIDATING, given)
    request = request_of(config_map(k="w"), TYPE)
    plugin = ValidatingAdmissionPolicy(view, view, OnlyReaders(), find_kind, CHECKS)
    found = plugin.validate(request)
    assert inspect.isawaitable(found)

    async def ask() -> None:
        await found

    with pytest.raises(ApiError) as caught:
        asyncio.run(ask())
    assert (caught.value.status["code"], caught.value.status["reason"]) == (401, "Unauthorized")


def test_policies_come_and_go() -> None:
    view = view_with(VALIDATING, policy(DATA))
    plugin = ValidatingAdmissionPolicy(view, view, OnlyReaders(), find_kind, CHECKS)
    request = request_of(config_map(k="v"), TYPE)
    found = plugin.validate(request)
    assert inspect.iscoroutine(found)
    found.close()
    view.remove(VALIDATING.bindings, "", "p-b")
    assert plugin.validate(request) is None
    assert not plugin.handles("CREATE", VALIDATING.policies, "")


@pytest.mark.parametrize(
    ("given", "action", "error"),
    [
        (policy(DATA), "deny", "no_error"),
        (policy(DATA, binding={"validationActions": ["Audit"]}), "audit", "no_error"),
        (policy("object.data.no == ''"), "deny", "invalid_error"),
        (policy("object.data.no == ''", failurePolicy="Ignore"), "allow", "invalid_error"),
        (policy("object."), "deny", "compile_error"),
    ],
)
def test_checks_are_counted(given: Object, action: str, error: str) -> None:
    """Those that are met are not, as upstream does not count them."""
    checks = PolicyChecks("validating", FakeClock())
    asked_of(view_with(VALIDATING, given), config_map(k="w"), checks=checks)
    (name, _, _, counts), (timed, _, _, durations) = checks.readings()
    assert name == "apiserver_validating_admission_policy_check_total"
    assert timed == "apiserver_validating_admission_policy_check_duration_seconds"
    labels = f'enforcement_action="{action}",error_type="{error}",policy="p",policy_binding="p-b"'
    assert counts == {labels: 1}
    assert isinstance(durations, Mapping)
    assert list(durations) == [labels]
