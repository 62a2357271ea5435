"""The mode that writes nftables: one table of one family.

    backend = NftBackend(layout, logger, leaves_rules=True)

`leaves_rules`: traffic goes on while no proxy runs, as it does with kube-proxy. One process alone
may write the table of a network namespace: `machine_lock` says who.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from typing_extensions import override

from kvstack.agents.proxy.backend import Backend, BackendError
from kvstack.agents.proxy.choice import Served
from kvstack.agents.proxy.cluster_view import Changes, ClusterView
from kvstack.agents.proxy.connections import delete_stale, frontends
from kvstack.agents.proxy.nftables import program
from kvstack.agents.proxy.nftables.layout import CANARY, Layout
from kvstack.agents.proxy.nftables.port_rules import rules_of
from kvstack.agents.proxy.nftables.program import NftError
from kvstack.agents.proxy.nftables.ruleset import Ruleset
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger

MODE: Final = "nftables"
_STATE: Final = Path("/run/kvstack")


@contextlib.contextmanager
def machine_lock(*, takes_over: bool, state: Path = _STATE) -> Iterator[None]:
    """Hold the right to write this network namespace's table; raises ConfigError, OSError.

    takes_over: whether a table that another program has left is made ours. Who does not take over
    leaves no table behind, either.
    """
    state.mkdir(mode=0o755, parents=True, exist_ok=True)
    namespace = Path("/proc/self/ns/net").stat().st_ino
    path = state / f"proxy-{namespace}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError("another proxy writes the rules of this machine") from error
        is_ours = bool(os.read(descriptor, 1))
        if not takes_over and not is_ours and _has_table():
            raise ConfigError("the tables of kube-proxy on this machine belong to another program")
        os.pwrite(descriptor, b"1", 0)
        yield
        if not takes_over:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _has_table() -> bool:
    try:
        return bool(program.found(4).chains)
    except NftError as error:
        raise ConfigError(str(error)) from error


class NftBackend(Backend):
    """Writes one table."""

    def __init__(self, layout: Layout, logger: Logger, *, leaves_rules: bool) -> None:
        """Write nothing yet."""
        self._ruleset = Ruleset(layout)
        self._logger = logger
        self._leaves_rules = leaves_rules

    @property
    @override
    def mode(self) -> str:
        return MODE

    @override
    async def write(self, changes: Changes, view: ClusterView) -> None:
        layout = self._ruleset.layout
        text = self._ruleset.change(
            {name: rules_of(each, layout) if each else None for name, each in changes.items()}
        )
        if text:
            await self._apply(text)
        await self._forget_flows((each for each in changes.values() if each), view)

    @override
    async def write_all(self, view: ClusterView) -> None:
        family = self._ruleset.layout.family
        ruleset = Ruleset(self._ruleset.layout)
        ruleset.change({each.port.name: rules_of(each, ruleset.layout) for each in view.served()})
        self._ruleset = ruleset
        try:
            found = await asyncio.to_thread(program.found, family)
            await self._apply(ruleset.whole(found))
        except (NftError, BackendError) as error:
            # Of another layout, which cannot be changed into ours.
            self._logger.warning("the table is made anew", reason=str(error))
            await self._apply(ruleset.whole(program.NOTHING, anew=True))
        await self._forget_flows(view.served(), view)

    @override
    def use_service_ranges(self, ranges: tuple[str, ...]) -> bool:
        layout = self._ruleset.layout
        own = tuple(sorted(each for each in ranges if (":" in each) == (layout.family == 6)))
        if own == layout.service_ranges:
            return False
        self._ruleset = Ruleset(replace(layout, service_ranges=own))
        return True

    @override
    async def is_there(self) -> bool:
        family = self._ruleset.layout.family
        return await asyncio.to_thread(program.has_rules, family, CANARY)

    @override
    async def tidy(self) -> None:
        for statement in self._ruleset.take_stale():
            with contextlib.suppress(NftError):  # the next whole table finds it
                await asyncio.to_thread(program.apply, statement)

    @override
    async def close(self) -> None:
        if not self._leaves_rules:
            with contextlib.suppress(BackendError):
                await self._apply(self._ruleset.delete)

    async def _apply(self, text: str) -> None:
        try:
            await asyncio.to_thread(program.apply, text)
        except NftError as error:
            raise BackendError(str(error)) from error

    async def _forget_flows(self, served: Iterable[Served], view: ClusterView) -> None:
        where = frontends(served, view)
        try:
            count = await asyncio.to_thread(delete_stale, view.family, where)
        except OSError as error:
            self._logger.warning("flows of UDP to old endpoints were kept", reason=str(error))
            return
        if count:
            self._logger.debug("flows of UDP to old endpoints were deleted", count=count)
