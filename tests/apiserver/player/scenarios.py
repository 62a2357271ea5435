"""Plays one scenario: sends its requests, compares every answer.

Members of a step beyond `request` and `response`:

    uses        where values of the request come from (filling.py)
    body_from   the body is what this server answered in that step
    retry       the answer is so a little later: repeated until it is, or patience is over
    watch       {events, after, end}: opened here, kept open while the steps up to `after` run; then
                there are so many events, or (end) the server ends the stream
    trim        the recorded answer was shortened: extra members are no difference
    action      compact: here the store was compacted at its revision
    wait        (of a request) seconds before it is sent
    cert, token (of a request) the client's certificate, or its token; null: none
    token-claims what the token of the answer says
    calls       what webhooks are sent meanwhile; the scenario's `webhooks` say what they answer

Scenarios run one after another: groups of definitions, lists of everything and counters are shared.
"""

import base64
import gzip
import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from tests.apiserver.player.comparing import ABSENT, Comparison, FieldDifference
from tests.apiserver.player.documents import is_plain_bookmark, packed
from tests.apiserver.player.filling import Filler
from tests.apiserver.player.learned import Learned
from tests.apiserver.player.object_times import ObjectTimes
from tests.apiserver.player.streams import WatchStream
from tests.apiserver.player.target import ADMIN_TOKEN, Target
from tests.apiserver.player.tokens import claims_of
from tests.apiserver.support.hook_server import HookServer

Scenario = dict[str, Any]
Step = dict[str, Any]

RETRY_S = 0.15
SETTLED_S = 0.15  # what is there when a watch begins has come by then
WATCH_S = 15.0  # how long events are waited for
LONG_TIMEOUT_S = 100  # a watch that would last longer is not waited out
_TIMEOUT = re.compile(r"timeoutSeconds=(\d+)")
_WEBHOOK = re.compile(r"\{(webhook|closed-port)")


class Difference(NamedTuple):
    """One difference within a scenario."""

    step: int
    found: FieldDifference


