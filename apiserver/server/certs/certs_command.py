"""The command `kvstack certs`: writes what the machines of a cluster need into one directory."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvstack.apiserver.allocators.cluster_ips import address_range
from kvstack.apiserver.server.certs.cluster_files import ClusterPlan, give_to, make_cluster_files
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.flags.flag_table import Effect, Flag, FlagTable, Kind
from kvstack.component.process.command import Command, run_command

COMMAND: Final = "kvstack certs"
ABOUT: Final = "Create the certificates and kubeconfigs of a cluster of several machines."
FAILED: Final = 1

_GROUP: Final = "Cluster"
TABLE: Final = FlagTable(
    (
        Flag("directory", _GROUP, Kind.TEXT, "certs", Effect.LIVE, "directory of the output"),
        Flag(
            "members",
            _GROUP,
            Kind.LIST,
            "",
            Effect.LIVE,
            "names or addresses of the store's members",
        ),
        Flag(
            "api-servers",
            _GROUP,
            Kind.LIST,
            "",
            Effect.LIVE,
            "names and addresses by which API servers are reached",
        ),
        Flag(
            "server",
            _GROUP,
            Kind.TEXT,
            "https://localhost:6443",
            Effect.LIVE,
            "URL of the API for controllers, scheduler, nodes and DNS",
        ),
        Flag(
            "admin-server",
            _GROUP,
            Kind.TEXT,
            "https://localhost:6443",
            Effect.LIVE,
            "URL of the API for the administrator",
        ),
        Flag(
            "service-cluster-ip-range",
            _GROUP,
            Kind.LIST,
            "10.96.0.0/16",
            Effect.LIVE,
            "ranges of cluster IPs, as API servers have them",
        ),
        Flag(
            "owner",
            _GROUP,
            Kind.TEXT,
            "",
            Effect.LIVE,
            "owner of the files as numeric UID:GID; default: the current user",
        ),
        Flag("help", "Global", Kind.BOOL, "false", Effect.LIVE, "show this text"),
    ),
    {"h": "help"},
)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _make)


def _make(given: CommandLine) -> None:
    reader = FlagReader(given, [])
    directory = Path(reader.text("directory"))
    try:
        ranges = tuple(map(address_range, reader.texts("service-cluster-ip-range")))
    except ValueError as error:
        raise ConfigError(f"--service-cluster-ip-range: {error}") from error
    plan = ClusterPlan(
        reader.texts("members"),
        reader.texts("api-servers"),
        reader.text("server"),
        reader.text("admin-server"),
        ranges,
    )
    for name in make_cluster_files(directory, plan, SystemClock()):
        sys.stdout.write(f"made {name}\n")
    owner = reader.text("owner")
    if owner:
        user, _, group = owner.partition(":")
        if not user.isdecimal() or not group.isdecimal():
            raise ConfigError(f"--owner {owner}: must be UID:GID in numbers")
        give_to(directory, int(user), int(group))
