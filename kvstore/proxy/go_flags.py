"""Flags of a subcommand as Go programs (pflag) take them, on click.

    --name=value   --name value   --switch   --switch=false        lists: a,b or given again

Each option is a row of the same table as the server's flags, so texts are read by the same
parsers. A switch never takes the next word. Words that are no flags are ignored, as there. What
cannot be read is a click.UsageError with pflag's text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click
from typing_extensions import override

from kvstore.config.flags import Effect, Flag, Kind
from kvstore.config.values import Value, default_value, parse_value

Values = Mapping[str, Value]  # by flag name

_GROUP: Final = ""  # subcommands do not group their flags


def flag(name: str, kind: Kind, default: str, text: str, *choices: str) -> Flag:
    """Return a row of a subcommand's table."""
    return Flag(name, _GROUP, kind, default, Effect.LIVE, text, choices)


class GoCommand(click.Command):
    """A command whose callback is given the values of its flags by their names."""

    def __init__(
        self, name: str, flags: Sequence[Flag], help_text: str, callback: Callable[[Values], int]
    ) -> None:
        """Take the table; callback is given every flag, whether it was given or is the default."""
        self._flags = {each.name: each for each in flags}
        super().__init__(
            name,
            params=[_option(each) for each in flags],
            help=help_text,
            callback=lambda **given: callback(self._read_all(given)),
            context_settings={"allow_extra_args": True, "max_content_width": 100},
        )

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words; click.UsageError if one cannot be meant."""
        try:
            return super().parse_args(ctx, [self._switched_on(each) for each in args])
        except click.NoSuchOption as error:
            raise click.UsageError(f"unknown flag: {error.option_name}", ctx) from None
        except click.BadOptionUsage as error:
            raise click.UsageError(f"flag needs an argument: {error.option_name}", ctx) from None

    def _switched_on(self, word: str) -> str:
        found = self._flags.get(word.removeprefix("--")) if word.startswith("--") else None
        return f"{word}=true" if found is not None and found.kind is Kind.BOOL else word

    def _read_all(self, given: dict[str, tuple[str, ...]]) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for each in self._flags.values():
            texts = given[_parameter(each)]
            values[each.name] = _read(each, texts) if texts else default_value(each)
        return values


def _option(each: Flag) -> click.Option:
    default = "" if each.kind is Kind.BOOL else f" (default {each.default!r})"
    return click.Option(
        [f"--{each.name}", _parameter(each)],
        multiple=True,
        metavar=each.kind.name.lower(),
        help=each.help + (default if each.default else ""),
    )


def _parameter(each: Flag) -> str:
    return each.name.replace("-", "_")


def _read(each: Flag, texts: Sequence[str]) -> Value:
    """Return the last text's value; all of them together for a list."""
    is_list = each.kind is Kind.LIST
    try:
        values = [parse_value(each, text) for text in texts]
    except ValueError as error:
        text = texts[-1]
        raise click.UsageError(
            f'invalid argument "{text}" for "--{each.name}" flag: {error}'
        ) from None
    if not is_list:
        return values[-1]
    return tuple(item for value in values if isinstance(value, tuple) for item in value)
