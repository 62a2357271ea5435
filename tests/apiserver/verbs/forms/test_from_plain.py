"""Decoding maps that a strategic merge patch made."""

from typing import Any

import pytest

from kvstack.apimachinery.schema.decode import DecodeError, normalize
from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.verbs.forms.from_plain import read

TABLE = load()
DEPLOYMENT = TABLE.types["io.k8s.api.apps.v1.Deployment"]


def test_what_decodes_converts_to_the_same() -> None:
    body = {"spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "a"}]}}}}
    assert normalize(read(body, DEPLOYMENT).obj, DEPLOYMENT) == normalize(body, DEPLOYMENT)


def test_unknown_fields_are_reported() -> None:
    body = {"z": 1, "spec": {"template": {"spec": {"containers": [{"name": "a", "x": 1}]}}, "b": 1}}
    found = read(body, DEPLOYMENT)
    assert sorted(found.unknown) == [
        'unknown field "spec.b"',
        'unknown field "spec.template.spec.containers[0].x"',
        'unknown field "z"',
    ]
    assert "z" not in found.obj


@pytest.mark.parametrize(
    ("given_value", "kept"),
    [(3.0, 3), (2**32 + 5, 5), (2**31, -(2**31)), (None, None)],
)
def test_numbers_are_converted_as_go_does(given_value: float | None, kept: int | None) -> None:
    spec = read({"spec": {"replicas": given_value}}, DEPLOYMENT).obj["spec"]
    assert spec.get("replicas") == kept


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"replicas": "x"}, "unrecognized type: int32"),
        ({"replicas": 1.5}, "cannot convert float64 to int32"),
        ({"paused": 1}, "unrecognized type: bool"),
        ({"strategy": []}, "cannot restore struct from: slice"),
        ({"selector": {"matchLabels": 1}}, "cannot restore map from int64"),
        ({"template": {"spec": {"containers": {}}}}, "cannot restore slice from map"),
        ({"template": {"spec": {"dnsPolicy": 5}}}, "cannot convert int64 to v1.DNSPolicy"),
        ({"template": {"spec": {"dnsPolicy": {}}}}, "unrecognized type: string"),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": True}}},
            "json: cannot unmarshal bool into Go value of type int32",
        ),
    ],
)
def test_what_is_said_of_other_values(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read({"spec": spec}, DEPLOYMENT)
    assert str(caught.value) == message


def test_bytes() -> None:
    secret = TABLE.types["io.k8s.api.core.v1.Secret"]
    with pytest.raises(DecodeError, match="error decoding from json: illegal base64 data"):
        read({"data": {"a": "%"}}, secret)
    with pytest.raises(DecodeError, match="cannot restore slice from int64"):
        read({"data": {"a": 5}}, secret)
