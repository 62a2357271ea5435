"""The topology of compose.yaml as processes of this machine: a small reader of the file.

    with Topology(COMPOSE, directory) as topology:
        topology.up()                     each service once those that it needs are well
        topology.kill("apiserver1")       SIGKILL; what is to be restarted is started again

Each service has a loopback address of its own, which stands for its name, for 0.0.0.0 and for its
127.0.0.1. A volume is a folder; its mount points in texts become that folder, and one below another
is a link in it. `localhost:PORT` in texts is the service that publishes the port.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

Service = dict[str, Any]

ROOT: Final = Path(__file__).parents[2]
COMPOSE: Final = ROOT / "compose.yaml"
IMAGE_ENTRYPOINT: Final = ("kvstore",)
PYTHON: Final = "/opt/kvstack/bin/python"
OWNER: Final = "10001:10001"
UP_S: Final = 180.0

_DEFAULT = re.compile(r"\$\{(\w+):-([^}]*)\}")
_FIRST_NETWORK = 5


def read_compose(path: Path = COMPOSE) -> dict[str, Any]:
    """Return a compose file as it is without any variable set."""
    found: dict[str, Any] = yaml.safe_load(_DEFAULT.sub(r"\2", path.read_text()))
    return found


def services_of(path: Path = COMPOSE) -> dict[str, Service]:
    """Return the services that start without a profile."""
    services: dict[str, Service] = read_compose(path)["services"]
    return {name: each for name, each in services.items() if not each.get("profiles")}


class Topology:
    """The services of a compose file."""

    def __init__(
        self,
        path: Path,
        directory: Path,
        *,
        extra: Mapping[str, Sequence[str]] | None = None,
        aliases: Mapping[str, str] | None = None,
        replaced: Mapping[str, Service] | None = None,
        network: int = _FIRST_NETWORK,
    ) -> None:
        """directory: for volumes and logs; network: the third number of the addresses.

        extra: more arguments, by service. aliases: names that several services share, and the
        service that stands for all of them here. replaced: services instead of those of the file.
        """
        self._extra = extra or {}
        self.directory = directory
        self.services: dict[str, Service] = {
            **services_of(path),
            **(replaced or {}),
        }
        self.addresses = {
            name: f"127.0.{network}.{number}" for number, name in enumerate(self.services, 1)
        }
        self._published = {
            port.rsplit(":", 2)[-2]: name
            for name, service in self.services.items()
            for port in service.get("ports", ())
        }
        reached = [name for name, each in self.services.items() if "network_mode" not in each]
        self._reached = {name: self.addresses[name] for name in reached}
        for alias, name in (aliases or {}).items():
            self._reached[alias] = self.addresses[name]
        names = "|".join(sorted(map(re.escape, self._reached), key=len, reverse=True))
        self._names = re.compile(rf"(?<![\w.-])({names})(?![\w-])")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._restarting = threading.Event()
        self._watcher: threading.Thread | None = None
        self.restarts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def up(self) -> None:
        """Start everything, and return when all that tell their health are well."""
        self._restarting.set()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        deadline = time.monotonic() + UP_S
        waiting = dict(self.services)
        done: set[str] = set()
        while waiting:
            for name, service in list(waiting.items()):
                if all(self._is_met(each, needs, done) for each, needs in _needs(service)):
                    del waiting[name]
                    self._start(name)
                    if not restarts(service):
                        self._finish(name, deadline)
                        done.add(name)
            assert time.monotonic() < deadline, f"not up: {sorted(waiting)}"
            time.sleep(0.05)
        for name in self.services:
            while name not in done and not self.is_healthy(name):
                assert time.monotonic() < deadline, f"{name} is not healthy"
                time.sleep(0.05)

    def down(self) -> None:
        """End everything at once, as a machine that loses its power."""
        self._restarting.clear()
        if self._watcher is not None:
            self._watcher.join()
        for process in self._processes.values():
            process.kill()
            process.wait()

    def kill(self, name: str) -> None:
        """Kill a service; it is started again at once, as by its restart policy."""
        process = self._processes[name]
        process.kill()
        process.wait()

    def is_healthy(self, name: str) -> bool:
        """Ask a service for its health, as its file says; True if it says nothing."""
        check = self.services[name].get("healthcheck")
        if check is None:
            return self._processes[name].poll() is None
        how, program, option, code = check["test"]
        assert (how, program, option) == ("CMD", PYTHON, "-c"), "checks are lines of Python"
        try:
            # In this process: an interpreter of its own for every question would take long.
            exec(compile(self._text(name, code), name, "exec"), {})
        except OSError:
            return False
        return True

    def path(self, name: str, mounted: str) -> Path:
        """Return where a path of a service is."""
        return Path(self._text(name, mounted))

    def url(self, port: str) -> str:
        """Return how a published port is reached from outside."""
        return f"https://{self.addresses[self._published[port]]}:{port}"

    def command(self, name: str) -> list[str]:
        """Return what a service runs."""
        service = self.services[name]
        program, *first = service.get("entrypoint", IMAGE_ENTRYPOINT)
        arguments = [*first, *service.get("command", ()), *self._extra.get(name, ())]
        return [*_module(program), *(self._text(name, word) for word in arguments)]

    # What is inside.

    def _watch(self) -> None:
        while self._restarting.is_set():
            for name, process in list(self._processes.items()):
                if process.poll() is not None and restarts(self.services[name]):
                    self.restarts += 1
                    self._start(name)
            time.sleep(0.1)

    def _is_met(self, name: str, condition: str, done: set[str]) -> bool:
        if condition == "service_completed_successfully":
            return name in done
        return name in self._processes and self.is_healthy(name)

    def _start(self, name: str) -> None:
        given = self.services[name].get("environment") or {}
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            **{each: self._text(name, str(text)) for each, text in given.items()},
        }
        log = self.directory / f"{name}.log"
        with log.open("ab") as output:
            self._processes[name] = subprocess.Popen(
                self.command(name),
                env=environment,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _finish(self, name: str, deadline: float) -> None:
        process = self._processes.pop(name)
        code = process.wait(max(0.1, deadline - time.monotonic()))
        assert code == 0, (self.directory / f"{name}.log").read_text()

    def _text(self, name: str, text: str) -> str:
        """Return a text of a service with addresses and folders of this machine."""
        own = self.addresses[name]
        for port, publisher in self._published.items():
            text = text.replace(f"localhost:{port}", f"{self.addresses[publisher]}:{port}")
        mounts = [volume.split(":")[:2] for volume in self.services[name].get("volumes", ())]
        for source, target in mounts:
            folder = self.directory / source
            folder.mkdir(parents=True, exist_ok=True)
            for outer, above in mounts:
                if target.startswith(f"{above}/"):
                    below = target.removeprefix(f"{above}/")  # may name a member, as texts do
                    below = self._names.sub(lambda found: self._reached[found[1]], below)
                    link = self.directory / outer / below
                    link.parent.mkdir(parents=True, exist_ok=True)
                    if not link.is_symlink():
                        link.symlink_to(folder)
        for source, target in mounts:
            folder = self.directory / source
            text = re.sub(rf"(?<![\w/.-]){re.escape(target)}(?=/|$)", str(folder), text)
        text = text.replace(OWNER, f"{os.getuid()}:{os.getgid()}")
        text = self._names.sub(lambda found: self._reached[found[1]], text)
        return text.replace("0.0.0.0", own).replace("127.0.0.1", own)


def _needs(service: Service) -> list[tuple[str, str]]:
    return [(name, each["condition"]) for name, each in service.get("depends_on", {}).items()]


def restarts(service: Service) -> bool:
    """Tell whether a service is started again when it ends."""
    return service.get("restart", "no") != "no"


def _module(program: str) -> tuple[str, ...]:
    return (sys.executable, "-m", program)
