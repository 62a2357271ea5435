"""The `kvstore` command: flags in, exit code out.

Exit code 0: stopped by a signal. 1: the settings, the data directory or an address cannot be used.
2: a flag is unknown or cannot be parsed. Errors go to stderr: those of flags as text with the
usage, as in Go programs, all others as a line of the log.

`--version` and `--help` do not load the server.
"""

import faulthandler
import gc
import os
import sys
from collections.abc import Sequence
from typing import Final, TextIO

from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.line_log.line_logger import open_logger
from kvstack.component.net.descriptors import raise_limit
from kvstack.component.process.standard_streams import discard_output
from kvstack.component.version import VERSION
from kvstore.config.flags import FLAGS, Effect, Flag, FlagKind
from kvstore.config.parse import configure
from kvstore.config.sources import HELP, UsageError, read_command_line
from kvstore.types import SERVER_VERSION

SUBCOMMANDS: Final = ("gateway", "grpc-proxy")
USAGE: Final = """\
Usage:

  kvstore [flags]
    Start a member.

  kvstore --version
    Show the version.

  kvstore gateway start [flags]
    Relay TCP connections to the members of a cluster.

  kvstore grpc-proxy start [flags]
    Proxy the API of a cluster: shared watches, cached reads.

  kvstore -h | --help
    Show all flags.

  kvstore --config-file FILE
    Take all settings from a YAML file; other flags and ETCD_* variables are then ignored.
    Durations in the file are whole nanoseconds, or texts such as 10m.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with arguments (default: the process's own); return the exit code."""
    given_arguments = sys.argv[1:] if arguments is None else arguments
    if given_arguments and given_arguments[0] in SUBCOMMANDS:
        raise_limit()
        from kvstore.proxy.commands import main as run_subcommand

        return run_subcommand(given_arguments)
    try:
        settings = read_command_line(given_arguments)
        if settings.values.get(HELP):
            print_text(sys.stdout, help_text())
            return 0
        if settings.values.get("version"):
            print_text(sys.stdout, version_text())
            return 0
        config = configure(settings, os.environ)
    except UsageError as error:
        print_text(sys.stderr, f"{error}\n{USAGE}")
        return 2
    except ConfigError as error:
        open_logger(("default",), "info", "json").warning(
            "failed to verify flags", error=str(error)
        )
        return 1
    raise_limit()
    gc.disable()  # objects made while loading stay alive: collections would only delay the start
    from kvstore.server.run import run

    gc.freeze()
    # LMDB aborts the process when its pages are damaged: show where it was.
    faulthandler.enable(2, all_threads=False)
    try:
        return int(run(config))
    except ComponentError as error:
        log = open_logger(("default",), "info", "json")
        log.fatal("the server cannot continue", kind=type(error).__name__, error=str(error))
        return 1
    finally:
        gc.enable()


def version_text() -> str:
    """Return the version in the form that etcd's tools read, then those of this program."""
    import platform

    return (
        f"etcd Version: {SERVER_VERSION}\n"
        f"Kvstack Version: {VERSION}\n"
        f"Python Version: {platform.python_implementation()} {platform.python_version()}\n"
        f"OS/Arch: {platform.system().lower()}/{platform.machine()}\n"
    )


def help_text() -> str:
    """Return the usage and every flag, by group."""
    lines = [USAGE]
    groups = dict.fromkeys(flag.group for flag in FLAGS)
    for group in groups:
        lines.append(f"{group}:")
        lines.extend(_flag_help(flag) for flag in FLAGS if flag.group == group)
        lines.append("")
    lines.append("Every flag is also a variable: --data-dir is ETCD_DATA_DIR.")
    return "\n".join(lines) + "\n"


def print_text(stream: TextIO, text: str) -> None:
    """Write text to a standard stream; a closed one is ignored."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        discard_output(stream)


def _flag_help(flag: Flag) -> str:
    default = "" if flag.kind is FlagKind.BOOL and flag.default == "false" else f" '{flag.default}'"
    note = "" if flag.effect is Effect.USED else " [no effect]"
    return f"  --{flag.name}{default}\n    {flag.help}{note}"


if __name__ == "__main__":
    sys.exit(main())
