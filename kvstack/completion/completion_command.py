"""The command `kvstack completion`: a script that completes commands and flags in a shell."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kvstack.completion import bash, fish, zsh
from kvstack.completion.words import SHELLS, CommandWords, all_words

COMMAND: Final = "kvstack completion"
FAILED: Final = 1
HELP: Final = """\
Print a script that completes the commands and flags of kvstack in a shell.

Usage:
  kvstack completion bash|zsh|fish

  bash   kvstack completion bash > ~/.local/share/bash-completion/completions/kvstack
  zsh    kvstack completion zsh > DIR/_kvstack, where DIR is one of $fpath
  fish   kvstack completion fish > ~/.config/fish/completions/kvstack.fish

A shell reads the file when it starts, and no Python runs while you type. Write it again after an
update of kvstack. Names of forks are completed, and those of contexts where kubectl is installed.
"""
_SCRIPTS: Final[Mapping[str, Callable[[Sequence[CommandWords]], str]]] = {
    "bash": bash.script,
    "zsh": zsh.script,
    "fish": fish.script,
}


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(HELP)
        return 0
    shell, *others = arguments or [""]
    if shell not in _SCRIPTS or others:
        given = " ".join(arguments) or "?"
        sys.stderr.write(f"Error: {COMMAND} {given}: one of {', '.join(SHELLS)}\n")
        return FAILED
    sys.stdout.write(_SCRIPTS[shell](all_words()))
    return 0
