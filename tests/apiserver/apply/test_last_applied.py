from typing import Any

import orjson
import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import LAST_APPLIED_ANNOTATION
from kvstack.apiserver.apply.apply import on_apply
from kvstack.apiserver.apply.endpoint import Endpoint
from kvstack.apiserver.apply.last_applied import (
    has_annotation,
    owned_by_client,
    with_annotation,
)
from tests.apiserver.apply.types import APP

MAIN = Endpoint(APP, "v1", "App")
NOW = "2026-01-01T00:00:00Z"


def app(annotations: dict[str, Any] | None = None, **members: Any) -> Object:
    meta: Object = (
        {"name": "x"} if annotations is None else {"name": "x", "annotations": annotations}
    )
    return {"apiVersion": "v1", "kind": "App", "metadata": meta, **members}


def live_with(last: str, **data: str) -> Object:
    live = app({LAST_APPLIED_ANNOTATION: last, "own": "1"}, data=data)
    live["metadata"]["uid"] = "u"
    live["metadata"]["managedFields"] = [
        {
            "manager": "kubectl-client-side-apply",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {f"f:{name}": {} for name in data}},
        }
    ]
    return live


def text(**data: str) -> str:
    return orjson.dumps(app(data=data)).decode()


def test_what_still_has_the_value_of_the_annotation_was_applied_by_the_client() -> None:
    live = live_with(text(same="1", other="1", gone="1"), same="1", other="2", added="1")
    fields = owned_by_client(MAIN, live)
    assert fields is not None
    assert fields["f:data"] == {"f:same": {}}


@pytest.mark.parametrize(
    "last",
    [
        "",
        "no JSON",
        "[]",
        "null",
        '{"apiVersion":"v2","kind":"App","data":{"a":"1"}}',
        '{"apiVersion":"v1","data":{"a":"1"}}',
        '{"apiVersion":"v1","kind":"Pod","data":{"a":"1"}}',
        '{"apiVersion":"v1","kind":"App","bogus":{"a":"1"}}',
    ],
)
def test_an_annotation_that_cannot_be_used(last: str) -> None:
    assert owned_by_client(MAIN, live_with(last, a="1")) is None
    with pytest.raises(ApiError, match="Apply failed with 1 conflict"):
        on_apply(MAIN, live_with(last, a="1"), app(data={"a": "2"}), "kubectl", NOW)


def test_kubectl_takes_over_from_itself() -> None:
    live = live_with(text(a="1"), a="1", b="1")
    made = on_apply(MAIN, live, app(data={"a": "2"}), "kubectl", NOW)
    assert made["data"] == {"a": "2", "b": "1"}
    fields = {each["manager"]: each["fieldsV1"] for each in made["metadata"]["managedFields"]}
    assert fields == {
        "kubectl": {"f:data": {"f:a": {}}},
        "kubectl-client-side-apply": {"f:data": {"f:b": {}}},
    }


def test_other_conflicts_remain() -> None:
    live = live_with(text(a="1"), a="1", b="1")
    with pytest.raises(ApiError) as error:
        on_apply(MAIN, live, app(data={"a": "2", "b": "2"}), "kubectl", NOW)
    assert [each["field"] for each in error.value.status["details"]["causes"]] == [".data.b"]


def test_other_managers_have_all_conflicts() -> None:
    live = live_with(text(a="1"), a="1")
    with pytest.raises(ApiError, match=r"conflict: .*: \.data\.a$"):
        on_apply(MAIN, live, app(data={"a": "2"}), "helm", NOW)


def test_kubectl_writes_the_annotation_anew() -> None:
    live = live_with(text(a="1"), a="1")
    config = app({"b": "<&>", LAST_APPLIED_ANNOTATION: "ignored"}, data={"a": "1"})
    made = on_apply(MAIN, live, config, "kubectl", NOW, force=True)
    assert made["metadata"]["annotations"] == {
        "own": "1",
        "b": "<&>",
        LAST_APPLIED_ANNOTATION: '{"apiVersion":"v1","data":{"a":"1"},"kind":"App","metadata":'
        '{"annotations":{"b":"\\u003c\\u0026\\u003e"},"name":"x"}}\n',
    }
    assert live["metadata"]["annotations"][LAST_APPLIED_ANNOTATION] == text(a="1")


@pytest.mark.parametrize("manager", ["helm", "kubectl-client-side-apply"])
def test_other_managers_leave_the_annotation(manager: str) -> None:
    live = live_with(text(a="1"), a="1")
    made = on_apply(MAIN, live, app(data={"z": "1"}), manager, NOW)
    assert made["metadata"]["annotations"][LAST_APPLIED_ANNOTATION] == text(a="1")


def test_an_annotation_that_is_not_there_or_empty_stays_so() -> None:
    assert not has_annotation(app())
    assert not has_annotation(app({LAST_APPLIED_ANNOTATION: ""}))
    assert not has_annotation(app({LAST_APPLIED_ANNOTATION: None}))
    assert has_annotation(app({LAST_APPLIED_ANNOTATION: "x", "other": None}))
    made = on_apply(MAIN, None, app(data={"a": "1"}), "kubectl", NOW)
    assert "annotations" not in made["metadata"]
    emptied = app({LAST_APPLIED_ANNOTATION: ""}, data={"a": "1"})
    made = on_apply(MAIN, live_with(text(a="1"), a="1"), emptied, "kubectl", NOW)
    assert made["metadata"]["annotations"][LAST_APPLIED_ANNOTATION] == ""


def test_an_annotation_that_would_be_too_long_is_dropped() -> None:
    config = app(data={"a": "x" * 1000})
    room = (
        262144
        - len(LAST_APPLIED_ANNOTATION)
        - len(with_annotation(app({}), config)["metadata"]["annotations"][LAST_APPLIED_ANNOTATION])
    )
    fits = with_annotation(app({"o": "é" + "x" * (room - 3), LAST_APPLIED_ANNOTATION: "x"}), config)
    assert set(fits["metadata"]["annotations"]) == {"o", LAST_APPLIED_ANNOTATION}
    too_long = with_annotation(
        app({"o": "é" + "x" * (room - 2), LAST_APPLIED_ANNOTATION: "x"}), config
    )
    assert set(too_long["metadata"]["annotations"]) == {"o"}


@pytest.mark.parametrize(
    ("annotations", "written"),
    [
        (None, '{"apiVersion":"v1","kind":"App","metadata":{"name":"x"}}\n'),
        ({}, '{"apiVersion":"v1","kind":"App","metadata":{"annotations":{},"name":"x"}}\n'),
        (
            {LAST_APPLIED_ANNOTATION: "x"},
            '{"apiVersion":"v1","kind":"App","metadata":{"annotations":{},"name":"x"}}\n',
        ),
        ({"a": None}, '{"apiVersion":"v1","kind":"App","metadata":{"name":"x"}}\n'),
    ],
)
def test_the_text_of_the_annotation(annotations: dict[str, Any] | None, written: str) -> None:
    made = with_annotation(app(), app(annotations))
    assert made["metadata"]["annotations"] == {LAST_APPLIED_ANNOTATION: written}
