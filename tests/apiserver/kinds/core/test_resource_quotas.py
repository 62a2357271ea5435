"""What ResourceQuotas may be."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.core.resource_quotas import RESOURCE_QUOTAS
from tests.apiserver.kinds.hooks import (
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
    warnings_of,
)

STATUS = RESOURCE_QUOTAS.subresources["status"]


def quota(**spec: Any) -> dict[str, Any]:
    """Return a ResourceQuota."""
    return {"metadata": {"name": "q", "resourceVersion": "1"}, "spec": spec, "status": {}}


def selecting(name: str, operator: str, *values: str, **spec: Any) -> dict[str, Any]:
    """Return a ResourceQuota with a scope selector."""
    expression: dict[str, Any] = {"scopeName": name, "operator": operator}
    if values:
        expression["values"] = list(values)
    return quota(scopeSelector={"matchExpressions": [expression]}, **spec)


def test_status_is_its_endpoint_s() -> None:
    """It is dropped from new ones and kept by changes."""
    given = patched(quota(), {"status": {"hard": {"pods": "1"}}})
    assert prepared_object(RESOURCE_QUOTAS, given)["status"] == {}
    new = quota(hard={"pods": "2"})
    assert changed(RESOURCE_QUOTAS, new, given)["status"] == given["status"]
    by_status = changed(STATUS, patched(given, {"spec": {"hard": {"pods": "2"}}}), quota())
    assert (by_status["spec"], by_status["status"]) == ({}, given["status"])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (quota(scopes=["BestEffort"], hard={"pods": "1"}), []),
        (quota(scopes=["Terminating"], hard={"cpu": "1", "example.com/x": "1"}), []),
        (
            quota(scopes=["BestEffort"], hard={"cpu": "1", "services": "1"}),
            ['spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource']
            * 2,
        ),
        (
            quota(scopes=["Terminating", "NotTerminating"]),
            ['spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes'],
        ),
        (quota(scopes=["X"]), ['spec.scopes: Invalid value: ["X"]: unsupported scope']),
        (selecting("PriorityClass", "In", "high", hard={"pods": "1"}), []),
        (selecting("VolumeAttributesClass", "In", "gold", hard={"requests.storage": "1"}), []),
        (
            selecting("PriorityClass", "In"),
            [
                "spec.scopeSelector.matchExpressions.values: Required value: must be at least one"
                " value when `operator` is 'In' or 'NotIn' for scope selector"
            ],
        ),
        (
            selecting("PriorityClass", "Exists", "a"),
            [
                'spec.scopeSelector.matchExpressions.values: Invalid value: ["a"]: must be no'
                " value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            ],
        ),
        (
            selecting("PriorityClass", "Gt", "a"),
            [
                'spec.scopeSelector.matchExpressions.operator: Invalid value: "Gt":'
                " not a valid selector operator"
            ],
        ),
        (
            selecting("BestEffort", "DoesNotExist"),
            [
                'spec.scopeSelector.matchExpressions.operator: Invalid value: "DoesNotExist":'
                " must be 'Exists' when scope is any of ResourceQuotaScopeTerminating,"
                " ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort,"
                " ResourceQuotaScopeNotBestEffort or"
                " ResourceQuotaScopeCrossNamespacePodAffinity"
            ],
        ),
        (
            selecting("PriorityClass", "Exists", hard={"services": "1"}),
            [
                "spec.scopeSelector.matchExpressions: Invalid value:"
                ' {"MatchExpressions":[{"ScopeName":"PriorityClass","Operator":"Exists",'
                '"Values":null}]}: unsupported scope applied to resource'
            ],
        ),
        (
            selecting("X", "Exists"),
            [
                'spec.scopeSelector.matchExpressions.scopeName: Invalid value: "X":'
                " unsupported scope"
            ],
        ),
    ],
)
def test_scopes(given: dict[str, Any], expected: list[str]) -> None:
    """Each scope limits some resources, and some exclude each other."""
    assert refusals(RESOURCE_QUOTAS, given) == expected


def test_opposites_in_the_selector() -> None:
    """The scopes that are shown are those of the other field."""
    expressions = [
        {"scopeName": each, "operator": "Exists"} for each in ("BestEffort", "NotBestEffort")
    ]
    given = quota(scopeSelector={"matchExpressions": expressions})
    assert refusals(RESOURCE_QUOTAS, given) == [
        "spec.scopes: Invalid value: null: conflicting scopes"
    ]


def test_scopes_stay_the_same_set() -> None:
    """In any order."""
    old = quota(scopes=["PriorityClass", "Terminating"])
    assert (
        change_refusals(RESOURCE_QUOTAS, quota(scopes=["Terminating", "PriorityClass"]), old) == []
    )
    assert change_refusals(RESOURCE_QUOTAS, quota(scopes=["Terminating"]), old) == [
        'spec.scopes: Invalid value: ["Terminating"]: field is immutable'
    ]


def test_status_has_amounts() -> None:
    """And needs a resourceVersion."""
    given = patched(
        quota(), {"metadata": {"resourceVersion": None}, "status": {"used": {"pods": "500m"}}}
    )
    assert change_refusals(STATUS, given, quota()) == [
        "resourceVersion: Required value",
        'status.used[pods]: Invalid value: "500m": must be an integer',
    ]


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        ({"requests.cpu": "1", "limits.cpu": "1"}, []),
        (
            {"cpu": "2", "limits.cpu": "1"},
            ["ResourceQuota cpu (2) should be less than limits.cpu (1)"],
        ),
        (
            {"requests.memory": "2Gi", "memory": "1Gi", "limits.memory": "1Gi"},
            ["ResourceQuota requests.memory (2Gi) should be less than limits.memory (1Gi)"],
        ),
        ({"storage": "2", "limits.storage": "1"}, []),
        (
            {"requests.ephemeral-storage": "2", "limits.ephemeral-storage": "1"},
            [
                "ResourceQuota requests.ephemeral-storage (2) should be less than"
                " limits.ephemeral-storage (1)"
            ],
        ),
    ],
)
def test_warnings(hard: dict[str, str], expected: list[str]) -> None:
    """Requests above limits can never be used."""
    assert warnings_of(RESOURCE_QUOTAS, quota(hard=hard)) == expected
