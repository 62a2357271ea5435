"""The subcommands of `kvstore`: their names, flags and exit codes.

    kvstore gateway start [flags]         kvstore grpc-proxy start [flags]

Flags may also come before `start`. Their names and defaults are etcd's; the last ones are ours.
Exit code 0: stopped by a signal, or help was shown. 1: a flag, a setting or an address cannot be
used, with the reason on standard error.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Final

import click

from kvstack.component.errors import ComponentError
from kvstack.component.process.standard_streams import discard_output
from kvstore.config.flags import Flag, FlagKind
from kvstore.proxy.flags.go_flags import GoCommand, GoGroup, Values, flag
from kvstore.proxy.flags.grpc_flags import FLAGS as GRPC_PROXY_FLAGS

_FAILED: Final = 1
_S, _B, _D, _L = FlagKind.STRING, FlagKind.BOOL, FlagKind.DURATION, FlagKind.LIST

_DNS_SERVER: Final = flag(
    "discovery-dns-server", _S, "", "DNS server for SRV records, host:port; empty: the system's"
)
GATEWAY_FLAGS: Final = (
    flag("listen-addr", _S, "127.0.0.1:23790", "listen address"),
    flag("discovery-srv", _S, "", "DNS domain used to bootstrap initial cluster"),
    flag("discovery-srv-name", _S, "", "service name to query when using DNS discovery"),
    flag("insecure-discovery", _B, "false", "accept insecure SRV records"),
    flag("trusted-ca-file", _S, "",
         "path to the client server TLS CA file for verifying the discovered endpoints when "
         "discovery-srv is provided."),
    flag("endpoints", _L, "127.0.0.1:2379", "comma separated etcd cluster endpoints"),
    flag("retry-delay", _D, "1m0s", "duration of delay before retrying failed endpoints"),
    _DNS_SERVER,
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run a subcommand; arguments begin with its name. Return the exit code."""
    try:
        code = root.main(list(arguments), prog_name="kvstore", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.UsageError as error:
        usage = error.ctx.get_usage() if error.ctx is not None else ""
        return _fail(f"{error.format_message()}\n{usage}")
    except click.exceptions.Exit as error:
        return error.exit_code
    except BrokenPipeError:
        discard_output(sys.stdout)
        return _FAILED
    except ComponentError as error:
        click.echo(str(error), err=True)
        return _FAILED
    return int(code or 0)


def _fail(text: str) -> int:
    click.echo(f"Error: {text.rstrip()}", err=True)
    return _FAILED


def _gateway(values: Values) -> int:
    from kvstore.proxy.gateway.command import run

    return run(values)


def _grpc_proxy(values: Values) -> int:
    from kvstore.proxy.grpc_proxy import run

    return run(values)


def _group(
    name: str, flags: Sequence[Flag], help_text: str, run: Callable[[Values], int]
) -> GoGroup:
    """Return a group with the one command start."""
    return GoGroup(name, f"{name} related command", GoCommand("start", flags, help_text, run))


root: Final = click.Group("kvstore")
root.add_command(_group("gateway", GATEWAY_FLAGS, "start the gateway", _gateway))
root.add_command(_group("grpc-proxy", GRPC_PROXY_FLAGS, "start the grpc proxy", _grpc_proxy))
