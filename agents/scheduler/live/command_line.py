"""The flags of `kvstack scheduler`, as values; their rows are in `flags`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from kvstack.agents.client.leader_election import LeaseName, Terms
from kvstack.agents.process.settings import Settings, raise_wrong, read_settings
from kvstack.agents.scheduler.live.flags import TABLE
from kvstack.apimachinery.objects.durations import parse as parse_duration
from kvstack.apimachinery.objects.durations import text as duration_text
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_reader import FlagReader

COMMAND: Final = "kvstack scheduler"
ABOUT: Final = "The scheduler of a cluster. Flags are kube-scheduler's."

TieBreak: TypeAlias = Literal["roundRobin", "heap"]


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of the command line."""

    settings: Settings
    config: str
    tie_break: TieBreak
    max_unschedulable_s: float
    written_to: str = ""
    """A file that the configuration is written to; empty: none."""
    given: frozenset[str] = frozenset()
    """Flags of leader election that the command line names."""


def read_flags(given: CommandLine) -> Flags:
    """Return what a command line says; raises ConfigError."""
    wrong: list[str] = []
    reader = FlagReader(given, wrong)
    settings = read_settings(reader)
    text = reader.text("tie-break")
    tie_break: TieBreak = "heap" if text == "heap" else "roundRobin"
    if text != tie_break:
        wrong.append(f"--tie-break {text}: one of roundRobin, heap")
    raise_wrong(wrong)
    given_flags = frozenset(
        flag.name
        for flag in TABLE.flags
        if flag.name.startswith("leader-elect") and reader.is_given(flag.name)
    )
    return Flags(
        settings,
        reader.text("config"),
        tie_break,
        reader.seconds("pod-max-in-unschedulable-pods-duration"),
        reader.text("write-config-to"),
        given_flags,
    )


def with_election(flags: Flags, config: Mapping[str, Any]) -> Settings:
    """Return the settings with the leader election of a configuration; flags go before it.

    Raises ConfigError.
    """
    election = config.get("leaderElection") or {}

    def given_or_flag(flag: str, field: str) -> Any:  # noqa: ANN401
        return None if flag in flags.given else election.get(field)

    settings = flags.settings
    elects = given_or_flag("leader-elect", "leaderElect")
    if given_or_flag("leader-elect-resource-lock", "resourceLock") not in (None, "", "leases"):
        raise ConfigError("leaderElection.resourceLock: leases is the only one")
    lease = LeaseName(
        given_or_flag("leader-elect-resource-namespace", "resourceNamespace")
        or settings.lease.namespace,
        given_or_flag("leader-elect-resource-name", "resourceName") or settings.lease.name,
    )
    terms = settings.terms
    seconds = [
        _seconds(given_or_flag(f"leader-elect-{flag}", field), usual)
        for flag, field, usual in (
            ("lease-duration", "leaseDuration", terms.duration_s),
            ("renew-deadline", "renewDeadline", terms.renew_deadline_s),
            ("retry-period", "retryPeriod", terms.retry_s),
        )
    ]
    try:
        terms = Terms(int(seconds[0]), seconds[1], seconds[2])
    except ValueError as error:
        raise ConfigError(f"leaderElection: {error}") from error
    elects = settings.elects if elects is None else bool(elects)
    return replace(settings, elects=elects, lease=lease, terms=terms)


def election_of(settings: Settings) -> dict[str, Any]:
    """Return the `leaderElection` of a configuration that says what settings say."""
    lease, terms = settings.lease, settings.terms
    times = (
        ("leaseDuration", terms.duration_s),
        ("renewDeadline", terms.renew_deadline_s),
        ("retryPeriod", terms.retry_s),
    )
    return {
        "leaderElect": settings.elects,
        **{name: duration_text(round(seconds * 1e9)) for name, seconds in times},
        "resourceLock": "leases",
        "resourceName": lease.name,
        "resourceNamespace": lease.namespace,
    }


def _seconds(text: str | None, usual: float) -> float:
    return usual if text is None else parse_duration(text) / 1e9
