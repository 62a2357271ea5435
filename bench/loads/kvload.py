"""kvload, this project's own load generator: bench/native, in Rust, built when first asked for.

It does what h2load cannot (requests that differ, fixed rates, streams) and what Python is too slow
for. `cpu_share` of a result is how much of a core kvload itself used: near 1, the figures are its
own and not the server's.

    run(server, "unary", kind="put", connections=100, in_flight=10, rate=0, seconds=2) → Loaded
    run(follower, "watch", pids=cluster.pids(), puts_to=leader.endpoint, ...)
    run(server, "unary", endpoint=tls_endpoint, ca=file, cert=file, key=file, token=text, ...)
    run(server, "unary", program=PORTABLE, ...)     the same load from Python, without Rust
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol

from bench.procfs import Meter

_CRATE: Final = Path(__file__).parents[1] / "native"
_BINARY: Final = _CRATE / "target" / "release" / "kvload"
_BUILD_TIMEOUT_S: Final = 600
_NATIVE: Final = (str(_BINARY),)
PORTABLE: Final = (sys.executable, "-m", "bench.loads.portable")


class Loadable(Protocol):
    """A server that runs."""

    @property
    def endpoint(self) -> str:
        """HOST:PORT."""

    @property
    def pid(self) -> int:
        """The process whose CPU time counts."""


class Loaded(NamedTuple):
    """What one load came to."""

    done: int  # answers, or events
    refused: int
    rate: float  # a second
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_share: float  # of a core, of kvload itself
    server_cpu_s: float  # of all processes that were watched
    first_cpu_s: float  # of the first of them
    parts: dict[str, Any]  # of the kinds of calls, where there are several: done, p50_ms, p99_ms


@cache
def missing() -> str | None:
    """Build kvload; return why that cannot be, None if it is there."""
    cargo = shutil.which("cargo") or shutil.which(
        "cargo", path=str(Path("~/.cargo/bin").expanduser())
    )
    if cargo is None:
        return "kvload needs a Rust toolchain (cargo), and there is none"
    command = [cargo, "build", "--release", "--locked", "--quiet"]
    done = subprocess.run(
        [*command, f"--manifest-path={_CRATE / 'Cargo.toml'}", f"--target-dir={_CRATE / 'target'}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_TIMEOUT_S,
    )
    return f"kvload does not build: {done.stderr[-2000:]}" if done.returncode else None


def run(
    server: Loadable,
    command: str,
    *,
    meanwhile: Callable[[], None] | None = None,
    endpoint: str = "",
    pids: Sequence[int] = (),
    program: Sequence[str] = _NATIVE,
    **options: object,
) -> Loaded:
    """Load a server; meanwhile is called when the load has begun. RuntimeError if the load fails.

    The CPU time of pids (none: of the server) counts from when kvload has connected and opened its
    streams. endpoint: another of the server's.
    """
    words = [*program, command, endpoint or server.endpoint]
    with _process(words, options) as (process, output):
        _expect(output.readline() == "ready\n", process)
        meter = Meter(pids or (server.pid,))
        _say_go(process)
        if meanwhile is not None:
            meanwhile()
        line = output.readline()
        used_s = meter.used_s()
        _expect(bool(line), process)
    return _loaded(line, used_s)


def own_limit(command: str, **options: object) -> Loaded:
    """Load a server that does nothing but tell watchers: kvload's own limit on this machine."""
    with _process([*_NATIVE, "source", ""], {}) as (source, addresses):
        endpoint = addresses.readline().strip()
        with _process([*_NATIVE, command, endpoint], options) as (process, output):
            _expect(output.readline() == "ready\n", process)
            _say_go(process)
            line = output.readline()
            _expect(bool(line), process)
        source.kill()
    return _loaded(line, (0.0,))


@contextmanager
def _process(
    command: Sequence[str], options: dict[str, object]
) -> "Iterator[tuple[subprocess.Popen[str], IO[str]]]":
    words = [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*command, *words], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        except BaseException:
            process.kill()
            raise


def _say_go(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _expect(is_so: bool, process: "subprocess.Popen[str]") -> None:  # noqa: FBT001
    if is_so:
        return
    assert process.stderr is not None
    process.kill()
    raise RuntimeError(f"kvload failed: {process.stderr.read()}")


def _loaded(line: str, used_s: tuple[float, ...]) -> Loaded:
    found = json.loads(line)
    if not found["done"]:
        raise RuntimeError(f"kvload did nothing: {line}")
    parts = found.pop("parts", {})
    figures = {name: found[name] for name in Loaded._fields if name in found}
    return Loaded(**figures, server_cpu_s=sum(used_s), first_cpu_s=used_s[0], parts=parts)
