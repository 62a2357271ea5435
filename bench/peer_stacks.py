"""The real programs as one control plane: etcd and three of Kubernetes.

    with started(run, directory) as stack: …        a `stacks.Stack` of four processes

They have their usual settings but for two: no elections, as one of each runs, and no limit of
requests per second, as the API server's own clients in `kvstack up` have none. The controller
manager acts by service accounts, as it does in usual clusters.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.api_servers import MANAGER, PROGRAMS, SCHEDULER, contender_of, store_of
from bench.reporting.figures import PEER
from bench.run import Run
from bench.stacks import Access, Stack, process
from tests.apiserver.support.api_servers import ADMIN_TOKEN, trusting
from tests.apiserver.support.kube_files import write_kubeconfig

if TYPE_CHECKING:
    import subprocess

NEEDED: Final = (*PROGRAMS, SCHEDULER, MANAGER)
NOTE: Final = (
    "The others: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, started together;"
    " the limits of requests per second of the last two (20 and 50) raised to 10,000."
)
_REQUESTS_PER_S: Final = 10_000
_STOP_S: Final = 60.0


@contextmanager
def started(run: Run, directory: Path) -> Iterator[Stack]:
    """Start all four on an empty directory; end them whatever happens."""
    directory.mkdir(parents=True)
    store = store_of(run, PEER, directory)
    contender = contender_of(run, PEER, directory, store)
    api, logs = contender.api, [directory / f"{name}.log" for name in (MANAGER, SCHEDULER)]
    kubeconfig = write_kubeconfig(directory / "kubeconfig", api, authority=contender.authority)
    with ExitStack() as stack:
        processes: list[subprocess.Popen[bytes]] = []
        for each in (store, api):
            each.start(wait=False)
            assert each.process is not None, "it was just started"
            stack.callback(_end, each.process)
            processes.append(each.process)
        configuration = directory / "scheduler.json"
        configuration.write_text(json.dumps(scheduler_configuration(kubeconfig)))
        keys = api.files.directory
        commands = (
            [
                run.programs[MANAGER],
                f"--kubeconfig={kubeconfig}",
                "--leader-elect=false",
                "--secure-port=0",
                f"--kube-api-qps={_REQUESTS_PER_S}",
                f"--kube-api-burst={_REQUESTS_PER_S}",
                "--use-service-account-credentials",
                f"--service-account-private-key-file={keys / 'sa.key'}",
                f"--root-ca-file={contender.authority}",
            ],
            [run.programs[SCHEDULER], f"--config={configuration}", "--secure-port=0"],
        )
        for command, log in zip(commands, logs, strict=True):
            processes.append(stack.enter_context(process(command, log)))
        access = Access(trusting(), {"Authorization": f"Bearer {ADMIN_TOKEN}"})
        logs = [store.log_path, api.log_path, *logs]
        found = Stack(processes, logs, kubeconfig, api.port, lambda: access)
        stack.callback(found.close)
        yield found


def scheduler_configuration(kubeconfig: Path) -> dict[str, object]:
    """Return a KubeSchedulerConfiguration without elections and without a limit of requests."""
    limits = {"qps": _REQUESTS_PER_S, "burst": _REQUESTS_PER_S}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), **limits},
        "leaderElection": {"leaderElect": False},
    }


def _end(running: "subprocess.Popen[bytes]") -> None:
    running.terminate()
    try:
        running.wait(_STOP_S)
    finally:
        running.kill()
        running.wait()
