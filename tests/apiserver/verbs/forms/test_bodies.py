"""Bodies of requests: numbers that no float holds are refused where they are read."""

import pytest

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.verbs.forms.bodies import JSON, read_object

CONFIG_MAP = Kind("", "v1", "ConfigMap")
POD = Kind("", "v1", "Pod")
DEFINITION = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")


@pytest.mark.parametrize(
    ("kind", "text", "error_text"),
    [
        (CONFIG_MAP, '{"data":{"a":1e400}}',
         "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        (POD, '{"spec":{"priority":1e400}}',
         "json: cannot unmarshal number 1e400 into Go struct field PodSpec.spec.priority of type"
         " int32"),
        (DEFINITION, '{"spec":{"versions":[{"schema":{"openAPIV3Schema":{"maximum":-1e400}}}]}}',
         "json: cannot unmarshal number -1e400 into Go struct field"
         " JSONSchemaProps.spec.versions.schema.openAPIV3Schema.maximum of type float64"),
    ],
)  # fmt: skip
def test_a_huge_number_is_refused_by_its_type(kind: Kind, text: str, error_text: str) -> None:
    type_ = load().type_of(kind)
    assert type_ is not None
    with pytest.raises(ApiError) as refused:
        read_object(text.encode(), JSON, kind, type_)
    message = f'{kind.kind} in version "v1" cannot be handled as a {kind.kind}: {error_text}'
    assert refused.value.message == message


def test_a_huge_number_in_no_field_is_an_unknown_field() -> None:
    type_ = load().type_of(CONFIG_MAP)
    assert type_ is not None
    body = read_object(b'{"other":1e400}', JSON, CONFIG_MAP, type_)
    assert body.findings == ['unknown field "other"']
    text = b'{"kind":"ConfigMap","apiVersion":"v1","other":1e400}'
    with pytest.raises(ApiError, match="number 1e400 into Go value of type float64"):
        read_object(text, JSON, CONFIG_MAP, type_, is_custom=True)
