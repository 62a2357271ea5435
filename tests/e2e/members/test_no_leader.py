"""A member without a leader and clients that do not wait for one."""

import http.client
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvstore.transport import native
from tests.support.http.plain_client import ask
from tests.support.servers import Server, ours, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

FLAGS = ["--unsafe-no-fsync", "--heartbeat-interval=50", "--election-timeout=500"]
WAIT_S = 60.0
PATIENCE_S = 0.5  # of a prober; a read waits 6 s for a leader


def logs(server: Server, text: str) -> None:
    """Wait until a server has logged a message that begins so."""

    def is_logged() -> bool:
        return any(str(line["msg"]).startswith(text) for line in server.log_records())

    wait_for(is_logged, f"{text!r} is logged", WAIT_S)


def test_a_prober_that_gives_up_harms_nobody(tmp_path: Path) -> None:
    if not native.is_available():
        pytest.skip(f"the native transport is not built: {native.MISSING}")
    left, other = (ours(tmp_path / name, name=name, extra=[*FLAGS]) for name in "ab")
    with ExitStack() as stack:
        for server in (left, other):
            server.extra.append(f"--initial-cluster=a={left.peer_url},b={other.peer_url}")
            server.start(wait=False)
            stack.enter_context(running(server))
        left.wait_ready()
        other.wait_ready()
        other.stop()
        prober = http.client.HTTPConnection("127.0.0.1", left.client_port, timeout=PATIENCE_S)
        prober.request("POST", "/v3/kv/range", '{"key": "aw=="}')
        with pytest.raises(TimeoutError):
            prober.getresponse()
        prober.close()
        logs(left, "timed out waiting for read index response")
        assert ask(left.client_port, "GET", "/version")[0] == 200
