"""Values of internal types, as a real server printed them."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.text.go_text import go_json
from kvstack.apimachinery.schema.internal import internal
from kvstack.apimachinery.schema.load import load

TABLE = load()
DEFINITIONS = "apiextensions-apiserver.pkg.apis.apiextensions.v1"


def printed(value: Any, type_name: str, name: str) -> str:
    return go_json(internal(value, TABLE.types[f"io.k8s.{type_name}"], name))


def test_all_fields_have_their_go_names() -> None:
    value = {"name": "a", "port": 80, "targetPort": "web"}
    assert printed(value, "api.core.v1.ServicePort", "core.ServicePort") == (
        '{"Name":"a","Protocol":"","AppProtocol":null,"Port":80,"TargetPort":"web","NodePort":0}'
    )


def test_what_is_not_there_prints_as_zero() -> None:
    assert printed(None, "api.core.v1.ServicePort", "core.ServicePort") == (
        '{"Name":"","Protocol":"","AppProtocol":null,"Port":0,"TargetPort":0,"NodePort":0}'
    )
    assert printed({}, "api.batch.v1.SuccessPolicy", "batch.SuccessPolicy") == '{"Rules":null}'


def test_types_of_the_api_machinery_print_as_in_json() -> None:
    value = {
        "minAvailable": "50%",
        "selector": {"matchLabels": {"app": "d"}},
    }
    text = printed(value, "api.policy.v1.PodDisruptionBudgetSpec", "policy.PodDisruptionBudgetSpec")
    assert text.startswith('{"MinAvailable":"50%","Selector":{"matchLabels":{"app":"d"}},"Max')


def test_embedded_structs_and_metadata_are_part_of_the_struct() -> None:
    claim = {"metadata": {"name": "data", "labels": {"x": "y"}}, "spec": {}}
    type_name = "api.core.v1.PersistentVolumeClaim"
    text = printed(claim, type_name, "core.PersistentVolumeClaim")
    assert text.startswith('{"name":"data","labels":{"x":"y"},"Spec":{"AccessModes":null,')
    volume = printed({"name": "v"}, "api.core.v1.Volume", "core.Volume")
    assert volume.startswith('{"Name":"v","HostPath":null,"EmptyDir":null,')


def test_maps_are_sorted_and_numbers_are_zero() -> None:
    value = {"limits": {"memory": "1Gi", "cpu": "1"}}
    type_name = "api.core.v1.ResourceRequirements"
    assert printed(value, type_name, "core.ResourceRequirements") == (
        '{"Limits":{"cpu":"1","memory":"1Gi"},"Requests":null,"Claims":null}'
    )


@pytest.mark.parametrize(
    ("member", "text"),
    [
        ({"additionalProperties": True}, '"AdditionalProperties":{"Allows":true,"Schema":null}'),
        (
            {"additionalProperties": {"type": "number"}},
            '"AdditionalProperties":{"Allows":true,"Schema":{"ID":"","Schema":"","Ref":null,',
        ),
        ({"items": [{}]}, '"Items":{"Schema":null,"JSONSchemas":[{"ID":"",'),
        ({"dependencies": {"a": ["b"]}}, '"Dependencies":{"a":{"Schema":null,"Property":["b"]}}'),
        ({"default": {"q": 1}}, '"Default":{"q":1}'),
        ({}, '"AdditionalProperties":null'),
    ],
)
def test_schemas_of_definitions(member: dict[str, Any], text: str) -> None:
    found = printed(member, f"{DEFINITIONS}.JSONSchemaProps", "apiextensions.JSONSchemaProps")
    assert text in found


def test_a_name_that_is_no_internal_type_prints_the_value() -> None:
    assert printed({"a": 1}, "api.core.v1.Pod", "core.Nothing") == '{"a":1}'
