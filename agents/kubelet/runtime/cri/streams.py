"""Connects to an engine's streaming server: exec, attach, port-forward, over SPDY/3.1.

session = await open_command(url, tty=False)             a Session of the runtime protocol
reader, writer = await open_port(url, 80)
"""

import asyncio
import socket
from typing import Final

import orjson

from kvstack.agents.kubelet.runtime.runtime import ConnectError, StartError
from kvstack.agents.kubelet.runtime.runtime import Stream as Connection
from kvstack.component.http.answers import AnswerError
from kvstack.component.http.dialling import addresses_of, dial
from kvstack.component.http.request_head import UrlError, head_lines, site_of
from kvstack.component.http.single import ask_on
from kvstack.component.streams.spdy.session import Session, SessionOverError, Stream

_COMMANDS: Final = "v4.channel.k8s.io"
_PORTS: Final = "portforward.k8s.io"
_PIECES_MAX: Final = 64
_PIECE: Final = 64 << 10


async def connect(url: str, protocol: str) -> Session:
    """Upgrade a connection to SPDY/3.1; raises OSError, AnswerError and UrlError."""
    site = site_of(url)
    lines = head_lines(
        (
            ("Connection", "Upgrade"),
            ("Upgrade", "SPDY/3.1"),
            ("X-Stream-Protocol-Version", protocol),
        )
    )
    sock = await dial(await addresses_of(site.host, site.port))
    answer = await ask_on(sock, "POST", site.target, site.host_header, lines, is_upgrade=True)
    if not answer.is_upgraded:
        answer.close()
        raise AnswerError(f"the container engine answers {answer.code}")
    return Session(answer, is_client=True)


class EngineSession:
    """A command, or a container's first process."""

    def __init__(self, session: Session, streams: dict[str, Stream]) -> None:
        """streams: by their types."""
        self._session = session
        self._streams = streams
        self._pieces: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(_PIECES_MAX)
        loop = asyncio.get_running_loop()
        outputs = {"stdout": 1, "stderr": 2}
        self._readers = [
            loop.create_task(self._read(number, streams[name]))
            for name, number in outputs.items()
            if name in streams
        ]
        self._end = loop.create_task(self._tell_end())
        self._code = loop.create_task(self._read_status())
        self._later: set[asyncio.Task[None]] = set()

    async def write(self, data: bytes) -> None:
        """Write to its input; dropped once the process has closed it."""
        if (stdin := self._streams.get("stdin")) is not None:
            try:
                await stdin.write(data)
            except SessionOverError:
                del self._streams["stdin"]

    def close_input(self) -> None:
        """Close the command's standard input."""
        if (stdin := self._streams.pop("stdin", None)) is not None:
            self._soon(stdin.finish())

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of its terminal."""
        if (sizes := self._streams.get("resize")) is not None:
            self._soon(sizes.write(orjson.dumps({"Width": columns, "Height": rows})))

    async def read(self) -> tuple[int, bytes]:
        """Return stream and what it wrote; (0, b"") at the end."""
        return await self._pieces.get()

    async def wait(self) -> int:
        """Return the exit code; StartError: it could not be run."""
        return await asyncio.shield(self._code)

    def close(self) -> None:
        """Stop listening to it; the engine ends a command then."""
        for task in (*self._readers, self._end, self._code):
            task.cancel()
        for task in self._later:
            task.cancel()
        self._session.drop()

    def _soon(self, work: object) -> None:
        async def quiet() -> None:
            try:
                await work  # type: ignore[misc]
            except SessionOverError:
                return  # it has ended

        task = asyncio.get_running_loop().create_task(quiet())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _read(self, number: int, stream: Stream) -> None:
        while data := await stream.read():
            await self._pieces.put((number, data))

    async def _tell_end(self) -> None:
        await asyncio.gather(*self._readers)
        await self._pieces.put((0, b""))

    async def _read_status(self) -> int:
        data = b""
        while piece := await self._streams["error"].read():
            data += piece
        if not data:
            return 0
        status = orjson.loads(data)
        if status.get("status") == "Success":
            return 0
        for cause in (status.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        raise StartError("ExecFailed", str(status.get("message") or "unknown error"))


async def open_command(url: str, *, tty: bool, has_input: bool = True) -> EngineSession:
    """Open the streams of a command; raises StartError."""
    names = ["error", *(["stdin"] if has_input else []), "stdout"]
    names.append("resize" if tty else "stderr")
    try:
        session = await connect(url, _COMMANDS)
        streams = {name: await session.open({"streamtype": name}) for name in names}
    except (OSError, AnswerError, UrlError) as error:
        raise StartError("ExecFailed", str(error)) from error
    return EngineSession(session, streams)


async def open_port(url: str, port: int) -> Connection:
    """Connect with a port of a sandbox; raises ConnectError."""
    headers = {"port": str(port), "requestid": "0"}
    try:
        session = await connect(url, _PORTS)
        errors = await session.open({**headers, "streamtype": "error"})
        await errors.finish()
        data = await session.open({**headers, "streamtype": "data"})
    except (OSError, AnswerError, UrlError) as error:
        raise ConnectError(str(error)) from error
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near)
    far_reader, far_writer = await asyncio.open_connection(sock=far)
    loop = asyncio.get_running_loop()
    task = loop.create_task(_carry(session, data, far_reader, far_writer))
    _CARRYING.add(task)
    task.add_done_callback(_CARRYING.discard)
    return reader, writer


_CARRYING: Final[set[asyncio.Task[None]]] = set()


async def _carry(
    session: Session, data: Stream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Carry between a stream and a socket until both have ended."""

    async def inwards() -> None:
        while piece := await reader.read(_PIECE):
            await data.write(piece)
        await data.finish()

    coming = asyncio.ensure_future(inwards())
    try:
        while piece := await data.read():
            writer.write(piece)
            await writer.drain()
    except OSError:
        coming.cancel()
    finally:
        writer.close()
        await asyncio.gather(coming, return_exceptions=True)
        await session.close()
