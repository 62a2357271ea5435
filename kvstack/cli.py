"""The `kvstack` command: which subcommands there are.

    kvstack COMMAND [flags]
    kube-apiserver [flags]      where a link of this name leads to the command: `apiserver`

A subcommand loads nothing of the others. Exit codes are the subcommands'; 2 is an unknown one.
"""

import gc
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

UPSTREAM: Final = "kube-apiserver"


class Command(NamedTuple):
    """A subcommand."""

    module: str
    """Its function `main` takes the arguments and returns the exit code."""
    about: str
    arguments: str = "[flags]"


COMMANDS: Final[Mapping[str, Command]] = {
    "up": Command(
        "kvstack.agents.standalone.stack",
        "A cluster in one process: store, API server, controllers, scheduler.",
    ),
    "apiserver": Command(
        "kvstack.apiserver.server.process",
        "The API server alone, with kube-apiserver's flags.",
    ),
    "controller-manager": Command(
        "kvstack.agents.manager.process",
        "The controllers alone, with kube-controller-manager's flags.",
    ),
    "scheduler": Command(
        "kvstack.agents.scheduler.live.process",
        "A scheduler alone, with kube-scheduler's flags.",
    ),
    "kubelet": Command(
        "kvstack.agents.kubelet.command",
        "A node that runs pods as processes of this machine.",
    ),
    "hollow-nodes": Command(
        "kvstack.agents.kubelet.hollow.command",
        "Nodes that run pods without any process.",
    ),
    "certs": Command(
        "kvstack.apiserver.server.certs.certs_command",
        "Certificates and kubeconfigs for a cluster of several machines.",
    ),
    "envtest": Command(
        "kvstack.agents.standalone.envtest",
        "Write launchers that controller-runtime's envtest takes as its assets.",
        "DIR [flags]",
    ),
}


def usage() -> str:
    """Return what `--help` shows."""
    shown = "".join(
        f"  kvstack {name} {one.arguments}\n    {one.about}\n\n" for name, one in COMMANDS.items()
    )
    return f"Usage:\n\n{shown}  kvstack COMMAND --help\n    Show the flags of a command.\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with arguments (default: the process's own); return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if arguments is None and Path(sys.argv[0]).name == UPSTREAM:
        given = ["apiserver", *given]
    name, rest = (given[0], given[1:]) if given else ("", ())
    command = COMMANDS.get(name)
    if command is not None:
        code: int = _load(command.module, is_alone=arguments is None).main(rest)
        return code
    if name in ("-h", "--help", "help"):
        sys.stdout.write(usage())
        return 0
    sys.stderr.write(f"unknown command: {name}\n{usage()}" if name else usage())
    return 2


def _load(module: str, *, is_alone: bool) -> ModuleType:
    """Return a module; is_alone: the process is for it alone."""
    if not is_alone:
        return import_module(module)
    gc.disable()  # what loading makes stays: to look for dead cycles among it delays every start
    try:
        return import_module(module)
    finally:
        gc.freeze()
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
