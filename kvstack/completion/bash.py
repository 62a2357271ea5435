"""The script for bash; it needs nothing of the package bash-completion."""

from collections.abc import Sequence
from shlex import quote
from typing import Final

from kvstack.completion.words import CommandWords

_HEAD: Final = """\
# bash completion of kvstack; written by `kvstack completion bash`

_kvstack_forks() {
    local file base=${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/kvstack}
    for file in "${base:-${TMPDIR:-/tmp}/kvstack-$EUID}"/forks/*/fork.json; do
        file=${file%/fork.json}
        [[ -d $file ]] && printf '%s\\n' "${file##*/}"
    done
}

_kvstack_contexts() {
    type kubectl > /dev/null 2>&1 && kubectl config get-contexts -o name 2> /dev/null
}

# Offers the words given, in a list after what is before the last comma.
_kvstack_words() {
    local before= word
    [[ $1 == list && $cur == *,* ]] && before=${cur%,*},
    for word in ${*:2}; do
        [[ $before$word == "$cur"* ]] && COMPREPLY+=("$before$word")
    done
}

_kvstack_names() {
    case $1 in
        nothing) compopt +o default 2> /dev/null ;;
        forks) _kvstack_words one $(_kvstack_forks); compopt +o default 2> /dev/null ;;
        sources) _kvstack_words one $(_kvstack_forks) $(_kvstack_contexts) ;;
    esac
}

_kvstack() {
    # Words are those between spaces: names of contexts have colons, and flags `=`.
    local line=${COMP_LINE:0:COMP_POINT} words cur= flag= breaks= index
    local flags= valued= actions= names=nothing
    COMPREPLY=()
    read -ra words <<< "$line"
    while [[ ${#words[@]} -gt 1 && ${words[0]} != "${COMP_WORDS[0]}" ]]; do
        words=("${words[@]:1}")
    done
    [[ $line == *[[:space:]] ]] && words+=("")
    local count=${#words[@]}
    [[ $count -gt 1 ]] || return
    cur=${words[count-1]}
"""
_TAIL: Final = """\
        *) return ;;
    esac
    if [[ $cur == --*=* ]]; then
        flag=${cur%%=*} breaks=$flag=
        cur=${cur#*=}
    elif [[ " $valued " == *" ${words[count-2]} "* ]]; then
        flag=${words[count-2]}
    fi
    if [[ -n $flag ]]; then
        _kvstack_values "${words[1]} $flag"
    elif [[ $cur == -* ]]; then
        _kvstack_words one $flags
    elif [[ -n $actions && $count -eq 3 ]]; then
        _kvstack_words one $actions
        compopt +o default 2> /dev/null
    else
        _kvstack_names $names
    fi
    # What is replaced begins after the last character that breaks words.
    [[ $COMP_WORDBREAKS == *=* ]] && breaks=
    [[ $COMP_WORDBREAKS == *:* && $cur == *:* ]] && cur=${cur%"${cur##*:}"} || cur=
    for index in "${!COMPREPLY[@]}"; do
        COMPREPLY[index]=$breaks${COMPREPLY[index]#"$cur"}
    done
}

complete -o default -F _kvstack kvstack
"""


def script(commands: Sequence[CommandWords]) -> str:
    """Return the script; where it offers nothing, bash offers files."""
    names = " ".join(each.name for each in commands)
    first = (
        "    if [[ $count -eq 2 ]]; then\n"
        f"        _kvstack_words one {names} --help --version\n"
        "        compopt +o default 2> /dev/null\n"
        "        return\n    fi\n    case ${words[1]} in\n"
    )
    return _HEAD + first + "".join(map(_case, commands)) + _TAIL + _values(commands)


def _case(command: CommandWords) -> str:
    valued = [flag for flag in command.flags if flag.takes_value]
    values = {
        "flags": " ".join(f"--{flag.name}" for flag in command.flags),
        "valued": " ".join(
            [f"--{flag.name}" for flag in valued]
            + [f"-{flag.letter}" for flag in valued if flag.letter]
        ),
        "actions": " ".join(command.actions),
        "names": command.names.name.lower(),
    }
    lines = [f"            {name}={quote(text)}" for name, text in values.items() if text]
    return "\n".join([f"        {command.name})", *lines, "            ;;", ""])


def _values(commands: Sequence[CommandWords]) -> str:
    lines = ["", "_kvstack_values() {", '    case "$1" in']
    for command in commands:
        for flag in command.flags:
            if flag.values:
                pattern = f"'{command.name} --{flag.name}'"
                if flag.letter:
                    pattern += f" | '{command.name} -{flag.letter}'"
                kind = "list" if flag.is_list else "one"
                lines.append(f"        {pattern}) _kvstack_words {kind} {' '.join(flag.values)} ;;")
    return "\n".join([*lines, "    esac", "}", ""])
