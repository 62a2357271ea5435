"""A change that is a command: it runs with a kubeconfig that leads to the fork alone.

    CommandChange(["helm", "upgrade", "shop", "./chart"], limit_s=600)

While it runs, the fork's time goes on when nobody there has anything to do, RATE times as fast as
real time, since the command waits in real time. A command that waits for what will not come is
stopped: one whose evictions are refused while nothing changes any more, and one that takes longer
than its limit. One whose plan is killed gets SIGTERM from the kernel.
"""

import asyncio
import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from typing_extensions import override

from kvstack.clusters.plan.change import Change, Outcome, PlanError, Site
from kvstack.clusters.plan.writes import Write, Writes

RATE: Final = 60.0
LIMIT_S: Final = 600.0
_ENDS_WITH_PLAN: Final = """\
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):  # or it has ended already
    os.execv(sys.argv[2], sys.argv[3:])
"""
_LOOK_S: Final = 10.0
"""In the fork's time."""
_REFUSALS: Final = 2
_END_S: Final = 5.0
_CLUSTER_VARIABLES: Final = (
    "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_MASTER",
    "HELM_KUBEAPISERVER", "HELM_KUBECONTEXT", "HELM_KUBETOKEN", "HELM_KUBECAFILE",
    "HELM_KUBEASUSER", "HELM_KUBEASGROUPS",
)  # fmt: skip
"""Variables by which programs find other clusters than that of the kubeconfig."""


class CommandChange(Change):
    """Runs a command."""

    def __init__(
        self, command: Sequence[str], environ: Mapping[str, str], limit_s: float = LIMIT_S
    ) -> None:
        """Run nothing yet; limit_s: of real time."""
        self._command: Final = tuple(command)
        self._environ: Final = environ
        self._limit_s: Final = limit_s

    @override
    async def make(self, site: Site) -> Outcome:
        environ = {k: v for k, v in self._environ.items() if k not in _CLUSTER_VARIABLES}
        environ["KUBECONFIG"] = str(site.kubeconfig)
        program = shutil.which(self._command[0], path=environ.get("PATH"))
        if program is None:
            raise PlanError(f"{self._command[0]}: {os.strerror(errno.ENOENT)}")
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", _ENDS_WITH_PLAN, str(os.getpid()), program),
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                env=environ,
                start_new_session=True,
            )
        except OSError as error:
            raise PlanError(f"{self._command[0]}: {error.strerror}") from error
        with site.going_at(RATE):
            try:
                stopped = await self._until_end(process, site.writes)
            finally:
                await _end(process)
        assert process.returncode is not None
        return Outcome(site.writes.passed_s, stopped, 0 if stopped else process.returncode)

    async def _until_end(self, process: asyncio.subprocess.Process, writes: Writes) -> str:
        """Wait until the command has ended; return why it is to be stopped, empty: it is over."""
        deadline_s = time.monotonic() + self._limit_s
        ended = asyncio.ensure_future(process.wait())
        try:
            while True:
                await asyncio.wait((ended,), timeout=_LOOK_S)
                if ended.done():
                    return ""
                refusal = blocking_refusal(writes.done, writes.refused)
                if refusal is not None:
                    return f"pod {refusal.path} cannot be evicted: {refusal.message}"
                if time.monotonic() > deadline_s:
                    return f"{self._command[0]} did not end within {self._limit_s:g} s"
        finally:
            ended.cancel()


def blocking_refusal(done: Sequence[Write], refused: Sequence[Write]) -> Write | None:
    """Return an eviction that is refused again and again while nothing else is written."""
    last_s = done[-1].at_s if done else 0.0
    counts: dict[str, int] = {}
    for each in refused:
        if each.subresource == "eviction" and each.code == 429 and each.at_s > last_s:
            counts[each.path] = counts.get(each.path, 0) + 1
            if counts[each.path] >= _REFUSALS:
                return each
    return None


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the command and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        ended = asyncio.ensure_future(process.wait())
        await asyncio.wait((ended,), timeout=_END_S * RATE)
