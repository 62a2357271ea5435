"""The script for zsh: a function of its completion system, with what each flag is for."""

import re
from collections.abc import Sequence
from typing import Final

from kvstack.completion.words import CommandWords, FlagWord, Names

_HEAD: Final = """\
#compdef kvstack
# zsh completion of kvstack; written by `kvstack completion zsh`

_kvstack_forks() {
    local base=${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/kvstack}
    local -a forks=(${base:-${TMPDIR:-/tmp}/kvstack-$EUID}/forks/*/fork.json(N:h:t))
    compadd -a "$@" forks
}

_kvstack_contexts() {
    (( $+commands[kubectl] )) || return 1
    local -a contexts=(${(f)"$(kubectl config get-contexts -o name 2> /dev/null)"})
    compadd -a "$@" contexts
}

_kvstack_sources() {
    _alternative 'forks:fork:_kvstack_forks' 'contexts:context:_kvstack_contexts' \\
        'files:file:_files'
}

_kvstack() {
"""
_TAIL: Final = """\
    esac
}

if [[ $funcstack[1] == _kvstack ]]; then
    _kvstack "$@"
else
    compdef _kvstack kvstack
fi
"""
_AFTER_ACTION: Final = {
    Names.NOTHING: "",
    Names.FILES: "'*:file:_files'",
    Names.FORKS: "'*:fork:_kvstack_forks'",
    Names.SOURCES: "'*:source:_kvstack_sources'",
}


def script(commands: Sequence[CommandWords]) -> str:
    """Return the script."""
    described = "".join(f"        {_quoted(f'{each.name}:{each.about}')}\n" for each in commands)
    head = (
        f"    local -a commands=(\n{described}    )\n"
        "    if (( CURRENT == 2 )); then\n"
        "        _describe command commands\n        return\n    fi\n"
        "    local command=$words[2]\n"
        "    shift words\n    (( CURRENT-- ))\n    case $command in\n"
    )
    return _HEAD + head + "".join(map(_case, commands)) + _TAIL


def _case(command: CommandWords) -> str:
    specs = [spec for flag in command.flags for spec in _specs(flag)]
    if command.actions:
        specs.append(_quoted(f"1:action:({' '.join(command.actions)})"))
    if command.names is not Names.NOTHING:
        specs.append(_AFTER_ACTION[command.names])
    joined = " \\\n                ".join(specs)
    return (
        f"        {command.name})\n            _arguments \\\n                {joined}\n"
        "            ;;\n"
    )


def _specs(flag: FlagWord) -> list[str]:
    """Return the specifications of a flag: one for its name, and one for its letter."""
    names = [f"--{flag.name}{'=' if flag.takes_value else ''}"]
    if flag.letter:
        names.append(f"-{flag.letter}{'+' if flag.takes_value else ''}")
    return [_quoted(f"*{name}[{_escaped(flag.about)}]{_value(flag)}") for name in names]


def _value(flag: FlagWord) -> str:
    if not flag.takes_value:
        return ""
    if not flag.values:
        return f":{flag.name}:_files"
    words = " ".join(flag.values)
    if flag.is_list:
        return f":{flag.name}:_values -s , {flag.name} {words}"
    return f":{flag.name}:({words})"


def _escaped(about: str) -> str:
    """Return a description as it may stand between brackets."""
    return re.sub(r"([\[\]\\:])", r"\\\1", " ".join(about.split()))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
