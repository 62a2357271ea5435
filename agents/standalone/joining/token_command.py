"""The command `kvstack token`: tokens by which machines join a cluster, with kubeadm's flags.

    kvstack token create --print-join-command
    kvstack token list
    kvstack token delete abcdef

A token is a Secret: users who may create Secrets in kube-system may create one.
"""

import asyncio
import os
import sys
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import yaml
from cryptography import x509

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import CONFIG_MAPS, SECRETS
from kvstack.agents.client.kubeconfig import Cluster, KubeconfigError, connect
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.process.settings import cluster_of
from kvstack.agents.standalone.joining import tokens
from kvstack.agents.standalone.joining.access import CLUSTER_INFO, PUBLIC, SYSTEM
from kvstack.agents.standalone.joining.discovery import key_hash
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.well_known import BOOTSTRAP_TOKEN_TYPE
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import UsageError, help_text, read_command_line
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.flags.flag_table import Effect, Flag, FlagTable, Kind

COMMAND: Final = "kvstack token"
ABOUT: Final = """\
Bootstrap tokens, with which machines join a cluster.

  kvstack token create [TOKEN]    create a token and print it
  kvstack token list              list tokens
  kvstack token delete TOKEN…     delete tokens, by token or by ID (the first six characters)"""
FAILED: Final = 1
_DEFAULT_FILE: Final = "default.etcd/kubernetes/admin.conf"
_ANNOUNCED_S: Final = 10.0
_LOOK_S: Final = 0.2
ACTIONS: Final = ("create", "list", "delete")
_GROUP: Final = "Tokens"
TABLE: Final = FlagTable(
    (
        Flag("description", _GROUP, Kind.TEXT, "", Effect.LIVE, "description of the token"),
        Flag(
            "kubeconfig",
            _GROUP,
            Kind.TEXT,
            "",
            Effect.LIVE,
            f"the administrator's kubeconfig (default: KUBECONFIG, or {_DEFAULT_FILE})",
        ),
        Flag(
            "print-join-command",
            _GROUP,
            Kind.BOOL,
            "false",
            Effect.LIVE,
            "print the command that joins a machine",
        ),
        Flag(
            "ttl",
            _GROUP,
            Kind.DURATION,
            "24h0m0s",
            Effect.LIVE,
            "lifetime of the token; 0: unlimited",
        ),
        Flag("help", _GROUP, Kind.BOOL, "false", Effect.LIVE, "show this text"),
    ),
    {"h": "help"},
)


class Announcement(NamedTuple):
    """What joining machines read of a cluster."""

    server: str
    hashes: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    try:
        action, names, flags = _split(arguments)
        given = read_command_line(flags, COMMAND, TABLE)
        if given.values.get("help"):
            sys.stdout.write(help_text(COMMAND, ABOUT, TABLE))
            return 0
        reader = FlagReader(given, [])
        asyncio.run(_run(action, names, reader, _cluster(reader)))
    except (
        UsageError,
        ConfigError,
        KubeconfigError,
        ApiError,
        UnreachableError,
        tokens.TokenError,
    ) as error:
        sys.stderr.write(f"Error: {error}\n")
        return FAILED
    return 0


