"""A fork in a thread of this process, for tests of programs that use a cluster.

    with BackgroundFork(directory, contents) as fork:
        fork.url, fork.kubeconfig, fork.left_out

All that a `BackgroundCluster` can do it can do too: `settle`, `clock`, `rows`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.agents.standalone.in_memory.cluster_time import MACHINE
from kvstack.agents.standalone.in_memory.memory_cluster import MemoryCluster, Virtual
from kvstack.agents.standalone.stack_settings import kubernetes_dir
from kvstack.clusters.contents import Contents, LeftOut
from kvstack.clusters.forks.fork_cluster import ForkCluster
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.component.line_log.line_logger import LineLogger

if TYPE_CHECKING:
    from kvstack.apiserver.webhooks.outbound import Unasked


class BackgroundFork(BackgroundCluster):
    """A fork of contents, which are not changed: any number of forks can be made of them."""

    def __init__(
        self,
        directory: Path,
        contents: Contents,
        settings: ForkSettings | None = None,
        *,
        clock: str = MACHINE,
        seed: int = 0,
        authorities: Path | None = None,
    ) -> None:
        """Start nothing yet; clock, seed: as of `background.Settings`."""
        super().__init__(
            directory, Settings(nodes=0, clock=clock, seed=seed), authorities=authorities
        )
        self._contents: Final = contents
        self._fork_settings: Final = settings or ForkSettings()
        self._directory: Final = directory
        self._fork: ForkCluster | None = None
        self._copied: Final = authorities
        self.left_out: list[LeftOut] = []
        """What is not as it was in the source, and why."""

    @property
    @override
    def kubeconfig(self) -> Path:
        """The file of the fork's user, who needs no role bindings."""
        return kubernetes_dir(self._directory) / "super-admin.conf"

    @property
    def unasked(self) -> "list[Unasked]":
        """What was not asked of others: webhooks, aggregated servers, nodes."""
        return [] if self._fork is None else self._fork.unasked

    @asynccontextmanager
    @override
    async def _new_cluster(self, virtual: Virtual | None) -> AsyncIterator[MemoryCluster]:
        fork = ForkCluster(
            self._contents,
            self._fork_settings,
            self._directory,
            LineLogger([], "fatal"),
            virtual=virtual,
            authorities=self._copied,
        )
        async with fork:
            self._fork, self.left_out = fork, fork.left_out
            try:
                yield fork.cluster
            finally:
                self._fork = None
