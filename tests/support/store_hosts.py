"""Stores of every kind on every server, for the suite they all pass.

    with place("native-etcd", directory) as there:
        there.play(scenario)          async def scenario(store): ...

The kinds: `embedded` (a member in this process, in a thread of its own), `on-loop` (one on the
Store's own loop: each loop has another, without users), `native` and `grpcio` (this project's
server by either transport of the client), `native-etcd` and `grpcio-etcd` (real etcd 3.5.1).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvstack.component import crate
from kvstore.client import ClientOptions, Store, connect
from tests.support import pausing
from tests.support.node.embedded_member import EmbeddedMember, OnLoopMember
from tests.support.servers import Server, etcd, ours, running

ON_LOOP = "on-loop"
KINDS = ("embedded", ON_LOOP, "native", "grpcio", "native-etcd", "grpcio-etcd")
THREADED_KINDS = tuple(each for each in KINDS if each != ON_LOOP)
NETWORK_KINDS = tuple(each for each in THREADED_KINDS if each != "embedded")
OUR_KINDS = tuple(each for each in THREADED_KINDS if not each.endswith("-etcd"))
PLAY_S = 60.0
PROGRESS_FLAG = "--watch-progress-notify-interval=200ms"

Scenario = Callable[[Store], Awaitable[None]]


@dataclass
class StoreHost:
    """Where Stores of one kind can be opened."""

    kind: str
    server: Server | None = None
    member: EmbeddedMember | OnLoopMember | None = None

    @property
    def is_etcd(self) -> bool:
        return self.kind.endswith("-etcd")

    @property
    def is_embedded(self) -> bool:
        return self.member is not None

    @property
    def transport(self) -> Any:
        return self.kind.partition("-")[0]

    def open(self, options: ClientOptions | None = None) -> Store:
        """Return a Store, not open yet."""
        options = options or ClientOptions()
        if self.member is not None:
            return self.member.store(options)
        assert self.server is not None
        options = replace(options, transport=self.transport)
        return connect([self.server.endpoint], options)

    def play(self, scenario: Scenario, options: ClientOptions | None = None) -> None:
        """Open a Store and play a scenario on it, in bounded time."""

        async def all_of_it() -> None:
            async with self.open(options) as store:
                await asyncio.wait_for(scenario(store), PLAY_S)

        asyncio.run(all_of_it())

    def pause(self) -> None:
        """Let nothing be answered for now."""
        if self.member is not None:
            self.member.stall()
        else:
            assert self.server is not None
            pausing.pause(self.server.pid)

    def resume(self) -> None:
        """Go on answering."""
        if self.member is not None:
            self.member.go_on()
        else:
            assert self.server is not None
            pausing.resume(self.server.pid)


def needs_crate(kind: str) -> str:
    """Return why a kind cannot be tested here; empty if it can."""
    if kind.startswith("native") and not crate.is_available():
        return f"the crate was not built: {crate.MISSING}"
    return ""


@contextmanager
def store_host(kind: str, directory: Path, *flags: str) -> Iterator[StoreHost]:
    """Run what a kind needs."""
    if kind == "embedded":
        with EmbeddedMember(*flags) as member:
            yield StoreHost(kind, member=member)
        return
    if kind == ON_LOOP:
        yield StoreHost(kind, member=OnLoopMember(*flags))
        return
    if kind.endswith("-etcd"):
        old = [each.replace("--watch-progress", "--experimental-watch-progress") for each in flags]
        server = etcd(directory / "etcd", extra=old)
    else:
        server = ours(directory / "ours", extra=list(flags))
    with running(server):
        yield StoreHost(kind, server=server)
