"""A story: what a user types at kubectl and helm, one command after another, and what they print.

    {"name": "label", "kind": "api", "client": "1.37.1", "files": {"pod.yaml": "…"}, "steps": [
      {"run": ["kubectl", "-n", "label", "create", "cm", "x"],
       "exit": 0, "stdout": "configmap/x created\n", "stderr": ""}]}

Further members of a step: `env` (variables), `stdin`, `pause` (seconds before it), `filter` and
`compare` (masks.py), `during` (steps that run while this one waits; then it is told to end).
Placeholders in arguments: `$SERVER` its URL, `$PORT` a free port. In texts: `127.0.0.1:6443` and
`$ADDRESS` the server, `$DIR` the story's folder.

Each story runs in a folder and a HOME of its own, against a server that others use meanwhile,
unless it is marked `alone`.
"""

import difflib
import gzip
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from typing_extensions import override

from tests.apiserver.stories.clients import PROGRAMS
from tests.apiserver.stories.masks import comparable
from tests.apiserver.stories.tolerated import compare_of
from tests.support.servers import free_ports

Story = dict[str, Any]
Step = dict[str, Any]

STEP_TIMEOUT_S = 120.0
BEFORE_DURING_S = 2.0  # a watch is there by then
BETWEEN_S = 0.7
AFTER_DURING_S = 1.0
_SLOWEST_TIMES = 3
TOKENS = {"admin": "admin-token", "alice": "alice-token", "bob": "bob-token", "none": ""}


class Output(NamedTuple):
    """What a command left behind."""

    exit: int
    stdout: str
    stderr: str


class Difference(NamedTuple):
    """One step that went another way: which lines were recorded and which came, masked.

    `inner` counts within `during` from 0; -1 is the step itself.
    """

    step: int
    inner: int
    command: str
    part: str  # exit, stdout or stderr
    recorded: list[str]
    got: list[str]

    @override
    def __str__(self) -> str:
        where = f"{self.step}" if self.inner < 0 else f"{self.step}.{self.inner}"
        lines = difflib.unified_diff(self.recorded, self.got, lineterm="", n=1)
        return "\n".join([f"step {where} {self.command}", f"  {self.part}:", *list(lines)[2:]])


def read_stories(path: Path) -> list[Story]:
    """Read a file of stories."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Stage:
    """Where stories are told: a server, and the folder with one release of kubectl and helm."""

    def __init__(self, server: str, programs: Path, *, patience: float = 1.0) -> None:
        self.server = server.rstrip("/")
        self.programs = programs
        self.patience = patience  # multiplies the waits around `during`
        address = urlsplit(server)
        self.address = f"{address.hostname}:{address.port}"

    def tell(self, story: Story, folder: Path) -> list[Difference]:
        """Run a story in an empty folder; return what went another way."""
        return [
            difference
            for number, (step, outputs) in enumerate(self._outputs(story, folder))
            for difference in _differences(number, step, outputs, story["client"])
        ]

    def record(self, story: Story, folder: Path, client: str) -> Story:
        """Run a story; return it with what was printed now in place of what was recorded."""
        steps = []
        for step, outputs in self._outputs(story, folder):
            new = {**step, **outputs[0]._asdict()}
            if "during" in step:
                new["during"] = [
                    {**inner, **output._asdict()}
                    for inner, output in zip(step["during"], outputs[1:], strict=True)
                ]
            steps.append(new)
        return {**story, "client": client, "steps": steps}

    def _outputs(self, story: Story, folder: Path) -> Iterator[tuple[Step, list[Output]]]:
        with _RunningStory(self, story, folder) as told:
            for step in story["steps"]:
                yield step, told.run(step)


class _RunningStory:
    """One story while it is told."""

    def __init__(self, stage: Stage, story: Story, folder: Path) -> None:
        self.stage = stage
        self.folder = folder
        self.work = folder / "w"
        for each in ("w", "home", "tmp"):
            (folder / each).mkdir(parents=True)
        for name, text in story["files"].items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        (folder / "kubeconfig").write_text(json.dumps(_kubeconfig(stage.server)))
        (self.port,) = free_ports(1)
        self._slowest_s = 0.0
        self.environment = {
            "PATH": f"{stage.programs}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "EDITOR": "false",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs on: commands end within their step."""

    def run(self, step: Step) -> list[Output]:
        """Run a step and those during it; its own output comes first."""
        time.sleep(step.get("pause", 0))
        if "during" not in step:
            begin_s = time.monotonic()
            with self._started(step) as process:
                found = self._output(process, step.get("stdin"))
            self._slowest_s = max(self._slowest_s, time.monotonic() - begin_s)
            return [found]
        with self._started(step) as process:
            self._wait(BEFORE_DURING_S)
            inner = []
            for number, each in enumerate(step["during"]):
                if number:
                    self._wait(BETWEEN_S)
                inner += self.run(each)
            self._wait(AFTER_DURING_S)
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            return [self._output(process, None), *inner]

    def _wait(self, usual_s: float) -> None:
        """Give a running command time: more where commands so far took long, on a busy machine."""
        time.sleep(max(usual_s * self.stage.patience, _SLOWEST_TIMES * self._slowest_s))

    @contextmanager
    def _started(self, step: Step) -> Iterator[subprocess.Popen[str]]:
        words = [self._fill(word) for word in step["run"]]
        if words[0] in PROGRAMS:
            words[0] = str(self.stage.programs / words[0])
        stdin = subprocess.PIPE if "stdin" in step else subprocess.DEVNULL
        process = subprocess.Popen(
            words,
            cwd=self.work,
            env=self.environment | {k: self._fill(v) for k, v in step.get("env", {}).items()},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def _output(self, process: subprocess.Popen[str], stdin: str | None) -> Output:
        try:
            stdout, stderr = process.communicate(stdin, timeout=STEP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            stdout, stderr = process.communicate()
            stderr += f"(ended after {STEP_TIMEOUT_S:.0f} s)"
        return Output(process.returncode, self._plain(stdout), self._plain(stderr))

    def _fill(self, word: str) -> str:
        return word.replace("$SERVER", self.stage.server).replace("$PORT", str(self.port))

    def _plain(self, text: str) -> str:
        for own, name in (
            (self.stage.address, "127.0.0.1:6443"),
            (str(self.folder), "$DIR"),
            (str(self.port), "$PORT"),
        ):
            text = text.replace(own, name)
        return text


def _differences(
    number: int, step: Step, outputs: list[Output], client: str
) -> Iterator[Difference]:
    steps = [step, *step.get("during", [])]
    for inner, (each, output) in enumerate(zip(steps, outputs, strict=True), -1):
        compare = compare_of(each, client)
        if compare == "skip":
            continue
        command = " ".join(each["run"])
        if each["exit"] != output.exit:
            codes = [str(each["exit"])], [str(output.exit)]
            yield Difference(number, inner, command, "exit", *codes)
        for part, text_filter in (("stdout", each.get("filter", "")), ("stderr", "")):
            recorded, got = each[part], getattr(output, part)
            if recorded == got:
                continue
            ours, theirs = (comparable(text, compare, text_filter) for text in (recorded, got))
            if ours != theirs:
                yield Difference(number, inner, command, part, ours, theirs)


def _kubeconfig(server: str) -> dict[str, Any]:
    cluster = {"server": server, "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [
            {"name": name, "user": {"token": token} if token else {}}
            for name, token in TOKENS.items()
        ],
        "contexts": [
            {"name": name, "context": {"cluster": "test", "user": name}}
            for name in TOKENS
            if name != "none"
        ],
        "current-context": "admin",
    }
