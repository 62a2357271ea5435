"""Connects clients with kubelets, and with what `proxy` leads to.

    kubelets = Kubelets(KubeletTls(cert_file, key_file, ca_file))
    await kubelets.serve(connecting, request, reply)

A log is an answer that is passed on. Any other stream begins with an upgrade: the client's offer
goes to the kubelet as it is, and if that agrees, bytes go both ways until one side ends.
What an older kubelet does not speak is translated (`translating`).
"""

from collections.abc import Sequence

from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.objects import status
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.streams import forwarded, translating
from kvstack.apiserver.streams.backends import Backends, DialError
from kvstack.apiserver.streams.carrying import carry
from kvstack.apiserver.streams.http_answer import AnswerError, HttpAnswer, read_head
from kvstack.apiserver.streams.kubelet_tls import KubeletTls
from kvstack.apiserver.streams.proxies import Proxies
from kvstack.apiserver.streams.spdy.pipes import Pipe, SocketPipe
from kvstack.apiserver.streams.translating import RefusedError
from kvstack.apiserver.verbs.results import Connecting, Proxying
from kvstore.http.serving.request import Request


class Kubelets:
    """Opens streams to kubelets."""

    def __init__(self, tls: KubeletTls) -> None:
        """Read no files yet."""
        self._backends = Backends(tls)
        self._proxies = Proxies(self._backends)

    async def serve(
        self, connecting: Connecting | Proxying, request: Request, reply: Reply
    ) -> None:
        """Answer with a stream; raises ApiError."""
        if isinstance(connecting, Proxying):
            await self._proxies.serve(connecting, request, reply)
        elif not connecting.host:
            reply.send_nothing(204)  # a pod without a node has no log
        elif connecting.is_log:
            await self._log(connecting, reply)
        elif not request.may_upgrade:
            raise status.bad_request("Upgrade request required")
        elif translating.is_needed(connecting, request):
            await self._translate(connecting, request, reply)
        else:
            await self._upgrade(connecting, request, reply)

    async def _log(self, connecting: Connecting, reply: Reply) -> None:
        place = connecting.place
        try:
            reader, writer = await self._backends.connect(
                connecting.host, connecting.port, self._backends.of_kubelet()
            )
        except DialError as error:
            url = f"https://{place}{connecting.target}"
            raise status.unknown(f'Get "{url}": {error}') from error
        try:
            headers = [("Host", place), ("Connection", "close")]
            writer.write(_head("GET", connecting.target, headers))
            await writer.drain()
            answer = await read_head(reader)
            if answer.code >= 400:
                raise _error(answer.code, await answer.text())
            await _pass_on(answer, reply)
        except (AnswerError, OSError) as error:
            if not reply.is_begun:
                raise status.unknown(str(error)) from error
            raise
        finally:
            writer.close()

    async def _translate(self, connecting: Connecting, request: Request, reply: Reply) -> None:
        """Speak to a kubelet as it speaks, and to the client as that asks."""
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
        """Return a connection to a kubelet that speaks SPDY/3.1; DialError, RefusedError."""
        reader, writer = await self._backends.connect(
            connecting.host, connecting.port, self._backends.of_kubelet()
        )
        headers = [
            ("Host", connecting.place),
            ("Connection", "Upgrade"),
            ("Upgrade", "SPDY/3.1"),
            ("X-Stream-Protocol-Version", protocol),
            ("Content-Length", "0"),
        ]
        code, text = 500, ""
        try:
            writer.write(_head("POST", connecting.target, headers))
            await writer.drain()
            answer = await read_head(reader)
            code = answer.code
            text = "" if code == 101 else await answer.text()
        except (AnswerError, OSError) as error:
            text = str(error)
        if code == 101:
            return SocketPipe(reader, writer)
        writer.close()
        raise RefusedError(code, text)

    async def _upgrade(self, connecting: Connecting, request: Request, reply: Reply) -> None:
        try:
            backend = await self._backends.connect(
                connecting.host, connecting.port, self._backends.of_kubelet()
            )
        except DialError as error:
            raise status.unknown(f"error dialing backend: {error}") from error
        reader, writer = backend
        try:
            headers = forwarded.of_upgrade(request)
            if request.method == "POST":
                headers.append(("content-length", "0"))
            writer.write(_head(request.method, connecting.target, headers))
            await writer.drain()
            answer = await read_head(reader)
            if answer.code == 101:
                await carry(answer, backend, reply)
            elif answer.code >= 400:
                reply.send_text(answer.code, await answer.text())
            else:
                raise status.unknown(f"invalid upgrade response: status code {answer.code}")
        except (AnswerError, OSError) as error:
            if not reply.is_begun:
                raise status.unknown(str(error)) from error
            raise
        finally:
            writer.close()


def _head(method: str, target: str, headers: Sequence[tuple[str, str]]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _error(code: int, text: str) -> ApiError:
    if code == 400:
        return status.bad_request(text)
    if code == 500:
        return status.internal_error(text)
    return status.unknown(text, code)


async def _pass_on(answer: HttpAnswer, reply: Reply) -> None:
    reply.begin_stream("text/plain")
    async for piece in answer.pieces():
        await reply.answer.write(piece)
