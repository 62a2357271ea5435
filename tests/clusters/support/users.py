"""Users of the commands, with a kubeconfig and forks of their own."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstack.agents.standalone.in_memory.background import BackgroundCluster
from kvstack.cli import main
from tests.support.waiting import wait_for

KVSTACK = (sys.executable, "-m", "kvstack")
TIMEOUT_S = 120
BARE = "--without=controllers,scheduler,nodes,metrics,dashboard"
"""For forks of which only the process is looked at."""


class User:
    """Somebody with a kubeconfig and forks of their own."""

    def __init__(self, directory: Path, source: BackgroundCluster) -> None:
        self.directory = directory
        self.config = directory / "config"
        self.config.write_text(source.kubeconfig.read_text())
        self.runtime = directory / "run"
        self.runtime.mkdir(mode=0o700)
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": str(self.runtime),
            "KUBECONFIG": str(self.config),
        }
        self.before = self.config.read_text()

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*KVSTACK, *arguments],
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def start(self, *arguments: str, **more: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*KVSTACK, *arguments],
            env=self.environment,
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def call(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run a command that starts no process in this one; return what it writes."""
        output, errors = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patched,
            redirect_stdout(output),
            redirect_stderr(errors),
        ):
            patched.chdir(self.directory)
            for name in ("XDG_RUNTIME_DIR", "KUBECONFIG"):
                patched.setenv(name, self.environment[name])
            status = main(arguments)
        assert status == code, output.getvalue() + errors.getvalue()
        return output.getvalue(), errors.getvalue()

    def forks(self) -> list[dict[str, Any]]:
        output, _ = self.call("get", "forks", "-o", "json")
        forks: list[dict[str, Any]] = json.loads(output)
        return forks

    def contexts(self) -> list[str]:
        return [each["name"] for each in yaml.safe_load(self.config.read_text())["contexts"]]

    def kubeconfig(self, name: str) -> Path:
        """Write a file of one context."""
        content = yaml.safe_load(self.config.read_text())
        path = self.directory / f"{name}.conf"
        path.write_text(yaml.safe_dump({**content, "current-context": name}))
        return path

    def assert_nothing_is_left(self, *pids: int) -> None:
        assert self.config.read_text() == self.before
        forks = self.runtime / "kvstack" / "forks"
        assert not forks.exists() or set(os.listdir(forks)) <= {".lock"}
        assert sorted(each.name for each in self.directory.glob("config*")) == ["config"]
        for pid in pids:
            wait_for(lambda pid=pid: not is_alive(pid), f"process {pid} has ended")  # type: ignore[misc]


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
