"""An API server whose wall clock a test moves: so that a second turns where the test wants it to.

    shift = Shift.make(path)
    ApiServer(directory, files, stores, command=shift.command).start()
    shift.forward(1000)                what the server does from now on is a second later

The file holds by how much the server's clock is ahead of the machine's, in milliseconds. Client and
server map it, so a shift is seen by the next request.
"""

import mmap
import struct
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from typing_extensions import override

from kvstack.apiserver.server import process
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.clock import SystemClock
from kvstack.component.logger import Logger
from kvstack.component.process.program import stop_event

_FORM = struct.Struct("<q")


class Shift:
    """By how much a server's clock is ahead."""

    def __init__(self, path: Path) -> None:
        """Map the file, which has to be there."""
        self._path = path
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _FORM.size)

    @classmethod
    def make(cls, path: Path) -> "Shift":
        """Make the file: the clock is as the machine's."""
        path.write_bytes(_FORM.pack(0))
        return cls(path)

    @property
    def command(self) -> Sequence[str]:
        """What starts an API server with this clock; flags follow."""
        return (sys.executable, "-m", __name__, str(self._path))

    @property
    def ms(self) -> int:
        """Milliseconds by which the clock is ahead."""
        (ms,) = _FORM.unpack(self._shared[:])
        return int(ms)

    def forward(self, ms: int) -> None:
        """Move the clock on."""
        self._shared[:] = _FORM.pack(self.ms + ms)


class ShiftedClock(SystemClock):
    """The machine's clock, but for what a shift says of the wall time."""

    def __init__(self, shift: Shift) -> None:
        self._shift = shift

    @override
    def unix_ms(self) -> int:
        """Return the shifted wall time in milliseconds."""
        return super().unix_ms() + self._shift.ms

    @override
    def unix_s(self) -> int:
        """Return the shifted wall time in seconds."""
        return self.unix_ms() // 1000


async def _serve(clock: ShiftedClock, options: Options, log: Logger) -> None:
    stop = stop_event()
    async with process.open_store(options.store, log) as store:
        server = ApiServer(store, options, log, clock=clock)
        await server.start()
        await server.ready()
        await stop.wait()
        await server.stop()


def main(arguments: Sequence[str]) -> int:
    """Serve with the clock of the first argument; the others are flags."""
    clock = ShiftedClock(Shift(Path(arguments[0])))
    return process.main(arguments[1:], partial(_serve, clock))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
