"""Health, version and debug pages in each state of a member."""

import asyncio
import gzip
import json
import threading
from pathlib import Path
from typing import cast

import pytest

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.batch import Metadata
from kvstore.config.model import Config
from kvstore.http.exchange import PageRequest
from kvstore.runtime.local_client import CallRefusedError, LocalClient
from kvstore.server.pages.health import HealthCounts, HealthPages, NodeHealth, alarms_of
from kvstore.server.pages.pprof_format import profile
from kvstore.server.pages.version_and_vars import VersionPage
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.http.harness import KeptAnswer, Pages

TIMED_OUT = CallRefusedError(14, "etcdserver: request timed out")


class Says:
    """A member in a state that takes several to reach."""

    def __init__(
        self,
        status: pb.StatusResponse | CallRefusedError,
        linearizable: CallRefusedError | None = None,
        serializable: CallRefusedError | None = None,
    ) -> None:
        self.status = status
        self.reads = {False: linearizable, True: serializable}

    async def call(self, method: int, body: bytes, _metadata: Metadata, timeout_s: float) -> bytes:
        assert timeout_s == 2.0
        if method == rpc.STATUS:
            if isinstance(self.status, CallRefusedError):
                raise self.status
            return self.status.SerializeToString()
        assert method == rpc.RANGE
        refused = self.reads[pb.RangeRequest.FromString(body).serializable]
        if refused is not None:
            raise refused
        return b""


def ask(says: Says, target: str, counts: HealthCounts | None = None) -> tuple[int, str]:
    node = NodeHealth(cast("LocalClient", says), 1.0)
    pages = HealthPages(node, LineLogger([], "info"), counts or HealthCounts())
    kept = KeptAnswer()
    asyncio.run(pages.serve(PageRequest("GET", target, []), kept))
    return kept.status, kept.body.decode()


GOOD = pb.StatusResponse(leader=1)


def test_no_leader() -> None:
    says = Says(pb.StatusResponse(errors=["etcdserver: no leader"]), linearizable=TIMED_OUT)
    assert ask(says, "/health") == (503, '{"health":"false","reason":"RAFT NO LEADER"}\n')
    assert ask(says, "/health?serializable=true") == (200, '{"health":"true","reason":""}')
    assert ask(says, "/livez") == (200, "ok\n")
    assert ask(says, "/readyz") == (
        503,
        "[+]data_corruption ok\n[+]serializable_read ok\n"
        "[-]linearizable_read failed: etcdserver: request timed out\n[+]non_learner ok\n\n",
    )
    assert ask(says, "/readyz?exclude=linearizable_read") == (200, "ok\n")


def test_reads_fail() -> None:
    says = Says(GOOD, linearizable=TIMED_OUT, serializable=TIMED_OUT)
    text = '{"health":"false","reason":"RANGE ERROR:etcdserver: request timed out"}\n'
    assert ask(says, "/health") == (503, text)
    assert ask(says, "/health?serializable=true") == (503, text)
    assert ask(says, "/livez")[0] == 503


def test_the_node_does_not_answer() -> None:
    says = Says(CallRefusedError(4, "context deadline exceeded"))
    assert ask(says, "/health")[1] == (
        '{"health":"false","reason":"RANGE ERROR:context deadline exceeded"}\n'
    )
    assert "[-]non_learner failed: context deadline exceeded\n" in ask(says, "/readyz")[1]


def test_learner() -> None:
    says = Says(pb.StatusResponse(leader=1, isLearner=True))
    assert ask(says, "/health")[0] == 200
    assert ask(says, "/livez")[0] == 200
    status, text = ask(says, "/readyz")
    assert status == 503
    assert "[-]non_learner failed: not supported for learner\n" in text


def test_alarms() -> None:
    both = ["memberID:1  alarm:NOSPACE", "memberID:2 alarm:CORRUPT", "memberID:3 alarm:7"]
    status = pb.StatusResponse(leader=1, errors=["etcdserver: no leader", *both])
    assert alarms_of(status) == ["NOSPACE", "CORRUPT", "7"]
    says = Says(status)
    assert "ALARM NOSPACE" in ask(says, "/health")[1]
    assert "ALARM CORRUPT" in ask(says, "/health?exclude=NOSPACE")[1]
    assert "ALARM UNKNOWN" in ask(says, "/health?exclude=NOSPACE&exclude=CORRUPT")[1]
    assert ask(says, "/health?exclude=NOSPACE&exclude=CORRUPT&exclude=7")[0] == 200


