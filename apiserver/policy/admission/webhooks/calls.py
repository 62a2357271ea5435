"""One call of one admission webhook.

    verdict = await caller.call(hook, review)       raises HookError

A webhook that cannot be called is an error unless its failure policy is Ignore; a refusal counts
whatever the policy. An internal error of this server at a webhook is treated like a failed call:
`failed` logs it with its traceback and applies the policy.
"""

import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apiserver.policy.admission.request import AdmissionRequest, VersionedResource
from kvstack.apiserver.policy.admission.webhooks.hooks import Hook
from kvstack.apiserver.policy.admission.webhooks.metrics import (
    CALLING_ERROR,
    NO_ERROR,
    SERVER_ERROR,
    WebhookMetrics,
)
from kvstack.apiserver.webhooks.admission_reviews import (
    InvalidResponseError,
    Verdict,
    read_verdict,
    request_text,
    review_body,
)
from kvstack.apiserver.webhooks.client import CallError, WebhookClient
from kvstack.apiserver.webhooks.outbound import CLOSED, WEBHOOK
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_FAILED_CODE: Final = 503


class FailedOpenError(Exception):
    """A webhook could not be called, and its failure policy is Ignore."""


class Caller:
    """Calls the webhooks of one type."""

    def __init__(
        self,
        client: WebhookClient,
        clock: Clock,
        new_uid: Callable[[], str],
        metrics: WebhookMetrics,
        logger: Logger,
        *,
        is_mutating: bool,
    ) -> None:
        """new_uid: makes the uids of reviews."""
        self._client: Final = client
        self._clock: Final = clock
        self._new_uid: Final = new_uid
        self._metrics: Final = metrics
        self._logger: Final = logger
        self._is_mutating: Final = is_mutating
        self.type: Final = "admit" if is_mutating else "validating"

    async def call(self, hook: Hook, request: AdmissionRequest, text: bytes) -> Verdict:
        """Call a webhook with a request; return its verdict, if it allows the request.

        text: the encoded review. Raises ApiError, and FailedOpenError.
        """
        if not self._client.outbound.may_ask(WEBHOOK, hook.name, _about(request)):
            request.warnings.append(
                f"admission webhook {quote(hook.name)} was not called: {CLOSED}"
            )
            return Verdict(allowed=True)
        began = self._clock.monotonic_ns()
        code, error_type = 200, ""
        try:
            verdict = await self._ask(hook, request, text)
            _check(hook.name, verdict)
        except CallError as error:
            code = _FAILED_CODE
            if hook.ignores_failure:
                self._fail_open(hook, str(error))
                raise FailedOpenError from error
            error_type = CALLING_ERROR
            self._logger.warning("failed to call a webhook", webhook=hook.name, error=str(error))
            raise _call_failed(hook, str(error)) from error
        except ApiError as error:
            code, error_type = error.code, NO_ERROR
            raise
        except Exception as error:
            code, error_type = _FAILED_CODE, "" if hook.ignores_failure else SERVER_ERROR
            raise self.failed(hook, error) from error
        except BaseException:
            code, error_type = 0, SERVER_ERROR
            raise
        finally:
            took_ns = self._clock.monotonic_ns() - began
            self._metrics.add(hook.name, self.type, request.operation, code, error_type, took_ns)
        for name, value in verdict.annotations.items():
            request.annotations[f"{hook.name}/{name}"] = value
        return verdict

    async def _ask(self, hook: Hook, request: AdmissionRequest, text: bytes) -> Verdict:
        if request.is_dry_run and not hook.is_safe_on_dry_run:
            raise status.bad_request(
                f"admission webhook {quote(hook.name)} does not support dry run"
            )
        if hook.fault:
            raise CallError(hook.fault)
        uid = self._new_uid()
        body = review_body(text, uid, hook.review_version)
        try:
            answer = await self._client.post(
                hook.client_config, f"?timeout={hook.timeout_s}s", body, timeout_s=hook.timeout_s
            )
            verdict = read_verdict(answer, uid, hook.review_version, is_mutating=self._is_mutating)
        except CallError as error:
            raise CallError(f"failed to call webhook: {error}") from error
        except InvalidResponseError as error:
            raise CallError(f"received invalid webhook response: {error}") from error
        request.warnings += verdict.warnings
        return verdict

    def failed(self, hook: Hook, error: Exception) -> Exception:
        """Return the outcome of an unexpected error at a webhook, by its failure policy."""
        text = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        self._logger.error("internal error at a webhook", webhook=hook.name, trace=trace)
        if hook.ignores_failure:
            self._fail_open(hook, text)
            return FailedOpenError(text)
        return _call_failed(hook, text)

    def _fail_open(self, hook: Hook, text: str) -> None:
        self._metrics.count_failed_open(hook.name, self.type)
        self._logger.warning(
            "failed to call a webhook, ignored by its failure policy", webhook=hook.name, error=text
        )


def _about(request: AdmissionRequest) -> str:
    """Return a short description of a request."""
    resource = f"{request.resource}/{request.subresource}".rstrip("/")
    at = f"{request.namespace}/{request.name}".strip("/")
    return f"{request.operation} {resource} {at}".rstrip()


def _call_failed(hook: Hook, text: str) -> ApiError:
    return status.internal_error(f"failed calling webhook {quote(hook.name)}: {text}")


def request_of(
    request: AdmissionRequest, versioned: VersionedResource, new: Object | None, old: Object | None
) -> bytes:
    """Return the request of a review, without its uid.

    new, old: the objects in that version.
    """
    assert request.versions is not None, "webhooks are only called for requests"
    own = request.versions.served[0]
    below = request.subresource
    content: dict[str, Any] = {"kind": _kind(versioned.kind), "resource": _resource(versioned)}
    if below:
        content["subResource"] = below
    content["requestKind"], content["requestResource"] = _kind(own.kind), _resource(own)
    if below:
        content["requestSubResource"] = below
    if request.name:
        content["name"] = request.name
    if request.namespace:
        content["namespace"] = request.namespace
    content["operation"] = request.operation
    content["userInfo"] = request.user.to_object()
    content["object"], content["oldObject"] = new, old
    content["dryRun"] = request.is_dry_run
    content["options"] = request.options or None
    return request_text(content)


def _kind(kind: Kind) -> Mapping[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(versioned: VersionedResource) -> Mapping[str, str]:
    return {"group": versioned.group, "version": versioned.version, "resource": versioned.resource}


def _check(name: str, verdict: Verdict) -> None:
    """Raise the error of a webhook that refuses: its Status, in our form."""
    if verdict.allowed:
        return
    given = verdict.status
    message = f"admission webhook {quote(name)} denied the request"
    refusal: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, **(given or {})}
    why = refusal.get("message") or refusal.get("reason")
    refusal["message"] = f"{message}: {why}" if why else f"{message} without explanation"
    if (refusal.get("code") or 0) < 400:
        refusal["code"] = 400
    if refusal.get("status") in (None, "", "Success"):
        refusal["status"] = "Failure"
    order = ("kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code")
    raise ApiError({each: refusal[each] for each in order if each in refusal})