def read_scenarios(path: Path) -> list[Scenario]:
    """Read a file of scenarios."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def lacking(scenario: Scenario, target: Target) -> str:
    """Tell what a scenario needs that is not there; empty if it can be played."""
    missing = [each for each in scenario.get("needs", ()) if each not in target.options.beside]
    if missing:
        return ", ".join(missing)
    for step in scenario["steps"]:
        if step.get("action") == "compact" and not target.options.store:
            return "the store's address"
        if "cert" in step["request"] and target.options.client_ca is None:
            return "the authority of client certificates"
    return ""


def play(scenario: Scenario, target: Target) -> list[Difference]:
    """Play a scenario; return all differences in the order of its steps."""
    placeholders = {"{server}": "https://SERVER-IP:SERVER-PORT"}
    placeholders["{server-address}"] = "SERVER-IP:SERVER-PORT"
    hooks = None
    if "webhooks" in scenario or _WEBHOOK.search(json.dumps(scenario)):
        hooks = target.hooks()
        hooks.answers = dict(scenario.get("webhooks", {}))
        placeholders |= hooks.placeholders
    text = json.dumps(scenario, ensure_ascii=False)
    for placeholder, name in placeholders.items():
        text = text.replace(placeholder, name)
    return _Play(json.loads(text), target, hooks).run()


class _Play:
    """One scenario while it is played."""

    def __init__(self, scenario: Scenario, target: Target, hooks: HookServer | None) -> None:
        self._scenario = scenario
        self._hooks = hooks
        self._target = target
        self._learned = Learned()
        self._times = ObjectTimes()
        self._answers: list[dict[str, Any]] = []
        self._watches: list[tuple[int, WatchStream, Step]] = []
        self._differences: list[Difference] = []

    def run(self) -> list[Difference]:
        try:
            for number, step in enumerate(self._scenario["steps"]):
                self._step(number, step)
                self._finish_watches(number)
        finally:
            for _, stream, _ in self._watches:
                stream.close()
        return sorted(self._differences, key=lambda each: each.step)

    def _step(self, number: int, step: Step) -> None:
        request, recorded = step["request"], step["response"]
        if step.get("action") == "compact":
            _compact(self._target.options.store)
            self._answers.append(recorded)
            return
        self._learned.look_at_request(request)
        self._learned.look_at_answer(recorded)
        time.sleep(request.get("wait", 0))
        filler = Filler(self._learned, step.get("uses", []), self._answers)
        if "watch" in step and not step.get("raw"):
            self._open_watch(number, step, filler)
        else:
            self._ask(number, step, filler)

    def _ask(self, number: int, step: Step, filler: Filler) -> None:
        patience_s = self._target.options.patience_s if step.get("retry") else 0
        deadline = time.monotonic() + patience_s
        body = self._body(step, filler)
        while True:
            if self._hooks is not None:
                self._hooks.calls.clear()
            got = self._answer(step, filler, body)
            comparison = self._comparison(step)
            comparison.answers(
                step["response"],
                got,
                method=step["request"]["method"],
                path=step["request"]["path"],
            )
            if "token-claims" in step:
                comparison.compare(step["token-claims"], _claims(got), "token-claims")
            if self._hooks is not None:
                self._compare_calls(step, self._hooks.calls, comparison)
            if not comparison.found or time.monotonic() >= deadline:
                break
            time.sleep(RETRY_S)
        self._answers.append(got)
        self._keep(number, comparison)
        self._times.look(step["response"].get("json"), got.get("json"))

    @staticmethod
    def _compare_calls(step: Step, calls: list[dict[str, Any]], comparison: Comparison) -> None:
        def order(call: dict[str, Any]) -> tuple[str, str]:
            return call["path"], comparison.form(call)  # several are called at once

        recorded = step.get("calls", [])
        comparison.compare(sorted(recorded, key=order), sorted(calls, key=order), "calls")

    def _comparison(self, step: Step) -> Comparison:
        return Comparison(self._learned, self._target.mask, shortened="trim" in step)

    def _keep(self, number: int, comparison: Comparison) -> None:
        self._learned.keep(comparison.news)
        self._differences += [Difference(number, found) for found in comparison.found]

    def _filled(self, step: Step, filler: Filler) -> tuple[str, dict[str, str], str | None]:
        """Path, headers and token of a request as they are sent."""
        request, unmask = step["request"], self._target.unmask
        headers = {
            key: unmask(filler.text(value)) for key, value in request.get("headers", {}).items()
        }
        token = request.get("token", ADMIN_TOKEN)
        return unmask(filler.text(request["path"])), headers, token and filler.text(token)

    def _answer(self, step: Step, filler: Filler, body: bytes | None) -> dict[str, Any]:
        request = step["request"]
        path, headers, token = self._filled(step, filler)
        status, got, content = self._target.request(
            request["method"],
            path,
            body,
            headers,
            token=token,
            certificate=request.get("cert"),
            is_endless=step["response"].get("status") == 0,
        )
        answer: dict[str, Any] = {"status": status, "headers": got}
        if content and (step.get("raw") or "text" in step["response"]):
            try:
                return {**answer, "text": content.decode()}
            except UnicodeDecodeError:
                pass  # it is no text: told by its kind
        return {**answer, **packed(content)}

    def _body(self, step: Step, filler: Filler) -> bytes | None:
        request = step["request"]
        if "body_from" in step:
            earlier = self._answers[step["body_from"]]
            return base64.b64decode(earlier.get("base64", request["base64"]))
        if "json" in request:
            timed = self._times.fill(request["json"], self._learned.has_chosen)
            filled = filler.json(timed)
            return json.dumps(filled, separators=(",", ":"), ensure_ascii=False).encode()
        if "text" in request:
            return filler.text(request["text"]).encode()
        if "base64" in request:
            return base64.b64decode(request["base64"])
        return _large_config_map(request["make"]) if "make" in request else None

    # watches

    def _open_watch(self, number: int, step: Step, filler: Filler) -> None:
        stream = WatchStream(self._target, *self._filled(step, filler))
        self._watches.append((number, stream, step))
        self._answers.append(stream.answer)
        if step["watch"].get("after", number) > number:
            stream.settle(SETTLED_S)

    def _finish_watches(self, number: int) -> None:
        for item in list(self._watches):
            opened, stream, step = item
            if step["watch"].get("after", opened) > number:
                continue
            events = step["response"].get("events", [])
            stream.finish(
                sum(not is_plain_bookmark(event) for event in events),
                self._watch_s(step["request"]["path"]),
                until_end=step["watch"].get("end", False),
            )
            self._watches.remove(item)
            comparison = self._comparison(step)
            bookmarks = self._scenario["name"].startswith("watches-bookmark")
            comparison.answers(step["response"], stream.answer, bookmarks=bookmarks)
            self._keep(opened, comparison)
            self._times.look(*map(_objects_of, (step["response"], stream.answer)))

    def _watch_s(self, path: str) -> float:
        wait_s = min(WATCH_S, self._target.options.patience_s)
        given = _TIMEOUT.search(path)
        if given is None or int(given[1]) > LONG_TIMEOUT_S:
            return wait_s
        return max(wait_s, int(given[1]) + 3.0)


def _objects_of(answer: dict[str, Any]) -> list[Any]:
    """Return the events of a watch that have their place."""
    return [each.get("json") for each in answer.get("events", []) if not is_plain_bookmark(each)]


def _large_config_map(make: dict[str, Any]) -> bytes:
    """Make a large ConfigMap: of each value what is repeated, and how often."""
    data = {key: each["repeat"] * each["times"] for key, each in make["data"].items()}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": make["name"]}}
    return json.dumps({**made, "data": data}, separators=(",", ":")).encode()


def _claims(answer: dict[str, Any]) -> Any:
    try:
        return claims_of(answer["json"]["status"]["token"])
    except (KeyError, TypeError, ValueError):
        return ABSENT


def _compact(store: str) -> None:
    """Compact the store at its current revision, over etcd's JSON gateway."""

    def post(path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            store.rstrip("/") + path,
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    revision = post("/v3/maintenance/status", {})["header"]["revision"]
    post("/v3/kv/compaction", {"revision": revision})
