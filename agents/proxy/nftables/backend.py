"""The mode that writes nftables: one table of one family.

    backend = NftBackend(settings, logger, leaves_rules=True)

`leaves_rules`: traffic goes on while no proxy runs, as it does with kube-proxy. One process alone
may write the table of a network namespace: `machine_lock` says who.
"""

import asyncio
import contextlib
from collections.abc import Callable
from random import SystemRandom
from typing import Final

from typing_extensions import override

from kvstack.agents.proxy.backend import Backend, BackendError
from kvstack.agents.proxy.cluster_view import Changes, ClusterView
from kvstack.agents.proxy.connections import FlowCleaner
from kvstack.agents.proxy.nftables import program
from kvstack.agents.proxy.nftables.layout import CANARY, Layout
from kvstack.agents.proxy.nftables.messages import KernelTable
from kvstack.agents.proxy.nftables.numbers import NUMBERS_MAX, OutOfNumbersError
from kvstack.agents.proxy.nftables.port_rules import rules_of
from kvstack.agents.proxy.nftables.program import NftError
from kvstack.agents.proxy.nftables.ruleset import Ruleset
from kvstack.agents.proxy.rule_settings import RuleSettings
from kvstack.component.logger import Logger

MODE: Final = "nftables"


class NftBackend(Backend):
    """Writes one table."""

    def __init__(
        self,
        settings: RuleSettings,
        logger: Logger,
        *,
        leaves_rules: bool,
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        """Write nothing yet; on_written: called in a thread when all was written."""
        self._ruleset = Ruleset(Layout(settings))
        self._cleanup_failures = 0
        self._kernel = KernelTable(settings.family)
        self._random = SystemRandom()
        self._logger = logger
        self._leaves_rules = leaves_rules
        self._on_written = on_written
        self._flows = FlowCleaner(logger)

    @property
    @override
    def mode(self) -> str:
        return MODE

    @property
    @override
    def flows(self) -> FlowCleaner:
        return self._flows

    @property
    @override
    def cleanup_failures(self) -> int:
        return self._cleanup_failures

    @override
    async def write(self, changes: Changes, view: ClusterView) -> None:
        layout = self._ruleset.layout
        try:
            transaction = self._ruleset.change(
                {name: rules_of(each, layout) if each else None for name, each in changes.items()}
            )
            await asyncio.to_thread(self._kernel.change, transaction)
        except (NftError, OutOfNumbersError) as error:
            raise BackendError(str(error)) from error
        await self._flows.clean((each for each in changes.values() if each), view)

    @override
    async def write_all(self, view: ClusterView) -> None:
        family = self._ruleset.layout.family
        # Others than the last ones, which packets on their way may still look for.
        ruleset = Ruleset(self._ruleset.layout, self._random.randrange(NUMBERS_MAX // 2))
        ruleset.change({each.port.name: rules_of(each, ruleset.layout) for each in view.served()})
        self._ruleset = ruleset
        try:
            found = await asyncio.to_thread(program.read, family)
            await self._apply(ruleset.whole(found))
        except (NftError, BackendError) as error:
            # Of another layout, which cannot be changed into ours.
            self._logger.warning("the table is made anew", reason=str(error))
            await self._apply(ruleset.whole(program.NOTHING, anew=True))
        await asyncio.to_thread(self._on_written)
        await self._flows.clean(view.served(), view)

    @override
    def use_service_ranges(self, ranges: tuple[str, ...]) -> bool:
        settings = self._ruleset.layout.settings
        changed = settings.with_service_ranges(ranges)
        if changed == settings:
            return False
        self._ruleset = Ruleset(Layout(changed))
        return True

    @override
    async def is_there(self) -> bool:
        family = self._ruleset.layout.family
        return await asyncio.to_thread(program.has_rules, family, CANARY)

    @override
    async def tidy(self) -> None:
        for transaction in self._ruleset.take_stale():
            try:
                await asyncio.to_thread(self._kernel.change, transaction)
            except NftError as error:
                # The next whole table finds what was left.
                self._cleanup_failures += 1
                self._logger.debug("what is used no more was left", reason=str(error))

    @override
    async def close(self) -> None:
        await asyncio.to_thread(self._kernel.close)
        if not self._leaves_rules:
            with contextlib.suppress(BackendError):
                await self._apply(self._ruleset.delete)

    async def _apply(self, text: str) -> None:
        try:
            await asyncio.to_thread(program.apply, text)
        except NftError as error:
            raise BackendError(str(error)) from error
