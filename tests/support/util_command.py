"""Running kvstore-util: in this process, or as the process an operator starts."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from kvstore.storage.etcd_db.digest import append_digest
from kvstore.util.commands import main
from tests.support.disks.etcd_db_files import Buckets, sample, write

TIMEOUT_S = 60.0


class CommandOutput(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


class Tool:
    """The command in this process; unexpected exceptions come through."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> CommandOutput:
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return CommandOutput(code, *self._capsys.readouterr())

    def done(self, *arguments: object) -> str:
        """Run a command that must succeed; return what it printed."""
        said = self(*arguments)
        assert said.code == 0, said
        return said.out

    def failed(self, *arguments: object, code: int = 1) -> str:
        """Run a command that must fail; return the line it gave as the reason."""
        said = self(*arguments)
        assert said.code == code, said
        assert said.err.startswith("Error: "), said
        return said.err


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kvstore.util", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        env={"PATH": os.environ["PATH"]},
    )


def snapshot_file(path: Path, buckets: Buckets | None = None) -> Path:
    """Write a snapshot file with its digest."""
    write(path, sample(50) if buckets is None else buckets)
    append_digest(path)
    return path
