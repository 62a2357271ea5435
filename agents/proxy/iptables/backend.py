"""The mode that writes iptables: the tables of one family.

    backend = IptablesBackend(settings, logger, leaves_rules=True)

Where node ports are served on loopback addresses, the kernel is told to route these, once the rule
is there that keeps neighbours from them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from typing_extensions import override

from kvstack.agents.proxy.backend import Backend, BackendError
from kvstack.agents.proxy.cluster_view import Changes, ClusterView
from kvstack.agents.proxy.connections import FlowCleaner
from kvstack.agents.proxy.iptables import program
from kvstack.agents.proxy.iptables.layout import Layout
from kvstack.agents.proxy.iptables.port_rules import rules_of
from kvstack.agents.proxy.iptables.program import IptablesError
from kvstack.agents.proxy.iptables.ruleset import Ruleset
from kvstack.agents.proxy.rule_settings import RuleSettings
from kvstack.component.logger import Logger

MODE: Final = "iptables"
_LARGE: Final = 1_000
"""From so many ports on, rules that choose endpoints have no comments, which take memory."""
_ROUTES_LOOPBACK: Final = Path("/proc/sys/net/ipv4/conf/all/route_localnet")


class IptablesBackend(Backend):
    """Writes the tables of one family."""

    def __init__(
        self,
        settings: RuleSettings,
        logger: Logger,
        *,
        leaves_rules: bool,
        on_written: Callable[[], None] = lambda: None,
    ) -> None:
        """Write nothing yet; on_written: called in a thread when all was written."""
        self._layout = Layout(settings)
        self._ruleset = Ruleset(self._layout)
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
    def rule_counts(self) -> Mapping[str, int]:
        """How many rules each table has of ours."""
        return self._ruleset.count

    @property
    @override
    def last_rule_counts(self) -> Mapping[str, int]:
        return self._ruleset.last_count

    @override
    async def write(self, changes: Changes, view: ClusterView) -> None:
        has_comments = view.count <= _LARGE
        text = self._ruleset.change(
            {
                name: rules_of(each, self._layout, has_comments=has_comments) if each else None
                for name, each in changes.items()
            }
        )
        if text:
            await self._restore(text)
        await self._flows.clean((each for each in changes.values() if each), view)

    @override
    async def write_all(self, view: ClusterView) -> None:
        has_comments = view.count <= _LARGE
        ruleset = Ruleset(self._layout)
        ruleset.change(
            {
                each.port.name: rules_of(each, self._layout, has_comments=has_comments)
                for each in view.served()
            }
        )
        self._ruleset = ruleset
        try:
            found = await asyncio.to_thread(program.read, self._layout.family)
        except IptablesError as error:
            raise BackendError(str(error)) from error
        await self._restore(ruleset.whole(found))
        if self._layout.guards_loopback:
            try:
                _ROUTES_LOOPBACK.write_text("1")
            except OSError as error:
                text = f"node ports are not served on loopback: {_ROUTES_LOOPBACK}: {error}"
                raise BackendError(text) from error
        await asyncio.to_thread(self._on_written)
        await self._flows.clean(view.served(), view)

    @override
    def use_service_ranges(self, ranges: tuple[str, ...]) -> bool:
        settings = self._layout.settings
        changed = settings.with_service_ranges(ranges)
        if changed == settings:
            return False
        self._layout = Layout(changed)
        return True

    @override
    async def is_there(self) -> bool:
        return await asyncio.to_thread(program.has_rules, self._layout)

    @override
    async def tidy(self) -> None:
        pass  # what is used no more goes with the change

    @override
    async def close(self) -> None:
        if not self._leaves_rules:
            with contextlib.suppress(IptablesError):
                await asyncio.to_thread(program.remove, self._layout.family)

    async def _restore(self, text: str) -> None:
        try:
            await asyncio.to_thread(program.restore, self._layout.family, text)
        except IptablesError as error:
            raise BackendError(str(error)) from error
