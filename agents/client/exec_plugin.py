"""Credentials from an exec plugin: the `exec` of a kubeconfig's user.

    credentials = run_plugin(user["exec"], directory, cluster)

The program is run once, with the terminal of its caller, and prints an ExecCredential. What it says
of its errors goes where the caller's own errors go.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import orjson

from kvstack.agents.client.over_http import Credentials
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.errors import ConfigError

TIMEOUT_S: Final = 120.0
"""People may have to log in."""
_GROUP: Final = "client.authentication.k8s.io/"
_VERSIONS: Final = (f"{_GROUP}v1", f"{_GROUP}v1beta1")
_ANSWER_BYTES_MAX: Final = 1 << 20
_INFO: Final = "KUBERNETES_EXEC_INFO"


class PluginError(ConfigError):
    """A program gave no credentials; the text names it."""


def run_plugin(spec: Object, directory: Path, cluster: Object) -> Credentials:
    """Return what the program of a user answers; raises PluginError.

    directory: of the kubeconfig, which a relative path of the program begins at. cluster: as the
    kubeconfig has it, its files read; it is passed to programs that request it.
    """
    command = spec.get("command")
    if not isinstance(command, str) or not command:
        raise PluginError("exec: command is missing")
    version = spec.get("apiVersion")
    if version not in _VERSIONS:
        raise PluginError(f"exec: {command}: apiVersion {version!r} is not one of {_VERSIONS}")
    is_interactive = spec.get("interactiveMode") != "Never" and sys.stdin.isatty()
    if spec.get("interactiveMode") == "Always" and not is_interactive:
        raise PluginError(f"exec: {command} needs a terminal (interactiveMode: Always)")
    program = str(directory / command) if "/" in command else command
    about: Object = {"interactive": is_interactive}
    if spec.get("provideClusterInfo"):
        about["cluster"] = cluster
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": about}
    environment = {**os.environ, _INFO: orjson.dumps(info).decode()}
    for each in spec.get("env") or ():
        environment[str(each.get("name"))] = str(each.get("value", ""))
    arguments = [program, *map(str, spec.get("args") or ())]
    answer = _answer(arguments, environment, spec, is_interactive=is_interactive)
    return _credentials(command, answer)


def _answer(
    arguments: list[str], environment: dict[str, str], spec: Object, *, is_interactive: bool
) -> bytes:
    try:
        done = subprocess.run(
            arguments,
            env=environment,
            stdin=None if is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        hint = spec.get("installHint")
        hint_text = f"\n{hint}" if isinstance(hint, str) and hint else ""
        raise PluginError(f"exec: {arguments[0]}: {error.strerror}{hint_text}") from error
    except subprocess.TimeoutExpired as error:
        raise PluginError(f"exec: {arguments[0]} did not end within {TIMEOUT_S:g} s") from error
    if done.returncode:
        raise PluginError(f"exec: {arguments[0]} ended with exit code {done.returncode}")
    if len(done.stdout) > _ANSWER_BYTES_MAX:
        raise PluginError(f"exec: {arguments[0]} printed more than {_ANSWER_BYTES_MAX} bytes")
    return done.stdout


def _credentials(command: str, answer: bytes) -> Credentials:
    try:
        found = orjson.loads(answer)
    except ValueError as error:
        raise PluginError(f"exec: {command} did not print JSON: {error}") from error
    status = found.get("status") if isinstance(found, dict) else None
    if not isinstance(status, dict) or found.get("kind") != "ExecCredential":
        raise PluginError(f"exec: {command} did not print an ExecCredential with a status")
    token, certificate, key = (
        str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
    )
    if not token and not (certificate and key):
        raise PluginError(
            f"exec: {command} returned neither a token nor a certificate with its key"
        )
    return Credentials(token, "", certificate.encode(), key.encode())
