"""Parses flags like Go's pflag, by the table of the program.

    --f=v  --f v  --bool  --bool=false  -v=4  -v4  --etcd_servers for --etcd-servers

A repeated flag of LIST or MAP adds to the values before; of any other the last
value counts. The texts of errors are pflag's.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final, TypeAlias

from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_bool
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.component.errors import ConfigError
from kvstack.component.flags.flag_table import Effect, Flag, FlagTable, Kind
from kvstack.component.net.port_range import parse_range

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | dict[str, str]

_INT_LIMIT: Final = 1 << 63


class UsageError(ConfigError):
    """A flag is unknown or its value cannot be read."""


@dataclass(slots=True)
class CommandLine:
    """The values of a command line."""

    table: FlagTable
    values: dict[str, Value] = field(default_factory=dict)
    """Values by flag name, only of flags that were set."""

    def __getitem__(self, name: str) -> Value:
        """Return the value of a flag, its default if it was not set."""
        value = self.values.get(name)
        return default_value(self.table.by_name[name]) if value is None else value


def read_command_line(arguments: Sequence[str], command: str, table: FlagTable) -> CommandLine:
    """Read the arguments after the command's name; raises UsageError.

    `--help` and `--version` end the reading.
    """
    line, strays = read_arguments(arguments, table)
    if strays:
        quoted = " ".join(quote(each) for each in strays)
        raise UsageError(f"{quote(command)} does not take any arguments, got [{quoted}]")
    return line


def read_arguments(arguments: Sequence[str], table: FlagTable) -> tuple[CommandLine, list[str]]:
    """Read flags, and return the other arguments, in order; raises UsageError.

    `--help` and `--version` end the reading.
    """
    line = CommandLine(table)
    rest = list(reversed(arguments))
    strays: list[str] = []
    while rest:
        argument = rest.pop()
        if argument == "--":
            strays += reversed(rest)
            break
        if len(argument) < 2 or not argument.startswith("-"):
            strays.append(argument)
            continue
        flag, text, name_in_errors = _split(argument, table)
        if flag.kind in (Kind.BOOL, Kind.VERSION):
            text = "true" if text is None else text
        elif text is None:
            if not rest:
                raise UsageError(f"flag needs an argument: {argument}")
            text = rest.pop()
        _set(line, flag, text, name_in_errors)
        if flag.name in ("help", "version"):
            return line, []
    return line, strays


def default_value(flag: Flag) -> Value:
    """Return the value of a flag that is not set."""
    return _PARSERS[flag.kind](flag.default)


def parse_value(flag: Flag, text: str) -> Value:
    """Parse a text as the value of a flag; ValueError if it is invalid."""
    return _PARSERS[flag.kind](text)


def shown_value(flag: Flag, value: Value) -> str:
    """Return a value as Go prints it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{','.join(value)}]"
    if isinstance(value, dict):
        return ",".join(f"{name}={text}" for name, text in value.items())
    if flag.kind is Kind.DURATION and isinstance(value, int):
        return durations.text(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _split(argument: str, table: FlagTable) -> tuple[Flag, str | None, str]:
    """Return the flag, the text of its value, and its name in errors."""
    if argument.startswith("--"):
        name, equals, text = argument[2:].partition("=")
        if not name or name.startswith(("-", "=")):
            raise UsageError(f"bad flag syntax: {argument}")
        flag = table.by_name.get(name.replace("_", "-"))
        if flag is None:
            raise UsageError(f"unknown flag: --{name}")
        return flag, text if equals else None, table.display_name(flag)
    letter, text = argument[1], argument[2:]
    flag = table.by_name.get(table.short.get(letter, ""))
    if flag is None:
        quoted = quote(letter).replace('"', "'")
        raise UsageError(f"unknown shorthand flag: {quoted} in {argument}")
    return flag, text.removeprefix("=") if text else None, table.display_name(flag)


def _set(line: CommandLine, flag: Flag, text: str, name_in_errors: str) -> None:
    try:
        value = parse_value(flag, text)
    except ValueError as error:
        raise UsageError(
            f"invalid argument {quote(text)} for {quote(name_in_errors)} flag: {error}"
        ) from None
    before = line.values.get(flag.name)
    if isinstance(value, tuple) and isinstance(before, tuple):
        value = before + value
    elif isinstance(value, dict) and isinstance(before, dict):
        value = before | value
    line.values[flag.name] = value


def _bool(text: str) -> bool:
    try:
        return parse_bool(text)
    except NumberError:
        told = f"strconv.ParseBool: parsing {quote(text)}: invalid syntax"
        raise ValueError(told) from None


def _int(text: str) -> int:
    digits = text.removeprefix("-").removeprefix("+")
    try:
        number = int(text, 8 if len(digits) > 1 and digits[0] == "0" and digits.isdigit() else 0)
    except ValueError:
        told = f"strconv.ParseInt: parsing {quote(text)}: invalid syntax"
        raise ValueError(told) from None
    if not -_INT_LIMIT <= number < _INT_LIMIT:
        raise ValueError(f"strconv.ParseInt: parsing {quote(text)}: value out of range")
    return number


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        told = f"strconv.ParseFloat: parsing {quote(text)}: invalid syntax"
        raise ValueError(told) from None


def _ip(text: str) -> str:
    if not text:
        return ""
    try:
        return str(ip_address(text.strip()))
    except ValueError:
        raise ValueError(f"failed to parse IP: {quote(text)}") from None


def _duration(text: str) -> int:
    return durations.parse(text)


def _list(text: str) -> tuple[str, ...]:
    return tuple(next(csv.reader([text], strict=True))) if text else ()


def _map(text: str) -> dict[str, str]:
    """Read name=value pairs; a name alone has an empty value, as upstream."""
    pairs = {}
    for each in text.split(",") if text else ():
        name, equals, value = each.partition("=")
        if not name.strip():
            continue
        pairs[name.strip()] = value.strip() if equals else ""
    return pairs


def _ports(text: str) -> str:
    found = parse_range(text)
    return found.text


_PARSERS: Final[dict[Kind, Callable[[str], Value]]] = {
    Kind.BOOL: _bool,
    Kind.INT: _int,
    Kind.FLOAT: _float,
    Kind.TEXT: str,
    Kind.IP: _ip,
    Kind.DURATION: _duration,
    Kind.LIST: _list,
    Kind.ARRAY: lambda text: (text,) if text else (),
    Kind.MAP: _map,
    Kind.PORTS: _ports,
    Kind.VERSION: lambda text: text not in ("", "false"),
}


def help_text(command: str, about: str, table: FlagTable, arguments: str = "[flags]") -> str:
    """Return the usage and every flag, by group."""
    lines = [about, "", "Usage:", f"  {command} {arguments}"]
    group = ""
    for flag in table.flags:
        if flag.group != group:
            group = flag.group
            lines += ["", f"{group} flags:", ""]
        lines.append(_flag_help(flag, table))
    return "\n".join(lines) + "\n"


def _flag_help(flag: Flag, table: FlagTable) -> str:
    default = f" (default {flag.default})" if flag.default not in ("", "false", "0s", "0") else ""
    told = flag.help
    if flag.effect is Effect.IGNORED:
        told = "accepted, has no effect here"
    elif flag.effect is Effect.REFUSED:
        told = f"not supported: {flag.help}"
    return f"  {table.display_name(flag)}\n      {told}{default}"
