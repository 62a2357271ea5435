"""The HTTP client of webhooks: a POST of JSON, and its answer.

    client = WebhookClient(services, outbound)
    body = await client.post(client_config, "?timeout=10s", review, timeout_s=10.0)

Connections are kept alive; one that the webhook closed meanwhile is replaced. Answers have a time
limit and a size limit, redirects are not followed (a webhook could lead the API server anywhere),
and compression is not accepted, since compressed answers may expand. Errors have the texts of Go's
client.
"""

import asyncio
import ssl
from collections import OrderedDict
from functools import partial
from typing import Final

import orjson

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.webhooks import faults
from kvstack.apiserver.webhooks.addresses import addresses_in_cluster
from kvstack.apiserver.webhooks.client_config import ClientConfig
from kvstack.apiserver.webhooks.outbound import Outbound
from kvstack.apiserver.webhooks.services import Services
from kvstack.component.http.answers import AnswerError, HttpAnswer, TooLongError
from kvstack.component.http.client import HttpClient
from kvstack.component.http.request_head import UrlError, head_lines, site_of
from kvstack.component.http.tls import client_context

ANSWER_BYTES_MAX: Final = 16 << 20
_CONTEXTS_MAX: Final = 256
_HEAD: Final = head_lines(
    (
        ("Content-Type", "application/json"),
        ("Accept", "application/json, */*"),
        ("Accept-Encoding", "identity"),
        ("User-Agent", "kube-apiserver-admission"),
    )
)
_TEXTS: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: (
        "the server was unable to return a response in the time allotted, but may still be"
        " processing the request"
    ),
}
_OWN_WORDS: Final = frozenset((403, 406, 415))


class CallError(Exception):
    """A webhook could not be called, or its answer is invalid; the text says why."""


class Answer:
    """Any answer of a webhook."""

    __slots__ = ("body", "code", "content_type")

    def __init__(self, code: int, content_type: str, body: bytes) -> None:
        self.code: Final = code
        self.content_type: Final = content_type
        self.body: Final = body


class WebhookClient:
    """Calls webhooks; belongs to one event loop."""

    def __init__(self, services: Services, outbound: Outbound) -> None:
        """No connection is made yet.

        outbound: whether calls are allowed; callers check it first.
        """
        self.outbound: Final = outbound
        self._contexts: OrderedDict[bytes, ssl.SSLContext] = OrderedDict()
        self._services: Final = services
        self._http: Final = HttpClient(partial(addresses_in_cluster, services))

    async def post(
        self,
        client_config: ClientConfig,
        query: str,
        body: bytes,
        *,
        timeout_s: float,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Answer:
        """Send a body; return that of a successful answer. Raises CallError."""
        url = client_config.url + query
        try:
            async with asyncio.timeout(timeout_s):
                found = await self._send(client_config, url, body, bytes_max)
        except TimeoutError:
            raise CallError(f"Post {quote(url)}: context deadline exceeded") from None
        return _check_status(Answer(found.code, found.header("content-type"), found.body))

    async def close(self) -> None:
        """Close all connections."""
        self._http.close()

    async def _send(
        self, client_config: ClientConfig, url: str, body: bytes, bytes_max: int
    ) -> HttpAnswer:
        try:
            context = self._context(client_config.ca)
        except ValueError as error:
            raise CallError(str(error)) from None
        try:
            return await self._http.request(
                "POST", url, _HEAD, body, context=context, bytes_max=bytes_max
            )
        except (UrlError, TooLongError) as error:
            raise CallError(str(error)) from None
        except (AnswerError, OSError) as error:
            site = site_of(url)
            message = await faults.dial_text(error, site.host, site.port, self._services)
            raise CallError(f"Post {quote(url)}: {message}") from error

    def _context(self, ca: bytes) -> ssl.SSLContext:
        """Return the TLS context of a CA bundle; each bundle has connections of its own."""
        found = self._contexts.get(ca)
        if found is None:
            found = self._contexts[ca] = client_context(ca)
            if len(self._contexts) > _CONTEXTS_MAX:
                self._contexts.popitem(last=False)
        return found


def _check_status(answer: Answer) -> Answer:
    """Return a successful answer; raises CallError for others."""
    code = answer.code
    if 200 <= code < 300:
        return answer
    if 300 <= code < 400:
        raise CallError(f"the server answered with a redirect ({code}), which is not followed")
    if message := _refusal_message(answer):
        raise CallError(message)
    reason = "unknown"
    if answer.content_type.startswith("text/"):
        reason = answer.body.decode("utf-8", "replace").strip() or reason
    if code in _OWN_WORDS:
        raise CallError(reason)
    text = _TEXTS.get(code)
    if text is None and code >= 500:
        text = f"an error on the server ({quote(reason)}) has prevented the request from succeeding"
    raise CallError(
        text
        or f"the server responded with the status code {code} but did not return more information"
    )


def _refusal_message(answer: Answer) -> str:
    """Return the message of a failure Status; empty: the answer is none."""
    try:
        answer_status = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return ""
    is_status = isinstance(answer_status, dict) and answer_status.get("kind") == "Status"
    if not is_status or answer_status.get("status") == "Success":
        return ""
    message = answer_status.get("message")
    return message if isinstance(message, str) else ""
