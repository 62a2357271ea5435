"""The `kvstack` command: which subcommands there are.

    kvstack COMMAND [flags]
    kvstack --version           of kvstack, and of what it is compatible with
    kube-apiserver [flags]      where a link of this name leads to the command: `apiserver`

A subcommand loads nothing of the others. Exit codes are the subcommands'; 2 is an unknown one.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from kvstack.component.net.descriptors import raise_limit
from kvstack.component.process.loading import loading
from kvstack.component.version import ETCD_VERSION, KUBERNETES_VERSION, VERSION

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
        "The API server, with kube-apiserver's flags.",
    ),
    "controller-manager": Command(
        "kvstack.agents.manager.process",
        "The controllers, with kube-controller-manager's flags.",
    ),
    "scheduler": Command(
        "kvstack.agents.scheduler.live.process",
        "The scheduler, with kube-scheduler's flags.",
    ),
    "kubelet": Command(
        "kvstack.agents.kubelet.command",
        "A node, with kubelet's configuration; pods are processes of this machine.",
    ),
    "join": Command(
        "kvstack.agents.standalone.joining.join_command",
        "Join this machine to a cluster as a node, and run the node.",
        "HOST:PORT [flags]",
    ),
    "token": Command(
        "kvstack.agents.standalone.joining.token_command",
        "Bootstrap tokens, with which machines join a cluster.",
        "create|list|delete [flags]",
    ),
    "dns": Command(
        "kvstack.agents.dns.command",
        "Cluster DNS: the names of Services and their endpoints.",
    ),
    "proxy": Command(
        "kvstack.agents.proxy.process",
        "The service proxy, with kube-proxy's flags.",
    ),
    "cni": Command(
        "kvstack.agents.kubelet.cni.command",
        "The CNI plugin: kvstack's pod network for container engines.",
        "install [flags]",
    ),
    "hollow-nodes": Command(
        "kvstack.agents.kubelet.hollow.command",
        "Hollow nodes, which run pods without processes.",
    ),
    "metrics": Command(
        "kvstack.agents.metrics.command",
        "The metrics APIs: metrics.k8s.io, custom and external metrics.",
    ),
    "certs": Command(
        "kvstack.apiserver.server.certs.certs_command",
        "Certificates and kubeconfigs for a cluster of several machines.",
    ),
    "doctor": Command(
        "kvstack.agents.standalone.doctor.command",
        "Check what this machine supports, and whether `kvstack up` would work.",
    ),
    "bindings": Command(
        "kvstack.agents.standalone.bindings_command",
        "Grant the users of `kvstack certs` their roles; once per cluster.",
    ),
    "fork": Command(
        "kvstack.clusters.commands.fork_command",
        "Fork a cluster: a private copy of it, to try changes on.",
        "[SOURCE] [flags]",
    ),
    "open": Command(
        "kvstack.clusters.commands.open_command",
        "Open a snapshot, a data directory, a packed file or YAML as a cluster.",
        "SOURCE [flags]",
    ),
    "get": Command(
        "kvstack.clusters.commands.get_command",
        "List forks.",
        "forks [flags]",
    ),
    "delete": Command(
        "kvstack.clusters.commands.delete_command",
        "Delete forks.",
        "fork NAME… [flags]",
    ),
    "diff": Command(
        "kvstack.clusters.commands.diff_command",
        "Compare two clusters, object by object.",
        "A B [flags]",
    ),
    "plan": Command(
        "kvstack.clusters.commands.plan_command",
        "What would follow from a change: by whom, in which order, and what would get stuck.",
        "[SOURCE] (-f FILES | -k DIR | -- COMMAND…) [flags]",
    ),
    "wait": Command(
        "kvstack.clusters.commands.wait_command",
        "Wait until a cluster is settled: until nothing is under way in it.",
        "--settled [flags]",
    ),
    "clock": Command(
        "kvstack.clusters.commands.clock_command",
        "The clock of a fork: show, pause, advance it, or let it go faster.",
        "[show|pause|resume|advance DURATION|rate NUMBER] [flags]",
    ),
    "farm": Command(
        "kvstack.clusters.commands.farm_command",
        "Serve clusters to test suites in any language, each forked from one that is warm.",
        "[flags]",
    ),
    "pack": Command(
        "kvstack.clusters.commands.pack_command",
        "Pack a cluster into one file, without its secrets.",
        "[SOURCE] -o FILE [flags]",
    ),
    "completion": Command(
        "kvstack.completion.completion_command",
        "Shell completion for bash, zsh and fish.",
        "bash|zsh|fish",
    ),
    "envtest": Command(
        "kvstack.agents.standalone.envtest",
        "Write launchers for controller-runtime's envtest.",
        "DIR [flags]",
    ),
}


def usage() -> str:
    """Return what `--help` shows."""
    shown = "".join(
        f"  kvstack {name} {one.arguments}\n    {one.about}\n\n" for name, one in COMMANDS.items()
    )
    return (
        f"Usage:\n\n{shown}  kvstack COMMAND --help\n    Show the flags of a command.\n\n"
        "  kvstack --version\n    Show the version.\n"
    )


def version_text() -> str:
    """Return the version of kvstack, then those of the programs that it is compatible with."""
    import platform

    return (
        f"kvstack Version: {VERSION}\n"
        f"Kubernetes Version: v{KUBERNETES_VERSION}\n"
        f"etcd Version: {ETCD_VERSION}\n"
        f"Python Version: {platform.python_implementation()} {platform.python_version()}\n"
        f"OS/Arch: {platform.system().lower()}/{platform.machine()}\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with arguments (default: the process's own); return the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if arguments is None and Path(sys.argv[0]).name == UPSTREAM:
        given = ["apiserver", *given]
    name, rest = (given[0], given[1:]) if given else ("", ())
    command = COMMANDS.get(name)
    if command is not None:
        raise_limit()
        code: int = _load(command.module, is_alone=arguments is None).main(rest)
        return code
    texts = {"-h": usage, "--help": usage, "help": usage}
    texts |= {"--version": version_text, "version": version_text}
    if name in texts:
        sys.stdout.write(texts[name]())
        return 0
    sys.stderr.write(f"unknown command: {name}\n{usage()}" if name else usage())
    return 2


def _load(module: str, *, is_alone: bool) -> ModuleType:
    """Return a module; is_alone: the process is for it alone."""
    if not is_alone:
        return import_module(module)
    with loading():
        return import_module(module)


if __name__ == "__main__":
    sys.exit(main())
