"""The script for fish, with what each flag is for."""

from collections.abc import Iterator, Sequence
from typing import Final

from kvstack.completion.words import CommandWords, FlagWord, Names

_HEAD: Final = """\
# fish completion of kvstack; written by `kvstack completion fish`

function __kvstack_is --description 'Whether the command is one of these, and has a word after it'
    set -l words (commandline -opc)
    test (count $words) -ge 2; and contains -- $words[2] $argv
end

function __kvstack_has_words --description 'Whether there are so many words before the cursor'
    test (count (commandline -opc)) -eq $argv[1]
end

function __kvstack_forks
    set -l base $TMPDIR
    test -n "$base"; or set base /tmp
    set base $base/kvstack-(id -u)
    test -n "$XDG_RUNTIME_DIR"; and set base $XDG_RUNTIME_DIR/kvstack
    for file in $base/forks/*/fork.json
        basename (dirname $file)
    end
end

function __kvstack_contexts
    type -q kubectl; and kubectl config get-contexts -o name 2>/dev/null
end

complete -c kvstack -e
complete -c kvstack -f
"""


def script(commands: Sequence[CommandWords]) -> str:
    """Return the script; files are offered where values or names may be files."""
    lines = [_HEAD.rstrip("\n")]
    for each in commands:
        first = "-n '__kvstack_has_words 1'"
        lines.append(f"complete -c kvstack {first} -a {each.name} -d {_quoted(each.about)}")
    for each in commands:
        lines += _lines(each)
    return "\n".join(lines) + "\n"


def _lines(command: CommandWords) -> Iterator[str]:
    here = f"__kvstack_is {command.name}"
    if command.actions:
        actions = " ".join(command.actions)
        yield f"complete -c kvstack -n '{here}; and __kvstack_has_words 2' -a '{actions}'"
        here_names = f"{here}; and not __kvstack_has_words 2"
    else:
        here_names = here
    if command.names in (Names.FORKS, Names.SOURCES):
        yield f"complete -c kvstack -n '{here_names}' -a '(__kvstack_forks)' -d fork"
    if command.names is Names.SOURCES:
        yield f"complete -c kvstack -n '{here_names}' -a '(__kvstack_contexts)' -d context"
    if command.names in (Names.FILES, Names.SOURCES):
        yield f"complete -c kvstack -n '{here_names}' -F"
    for flag in command.flags:
        yield f"complete -c kvstack -n '{here}' {_flag(flag)} -d {_quoted(flag.about)}"


def _flag(flag: FlagWord) -> str:
    parts = [f"-l {flag.name}"]
    if flag.letter:
        parts.append(f"-s {flag.letter}")
    if flag.takes_value:
        parts.append(f"-x -a '{' '.join(flag.values)}'" if flag.values else "-r -F")
    return " ".join(parts)


def _quoted(text: str) -> str:
    escaped = " ".join(text.split()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
