"""The program: `kvstack proxy`, in the place of kube-proxy.

    flags or file ─► the node in the API ─► backends ─► Services, slices ─► until SIGTERM or SIGINT

Its rules stay when it ends, so that traffic goes on; `--cleanup` takes them away. It ends (exit
code 1) when its node goes or gets other addresses, or the configuration file changes, and is
expected to be started again.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from socket import gethostname
from typing import Final, NamedTuple, cast

import yaml

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.client.series_recorder import SeriesRecorder
from kvstack.agents.process.settings import cluster_of
from kvstack.agents.proxy import serving
from kvstack.agents.proxy.configuration import (
    API_VERSION,
    KIND,
    checked,
    read_configuration,
    with_path,
    without_effect,
)
from kvstack.agents.proxy.flags import FIELDS, TABLE, paths_of
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.logger import Logger
from kvstack.component.process.command import Command, Work, level_of, run_command
from kvstack.component.process.program import settle, stop_event

COMMAND: Final = "kvstack proxy"
ABOUT: Final = "Leads traffic to the endpoints of Services. Flags are kube-proxy's."
AGENT: Final = "kube-proxy"
_LOOK_S: Final = 5.0
"""How often the configuration file is looked at."""
_EVENTS_S: Final = 1.0


class Settings(NamedTuple):
    """What a proxy is told."""

    configuration: Object
    node: str
    without_effect: tuple[str, ...]
    verbosity: int
    file: str = ""
    written_to: str = ""
    cleans_up: bool = False
    only_begins: bool = False


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _prepare)


def _prepare(given: CommandLine) -> Work | None:
    settings = read_settings(given)
    if settings.written_to:
        _write(settings)
        return None
    if settings.cleans_up:
        serving.clean_up()
        return None
    if settings.only_begins:
        return None
    cluster = _cluster(settings, given)
    return Work(
        lambda log: serve(cluster, settings, log),
        level_of(settings.verbosity),
        settings.without_effect,
    )


def read_settings(given: CommandLine) -> Settings:
    """Return the settings of a command line, and of the file that it names; raises ConfigError."""
    reader = FlagReader(given, [])
    file = reader.text("config")
    if file:
        obj = _read(file)
        found = read_configuration(obj)
        if reader.is_given("hostname-override"):
            found["hostnameOverride"] = reader.text("hostname-override")
        idle = tuple(without_effect(obj))
    else:
        found = read_configuration({})
        for name, (_, path, _) in FIELDS.items():
            if reader.is_given(name):
                for field in paths_of(path):
                    with_path(found, field, given[name])
        checked(found)
        idle = reader.without_effect
    return Settings(
        found,
        found["hostnameOverride"].strip().lower() or gethostname().lower(),
        idle,
        reader.int("v"),
        file,
        reader.text("write-config-to"),
        reader.flag("cleanup"),
        reader.flag("init-only"),
    )


async def serve(cluster: Cluster, settings: Settings, log: Logger) -> None:
    """Serve until a signal comes; ConfigError: it must be started again, and why."""
    stop = stop_event()
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        api = Api(connect(cluster), Options(user_agent=AGENT))
        stack.push_async_callback(api.close)
        recorder = SeriesRecorder(api, AGENT, f"{AGENT}-{settings.node}", clock, log)

        async def tell_last() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVENTS_S):
                    await recorder.flushed()
            await recorder.close()

        stack.push_async_callback(tell_last)
        served = serving.Serving(api, recorder, settings.node, settings.configuration, clock, log)
        stack.push_async_callback(served.stop)
        working = asyncio.create_task(_work(served, settings.file), name="proxy")
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)


async def _work(served: serving.Serving, file: str) -> None:
    """Serve; raises ConfigError once the process is to end."""
    before = _stamp(file)
    await served.start()
    settle()
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await served.ended()
        if file and _stamp(file) != before:
            text = "content of the proxy server's configuration file was updated"
            raise ConfigError(text)


def _stamp(file: str) -> tuple[int, int]:
    """Return what changes when a file does; of one that is gone, too."""
    try:
        found = Path(file).stat()
    except OSError:
        return (0, 0)
    return (found.st_ino, found.st_mtime_ns)


def _cluster(settings: Settings, given: CommandLine) -> Cluster:
    connection = cast("Object", settings.configuration["clientConnection"])
    reader = FlagReader(given, [])
    own = "" if settings.file else reader.text("kubeconfig")
    return cluster_of(connection["kubeconfig"] or own, reader.text("master"))


def _read(path: str) -> Object:
    try:
        found = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: it holds no configuration")
    return found


def _write(settings: Settings) -> None:
    whole = {"apiVersion": API_VERSION, "kind": KIND, **settings.configuration}
    try:
        Path(settings.written_to).write_text(yaml.safe_dump(whole), "utf-8")
    except OSError as error:
        raise ConfigError(f"--write-config-to: {settings.written_to}: {error.strerror}") from error
