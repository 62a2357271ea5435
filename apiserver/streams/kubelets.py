"""Connects clients with kubelets, and with targets of `proxy`.

    kubelets = Kubelets(KubeletTls(cert_file, key_file, ca_file), outbound)
    await kubelets.serve(connecting, request, reply)

A log is forwarded as an answer, or as messages to a client that requests a WebSocket. Any other
stream begins with an upgrade: the client's request is forwarded to the kubelet, and if that
accepts, bytes are copied in both directions until one side ends. A refusal is forwarded with its
headers. Protocols that an older kubelet does not support are translated (`translating`).
"""

from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.streams import forwarded, log_socket, translating
from kvstack.apiserver.streams.backends import Backend, Backends, DialError
from kvstack.apiserver.streams.carrying import carry
from kvstack.apiserver.streams.kubelet_tls import KubeletTls
from kvstack.apiserver.streams.proxies import Proxies
from kvstack.apiserver.streams.translating import RefusedError
from kvstack.apiserver.verbs.results import Connecting, Proxying
from kvstack.apiserver.webhooks.outbound import CLOSED, NODE, Outbound
from kvstack.component.http.answers import AnswerError
from kvstack.component.http.serving.request import Request
from kvstack.component.http.streamed_answer import StreamedAnswer
from kvstack.component.streams import websocket
from kvstack.component.streams.spdy.pipes import Pipe

_TEXT_BYTES_MAX: Final = 1 << 20
"""Limit of the text of a kubelet's refusal."""


class Kubelets:
    """Opens streams to kubelets."""

    def __init__(self, tls: KubeletTls, outbound: Outbound) -> None:
        """No file is read yet."""
        self._outbound: Final = outbound
        self._backends = Backends(tls)
        self._proxies = Proxies(self._backends)

    async def serve(
        self, connecting: Connecting | Proxying, request: Request, reply: Reply
    ) -> None:
        """Answer with a stream; raises ApiError."""
        about = f"{request.method} {request.target}"
        if not self._outbound.may_ask(NODE, connecting.host, about):
            host = connecting.host or "the node"
            raise status.service_unavailable(f"{host} was not called: {CLOSED}")
        if isinstance(connecting, Proxying):
            await self._proxies.serve(connecting, request, reply)
        elif not connecting.host:
            reply.send_nothing(204)  # a pod without a node has no log
        elif connecting.is_log:
            await self._log(connecting, request, reply)
        elif not request.may_upgrade:
            raise status.bad_request("Upgrade request required")
        elif translating.is_needed(connecting, request):
            await self._translate(connecting, request, reply)
        else:
            await self._upgrade(connecting, request, reply)

    async def _log(self, connecting: Connecting, request: Request, reply: Reply) -> None:
        headers = [("Host", connecting.authority), ("Connection", "close")]
        try:
            answer = await self._backends.ask(
                self._kubelet(connecting), "GET", connecting.target, headers
            )
        except DialError as error:
            url = f"https://{connecting.authority}{connecting.target}"
            raise status.unknown(f'Get "{url}": {error}') from error
        except (AnswerError, OSError) as error:
            raise status.unknown(str(error)) from error
        async with answer:
            try:
                if answer.code >= 400:
                    raise _error(answer.code, await _text(answer))
                if websocket.is_asked(request):
                    await log_socket.send_log(answer, request, reply)
                else:
                    await _pass_on(answer, reply)
            except (AnswerError, OSError) as error:
                if not reply.is_begun:
                    raise status.unknown(str(error)) from error
                raise

    def _kubelet(self, connecting: Connecting) -> Backend:
        return Backend(connecting.host, connecting.port, self._backends.of_kubelet())

    async def _translate(self, connecting: Connecting, request: Request, reply: Reply) -> None:
        """Translate between the protocols of the client and of an older kubelet."""
        pipes: list[Pipe] = []

        async def dial(protocol: str) -> Pipe:
            pipes.append(await self._spdy(connecting, protocol))
            return pipes[0]

        try:
            await translating.translate(connecting, request, reply, dial)
        except RefusedError as error:
            reply.send_text(error.code, error.text)
        except DialError as error:
            raise status.unknown(f"error dialing backend: {error}") from error
        finally:
            for each in pipes:
                each.close()

    async def _spdy(self, connecting: Connecting, protocol: str) -> Pipe:
        """Return a SPDY/3.1 connection to a kubelet; raises DialError, RefusedError."""
        headers = [
            ("Host", connecting.authority),
            ("Connection", "Upgrade"),
            ("Upgrade", "SPDY/3.1"),
            ("X-Stream-Protocol-Version", protocol),
        ]
        try:
            answer = await self._backends.ask(
                self._kubelet(connecting), "POST", connecting.target, headers, is_upgrade=True
            )
        except (AnswerError, OSError) as error:
            raise RefusedError(500, str(error)) from error
        if answer.is_upgraded:
            return answer
        async with answer:
            try:
                text = await _text(answer)
            except (AnswerError, OSError) as error:
                text = str(error)
        raise RefusedError(answer.code, text)

    async def _upgrade(self, connecting: Connecting, request: Request, reply: Reply) -> None:
        try:
            answer = await self._backends.ask(
                self._kubelet(connecting),
                request.method,
                connecting.target,
                forwarded.of_upgrade(request),
                is_upgrade=True,
            )
        except DialError as error:
            raise status.unknown(f"error dialing backend: {error}") from error
        except (AnswerError, OSError) as error:
            raise status.unknown(str(error)) from error
        async with answer:
            try:
                if answer.is_upgraded:
                    await carry(answer, reply)
                elif answer.code >= 400:
                    body = (await _text(answer)).encode()
                    reply.send_foreign(answer.code, list(forwarded.of_answer(answer.fields)), body)
                else:
                    raise status.unknown(f"invalid upgrade response: status code {answer.code}")
            except (AnswerError, OSError) as error:
                if not reply.is_begun:
                    raise status.unknown(str(error)) from error
                raise


async def _text(answer: StreamedAnswer) -> str:
    return (await answer.body(_TEXT_BYTES_MAX)).decode("utf-8", "replace")


def _error(code: int, text: str) -> ApiError:
    if code == 400:
        return status.bad_request(text)
    if code == 500:
        return status.internal_error(text)
    return status.unknown(text, code)


async def _pass_on(answer: StreamedAnswer, reply: Reply) -> None:
    reply.begin_stream("text/plain")
    async for piece in answer.pieces():
        await reply.answer.write(piece)
