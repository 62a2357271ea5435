"""The flags of `kvstack scheduler`: kube-scheduler's, and one of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from kvstack.agents.process.flag_rows import (
    AUTHENTICATION,
    AUTHORIZATION,
    CLIENT,
    OBSERVATION,
    leader_election,
    page_flags,
)
from kvstack.agents.process.settings import Settings, raise_wrong, read_settings
from kvstack.apiserver.server.settings.command_line import Given, read_command_line
from kvstack.apiserver.server.settings.component_flags import SHORT
from kvstack.apiserver.server.settings.flag_reader import FlagReader
from kvstack.apiserver.server.settings.flag_table import Effect, Flag, FlagTable, Kind

COMMAND: Final = "kvstack scheduler"
ABOUT: Final = "Places pods on nodes. Flags are kube-scheduler's."

TieBreak: TypeAlias = Literal["roundRobin", "heap"]

TABLE: Final = FlagTable(
    (
        Flag(
            "config",
            "Misc",
            Kind.TEXT,
            "",
            Effect.LIVE,
            "file with a KubeSchedulerConfiguration",
        ),
        Flag(
            "tie-break",
            "Misc",
            Kind.TEXT,
            "roundRobin",
            Effect.LIVE,
            "which of equal nodes is taken: roundRobin or heap (upstream's)",
        ),
        Flag("write-config-to", "Misc", Kind.TEXT, "", Effect.IGNORED),
        *CLIENT,
        *page_flags(10259),
        *AUTHENTICATION,
        *AUTHORIZATION,
        *leader_election("kube-scheduler"),
        Flag(
            "kube-api-content-type",
            "Deprecated",
            Kind.TEXT,
            "application/vnd.kubernetes.protobuf",
            Effect.IGNORED,
        ),
        Flag("kube-api-qps", "Deprecated", Kind.FLOAT, "50", Effect.IGNORED),
        Flag("kube-api-burst", "Deprecated", Kind.INT, "100", Effect.IGNORED),
        Flag(
            "pod-max-in-unschedulable-pods-duration",
            "Deprecated",
            Kind.DURATION,
            "5m0s",
            Effect.IGNORED,
        ),
        *OBSERVATION,
    ),
    SHORT,
)


@dataclass(frozen=True, slots=True)
class Flags:
    """What a command line says."""

    settings: Settings
    config: str
    tie_break: TieBreak


def read_given(arguments: Sequence[str]) -> Given:
    """Read the arguments after the command's name; raises UsageError."""
    return read_command_line(arguments, COMMAND, TABLE)


def read_flags(given: Given) -> Flags:
    """Return what a command line says; raises ConfigError."""
    wrong: list[str] = []
    reader = FlagReader(given, wrong)
    settings = read_settings(reader)
    text = reader.text("tie-break")
    tie_break: TieBreak = "heap" if text == "heap" else "roundRobin"
    if text != tie_break:
        wrong.append(f"--tie-break {text}: one of roundRobin, heap")
    raise_wrong(wrong)
    return Flags(settings, reader.text("config"), tie_break)
