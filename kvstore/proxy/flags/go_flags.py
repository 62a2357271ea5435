"""Flags of a subcommand as Go programs (cobra, pflag) read them, on click.

    --name=value   --name value   --switch   --switch=false        lists: a,b or repeated
    group --name=value command --name=value

Each option is a row of a table like the server's, so values are parsed by the same functions. A
switch never takes the next word. Words that are not flags are ignored, as in etcd. An error is a
click.UsageError with pflag's text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click
from typing_extensions import override

from kvstore.config.flags import Effect, Flag, FlagKind
from kvstore.config.values import Value, default_value, parse_value

Values = Mapping[str, Value]  # by flag name

_GROUP: Final = ""  # flags of subcommands are not grouped
_HELP_NAMES: Final = ["-h", "--help"]


def flag(name: str, kind: FlagKind, default: str, text: str, *choices: str) -> Flag:
    """Return a row of a subcommand's table."""
    return Flag(name, _GROUP, kind, default, Effect.USED, text, choices)


class GoCommand(click.Command):
    """A command whose callback gets the values of its flags by name."""

    def __init__(
        self, name: str, flags: Sequence[Flag], help_text: str, callback: Callable[[Values], int]
    ) -> None:
        """Take the table; callback gets the value of every flag, set or default."""
        self._flags = {each.name: each for each in flags}
        super().__init__(
            name,
            params=[_option(each) for each in flags],
            help=help_text,
            callback=lambda **texts: callback(self._read_all(texts)),
            context_settings={
                "allow_extra_args": True,
                "help_option_names": _HELP_NAMES,
                "max_content_width": 100,
            },
        )

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; click.UsageError for one that cannot be parsed."""
        try:
            return super().parse_args(ctx, [self._with_value(each) for each in args])
        except click.NoSuchOption as error:
            raise click.UsageError(f"unknown flag: {error.option_name}", ctx) from None
        except click.BadOptionUsage as error:
            raise click.UsageError(f"flag needs an argument: {error.option_name}", ctx) from None

    def is_switch(self, word: str) -> bool:
        """Return whether a word is a flag that needs no value."""
        found = self._flags.get(word.removeprefix("--")) if word.startswith("--") else None
        return found is not None and found.kind is FlagKind.BOOL

    def _with_value(self, word: str) -> str:
        return f"{word}=true" if self.is_switch(word) else word

    def _read_all(self, given_texts: dict[str, tuple[str, ...]]) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for each in self._flags.values():
            texts = given_texts[_parameter(each)]
            values[each.name] = _read(each, texts) if texts else default_value(each)
        return values


class GoGroup(click.Group):
    """A group with one command, whose flags may also come before the command's name."""

    def __init__(self, name: str, help_text: str, command: GoCommand) -> None:
        """Take the one command."""
        super().__init__(
            name,
            help=help_text,
            commands=[command],
            context_settings={"help_option_names": _HELP_NAMES},
        )
        self._command: Final = command

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the command's name before its flags; without a command, show the help."""
        position = self._find_command(args)
        if position is not None:
            name = args[position]
            return super().parse_args(ctx, [name, *args[:position], *args[position + 1 :]])
        flags = [each for each in args if each.startswith("-")]
        if flags and not any(each in _HELP_NAMES for each in flags):
            raise click.UsageError(f"unknown flag: {flags[0].partition('=')[0]}", ctx)
        return super().parse_args(ctx, ["--help"])

    def _find_command(self, args: Sequence[str]) -> int | None:
        """Return the position of the command's name, which is the first word that is not a flag."""
        position = 0
        while position < len(args):
            word = args[position]
            if not word.startswith("-"):
                return position if word == self._command.name else None
            if word in _HELP_NAMES or word == "--":
                return None
            takes_next = "=" not in word and not self._command.is_switch(word)
            position += 2 if takes_next else 1
        return None


def _option(flag: Flag) -> click.Option:
    default = "" if flag.kind is FlagKind.BOOL else f" (default {flag.default!r})"
    return click.Option(
        [f"--{flag.name}", _parameter(flag)],
        multiple=True,
        metavar=flag.kind.name.lower(),
        help=flag.help + (default if flag.default else ""),
    )


def _parameter(each: Flag) -> str:
    return each.name.replace("-", "_")


def _read(flag: Flag, texts: Sequence[str]) -> Value:
    """Return the value of the last text; for a list, the items of all texts."""
    is_list = flag.kind is FlagKind.LIST
    try:
        values = [parse_value(flag, text) for text in texts]
    except ValueError as error:
        text = texts[-1]
        raise click.UsageError(
            f'invalid argument "{text}" for "--{flag.name}" flag: {error}'
        ) from None
    if not is_list:
        return values[-1]
    return tuple(item for value in values if isinstance(value, tuple) for item in value)