def test_results_are_counted() -> None:
    counts = HealthCounts()
    good, bad = Says(GOOD), Says(GOOD, linearizable=TIMED_OUT)
    for says in (good, good, bad):
        ask(says, "/health", counts)
        ask(says, "/readyz/linearizable_read", counts)
    assert (counts.successes, counts.failures) == (2, 1)
    assert counts.last == {("readyz", "linearizable_read"): False}
    assert counts.totals == {
        ("readyz", "linearizable_read", "success"): 2,
        ("readyz", "linearizable_read", "error"): 1,
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> object:
    config = Config(enable_pprof=True)
    with Pages(tmp_path_factory.mktemp("pages"), config) as made:
        yield made


def test_a_real_member(pages: Pages) -> None:
    assert pages.ask("GET", "/health").body == b'{"health":"true","reason":""}'
    assert pages.ask("GET", "/readyz").body == b"ok\n"
    assert pages.service.counts.successes == 1


def test_version_before_anything_is_decided() -> None:
    kept = KeptAnswer()
    node = NodeHealth(cast("LocalClient", Says(TIMED_OUT)), 1.0)
    asyncio.run(VersionPage(node, str).serve(PageRequest("GET", "/version", []), kept))
    assert json.loads(kept.body) == {
        "etcdserver": "3.7.1",
        "etcdcluster": "not_decided",
        "storage": "unknown",
    }


def test_variables(pages: Pages) -> None:
    found = json.loads(pages.ask("GET", "/debug/vars").body)
    assert list(found) == ["cmdline", "file_descriptor_limit", "memstats", "raft.status"]
    assert found["raft.status"]["raftState"] == "StateLeader"
    assert found["raft.status"]["lead"] == found["raft.status"]["id"]
    assert found["memstats"]["Sys"] >= found["memstats"]["HeapInuse"] > 1 << 20
    assert pages.ask("POST", "/debug/vars").status == 405


def test_profiles(pages: Pages) -> None:
    assert b"goroutine" in pages.ask("GET", "/debug/pprof/").body
    assert pages.ask("GET", "/debug/pprof").header("Location") == "/debug/pprof/"
    stacks = pages.ask("GET", "/debug/pprof/goroutine?debug=2").body.decode()
    assert "[side-loop]" in stacks
    assert "[MainThread]" in stacks
    assert b"generation 2" in pages.ask("GET", "/debug/pprof/heap?gc=1").body
    assert pages.ask("GET", "/debug/pprof/symbol").body == b"num_symbols: 1\n"
    assert pages.ask("GET", "/debug/pprof/cmdline").status == 200
    for name in ("trace", "block", "nope"):
        answer = pages.ask("GET", f"/debug/pprof/{name}")
        assert answer.status == 404
        assert answer.body.startswith(b"Unknown profile")
    assert pages.ask("GET", "/debug/pprof/profile?seconds=301").status == 400


def test_a_profile_of_the_processor(pages: Pages) -> None:
    busy = threading.Event()

    def spin_for_the_profile() -> None:
        while not busy.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin_for_the_profile)
    thread.start()
    try:
        answer = pages.ask("GET", "/debug/pprof/profile?seconds=1")
    finally:
        busy.set()
        thread.join()
    assert answer.status == 200
    assert b"spin_for_the_profile" in gzip.decompress(answer.body)


def test_the_form_of_a_profile() -> None:
    stack = (("main", "a.py", 3), ("leaf", "b.py", 5))
    data = gzip.decompress(profile({stack: 2}, unix_ns=7, duration_ns=9, period_ns=10))
    # samples/count, cpu/nanoseconds; one sample of locations 1 (leaf) and 2 (main), 2 and 20
    assert data.startswith(b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04")
    assert b"\x12\x08\x0a\x02\x01\x02\x12\x02\x02\x14" in data
    assert data.endswith(b"2\x04leaf2\x04b.py2\x04main2\x04a.py")


def test_no_profiles_unless_asked_for(tmp_path: Path) -> None:
    with Pages(tmp_path) as pages:
        assert pages.ask("GET", "/debug/pprof/").status == 404
