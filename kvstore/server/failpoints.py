"""Failpoints set by environment and over HTTP, in gofail's language, so that gofail's tools work.

    GOFAIL_FAILPOINTS='raftBeforeSave=sleep("200ms");walAfterSync=panic'    set at start
    GOFAIL_HTTP=127.0.0.1:22381                                             served while running
        GET /               name=terms, a line each
        GET /name           terms       GET /name/count    how often they acted
        PUT /name           body: terms            PUT /failpoints    body: name=terms;name=terms
        DELETE /name        disarm

    terms    1*sleep("50ms")->25.5%panic->return("text")
             the first term whose count and probability allow it acts; sleep takes a duration or
             milliseconds; panic ends the process at once with exit code 2, as in etcd

Not for production: every client of the address can stop the server.
"""

import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple

from typing_extensions import override

from kvstack.component.errors import ConfigError
from kvstore import failpoints
from kvstore.config.values import parse_duration

TERMS_BYTES_MAX: Final = 1 << 20
PANIC_EXIT_CODE: Final = 2
_ACTIONS: Final = ("off", "return", "sleep", "panic", "break", "print")
_CONDITION: Final = re.compile(r"(\d+)\*|(\d+(?:\.\d+)?)%")
_VALUE: Final = re.compile(r'\((?:"((?:[^"\\]|\\.)*)"|(-?\d+)|(true|false))?\)')
_ESCAPE: Final = re.compile(r"\\(.)")

Value = str | int | bool | None


class Term(NamedTuple):
    """One step of a chain."""

    counts: list[int]  # remaining actions; all must be above 0
    probabilities: tuple[float, ...]
    action: str
    value: Value


def parse(text: str) -> list[Term]:
    """Parse a chain of terms; ValueError names the rest that cannot be parsed."""
    terms: list[Term] = []
    rest = text
    while rest:
        if terms:
            if not rest.startswith("->"):
                raise ValueError(f'failpoint: could not parse terms "{text}" past "{rest}"')
            rest = rest[2:]
        counts, probabilities = [], []
        while (condition := _CONDITION.match(rest)) is not None:
            if condition.group(1):
                counts.append(int(condition.group(1)))
            else:
                probabilities.append(float(condition.group(2)) / 100)
            rest = rest[condition.end() :]
        action = next((each for each in _ACTIONS if rest.startswith(each)), None)
        if action is None:
            raise ValueError(f'failpoint: could not parse terms "{text}" past "{rest}"')
        rest = rest[len(action) :]
        value: Value = None
        if (given := _VALUE.match(rest)) is not None:
            rest = rest[given.end() :]
            value = _value(given)
        terms.append(_checked(Term(counts, tuple(probabilities), action, value), text))
    if not terms:
        raise ValueError("failpoint: could not parse terms: there are none")
    return terms


def _value(matched: re.Match[str]) -> Value:
    text, number, boolean = matched.groups()
    if text is not None:
        return _ESCAPE.sub(r"\1", text)
    if number is not None:
        return int(number)
    return None if boolean is None else boolean == "true"


def _checked(term: Term, text: str) -> Term:
    """Refuse a term that could not be carried out at a hit."""
    if term.action == "sleep":
        _seconds(term.value, text)
    if term.action == "break":
        raise ValueError(f'failpoint: "{text}": break starts a debugger of Go; it does not apply')
    return term


def _seconds(value: Value, text: str) -> float:
    if isinstance(value, str):
        return parse_duration(value) / 1e9
    if isinstance(value, bool) or value is None:
        raise ValueError(f'failpoint: "{text}": sleep needs a duration or milliseconds')
    return value / 1000


