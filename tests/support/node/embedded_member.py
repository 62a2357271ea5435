"""Members in this process whose turns a test can stop for a while.

with EmbeddedMember() as member:
    async with member.store() as store: ...

OnLoopMember().store()      of a member of the running loop
"""

import asyncio
import threading
from typing import Self

from kvstack.component.virtual_time.clock import LoopClock
from kvstore import embed
from kvstore.batch import Inbox, Outbox
from kvstore.client import ClientOptions, Store


class Gate:
    """A source that lets turns begin or not."""

    def __init__(self) -> None:
        self._is_open = threading.Event()
        self._is_open.set()

    def fill(self, inbox: Inbox) -> None:
        self._is_open.wait()

    def drain(self, out: Outbox) -> None:
        pass

    def close(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()


class EmbeddedMember:
    """One member between its start and its end."""

    def __init__(self, *flags: str) -> None:
        self._gate = Gate()
        self._member = embed.start(flags=flags)
        assert self._member._driver is not None
        self._member._driver.attach(self._gate)

    def store(self, options: ClientOptions | None = None) -> Store:
        return self._member.store(options)

    def stall(self) -> None:
        """Take no turns until it goes on."""
        self._gate.close()

    def go_on(self) -> None:
        """Take turns again."""
        self._gate.open()

    def stop(self) -> None:
        """End the member; Stores that are open fail from then on."""
        self.go_on()
        self._member.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class OnLoopMember:
    """A member for each loop on which a store is asked for; it ends with its loop."""

    def __init__(self, *flags: str) -> None:
        self._flags = flags
        self._loop: asyncio.AbstractEventLoop | None = None
        self._member: embed.LoopMember | None = None

    def store(self, options: ClientOptions | None = None) -> Store:
        loop = asyncio.get_running_loop()
        if self._member is None or self._loop is not loop:
            self._loop = loop
            clock = LoopClock(1_800_000_000_000, loop)
            self._member = embed.start_on_loop(clock, flags=self._flags)
        return self._member.store(options)

    def stall(self) -> None:
        """Take no turns until it goes on."""
        assert self._member is not None
        self._member._driver._is_over = True

    def go_on(self) -> None:
        """Take turns again."""
        assert self._member is not None
        self._member._driver._is_over = False
        self._member._driver._wake_soon()
