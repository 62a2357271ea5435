"""The command `kvstack cni`: our network for container engines, as a plugin of CNI.

    kvstack cni install --kubeconfig FILE --cluster-cidr 10.244.0.0/16

writes what engines read: the configuration, with the range that the node has, and a program that
executes this command. Engines say what they want in the environment (CNI_COMMAND) and on the input.
"""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from ipaddress import ip_network
from pathlib import Path
from socket import gethostname
from typing import Final

from kvstack.agents.kubelet.cni.plugin import TYPE, VERSIONS, CniError, answer
from kvstack.agents.kubelet.runtime.process.network.pod_network import STATE, is_part
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import UsageError, help_text, read_command_line
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.flags.flag_table import Effect, Flag, FlagTable, Kind
from kvstack.component.net.hosts import of_families
from kvstack.component.net.netlink import Network

COMMAND: Final = "kvstack cni"
ABOUT: Final = """\
kvstack's pod network for container engines, as a CNI plugin.

  kvstack cni install    write the configuration and the plugin"""
FAILED: Final = 1
_FILE: Final = "10-kvstack.conflist"
_BAD_JSON: Final = 6
_INPUT_BYTES_MAX: Final = 1 << 20
_GROUP: Final = "Install"
_TEXTS: Final = (
    ("bin-dir", "/opt/cni/bin", "directory of CNI plugins"),
    ("cluster-cidr", "", "range of the pods of all nodes; or one per family: A,B"),
    ("conf-dir", "/etc/cni/net.d", "directory of CNI configurations"),
    ("kubeconfig", "", "kubeconfig used to read the node's range (spec.podCIDR)"),
    ("node-name", "", "name of this node (default: host name)"),
)
TABLE: Final = FlagTable(
    (
        *(Flag(name, _GROUP, Kind.TEXT, value, Effect.LIVE, text) for name, value, text in _TEXTS),
        Flag("help", _GROUP, Kind.BOOL, "false", Effect.LIVE, "show this text"),
    ),
    {"h": "help"},
)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    if not arguments and "CNI_COMMAND" in os.environ:
        return _plug_in()
    from kvstack.agents.client.kubeconfig import KubeconfigError
    from kvstack.agents.client.transport import UnreachableError
    from kvstack.apimachinery.objects.status import ApiError

    try:
        action, *flags = arguments or [""]
        if action not in ("install", "-h", "--help"):
            raise UsageError(f"{COMMAND} {action or '?'}: the only subcommand is install")
        given = read_command_line(flags if action == "install" else ["--help"], COMMAND, TABLE)
        if given.values.get("help"):
            sys.stdout.write(help_text(COMMAND, ABOUT, TABLE))
            return 0
        _install(FlagReader(given, []))
    except (ConfigError, KubeconfigError, ApiError, UnreachableError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return FAILED
    return 0


def _plug_in() -> int:
    """Answer a request of a container engine."""
    configuration: Object = {}
    try:
        configuration = _read_configuration(sys.stdin.buffer.read(_INPUT_BYTES_MAX))
        result = answer(os.environ, configuration, STATE)
    except CniError as error:
        version = configuration.get("cniVersion")
        told = {
            "cniVersion": version if version in VERSIONS else VERSIONS[-1],
            "code": error.code,
            "msg": str(error),
        }
        sys.stdout.write(f"{json.dumps(told)}\n")
        return FAILED
    if result is not None:
        sys.stdout.write(f"{json.dumps(result)}\n")
    return 0


def _read_configuration(data: bytes) -> Object:
    """Return what an engine says; CniError."""
    try:
        found = json.loads(data or b"{}")
    except ValueError as error:
        raise CniError(_BAD_JSON, f"the configuration is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise CniError(_BAD_JSON, "the configuration is not an object")
    return found


def configuration_of(subnets: str, cluster_ranges: str) -> Object:
    """Return the list of plugins that engines read; ranges of two families with a comma between."""
    plugin = {
        "type": TYPE,
        "subnet": subnets,
        "clusterCIDR": cluster_ranges,
        "capabilities": {"portMappings": True},
    }
    return {"cniVersion": VERSIONS[0], "name": TYPE, "plugins": [plugin]}


def _install(reader: FlagReader) -> None:
    """Write the program, then the configuration: engines are ready once they see it."""
    name = (reader.text("node-name") or gethostname()).strip().lower()
    try:
        ranges = of_families(reader.text("cluster-cidr"), ip_network)
    except ValueError as error:
        raise UsageError(f"--cluster-cidr: {error}") from error
    if not ranges:
        raise UsageError("--cluster-cidr is missing")
    given = asyncio.run(_ranges_of(reader.text("kubeconfig"), name))
    subnets = [each for each in map(ip_network, given) if each.version in _versions(ranges)]
    for subnet in subnets:
        if not any(is_part(subnet, whole) for whole in ranges):
            whole = reader.text("cluster-cidr")
            raise ConfigError(f"the range {subnet} of the node {name} is not in {whole}")
    if not subnets:
        raise ConfigError(f"the node {name} has no range of a family of --cluster-cidr")
    program = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -m kvstack cni "$@"\n'
    content = json.dumps(configuration_of(_joined(subnets), _joined(ranges)), indent=2)
    _write(Path(reader.text("bin-dir")) / TYPE, program, 0o755)
    _write(Path(reader.text("conf-dir")) / _FILE, f"{content}\n", 0o644)


def _versions(ranges: Iterable[Network]) -> set[int]:
    return {each.version for each in ranges}


def _joined(ranges: Iterable[Network]) -> str:
    return ",".join(map(str, ranges))


async def _ranges_of(kubeconfig: str, name: str) -> list[str]:
    """Return the ranges that a node has; ConfigError, ApiError, UnreachableError."""
    from kvstack.agents.client.api import Api, Options
    from kvstack.agents.client.built_in import NODES
    from kvstack.agents.client.kubeconfig import connect
    from kvstack.agents.process.settings import cluster_of

    api = Api(connect(cluster_of(kubeconfig)), Options(user_agent="kvstack-cni"))
    try:
        node = await api.get(NODES, "", name)
    finally:
        await api.close()
    if not (found := node["spec"].get("podCIDRs")):
        raise ConfigError(f"the node {name} has no range for pods yet (spec.podCIDRs)")
    return list(found)


def _write(path: Path, text: str, mode: int) -> None:
    """Put a file in place; ConfigError."""
    waiting = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        waiting.write_text(text)
        waiting.chmod(mode)
        waiting.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    sys.stdout.write(f"{path}\n")