class ArmedFailpoint:
    """The terms of one failpoint; called at every hit, from any thread."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self.text = text
        self.count = 0
        self._terms = parse(text)
        self._lock = threading.Lock()

    def __call__(self) -> Value:
        """Run the next term; return the value of a return term, or None."""
        with self._lock:
            term = next((each for each in self._terms if _is_allowed(each)), None)
            if term is None:
                return None
            self.count += 1
        match term.action:
            case "sleep":
                time.sleep(_seconds(term.value, self.text))
            case "panic":
                _end_process(self._name, term.value)
            case "print":
                sys.stdout.write(f"failpoint print: {self._name}\n")
            case "return":
                return "" if term.value is None else term.value
            case _:
                pass
        return None


def _is_allowed(term: Term) -> bool:
    for position, remaining in enumerate(term.counts):
        if remaining <= 0:
            return False
        term.counts[position] = remaining - 1
    # Neither secret nor reproducible: the operator asked for a probability.
    return all(random.random() <= each for each in term.probabilities)  # noqa: S311, TID251 - faults


def _end_process(name: str, value: Value) -> None:
    sys.stderr.write(f"panic: failpoint panic: {name if value is None else value}\n")
    sys.stderr.flush()
    os._exit(PANIC_EXIT_CODE)  # like a crash: nothing is closed or flushed


class Failpoints:
    """The armed failpoints and their terms."""

    def __init__(self) -> None:
        self._armed: dict[str, ArmedFailpoint] = {}

    def set(self, name: str, text: str) -> None:
        """Arm a failpoint; ValueError for invalid terms, KeyError for an unknown name."""
        if name not in failpoints.NAMES:
            raise KeyError("failpoint: failpoint does not exist")
        armed = ArmedFailpoint(name, text)
        self._armed[name] = armed
        failpoints.arm(name, armed)

    def clear(self, name: str) -> None:
        """Disarm a failpoint; ValueError if it is not armed, KeyError for an unknown name."""
        if name not in failpoints.NAMES:
            raise KeyError("failpoint: failpoint does not exist")
        if self._armed.pop(name, None) is None:
            raise ValueError("failpoint: failpoint is disabled")
        failpoints.disarm(name)

    def text(self, name: str) -> str:
        """Return a failpoint's terms; KeyError for an unknown name, ValueError if not armed."""
        return self._armed_or_error(name).text

    def count(self, name: str) -> int:
        """Return how often it acted; errors as text()."""
        return self._armed_or_error(name).count

    def _armed_or_error(self, name: str) -> ArmedFailpoint:
        if name not in failpoints.NAMES:
            raise KeyError("failpoint: failpoint does not exist")
        if name not in self._armed:
            raise ValueError("failpoint: failpoint is disabled")
        return self._armed[name]

    def lines(self) -> str:
        """Return all failpoints, a line each."""
        armed = self._armed
        return "".join(
            f"{name}={armed[name].text if name in armed else ''}\n"
            for name in sorted(failpoints.NAMES)
        )


def from_environment(environment: Mapping[str, str]) -> Callable[[], None] | None:
    """Arm and serve the failpoints of the environment; return what stops the server, if any.

    ConfigError for invalid terms, an unknown name, or an address that cannot be used.
    """
    armed = Failpoints()
    try:
        for name, text in _split(environment.get("GOFAIL_FAILPOINTS", "")).items():
            armed.set(name, text)
    except (ValueError, KeyError) as error:
        raise ConfigError(f"GOFAIL_FAILPOINTS: {error.args[0]}") from None
    address = environment.get("GOFAIL_HTTP", "")
    return _serve(armed, address) if address else None


def _split(text: str) -> dict[str, str]:
    terms_by_name = {}
    for item in filter(None, text.split(";")):
        name, equals, terms = item.partition("=")
        if not equals or "=" in terms:
            raise ValueError(f'bad failpoint "{item}"')
        terms_by_name[name] = terms
    return terms_by_name


def _serve(armed: Failpoints, address: str) -> Callable[[], None]:
    host, _, port = address.rpartition(":")
    try:
        server = ThreadingHTTPServer((host, int(port)), _handler(armed))
    except (OSError, ValueError) as error:
        raise ConfigError(f"GOFAIL_HTTP {address}: {error}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="failpoints", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


def _handler(armed: Failpoints) -> type[BaseHTTPRequestHandler]:
    class FailpointRequest(BaseHTTPRequestHandler):
        """One request."""

        protocol_version = "HTTP/1.1"

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the operator's log is the server's."""

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if status != 204:
                self.wfile.write(body)

        def do_GET(self) -> None:
            """Show all failpoints, one of them, or how often one acted."""
            name = self.path[1:]
            try:
                if not name:
                    self._answer(200, armed.lines())
                elif name.endswith("/count"):
                    self._answer(200, str(armed.count(name.removesuffix("/count"))))
                else:
                    self._answer(200, armed.text(name) + "\n")
            except (KeyError, ValueError) as error:
                self._answer(404, f"failed to GET: {error.args[0]}\n")

        def do_PUT(self) -> None:
            """Arm one, or several."""
            length = self.headers.get("Content-Length", "0")
            if not length.isdigit() or int(length) > TERMS_BYTES_MAX:
                self._answer(400, f"a body of {length} bytes; at most {TERMS_BYTES_MAX} are read\n")
                return
            text = self.rfile.read(int(length)).decode(errors="replace")
            name = self.path[1:]
            try:
                wanted = _split(text) if name.lower() == "failpoints" else {name: text}
                for each, terms in wanted.items():
                    armed.set(each, terms)
            except (KeyError, ValueError) as error:
                self._answer(400, f"fail to set failpoint: {error.args[0]}\n")
            else:
                self._answer(204, "")

        def do_DELETE(self) -> None:
            """Disarm one."""
            try:
                armed.clear(self.path[1:])
            except (KeyError, ValueError) as error:
                self._answer(400, f"failed to delete failpoint {error.args[0]}\n")
            else:
                self._answer(204, "")

    return FailpointRequest
