"""The command `kvstack doctor`: checks this machine, and whether `kvstack up` would work on it.

    kvstack doctor [flags of kvstack up] [--output text|json]

It takes the flags of `kvstack up`, and checks the data directory and the ports that these
name. Exit codes: 0, 1 if `kvstack up` would not work, 2 for invalid flags. Nothing
is changed and nothing is started.
"""

import json
import sys
from collections.abc import Sequence
from typing import Final

from kvstack.agents.standalone.doctor import data_and_ports, machine, pods
from kvstack.agents.standalone.doctor.findings import Finding, as_objects, as_text, has_error
from kvstack.agents.standalone.parts import NODE
from kvstack.agents.standalone.stack_settings import (
    StackOptions,
    kubernetes_dir,
    pki_dir,
    split_own,
    stack_options,
)
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import UsageError, read_command_line

COMMAND: Final = "kvstack doctor"
HELP: Final = """\
Report what this machine supports: kernel features, limits, ports, clock, disk and Python, and
the consequences.

Usage:
  kvstack doctor [flags of kvstack up]

  -o, --output FORMAT   text or json (default text)

All other flags are those of `kvstack up`, whose data directory and ports are checked.
Exit status: 0; 1 if `kvstack up` would not work; 2 if it would refuse the flags.
"""
_FORMATS: Final = ("text", "json")
_BAD_FLAGS: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(HELP)
        return 0
    try:
        output, rest = _output(arguments)
        own, others = split_own(rest)
        options = stack_options(own, read_command_line(others, COMMAND, TABLE))
    except (UsageError, ConfigError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return _BAD_FLAGS
    findings = examine(own, options)
    if output == "json":
        json.dump(as_objects(findings), sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(as_text(findings))
    return int(has_error(findings))


def _output(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the output format, and the other arguments; raises UsageError."""
    output, rest = "text", []
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        name, equals, value = argument.partition("=")
        if name not in ("-o", "--output"):
            rest.append(argument)
            continue
        if not equals and not waiting:
            raise UsageError(f"flag needs an argument: {argument}")
        output = value if equals else waiting.pop()
        if output not in _FORMATS:
            raise UsageError(f"--output {output}: one of {', '.join(_FORMATS)}")
    return output, rest


def examine(own: StackOptions, options: Options) -> list[Finding]:
    """Return what there is to say before a start with these options."""
    owner = data_and_ports.owner_of(own.data_dir)
    addresses = [(options.serving.bind_address, options.serving.port)]
    return [
        *machine.findings(pki_dir(own.data_dir)),
        *([] if NODE in own.without else pods.findings(kubernetes_dir(own.data_dir) / "node")),
        *data_and_ports.data_directory(own.data_dir, owner),
        *data_and_ports.ports(addresses, is_in_use=bool(owner)),
    ]
