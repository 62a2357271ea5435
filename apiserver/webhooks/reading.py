"""Decoding of webhook answers, as in Go.

read_review(answer, "admission.k8s.io/v1", "AdmissionReview", type_)   → the object
"""

from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text, yaml_text
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError
from kvstack.apimachinery.schema.decode import DecodeError, decode
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.webhooks.client import Answer, CallError

_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\"";'
    ' Kind string "json:\\"kind,omitempty\\"" }'
)


def read_review(answer: Answer, api_version: str, kind: str, type_: Type) -> Object:
    """Return the review of an answer; raises CallError.

    An answer without kind counts as the expected one; its kind and apiVersion stay empty.
    """
    if not answer.body:
        raise CallError(
            f"0-length response with status code: {answer.code} and content type:"
            f" {answer.content_type}"
        )
    value = _parse(answer.body)
    if not isinstance(value, dict):
        word = json_text.type_word(value)
        raise _no_kind(f"json: cannot unmarshal {word} into Go value of type {_TYPE_META}")
    named_kind = (value.get("apiVersion") or "", value.get("kind") or "")
    if named_kind not in (("", ""), (api_version, kind)):
        version, wanted = _version(str(named_kind[0])), _version(api_version)
        raise CallError(
            f"converting ({version}.{named_kind[1]}) to ({wanted}.{kind}): unknown conversion"
        )
    try:
        return decode(value, type_).obj
    except DecodeError as error:
        raise CallError(str(error)) from None


def _parse(body: bytes) -> Any:  # noqa: ANN401 — whatever came
    try:
        return json_text.parse(body)
    except JsonError:
        pass
    try:
        return yaml_text.parse(body).value
    except YamlError as error:
        raise _no_kind(f"error converting YAML to JSON: {error}") from None


def _no_kind(text: str) -> CallError:
    return CallError(f"couldn't get version/kind; json parse error: {text}")


def _version(api_version: str) -> str:
    return api_version.rpartition("/")[2]
