"""Connects a client with a command in a container, or with a container's first process.

    await run(wire, session, wants)

All output goes out before the status. When the client leaves, the command is ended.
"""

import asyncio

import orjson

from kvstack.agents.kubelet.runtime.runtime import Session, StartError
from kvstack.agents.kubelet.server.wires import Wire
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.streams.channels import INPUT, SIZE, Wants, failed_status


async def run(wire: Wire, session: Session, wants: Wants) -> None:
    """Carry both ways until the command has ended or the client leaves."""
    loop = asyncio.get_running_loop()
    if not wants.input:
        session.close_input()
    coming = loop.create_task(_receive(wire, session), name="input of a command")
    going = loop.create_task(_give(wire, session, wants), name="output of a command")
    try:
        await asyncio.wait((coming, going), return_when=asyncio.FIRST_COMPLETED)
        if going.done() and (error := going.exception()) is not None:
            if not isinstance(error, OSError):
                raise error
            await wire.drop()
    finally:
        for task in (coming, going):
            task.cancel()
        await asyncio.gather(coming, going, return_exceptions=True)
        session.close()


async def _give(wire: Wire, session: Session, wants: Wants) -> None:
    wanted = {1: wants.output, 2: wants.errors}
    while True:
        stream, data = await session.read()
        if not stream:
            break
        if wanted[stream]:
            await wire.send(stream, data)
    try:
        status = ended_status(await session.wait())
    except StartError as error:
        status = failed_status(f"error executing command in container: {error.message}")
    await wire.end(status)


async def _receive(wire: Wire, session: Session) -> None:
    async for kind, data in wire.events():
        if kind == INPUT and data is None:
            session.close_input()
        elif kind == INPUT and data is not None:
            await session.write(data)
        elif kind == SIZE and data is not None:
            _resize(session, data)


def _resize(session: Session, data: bytes) -> None:
    try:
        size = orjson.loads(data)
        session.resize(int(size["Width"]), int(size["Height"]))
    except (ValueError, KeyError, TypeError):
        return  # no size: the terminal keeps its own


def ended_status(code: int) -> Object:
    """Return the Status of a command that ended so."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": "command terminated with non-zero exit code: "
        f"command terminated with exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
