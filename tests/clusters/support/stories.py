"""Stories of pages of the documentation: commands that users type one after another."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from tests.apiserver.stories.clients import ClientsMissingError, clients

DOCS = Path(__file__).parents[3] / "docs"
LINES = 10
TIMEOUT_S = 180


def story_of(page: str, heading: str = "") -> list[str]:
    """Return the commands of the first block of a page, or of a section of it."""
    _, found, text = (DOCS / page).read_text().partition(f"## {heading}\n" if heading else "\n")
    assert found, heading
    block = text.strip("\n").split("\n\n")[0]
    return [line.strip() for line in block.splitlines()]


def play(
    page: str,
    directory: Path,
    prepare: Callable[[BackgroundCluster], None] = lambda _: None,
    *last: tuple[str, ...],
    heading: str = "",
) -> list[str]:
    """Run the story of a page beside a cluster; return what each command said.

    last: arguments of `kvstack` that clean up, whatever comes. heading: of the section that has it.
    """
    try:
        kubectl = clients("1.37") / "kubectl"
    except ClientsMissingError as error:
        pytest.skip(str(error))
    programs = directory / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(kubectl)
    launcher = programs / "kvstack"
    launcher.write_text(f'#!/bin/sh\nexec {sys.executable} -m kvstack "$@"\n')
    launcher.chmod(0o755)
    runtime = directory / "run"
    runtime.mkdir(mode=0o700)
    lines = story_of(page, heading)
    assert len(lines) == LINES
    with BackgroundCluster(directory / "cluster", Settings(nodes=1)) as cluster:
        config = directory / "config"
        config.write_text(cluster.kubeconfig.read_text())
        prepare(cluster)
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(config),
            "XDG_RUNTIME_DIR": str(runtime),
            "HOME": str(directory),
        }
        said = []
        try:
            for line in lines:
                done = subprocess.run(
                    ["sh", "-c", line],
                    env=environment,
                    cwd=directory,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=TIMEOUT_S,
                )
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
                said.append(done.stdout)
        finally:
            for arguments in last:
                subprocess.run(
                    [str(launcher), *arguments], env=environment, capture_output=True, check=True
                )
    return said