def _split(arguments: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Return the action, the tokens that it is about, and the flags; UsageError."""
    action, *rest = arguments or [""]
    if action in ("-h", "--help"):
        return "", [], ["--help"]
    if action not in ACTIONS:
        raise UsageError(f"{COMMAND} {action or '?'}: one of {', '.join(ACTIONS)}")
    names: list[str] = []
    flags: list[str] = []
    waiting = list(reversed(rest))
    while waiting:
        argument = waiting.pop()
        if not argument.startswith("-"):
            names.append(argument)
            continue
        flags.append(argument)
        flag = TABLE.by_name.get(argument.lstrip("-"))
        if flag is not None and flag.kind is not Kind.BOOL and waiting:
            flags.append(waiting.pop())
    most = {"create": 1, "list": 0}.get(action)
    if most is not None and len(names) > most:
        raise UsageError(f"{COMMAND} {action} takes no {names[most]!r}")
    if action == "delete" and not names and not {"-h", "--help"} & set(flags):
        raise UsageError(f"{COMMAND} delete: a token, or its first six characters, is required")
    return action, names, flags


def _cluster(reader: FlagReader) -> Cluster:
    file = reader.text("kubeconfig") or os.environ.get("KUBECONFIG", "").partition(":")[0]
    if not file and Path(_DEFAULT_FILE).exists():
        file = _DEFAULT_FILE
    if not file:
        raise ConfigError(f"--kubeconfig is required: {_DEFAULT_FILE} does not exist")
    return cluster_of(file)


async def _run(action: str, names: Sequence[str], reader: FlagReader, cluster: Cluster) -> None:
    api = Api(connect(cluster), Options(user_agent="kvstack-token"))
    try:
        if action == "create":
            await _create(api, names, reader)
        elif action == "list":
            await _list(api)
        else:
            for name in names:
                await _delete(api, tokens.id_of(name))
    finally:
        await api.close()


async def _create(api: Api, names: Sequence[str], reader: FlagReader) -> None:
    token = tokens.parse(names[0]) if names else tokens.new_token()
    ttl_s = reader.seconds("ttl")
    if ttl_s < 0:
        raise UsageError("--ttl is negative; 0 means unlimited")
    is_whole = reader.flag("print-join-command")
    announced = (
        await _announced(api) if is_whole else None
    )  # before a token is created that is never printed
    until = format_time(SystemClock().now_s() + ttl_s) if ttl_s else ""
    secret = tokens.secret_of(token, reader.text("description"), until)
    try:
        await api.create(SECRETS, SYSTEM, secret)
    except ApiError as error:
        if not error.is_conflict:
            raise
        raise ConfigError(f"a token with the id {token.id} exists") from error
    sys.stdout.write(f"{join_command(announced, token) if announced else token}\n")


def join_command(announced: Announcement, token: tokens.Token) -> str:
    """Return what is typed on the machine that joins."""
    place = urlsplit(announced.server).netloc
    hashes = " ".join(f"--discovery-token-ca-cert-hash {each}" for each in announced.hashes)
    return f"kvstack join {place} --token {token} {hashes}"


async def _announced(api: Api) -> Announcement:
    """Return what joining machines read; ConfigError if it leads them nowhere."""
    found = await cluster_info(api)
    return announcement_of((found.get("data") or {}).get("kubeconfig", ""))


async def cluster_info(api: Api) -> Object:
    """Return cluster-info; a cluster that has just started is ready before it has written it."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _ANNOUNCED_S
    while True:
        try:
            return await api.get(CONFIG_MAPS, PUBLIC, CLUSTER_INFO)
        except ApiError as error:
            if not error.is_not_found:
                raise
            if loop.time() > end_s:
                raise ConfigError(
                    f"{PUBLIC}/{CLUSTER_INFO} does not exist, which joining machines read: "
                    "`kvstack up` writes it, unless it runs with --without joining"
                ) from error
        await asyncio.sleep(_LOOK_S)


def announcement_of(content: str) -> Announcement:
    """Return the server and the authority of a kubeconfig of cluster-info; ConfigError."""
    try:
        [row] = yaml.safe_load(content)["clusters"]
        server = str(row["cluster"]["server"])
        pem = b64decode(row["cluster"]["certificate-authority-data"])
        hashes = tuple(key_hash(each) for each in x509.load_pem_x509_certificates(pem))
    except (yaml.YAMLError, KeyError, TypeError, ValueError, Base64Error) as error:
        raise ConfigError(f"{PUBLIC}/{CLUSTER_INFO} has no valid cluster: {error!r}") from error
    host = urlsplit(server).hostname or ""
    try:
        is_hidden = ip_address(host).is_loopback
    except ValueError:
        is_hidden = host == "localhost"
    if is_hidden:
        raise ConfigError(
            f"the API server listens on {host} alone, where no other machine reaches it: start "
            "`kvstack up` with --bind-address=0.0.0.0, or with the address of one of this "
            "machine's networks"
        )
    return Announcement(server, hashes)


async def _list(api: Api) -> None:
    fields = f"type={BOOTSTRAP_TOKEN_TYPE}"
    page = await api.list_page(SECRETS, SYSTEM, fields=fields)
    if not page.items:
        return
    now_s = SystemClock().now_s()
    rows = [tokens.Row("TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS")]
    rows += [tokens.row_of(each, now_s) for each in page.items]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (each.ljust(width) for each, width in zip(row, widths, strict=True))
        sys.stdout.write(f"{'   '.join(cells).rstrip()}\n")


async def _delete(api: Api, token_id: str) -> None:
    try:
        await api.delete(SECRETS, SYSTEM, tokens.secret_name(token_id))
    except ApiError as error:
        if not error.is_not_found:
            raise
        raise ConfigError(f"token id {token_id} not found") from error
    sys.stdout.write(f'bootstrap token "{token_id}" deleted\n')
