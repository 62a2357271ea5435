"""Launchers for controller-runtime's envtest: `kvstack envtest DIR`.

    DIR/etcd              the store
    DIR/kube-apiserver    the API server, with agents beside it if requested
    DIR/kubectl           the kubectl that was found

    export KUBEBUILDER_ASSETS=DIR; go test ./…

envtest starts each with the flags of the original and ends it when the tests end.
"""

import asyncio
import os
import shlex
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from kvstack.agents.standalone.parts import CONTROLLERS, NODES, PARTS, SCHEDULER
from kvstack.apiserver.server import process
from kvstack.apiserver.server.process import open_store, serve_store
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.process.program import FAILED

COMMAND: Final = "kvstack envtest"
_SERVE: Final = "serve"
_NODES: Final = 1
_AGENTS: Final = (CONTROLLERS, SCHEDULER, NODES)
FLAGS: Final = {
    "agents": f"parts that run beside the API server, of: {', '.join(_AGENTS)} (default: none)",
    "kubectl": "kubectl for the tests (default: the one in PATH)",
}
"""The flags and their help."""
_KUBECTL_MISSING: Final = """\
#!/bin/sh
echo "there was no kubectl when these launchers were made: kvstack envtest DIR --kubectl FILE" >&2
exit 1
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    if arguments[:1] == [_SERVE]:
        return _serve_main(arguments[1:])
    given = _parser().parse_args(arguments)
    try:
        write_launchers(given.directory, given.agents, given.kubectl)
    except OSError as error:
        sys.stderr.write(f"Error: {given.directory}: {error.strerror}\n")
        return FAILED
    sys.stdout.write(f"export KUBEBUILDER_ASSETS={shlex.quote(str(given.directory.absolute()))}\n")
    return 0


def write_launchers(
    directory: Path, agents: Sequence[str] = (), kubectl: str | None = None
) -> None:
    """Write the three programs into a directory; OSError if that cannot be."""
    directory.mkdir(parents=True, exist_ok=True)
    python = [sys.executable, "-m"]
    server = [*python, "kvstack", "apiserver"]
    if agents:
        server = [*python, "kvstack", "envtest", _SERVE, ",".join(agents)]
    _write(directory / "etcd", _launcher([*python, "kvstore"]))
    _write(directory / "kube-apiserver", _launcher(server))
    _write(directory / "kubectl", _launcher([kubectl]) if kubectl else _KUBECTL_MISSING)


def _launcher(command: Sequence[str]) -> str:
    return f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'


def _write(path: Path, text: str) -> None:
    # Replaced atomically: another test may be starting the program now.
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(text)
    aside.chmod(0o755)
    aside.rename(path)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        COMMAND,
        description="Write launchers for controller-runtime's envtest.",
    )
    parser.add_argument("directory", type=Path, help="directory of the launchers")
    parser.add_argument(
        "--agents",
        type=_agents,
        default=[],
        metavar="PARTS",
        help=FLAGS["agents"],
    )
    parser.add_argument(
        "--kubectl",
        default=shutil.which("kubectl"),
        metavar="FILE",
        help=FLAGS["kubectl"],
    )
    return parser


def _agents(text: str) -> list[str]:
    found = [each for each in text.split(",") if each]
    for each in found:
        if each not in _AGENTS:
            raise ArgumentTypeError(f"{each}: one of {', '.join(_AGENTS)}")
    return found


# The API server with agents.


def _serve_main(arguments: Sequence[str]) -> int:
    agents, *flags = arguments
    return process.main(flags, partial(_serve, agents.split(",")))


async def _serve(agents: Sequence[str], options: Options, log: LineLogger) -> None:
    from kvstack.agents.controllers.options import Options as ControllerOptions
    from kvstack.agents.kubelet.hollow.nodes import named
    from kvstack.agents.standalone.local_agents import AgentOptions, LocalAgents

    key = await asyncio.to_thread(Path(options.authentication.accounts.signing_key_file).read_bytes)
    chosen = AgentOptions(
        frozenset(PARTS).difference(agents),
        named(_NODES) if NODES in agents else (),
        controllers=ControllerOptions(service_account_key=key),
    )
    async with open_store(options.store, log) as store:
        await serve_store(
            store, options, log, beside=lambda server: LocalAgents(server, chosen, log)
        )
