"""Runs controllers together: one set of informers, a user and a queue for each.

manager = Manager(controllers, users, Environment(informers, clock, random, logger))
await manager.start(); …; await manager.stop()
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from kvstack.agents.client.activity import Activity
from kvstack.agents.client.api import Api
from kvstack.agents.reconcile.plan import Controller
from kvstack.agents.reconcile.runner import Environment, Runner


class Users(Protocol):
    """Gives each controller an API client with a user of its own."""

    async def api_of(self, service_account: str) -> Api:
        """Return the API as a service account of kube-system, or (empty) as the manager itself."""
        ...


class Manager:
    """Runs controllers."""

    def __init__(
        self, controllers: Sequence[Controller], users: Users, environment: Environment
    ) -> None:
        self._controllers: Final = controllers
        self._users: Final = users
        self._environment: Final = environment
        self._apis: list[Api] = []
        self.runners: list[Runner] = []

    async def start(self) -> None:
        """Start all controllers, and return once all of them work."""
        for controller in self._controllers:
            api = await self._users.api_of(controller.identity.service_account)
            self._apis.append(api)
            self.runners.append(Runner(controller, api, self._environment))
        # Side by side, so that informers begin together.
        async with asyncio.TaskGroup() as group:
            for runner in self.runners:
                group.create_task(runner.start())

    @property
    def is_working(self) -> bool:
        """Whether all controllers have started, and none has ended."""
        return all(runner.is_working for runner in self.runners)

    @property
    def is_idle(self) -> bool:
        """Whether no work is pending."""
        return all(runner.is_idle for runner in self.runners)

    def add_activity(self, found: Activity) -> None:
        """Add the keys that controllers work on, and what is due later."""
        for runner in self.runners:
            runner.add_activity(found)

    async def stop(self) -> None:
        """End all controllers, and their connections."""
        await asyncio.gather(*(runner.stop() for runner in self.runners))
        await asyncio.gather(*(api.close() for api in self._apis))
        self.runners.clear()
        self._apis.clear()
