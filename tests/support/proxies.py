"""Proxies as processes: ours and etcd's, on a free port, ended by their own process id."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.servers import ETCD, free_ports
from tests.support.waiting import wait_for

OURS = (sys.executable, "-m", "kvstore")
ETCDS = (str(ETCD),)
READY_TIMEOUT_S = 60.0
POLL_S = 0.02


class Proxy:
    """One process of a subcommand."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        log_path: Path,
        port: int,
        metrics_url: str = "",
    ) -> None:
        self.process = process
        self.log_path = log_path
        self.client_port = port
        self.metrics_url = metrics_url  # empty: none was asked for
        # What etcdctl's plays want of a server:
        self.data_dir = log_path.with_suffix("")
        self.command = ["proxy"]

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    def records(self) -> list[dict[str, Any]]:
        """Return the log so far, without a line that is being written."""
        lines = self.log_path.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_for(self, message: str, timeout_s: float = READY_TIMEOUT_S) -> dict[str, Any]:
        """Return the first record with this message, once there is one."""

        def record() -> dict[str, Any] | None:
            has_ended = self.process.poll() is not None
            found = next((each for each in self.records() if each["msg"] == message), None)
            assert found or not has_ended, f"no {message!r} in:\n{self.log_path.read_text()}"
            return found

        return wait_for(record, lambda: f"{message!r} in:\n{self.log_path.read_text()}", timeout_s)


@contextmanager
def proxy(
    directory: Path,
    *arguments: str,
    ready: str,
    program: Sequence[str] = OURS,
    port: int | None = None,
) -> Iterator[Proxy]:
    """Run a subcommand until the block ends; it is up once it has logged ready."""
    chosen = port or free_ports(1)[0]
    log_path = directory / f"proxy-{chosen}.log"
    flag = "--metrics-addr="
    metrics_url = next((each.removeprefix(flag) for each in arguments if flag in each), "")
    environment = {
        "PATH": os.environ["PATH"],
        **{name: value for name, value in os.environ.items() if name.startswith("KVSTORE_")},
    }
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [*program, *arguments, f"--listen-addr=127.0.0.1:{chosen}"],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    try:
        running = Proxy(process, log_path, chosen, metrics_url)
        running.wait_for(ready)
        yield running
    finally:
        process.kill()
        process.wait()


def refusal(*arguments: str) -> tuple[int, str]:
    """Run a subcommand of ours that does not start; return its code and the last line it says."""
    done = subprocess.run(
        [*OURS, *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, (done.stderr + done.stdout).rstrip("\n").rpartition("\n")[2]
