"""What is wrong with a documented command of our own programs: unknown flags and actions.

    kvstack up --data-dir DIR --node 3  →  kvstack up has no flag --node

Values are checked where all are known; words like DIR, `…` and `<file>` stand for any.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

from kvstack.cli import COMMANDS
from kvstack.completion.words import CommandWords, FlagWord, command_words
from kvstack.component.errors import ConfigError
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from tests.docs.pages import ROOT

RUN = "exec $(BIN)/kvstack up --data-dir $(DATA) $(ARGS)"
"""What `make run` does, by the Makefile: its ARGS are flags of `kvstack up`."""
_ENDS = frozenset(("|", "||", "&&", ";", ">", "&", "--"))
"""After these words come other programs."""
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_]*|…|<.*>|\$.*")


def faults(text: str) -> list[str]:
    """Return what is wrong with a command; none: it is right, or of another program."""
    program, *given = _words(text)
    if program == "make":
        if given[:1] != ["run"]:
            return []
        assert RUN in (ROOT / "Makefile").read_text()
        flags = [each.removeprefix("ARGS=") for each in given[1:]]
        program, given = "kvstack", ["up", *(part for each in flags for part in each.split())]
    if program == "kvstack" and given and given[0] in COMMANDS:
        return list(_faults(command_words(given[0]), given[1:]))
    if program == "kvstore" and given and given[0].startswith("-"):
        try:
            configure(read_command_line(given), {})
        except ConfigError as error:
            return [str(error)]
    return []


def _words(text: str) -> list[str]:
    words = shlex.split(re.sub(r"\$\([^)]*\)", "…", text))
    end = next((at for at, word in enumerate(words) if word in _ENDS), len(words))
    return words[:end]


def _faults(command: CommandWords, given: Sequence[str]) -> Iterator[str]:
    flags = {f"--{each.name}": each for each in command.flags}
    flags |= {f"-{each.letter}": each for each in command.flags if each.letter}
    names: list[str] = []
    rest = iter(given)
    for word in rest:
        name, has_value, value = word.partition("=")
        if not name.startswith("-"):
            names.append(word)
            continue
        flag = flags.get(name)
        if flag is None:
            yield f"kvstack {command.name} has no flag {name}"
            continue
        if not has_value and flag.takes_value:
            value = next(rest, "…")
        yield from _of_value(flag, value)
    action = names[0] if names else ""
    is_known = _PLACEHOLDER.fullmatch(action) or set(action.split("|")) <= set(command.actions)
    if command.actions and action and not is_known:
        yield f"kvstack {command.name} has no action {action}"


def _of_value(flag: FlagWord, value: str) -> Iterator[str]:
    for one in value.split("," if flag.is_list else "|"):
        if flag.values and one and one not in flag.values and not _PLACEHOLDER.fullmatch(one):
            yield f"--{flag.name} {one}: one of {', '.join(flag.values)}"
