"""h2load: the generator of unary calls and HTTP requests that is faster than what it measures.

It sends one and the same body, C connections with M requests in flight each, for so many seconds.
It knows nothing of gRPC: a refused call is a fine answer to it. So a workload proves what it did by
other means (the revision moved; the answers were as large as they must be).

    run(url, body, connections=100, in_flight=10, seconds=5, scratch=dir) → H2Result
    get(url, 10_000, connections=50, in_flight=1, http1=True)             → Summary
    holding(url, connections=10, in_flight=100)      answers that stay open are read until they end
"""

import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.reporting.figures import percentile

INSTALL: Final = "apt-get install nghttp2-client"
_HEADERS: Final = ("-H", "content-type: application/grpc", "-H", "te: trailers")
_SLACK_S: Final = 60.0  # beyond the time it was given
_GET_TIMEOUT_S: Final = 300.0
_FINISHED: Final = re.compile(r"^finished in ([\d.]+)(ms|s), ([\d.]+) req/s", re.MULTILINE)
_REQUESTS: Final = re.compile(
    r"^requests: \d+ total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored",
    re.MULTILINE,
)
_DATA: Final = re.compile(r"\((\d+)\) data$", re.MULTILINE)


class H2Result(NamedTuple):
    """What one h2load did."""

    requests: int
    rate: float  # a second
    data_bytes: int  # of all answers: gRPC's 5-byte heads and messages
    p50_ms: float
    p99_ms: float


class Summary(NamedTuple):
    """What h2load prints at its end."""

    requests: int
    rate: float
    data_bytes: int


def missing() -> str | None:
    """Return why h2load cannot be used and what to do, None if it can."""
    if shutil.which("h2load"):
        return None
    return f"h2load is not installed; get it with: {INSTALL}"


def grpc_frame(message: bytes) -> bytes:
    """Return a message as gRPC puts it in a body."""
    return struct.pack(">BI", 0, len(message)) + message


def run(
    url: str, message: bytes, *, connections: int, in_flight: int, seconds: int, scratch: Path
) -> H2Result:
    """Send message for so long; RuntimeError if h2load fails or any request does."""
    body, log = scratch / "body.bin", scratch / "requests.log"
    body.write_bytes(grpc_frame(message))
    log.unlink(missing_ok=True)  # h2load appends
    how = (f"-D{seconds}", f"-c{connections}", f"-m{in_flight}", f"-d{body}", *_HEADERS)
    found = parse_summary(_output((*how, f"--log-file={log}", url), seconds + _SLACK_S))
    times_ms = parse_log(log.read_text())
    return H2Result(*found, percentile(times_ms, 0.5), percentile(times_ms, 0.99))


def get(url: str, count: int, *, connections: int, in_flight: int, http1: bool) -> Summary:
    """GET url so many times, by HTTP/1.1 or HTTP/2; RuntimeError as run."""
    how = [f"-n{count}", f"-c{connections}", f"-m{in_flight}", url]
    return parse_summary(_output(["--h1", *how] if http1 else how, _GET_TIMEOUT_S))


@contextmanager
def holding(url: str, *, connections: int, in_flight: int, http1: bool) -> Iterator[None]:
    """Read connections x in_flight answers that stay open. Within the block they must be ended.

    RuntimeError if one of them is not ended as a whole.
    """
    how = [f"-n{connections * in_flight}", f"-c{connections}", f"-m{in_flight}", url]
    reader = subprocess.Popen(
        ["h2load", *(["--h1"] if http1 else []), *how], stdout=subprocess.PIPE, text=True
    )
    try:
        yield
        output, _ = reader.communicate(timeout=_SLACK_S)
    finally:
        reader.kill()
        reader.communicate()
    parse_summary(output)


def _output(arguments: Sequence[str], timeout_s: float) -> str:
    done = subprocess.run(
        ["h2load", *arguments], capture_output=True, text=True, check=False, timeout=timeout_s
    )
    if done.returncode != 0:
        raise RuntimeError(f"h2load ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def parse_summary(output: str) -> Summary:
    """Return what h2load's output says; RuntimeError if a request failed or it says nothing."""
    finished, requests, data = (pattern.search(output) for pattern in (_FINISHED, _REQUESTS, _DATA))
    if finished is None or requests is None or data is None:
        raise RuntimeError(f"no summary in h2load's output: {output[-2000:]}")
    done, succeeded, failed, errored = map(int, requests.groups())
    if failed or errored or succeeded != done or not done:
        raise RuntimeError(f"h2load: {requests[0]}")
    return Summary(done, float(finished[3]), int(data[1]))


def parse_log(text: str) -> list[float]:
    """Return the milliseconds of each request in a log of (start µs, status, duration µs)."""
    return [int(line.rpartition("\t")[2]) / 1000 for line in text.splitlines()]
