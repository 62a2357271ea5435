"""Warnings about the expressions of policies."""

from typing import Any

import pytest

from kvstack.agents.controllers.cluster.policy_status import warnings_of
from kvstack.apimachinery.objects.json_object import Object

WIDGETS = {
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"n": {"type": "integer"}}}
                        },
                    }
                },
            }
        ],
    }
}


def rule(group: str, *resources: str, version: str = "v1") -> Object:
    """Return a rule about resources."""
    return {"apiGroups": [group], "apiVersions": [version], "resources": list(resources)}


def warning_of(expression: str, *rules: Object, **spec: Any) -> str:
    """Return the one warning about an expression, or nothing."""
    given = {
        "matchConstraints": {"resourceRules": list(rules)},
        "validations": [{"expression": expression}],
        **spec,
    }
    found = warnings_of(given, [WIDGETS])
    assert all(each["fieldRef"] == "spec.validations[0].expression" for each in found)
    return "".join(each["warning"] for each in found)


DEPLOYMENTS = rule("apps", "deployments")


@pytest.mark.parametrize(
    ("expression", "rules", "expected"),
    [
        ("object.spec.replicas > 1", [DEPLOYMENTS], ""),
        ("object.spec.replicaz > 1", [DEPLOYMENTS], "undefined field 'replicaz'"),
        ("object.spec.replicas > '1'", [DEPLOYMENTS], "applied to '(int, string)'"),
        ("oldObject.spec.nope == 1", [DEPLOYMENTS], "undefined field 'nope'"),
        (
            "object.metadata.creationTimestamp < timestamp('2024-01-01T00:00:00Z')",
            [DEPLOYMENTS],
            "",
        ),
        ("object.spec.template.spec.containers[0].image == 1", [DEPLOYMENTS], "(string, int)"),
        ("object.nope == 1", [rule("*", "*", version="*")], ""),
        ("object.spec.n == 'x'", [rule("example.com", "widgets")], "Kind=Widget: ERROR"),
        ("object.spec.n == 1", [rule("example.com", "widgets")], ""),
        ("object.spec.x == 1", [rule("nobody.example.com", "things")], ""),
    ],
)
def test_expressions_are_checked(expression: str, rules: list[Object], expected: str) -> None:
    found = warning_of(expression, *rules)
    assert expected in found
    assert bool(found) == bool(expected)


def test_kinds_are_reported_in_their_order() -> None:
    found = warning_of("object.spec.nope == 1", DEPLOYMENTS, rule("", "configmaps"))
    assert found.index("/v1, Kind=ConfigMap: ") < found.index("apps/v1, Kind=Deployment: ")


def test_variables_and_parameters_have_types() -> None:
    variables = [{"name": "v", "expression": "object.spec.replicas"}]
    assert "(int, string)" in warning_of("variables.v == 'x'", DEPLOYMENTS, variables=variables)
    config_map = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert "(string, int)" in warning_of("params.data.x == 1", DEPLOYMENTS, paramKind=config_map)
    unknown = {"apiVersion": "v1", "kind": "Nothing"}
    assert warning_of("params.data.x == 1", DEPLOYMENTS, paramKind=unknown) == ""
