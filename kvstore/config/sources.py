"""The sources of settings: the command line, ETCD_* variables, or one YAML file.

    --f=v  --f v  -f=v  -f v  --bool  --bool=false        ETCD_DATA_DIR=/x        data-dir: /x

A variable for a flag that is also set is an error. With a config file, flags and variables are
ignored. Each reader returns only what was set, by flag name; defaults and checks across flags
come later.
"""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kvstack.component.errors import ConfigError
from kvstore.config.flags import BY_NAME, FLAGS, REMOVED, Flag, FlagKind
from kvstore.config.values import Value, parse_value

FILE_BYTES_MAX: Final = 1 << 20
HELP: Final = "help"
_SHOWN_MAX: Final = 200  # characters of a value in a message
_SCALARS: Final = (str, int, float)  # a bool is an int, too


class UsageError(ConfigError):
    """A flag is unknown or its value cannot be read; the process ends with code 2."""


@dataclass(slots=True)
class SourceSettings:
    """The settings of one source."""

    values: dict[str, Value] = field(default_factory=dict)  # by flag name
    warnings: list[str] = field(default_factory=list)


def read_command_line(arguments: Sequence[str]) -> SourceSettings:
    """Read the arguments after the program's name; UsageError for an unknown flag.

    `-h` and `--help` set HELP to True and end the reading.
    """
    settings = SourceSettings()
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        name, equals, text = _split(argument)
        if name == "":
            stray = arguments[position:] if argument == "--" else [argument]
            if stray:
                raise ConfigError(f'"{stray[0]}" is not a valid flag')
            break
        if name in {"h", "help"}:
            settings.values[HELP] = True
            break
        if name in REMOVED:
            settings.warnings.append(f"flag is no longer supported and ignored: --{name}")
            continue
        flag = BY_NAME.get(name)
        if flag is None:
            raise UsageError(f"flag provided but not defined: -{name}")
        if not equals:
            if flag.kind is FlagKind.BOOL:
                text = "true"
            elif position < len(arguments):
                text = arguments[position]
                position += 1
            else:
                raise UsageError(f"flag needs an argument: -{name}")
        settings.values[name] = _value(flag, text, f"flag -{name}", UsageError)
    return settings


def read_environment(
    environment: Mapping[str, str], on_command_line: Mapping[str, Value]
) -> SourceSettings:
    """Read the ETCD_* variables; ConfigError for one whose flag is also set."""
    settings = SourceSettings()
    names = {flag.environment_name: flag for flag in FLAGS if flag.name != "version"}
    for variable, text in sorted(environment.items()):
        flag = names.get(variable)
        if flag is None and not variable.startswith("ETCD_"):
            continue
        if flag is None:
            settings.warnings.append(f"unrecognized environment variable: {variable}")
        elif flag.name in on_command_line:
            raise ConfigError(
                f"environment variable {variable} conflicts with the flag --{flag.name}, "
                "which is also set: use one of them"
            )
        elif text:
            settings.values[flag.name] = _value(flag, text, variable, ConfigError)
    return settings


