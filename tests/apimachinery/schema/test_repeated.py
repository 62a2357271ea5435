"""Texts with a member twice, read by their types."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.text.json_text import parse_repeated
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.repeated import resolve

TABLE = load()


def resolved(kind: str, text: str) -> tuple[dict[str, Any], list[str]]:
    found = resolve(parse_repeated(text.encode()), TABLE.types[f"io.k8s.api.{kind}"])
    return found.obj, found.findings


def test_findings_stand_in_the_order_of_the_text() -> None:
    # The answer of a real server to this body.
    text = (
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","name":"y","labels":{"a":"1",'
        '"a":"2"}},"data":{"k":"1","k":"2"},"data":{"z":"3"},"bogus":1,"bogus":2}'
    )
    obj, findings = resolved("core.v1.ConfigMap", text)
    assert findings == [
        'duplicate field "metadata.name"',
        'duplicate field "metadata.labels.a"',
        'duplicate field "data.k"',
        'duplicate field "data"',
        'unknown field "bogus"',
    ]
    assert obj == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "y", "labels": {"a": "2"}},
        "data": {"k": "2", "z": "3"},
    }


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ('{"spec":{"replicas":1},"spec":{"paused":true}}', {"replicas": 1, "paused": True}),
        ('{"spec":{"replicas":1},"spec":null}', {"replicas": 1}),
        ('{"spec":{"replicas":1,"replicas":null}}', {"replicas": None}),
        (
            '{"spec":{"selector":{"matchLabels":{"a":"1"},"matchLabels":{"b":"2"}}}}',
            {"selector": {"matchLabels": {"a": "1", "b": "2"}}},
        ),
    ],
)
def test_what_the_first_member_left_stays(text: str, spec: dict[str, Any]) -> None:
    obj, findings = resolved("apps.v1.Deployment", text)
    assert obj["spec"] == spec
    assert len(findings) == 1


def test_items_of_lists_are_decoded_into_the_former_ones() -> None:
    text = (
        '{"spec":{"containers":[{"name":"a","image":"x"},{"name":"b"}],'
        '"containers":[{"image":"y"}]}}'
    )
    obj, findings = resolved("core.v1.Pod", text)
    assert obj == {"spec": {"containers": [{"name": "a", "image": "y"}]}}
    assert findings == ['duplicate field "spec.containers"']


def test_nothing_is_looked_for_in_what_is_unknown_or_reads_itself() -> None:
    obj, findings = resolved(
        "apps.v1.ControllerRevision", '{"x":{"a":1,"a":2},"data":{"a":{"b":1,"b":2}}}'
    )
    assert findings == ['unknown field "x"']
    assert obj == {"data": {"a": {"b": 2}}}
