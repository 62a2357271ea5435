"""Errors that answer requests: their codes, reasons, texts and details."""

from collections.abc import Callable
from typing import Any

import pytest

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.field_errors import duplicate, required
from kvstack.apimachinery.objects.groups import GroupKind, GroupResource
from kvstack.apimachinery.objects.status import ApiError

PODS = GroupResource("", "pods")
APPS = GroupResource("apps", "deployments")
OF_APPS = {"name": "d", "group": "apps", "kind": "deployments"}


@pytest.mark.parametrize(
    ("make", "code", "reason", "message", "details"),
    [
        (lambda: status.bad_request("x"), 400, "BadRequest", "x", None),
        (lambda: status.unauthorized(), 401, "Unauthorized", "Unauthorized", None),
        (lambda: status.forbidden(APPS, "d", "x"), 403, "Forbidden",
         'deployments.apps "d" is forbidden: x', OF_APPS),
        (lambda: status.forbidden(PODS, "", "x"), 403, "Forbidden", "pods is forbidden: x",
         {"kind": "pods"}),
        (lambda: status.access_denied("u", "get", PODS, name="p", subresource="log",
                                      namespace="n", reason="no <way>"), 403, "Forbidden",
         'pods "p" is forbidden: User "u" cannot get resource "pods/log" in API group "" in the'
         ' namespace "n": no <way>', {"name": "p", "kind": "pods"}),
        (lambda: status.access_denied("<u>", "list", APPS), 403, "Forbidden",
         'deployments.apps is forbidden: User "&lt;u&gt;" cannot list resource "deployments" in API'
         ' group "apps" at the cluster scope', {"group": "apps", "kind": "deployments"}),
        (lambda: status.path_denied("u", "get", "/x"), 403, "Forbidden",
         'forbidden: User "u" cannot get path "/x"', {}),
        (lambda: status.not_found(APPS, "d"), 404, "NotFound", 'deployments.apps "d" not found',
         OF_APPS),
        (lambda: status.generic(404), 404, "NotFound",
         "the server could not find the requested resource", {}),
        (lambda: status.method_not_supported(APPS, "create"), 405, "MethodNotAllowed",
         'create is not supported on resources of kind "deployments.apps"',
         {"group": "apps", "kind": "deployments"}),
        (lambda: status.not_acceptable("x"), 406, "NotAcceptable", "x", None),
        (lambda: status.conflict(APPS, "d"), 409, "Conflict",
         'Operation cannot be fulfilled on deployments.apps "d": the object has been modified;'
         " please apply your changes to the latest version and try again", OF_APPS),
        (lambda: status.apply_conflict([{"reason": "FieldManagerConflict"}], "x"), 409, "Conflict",
         "x", {"causes": [{"reason": "FieldManagerConflict"}]}),
        (lambda: status.already_exists(PODS, "p", is_being_deleted=True), 409, "AlreadyExists",
         'object is being deleted: pods "p" already exists', {"name": "p", "kind": "pods"}),
        (lambda: status.generated_name_exists(PODS, "p"), 409, "AlreadyExists",
         'pods "p" already exists, the server was not able to generate a unique name for the'
         " object",
         {"name": "p", "kind": "pods", "retryAfterSeconds": 1}),
        (lambda: status.too_large("limit is 3145728"), 413, "RequestEntityTooLarge",
         "Request entity too large: limit is 3145728", None),
        (lambda: status.unsupported_media_type("x"), 415, "UnsupportedMediaType", "x", None),
        (lambda: status.generic(422), 422, "Invalid",
         "the server rejected our request due to an error in our request", {}),
        (lambda: status.too_many_requests("x", 3), 429, "TooManyRequests", "x",
         {"retryAfterSeconds": 3}),
        (lambda: status.internal_error("x"), 500, "InternalError", "Internal error occurred: x",
         {"causes": [{"message": "x"}]}),
        (lambda: status.unknown("x"), 500, "", "x", None),
        (lambda: status.server_timeout(APPS, "get"), 500, "ServerTimeout",
         "The get operation against deployments.apps could not be completed at this time, please"
         " try again.", {"name": "get", "group": "apps", "kind": "deployments",
                         "retryAfterSeconds": 2}),
        (lambda: status.service_unavailable("x"), 503, "ServiceUnavailable", "x", None),
        (lambda: status.timeout("x"), 504, "Timeout", "Timeout: x", {}),
        (lambda: status.too_large_resource_version(9, 5), 504, "Timeout",
         "Timeout: Too large resource version: 9, current: 5",
         {"causes": [{"reason": "ResourceVersionTooLarge",
                      "message": "Too large resource version"}], "retryAfterSeconds": 1}),
    ],
)  # fmt: skip
def test_errors(
    make: Callable[[], ApiError],
    code: int,
    reason: str,
    message: str,
    details: dict[str, Any] | None,
) -> None:
    error = make()
    assert (error.code, error.reason, error.message) == (code, reason, message)
    assert str(error) == message
    assert error.status.get("details") == details
    assert error.status["kind"] == "Status"
    assert error.status["status"] == "Failure"


def test_members_come_in_order() -> None:
    assert list(status.not_found(PODS, "p").status) == [
        "kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code",
    ]  # fmt: skip


def test_an_invalid_object_names_its_kind_and_all_causes() -> None:
    errors = [required("spec.a"), duplicate("spec.b", "x"), duplicate("spec.b", "x")]
    error = status.invalid(GroupKind("apps", "Deployment"), "d", errors)
    assert error.message == (
        'Deployment.apps "d" is invalid: [spec.a: Required value, spec.b: Duplicate value: "x"]'
    )
    assert error.status["details"] == {
        "name": "d",
        "group": "apps",
        "kind": "Deployment",
        "causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.a"},
            *[{"reason": "FieldValueDuplicate", "message": 'Duplicate value: "x"',
               "field": "spec.b"}] * 2,
        ],
    }  # fmt: skip


def test_an_expired_list_can_go_on() -> None:
    assert status.expired("old", "token").status["metadata"] == {"continue": "token"}
    assert status.expired("old").status["metadata"] == {}


def test_the_answer_to_a_delete() -> None:
    assert status.deleted_status(PODS, "p", "u") == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "p", "kind": "pods", "uid": "u"},
    }


@pytest.mark.parametrize(
    ("error", "answers"),
    [
        (status.not_found(PODS, "web"), {"is_not_found"}),
        (
            status.failure(404, "", "the server could not find the requested resource"),
            {"is_not_found"},
        ),
        (status.conflict(PODS, "web", "the object has been modified"), {"is_conflict"}),
        (status.already_exists(PODS, "web"), {"is_conflict"}),
        (status.forbidden(PODS, "web", "no"), {"is_forbidden"}),
        (status.failure(410, "Gone", "too old"), {"is_gone"}),
        (status.expired("too old"), {"is_gone"}),
        (status.failure(422, "Invalid", "not found"), set()),
    ],
)
def test_asks_what_a_refusal_is(error: ApiError, answers: set[str]) -> None:
    questions = ("is_not_found", "is_conflict", "is_forbidden", "is_gone")
    assert {name for name in questions if getattr(error, name)} == answers