def read_file(path: str) -> SourceSettings:
    """Read a YAML config file; unknown keys are ignored with a warning, as in etcd."""
    import yaml  # here, because most starts do not need it

    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise ConfigError(f"config file {path} is larger than {FILE_BYTES_MAX} bytes")
        tree = yaml.safe_load(content)
    except OSError as error:
        raise ConfigError(f"config file {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"config file {path} is not YAML: {error}") from error
    except RecursionError:
        raise ConfigError(f"config file {path}: values are nested too deeply") from None
    except ValueError as error:  # an invalid date or number
        raise ConfigError(f"config file {path} is not YAML: {error}") from None
    settings = SourceSettings()
    if tree is not None:
        if not isinstance(tree, dict):
            raise ConfigError(f"config file {path} must be a mapping of settings")
        _take_mapping(settings, path, tree, _FILE_KEYS, "")
    return settings


def _split(argument: str) -> tuple[str, str, str]:
    """Split an argument into name, "=" and text; the name is empty if it is not a flag."""
    if len(argument) < 2 or not argument.startswith("-"):
        return "", "", ""
    body = argument[2:] if argument.startswith("--") else argument[1:]
    if argument == "--":
        return "", "", ""
    name, equals, text = body.partition("=")
    if not name or name.startswith("-"):
        raise UsageError(f"bad flag syntax: {argument}")
    return name, equals, text


def _value(flag: Flag, text: str, where: str, error_type: type[ConfigError]) -> Value:
    try:
        return parse_value(flag, text)
    except ValueError as error:
        reason = str(error)
        if len(text) > _SHOWN_MAX:
            text, reason = f"{text[:_SHOWN_MAX]}...", f"{reason[:_SHOWN_MAX]}..."
        raise error_type(f'invalid value "{text}" for {where}: {reason}') from None


# In the file, some settings are in nested mappings and have other names.
_TRANSPORT_KEYS: Final = {
    "cert-file": "cert-file",
    "key-file": "key-file",
    "client-cert-file": "client-cert-file",
    "client-key-file": "client-key-file",
    "client-cert-auth": "client-cert-auth",
    "trusted-ca-file": "trusted-ca-file",
    "auto-tls": "auto-tls",
}
_CLIENT_TRANSPORT: Final = _TRANSPORT_KEYS | {"allowed-hostname": "client-cert-allowed-hostname"}
_PEER_TRANSPORT: Final = {
    **{key: f"peer-{name}" for key, name in _TRANSPORT_KEYS.items()},
    "allowed-cn": "peer-cert-allowed-cn",
    "allowed-hostname": "peer-cert-allowed-hostname",
    "skip-client-san-verification": "peer-skip-client-san-verification",
}
_SOCKET: Final = {"reuse-port": "socket-reuse-port", "reuse-address": "socket-reuse-address"}
_DISCOVERY: Final = {
    "token": "discovery-token",
    "client": {
        "endpoints": "discovery-endpoints",
        "dial-timeout": "discovery-dial-timeout",
        "request-timeout": "discovery-request-timeout",
        "keepalive-time": "discovery-keepalive-time",
        "keepalive-timeout": "discovery-keepalive-timeout",
        "secure": {
            "cert": "discovery-cert",
            "key": "discovery-key",
            "cacert": "discovery-cacert",
            "insecure-transport": "discovery-insecure-transport",
            "insecure-skip-tls-verify": "discovery-insecure-skip-tls-verify",
        },
        "auth": {"username": "discovery-user", "password": "discovery-password"},
    },
}
_ELSEWHERE: Final = frozenset(
    {"config-file", "version", "discovery-fallback", "raft-read-timeout", "raft-write-timeout"}
    | {"client-crl-file", "peer-crl-file"}
    | set(_CLIENT_TRANSPORT.values())
    | set(_PEER_TRANSPORT.values())
    | set(_SOCKET.values())
    | {flag.name for flag in FLAGS if flag.name.startswith("discovery-")}
) - {"discovery-srv", "discovery-srv-name"}
_FILE_KEYS: Final[Mapping[str, object]] = {
    **{flag.name: flag.name for flag in FLAGS if flag.name not in _ELSEWHERE},
    "client-transport-security": _CLIENT_TRANSPORT,
    "peer-transport-security": _PEER_TRANSPORT,
    "socket-options": _SOCKET,
    "discovery-config": _DISCOVERY,
}  # key → flag name, or the keys of a mapping


def _take_mapping(
    settings: SourceSettings,
    path: str,
    tree: Mapping[object, object],
    keys: Mapping[str, object],
    within: str,
) -> None:
    for key, setting in tree.items():
        where = f"{within}{key}"
        meaning = keys.get(key) if isinstance(key, str) else None
        if setting is None:
            continue
        if meaning is None:
            settings.warnings.append(f"unrecognized key in config file {path}: {where}")
        elif isinstance(meaning, str):
            flag = BY_NAME[meaning]
            settings.values[flag.name] = _file_value(flag, setting, f"{where} in {path}")
        elif isinstance(meaning, dict) and isinstance(setting, dict):
            _take_mapping(settings, path, setting, meaning, f"{where}.")
        else:
            raise ConfigError(f"config file {path}: {where} must be a mapping")


def _file_value(flag: Flag, setting: object, where: str) -> Value:
    """Read a setting of the file; a duration is whole nanoseconds, or (unlike etcd) a Go text."""
    if flag.kind is FlagKind.BOOL:
        if not isinstance(setting, bool):
            raise ConfigError(f"invalid value {_show(setting)} for {where}: must be true or false")
        return setting
    is_number = isinstance(setting, int) and not isinstance(setting, bool)
    if flag.kind in {FlagKind.INT, FlagKind.UINT, FlagKind.UINT32}:
        if not is_number:
            raise ConfigError(f"invalid value {_show(setting)} for {where}: must be a whole number")
        return _value(flag, str(setting), where, ConfigError)
    if flag.kind is FlagKind.DURATION and is_number:
        return _value(flag, f"{setting}ns", where, ConfigError)
    is_list = isinstance(setting, list) and all(isinstance(each, _SCALARS) for each in setting)
    if flag.kind in {FlagKind.SET, FlagKind.LIST} and isinstance(setting, list) and is_list:
        items = tuple(str(item) for item in setting)
        return tuple(sorted(set(items))) if flag.kind is FlagKind.SET else items
    if not isinstance(setting, _SCALARS):
        raise ConfigError(f"invalid value {_show(setting)} for {where}: must be a text")
    text = str(setting).lower() if isinstance(setting, bool) else str(setting)
    return _value(flag, text, where, ConfigError)


def _show(setting: object) -> str:
    """Return a value for a message, shortened, because YAML aliases can make one that is huge."""
    shown = reprlib.Repr()
    shown.maxlevel = 2
    return shown.repr(setting)
