"""What TLS and authentication cost: puts and reads with each, and their ratio to plain calls."""

from contextlib import ExitStack
from typing import Any, Final

from bench.loads import kvload
from bench.reporting.figures import CONTENDERS, Better, Measure
from bench.run import Run, Scenario
from bench.secured import MODES, PLAIN, Secured, make_files, secured
from kvstore.transport import native

_KEYS: Final = 10_000
_SECONDS: Final = 1
_CONNECTIONS, _IN_FLIGHT = 100, 10
_KINDS: Final = {"put": "put", "range": "range of a key"}


def play(run: Run) -> None:
    """A server a mode and contender, all standing; each turn loads one of them."""
    if why := kvload.missing():
        run.skip(why)
        return
    keys = run.size(_KEYS, 1_000)
    files = make_files(run.directory / "files")
    with ExitStack() as stack:
        found: dict[tuple[str, str], Secured] = {}
        for mode in MODES:
            for name in CONTENDERS:
                with run.step(f"{name}: start, {mode}"):
                    directory = run.directory / f"{name}-{MODES.index(mode)}"
                    making = secured(directory, name, mode, files)
                    found[name, mode] = stack.enter_context(making)
                    _load(found[name, mode], "put", keys, seconds=60, calls=keys)  # to be read
        for round_number in run.rounds():
            for kind in _KINDS:
                _round(run, found, kind, keys, round_number)
    run.note(f"kvstore served through {'native' if native.is_available() else 'grpcio'}.")
    run.note("Tokens are of a user who is not root. JWT: RS256. TLS 1.3, certificates of P-256.")
    run.note("kvload and the server share the machine: encryption costs the client as much again.")


def _round(
    run: Run, found: dict[tuple[str, str], Secured], kind: str, keys: int, round_number: int
) -> None:
    plain: dict[str, float] = {}
    for mode in MODES:
        for name in run.order(round_number):
            what = f"{_KINDS[kind]}, {_CONNECTIONS}x{_IN_FLIGHT}, {mode}"
            with run.step(f"round {round_number + 1}, {name}: {what}"):
                result = _load(found[name, mode], kind, keys, seconds=run.seconds(_SECONDS))
            plain.setdefault(name, result.rate)  # the first mode is plain
            _note(run, name, what, result, result.rate / plain[name], is_plain=mode == PLAIN)


def _load(to: Secured, kind: str, keys: int, **limits: Any) -> kvload.Loaded:  # noqa: ANN401
    return kvload.run(
        to.server,
        "unary",
        endpoint=to.endpoint,
        kind=kind,
        connections=_CONNECTIONS,
        in_flight=_IN_FLIGHT,
        rate=0,
        keys=keys,
        **limits,
        **to.options,
    )


def _note(
    run: Run, name: str, what: str, result: kvload.Loaded, of_plain: float, *, is_plain: bool
) -> None:
    add, lower = run.figures.add, Better.LOWER
    add(Measure(what, "calls/s", Better.HIGHER), name, result.rate)
    if not is_plain:
        add(Measure(f"{what}: rate, of plain", "", Better.HIGHER), name, of_plain)
    cpu_us = result.server_cpu_s / result.done * 1e6
    add(Measure(f"{what}: server CPU", "µs/call", lower), name, cpu_us)
    add(Measure(f"{what}: p99", "ms", lower, is_detail=True), name, result.p99_ms)
    share = Measure(f"{what}: kvload's share of a core", "", lower, is_detail=True)
    add(share, name, result.cpu_share)


SCENARIO: Final = Scenario(
    "security",
    "TLS and authentication",
    "one member, 10,000 keys, 256 B values; kvload",
    5,
    play,
)
