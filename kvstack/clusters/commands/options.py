"""Flags of the commands, as values."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.hollow.nodes import names_of
from kvstack.agents.standalone.in_memory.cluster_time import CLOCKS, MACHINE
from kvstack.agents.standalone.parts import PARTS
from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.names import check_dns_label
from kvstack.apimachinery.objects.times import TimeError, format_time, parse_time
from kvstack.clusters.commands.naming import EtcdAccess, NamedServer, Names, kubeconfig_paths
from kvstack.clusters.forks.fork_settings import NO_NODES, ForkSettings
from kvstack.clusters.forks.registry import ForkRegistry
from kvstack.clusters.sources.source import ReadOptions
from kvstack.component.clock import SystemClock
from kvstack.component.flags.command_line import UsageError, read_arguments
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.flags.flag_table import FlagTable

_OBJECTS_LIMIT: Final = 5_000_000
_ETCD_USER: Final = "ETCDCTL_USER"


class CommandLine:
    """The flags and arguments of one call of a command."""

    def __init__(self, arguments: Sequence[str], command: str, table: FlagTable) -> None:
        """Parse the flags; raises UsageError."""
        given, self.arguments = read_arguments(arguments, table)
        self.reader: Final = FlagReader(given, [])
        self._command: Final = command
        self.asks_for_help: Final = bool(given.values.get("help"))
        self.registry: Final = ForkRegistry.of_user(os.environ)

    def at_most(self, number: int) -> None:
        """Raise UsageError if there are more arguments than a command takes."""
        if len(self.arguments) > number:
            raise UsageError(f"{self._command} does not take {self.arguments[number]!r}")

    def output(self, *forms: str) -> str:
        """Return the form of the output, one of those that a command has; raises UsageError."""
        form = self.reader.text("output")
        if form not in forms:
            raise UsageError(f"--output {form}: {' or '.join(forms)}")
        return form

    @property
    def kubeconfigs(self) -> list[Path]:
        """The files that have contexts."""
        return kubeconfig_paths(self.reader.text("kubeconfig"), os.environ)

    def names(self) -> Names:
        """Return what names mean."""
        reader = self.reader
        access = EtcdAccess(
            reader.text("etcd-cafile"),
            reader.text("etcd-certfile"),
            reader.text("etcd-keyfile"),
            reader.text("etcd-user") or os.environ.get(_ETCD_USER, ""),
        )
        return Names(self.registry, self.kubeconfigs, access)

    def read_options(
        self, *, since_s: float | None = None, has_events: bool | None = None
    ) -> ReadOptions:
        """Return the options of reading; raises UsageError. has_events: None as a flag says."""
        reader = self.reader
        has_time = "at" in reader.given.table.by_name
        objects_max = reader.int("max-objects")
        if not 0 < objects_max <= _OBJECTS_LIMIT:
            raise UsageError(f"--max-objects {objects_max}: 1 to {_OBJECTS_LIMIT}")
        namespaces = reader.texts("namespace")
        for each in namespaces:
            if wrong := check_dns_label(each):
                raise UsageError(f"--namespace {each}: {wrong[0]}")
        return ReadOptions(
            objects_max,
            namespaces,
            reader.flag("events") if has_events is None else has_events,
            _moment(reader.text("at")) if has_time else "",
            since_s,
            reader.text("encryption-provider-config"),
            reader.text("etcd-prefix"),
        )

    def fork_settings(self, *, is_read_only: bool) -> ForkSettings:
        """Return what runs in a fork; raises UsageError."""
        reader = self.reader
        without = frozenset(filter(None, reader.texts("without")))
        if unknown := sorted(without.difference(PARTS)):
            raise UsageError(f"--without {unknown[0]}: one of {', '.join(PARTS)}")
        nodes = reader.text("nodes")
        if nodes and nodes != NO_NODES:
            try:
                names_of(nodes if nodes.isdecimal() else "x!")
            except ValueError:
                raise UsageError(f"--nodes {nodes}: a number from 0 to 10000, or none") from None
        return ForkSettings(nodes, without, reader.flag("allow-outbound"), is_read_only)

    def clock(self, *, is_read_only: bool) -> str:
        """Return by which clock a fork goes; raises UsageError."""
        clock = self.reader.text("clock")
        if clock not in CLOCKS:
            raise UsageError(f"--clock {clock}: one of {', '.join(CLOCKS)}")
        if is_read_only and clock != MACHINE:
            raise UsageError(f"--clock {clock} needs --live: nothing runs in a read-only cluster")
        return clock

    def server(self) -> NamedServer:
        """Return the server that `--fork` or `--context` names; raises ConfigError."""
        fork, context = self.reader.text("fork"), self.reader.text("context")
        if fork and context:
            raise UsageError(f"--fork {fork} and --context {context}: give one of them")
        names = Names(self.registry, self.kubeconfigs, EtcdAccess())
        return names.fork_server(fork) if fork else names.context_server(context)


def _moment(text: str) -> str:
    """Return a revision or a time for `--at`; a length of time is taken from now."""
    if not text or (text.isascii() and text.isdigit()):
        return text
    try:
        return format_time(parse_time(text).seconds)
    except TimeError:
        pass
    try:
        ago_ns = durations.parse(text)
    except ValueError:
        raise UsageError(
            f"--at {text}: a revision (48211), a time (2026-11-22T10:00:00Z) or how long ago (10m)"
        ) from None
    if ago_ns < 0:
        raise UsageError(f"--at {text}: the time is in the future")
    return format_time((SystemClock().unix_ms() - ago_ns // 1_000_000) / 1000)
