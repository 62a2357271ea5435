"""The subcommands of `kvstore`: which there are, their flags, their exit codes.

    kvstore gateway start [flags]         kvstore grpc-proxy start [flags]

Names and defaults of the flags are etcd's; the last ones are of this project. Code 0: ended by a
signal. 1: a flag, a setting or an address cannot be used, with the reason on standard error.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import click

from kvstore.config.flags import Flag, Kind
from kvstore.errors import KvstoreError
from kvstore.proxy.go_flags import GoCommand, Values, flag
from kvstore.proxy.grpc_flags import FLAGS as GRPC_PROXY_FLAGS

_FAILED: Final = 1
_S, _B, _D, _L = Kind.STRING, Kind.BOOL, Kind.DURATION, Kind.LIST

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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads it any more
        return _FAILED
    except KvstoreError as error:
        click.echo(str(error), err=True)
        return _FAILED
    return int(code or 0)


def _fail(text: str) -> int:
    click.echo(f"Error: {text.rstrip()}", err=True)
    return _FAILED


def _gateway(values: Values) -> int:
    from kvstore.proxy.gateway.gateway import run

    return run(values)


def _grpc_proxy(values: Values) -> int:
    from kvstore.proxy.grpc_proxy import run

    return run(values)


def _start(flags: Sequence[Flag], text: str, run: Callable[[Values], int]) -> GoCommand:
    return GoCommand("start", flags, text, run)


root: Final = click.Group("kvstore")
_gateway_group: Final = click.Group("gateway", help="gateway related command")
_gateway_group.add_command(_start(GATEWAY_FLAGS, "start the gateway", _gateway))
root.add_command(_gateway_group)
_grpc_proxy_group: Final = click.Group("grpc-proxy", help="grpc-proxy related command")
_grpc_proxy_group.add_command(_start(GRPC_PROXY_FLAGS, "start the grpc proxy", _grpc_proxy))
root.add_command(_grpc_proxy_group)
