"""The whole of one seed: store, API servers, controllers, schedulers, nodes, users and faults.

step      a fault, or none ─► time passes, in which everybody works
the end   faults and users stop; everything must become as it was asked in bounded time
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from typing_extensions import override

from tests.sim.stack.base import BaseWorld
from tests.sim.stack.faults import DOWN_S, Faults
from tests.sim.whole.agents import AgentProcess, ManagerProcess, NodeProcess, SchedulerProcess
from tests.sim.whole.objects import Objects
from tests.sim.whole.promises import Promises
from tests.sim.whole.settled import unsettled
from tests.sim.whole.workload import Workload

STEPS: Final = 20
_READY_S: Final = 120.0
_SETTLED_S: Final = 900.0
_STEADY_S: Final = 5.0
_NODES_DOWN_S: Final = (2.0, 30.0, 90.0)
_JUMPS_S: Final = (-3600.0, -5.0, 0.0, 5.0, 600.0)
_EXPECTED: Final = frozenset(("lost the lease", "another holds the lease"))


class WholeWorld(BaseWorld):
    """The world of one seed."""

    settled_s: ClassVar[float] = _SETTLED_S

    def __init__(self, seed: int, *, steps: int = STEPS, keep_lines: bool = False) -> None:
        super().__init__(seed, keep_lines=keep_lines)
        self.expected_errors |= _EXPECTED
        rng = self.rng
        self._steps = steps
        self.fault_rate = rng.choice((0.0, 0.2, 0.5))
        self._step_s = rng.choice((1.0, 3.0))
        self.servers_count = 2
        self.pause_s = rng.choice((0.3, 1.0, 3.0))
        """Of users, between what they do."""
        self.often = ""
        """What users do more than anything else."""
        self.objects = Objects()
        self.promises = Promises(self.objects)
        self.managers_count = rng.choice((1, 2))
        self.nodes_count = rng.choice((2, 3))

    @override
    async def live(self) -> None:
        rng = self.rng
        self.managers = [ManagerProcess(self, f"m{at}") for at in range(self.managers_count)]
        self.schedulers = [SchedulerProcess(self, f"s{at}") for at in range(self.managers_count)]
        self.nodes = [NodeProcess(self, f"n{at}") for at in range(self.nodes_count)]
        self.network.on_answer.append(
            lambda user, asked, whole: self.promises.answered(
                user, asked, whole, self.members.revision()
            )
        )
        faults = Faults(self)
        faults.add(self._agent_faults())
        async with self.observer() as store:
            self.spawn(self.objects.follow(store), "observer")
            for agent in self.agents():
                agent.start()
            await self.until(self._not_ready, _READY_S, "not everybody is ready")
            workload = Workload(self, self.pause_s, self.often)
            self.spawn(workload.run(), "user")
            for _ in range(self._steps):
                if rng.random() < self.fault_rate:
                    faults.inject()
                await self.sleep(rng.uniform(0, 2 * self._step_s))
            faults.calm()
            workload.is_stopped = True
            await self._settle(workload)

    def agents(self) -> list[AgentProcess]:
        """Return all processes but those of the API."""
        return [*self.managers, *self.schedulers, *self.nodes]

    def _not_ready(self) -> list[str]:
        leaders = [each for each in ("managers lead", "schedulers lead") if not self.counts[each]]
        nodes = self.objects.of["minions"]
        return leaders + [each.name for each in self.nodes if each.name not in nodes]

    async def _settle(self, workload: Workload) -> None:
        await self.until(lambda: not workload.is_over, _SETTLED_S, "the user does not end")
        while True:
            await self.until(self._lacks, self.settled_s, "it does not settle")
            changed = self.objects.changed
            await self.sleep(_STEADY_S)
            if not self._lacks():
                break
            self.counts["settled again"] += changed != self.objects.changed
        self.counts["objects changed"] = self.objects.changed

    def _lacks(self) -> list[str]:
        down = [each.name for each in self.agents() if each.is_down]
        return down + unsettled(self.objects)

    # Faults of agents.

    def _agent_faults(self) -> dict[str, Callable[[], None]]:
        return {
            "crash of a manager": lambda: self._crash(self.managers, DOWN_S),
            "crash of a scheduler": lambda: self._crash(self.schedulers, DOWN_S),
            "crash of a node": lambda: self._crash(self.nodes, _NODES_DOWN_S),
            "manager cut off": lambda: self._cut(self.managers),
            "scheduler cut off": lambda: self._cut(self.schedulers),
            "node cut off": lambda: self._cut(self.nodes),
            "clock jump of an agent": self._jump_agent,
        }

    def _crash(self, agents: Sequence[AgentProcess], down_s: tuple[float, ...]) -> None:
        agent = self.rng.choice(agents)
        agent.crash()
        self.spawn(self._start_again(agent, self.rng.choice(down_s)), f"start of {agent.name}")

    async def _start_again(self, agent: AgentProcess, down_s: float) -> None:
        life = agent.life
        await self.sleep(down_s)
        if agent.life == life:
            agent.start()

    def _cut(self, agents: Sequence[AgentProcess]) -> None:
        agent = self.rng.choice(agents)
        agent.cut(is_cut=True)
        self.spawn(self._reach_again(agent), f"way of {agent.name}")

    async def _reach_again(self, agent: AgentProcess) -> None:
        await asyncio.sleep(self.rng.choice((3.0, 20.0, 60.0)))
        agent.cut(is_cut=False)

    def _jump_agent(self) -> None:
        self.rng.choice(self.agents()).clock.jumped_s = self.rng.choice(_JUMPS_S)


def make_world(seed: int, steps: int, keep_lines: bool) -> WholeWorld:  # noqa: FBT001 - of commands
    """Return the world of a seed."""
    return WholeWorld(seed, steps=steps, keep_lines=keep_lines)
