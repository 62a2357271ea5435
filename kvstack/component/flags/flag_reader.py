"""The values of a command line by their type, and the errors found so far.

reader = FlagReader(read_command_line(arguments, command, table), wrong := [])
reader.text("bind-address"), reader.seconds("request-timeout")
reader.check_refused()
"""

import builtins
from typing import Final, TypeVar

from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_table import Effect
from kvstack.component.units import SECOND_NS

_T = TypeVar("_T")
TLS_VERSIONS: Final = {"": "TLS1.2", "VersionTLS12": "TLS1.2", "VersionTLS13": "TLS1.3"}
"""TLS versions: Kubernetes' names to those of listeners."""


class FlagReader:
    """Values of flags by their type, and the errors found so far."""

    def __init__(self, given: CommandLine, wrong: list[str]) -> None:
        """Read a command line; wrong: the list to which errors are added."""
        self.given = given
        self.wrong = wrong

    def is_given(self, name: str) -> bool:
        """Return whether a flag was set."""
        return name in self.given.values

    def _of(self, name: str, type_: type[_T]) -> _T:
        value = self.given[name]
        assert isinstance(value, type_), f"--{name} is not of type {type_.__name__}"
        return value

    def text(self, name: str) -> str:
        """Return the text of a flag."""
        return self._of(name, str)

    def flag(self, name: str) -> bool:
        """Return whether a flag is on."""
        return self._of(name, bool)

    def int(self, name: str) -> int:
        """Return the number of a flag."""
        return self._of(name, int)

    def float(self, name: str) -> float:
        """Return the number of a flag that may be a fraction."""
        return self._of(name, float)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts of a flag."""
        return self._of(name, tuple)

    def tls_version(self) -> str:
        """Return the minimum version of TLS."""
        version = self.text("tls-min-version")
        if version not in TLS_VERSIONS:
            self.wrong.append(f"--tls-min-version {version}: must be VersionTLS12 or VersionTLS13")
        return TLS_VERSIONS.get(version, "TLS1.2")

    def map(self, name: str) -> dict[str, str]:
        """Return the texts of a flag, by name."""
        return self._of(name, dict)

    def seconds(self, name: str) -> builtins.float:
        """Return the duration of a flag."""
        return self.int(name) / SECOND_NS

    def check_refused(self) -> None:
        """Add an error for each flag that is REFUSED."""
        for flag in self.given.table.flags:
            if flag.effect is Effect.REFUSED and self.given.values.get(flag.name):
                self.wrong.append(f"--{flag.name} is not supported here: {flag.help}")

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The flags that were set without effect."""
        return tuple(
            flag.name
            for flag in self.given.table.flags
            if flag.effect is Effect.IGNORED and flag.name in self.given.values
        )
