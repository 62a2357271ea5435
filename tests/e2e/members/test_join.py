"""Members join running clusters: ours an etcd's, an etcd ours, and each other."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvstore.transport import native
from tests.support.http.plain_client import ask
from tests.support.servers import Server, etcd, etcdctl, free_ports, ours, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

# Without strict checks nobody has to be connected for 5 s first; those are tested elsewhere.
FAST = [
    "--unsafe-no-fsync",
    "--heartbeat-interval=50",
    "--election-timeout=500",
    "--strict-reconfig-check=false",
]

Make = Callable[..., Server]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def add(to: Server, joiner: Server, *flags: str) -> str:
    """Announce a member, as soon as the others let it; return its id."""
    command = ("member", "add", joiner.name, f"--peer-urls={joiner.peer_url}", *flags)
    output = ""

    def is_added() -> bool:
        nonlocal output
        done = etcdctl(to, *command, check=False)
        output = done.stdout + done.stderr
        return done.returncode == 0

    wait_for(is_added, "the addition")
    return output.split()[1]


def join(stack: ExitStack, members: list[Server], joiner: Server) -> None:
    named = ",".join(f"{each.name}={each.peer_url}" for each in [*members, joiner])
    joiner.extra += [f"--initial-cluster={named}", "--initial-cluster-state=existing"]
    joiner.start(wait=False)
    stack.enter_context(running(joiner))
    joiner.wait_ready()


def value(server: Server, key: str) -> str:
    return etcdctl(server, "get", key, "--print-value-only", check=False).stdout.strip()


def hashes(*servers: Server) -> set[str]:
    revision = etcdctl(servers[0], "get", "x", "-w", "json").stdout
    at = revision.partition('"revision":')[2].partition(",")[0]
    return {
        etcdctl(each, "endpoint", "hashkv", f"--rev={at}").stdout.split(", ")[1] for each in servers
    }


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [(etcd, ours, etcd), (ours, ours, ours)],
    ids=["etcd-ours-etcd", "ours-ours-ours"],
)
def test_one_becomes_three(
    stack: ExitStack, tmp_path: Path, first: Make, second: Make, third: Make
) -> None:
    a, b, c = (
        make(tmp_path / name, name=name, extra=list(FAST))
        for make, name in ((first, "a"), (second, "b"), (third, "c"))
    )
    stack.enter_context(running(a))
    for at in range(10):
        etcdctl(a, "put", f"k{at}", f"v{at}")
    add(a, b)
    join(stack, [a], b)
    wait_for(lambda: value(b, "k9") == "v9", "catching up")
    learner = add(b, c, "--learner")
    join(stack, [a, b], c)

    def is_promoted() -> bool:
        done = etcdctl(b, "member", "promote", learner, check=False)
        in_sync = "in sync with leader" in done.stderr
        assert done.returncode == 0 or in_sync, done.stderr
        return done.returncode == 0

    wait_for(is_promoted, "the promotion")
    refused = etcdctl(a, "member", "promote", learner, check=False)
    assert "etcdserver: can only promote a learner member" in refused.stderr
    etcdctl(c, "put", "k9", "from c")
    for server in (a, b, c):
        assert value(server, "k9") == "from c"
        listed = etcdctl(server, "member", "list").stdout
        assert listed.count("started") == 3
    assert len(hashes(a, b, c)) == 1
    etcdctl(a, "del", "k1")
    gone = etcdctl(b, "member", "list").stdout.splitlines()
    b_id = next(line.split(",")[0] for line in gone if f" {b.name}," in line)

    def is_removed() -> bool:
        return etcdctl(a, "member", "remove", b_id, check=False).returncode == 0

    wait_for(is_removed, "the removal")
    process = b.process
    assert process is not None
    wait_for(lambda: process.poll() is not None, "the end of the removed member")
    etcdctl(c, "put", "k9", "two are left")
    assert value(a, "k9") == "two are left"


def test_a_joiner_with_the_wrong_flags(stack: ExitStack, tmp_path: Path) -> None:
    a, b = (etcd(tmp_path / "a", name="a"), ours(tmp_path / "b", name="b"))
    stack.enter_context(running(a))
    b.extra += [
        f"--initial-cluster=a={a.peer_url},b={b.peer_url}",
        "--initial-cluster-state=existing",
    ]
    b.start(wait=False)
    stack.callback(lambda: None if b.process is None else b.kill())
    assert b.process is not None
    assert b.process.wait(20) == 1
    assert "member count is unequal" in b.log()
    assert not (b.data_dir / "member" / "wal").exists()


@pytest.mark.parametrize("transport", ["grpcio", "native"])
def test_the_health_pages_of_a_learner(stack: ExitStack, tmp_path: Path, transport: str) -> None:
    if transport == "native" and not native.is_available():
        pytest.skip(f"the native transport is not built: {native.MISSING}")
    pages = free_ports(2)
    voter = stack.enter_context(running(ours(tmp_path / "v", name="v", extra=list(FAST))))
    learner = ours(tmp_path / "l", name="l", extra=[*FAST, f"--transport={transport}"])
    for flag, port in zip(("listen-client-http-urls", "listen-metrics-urls"), pages, strict=True):
        learner.extra.append(f"--{flag}=http://127.0.0.1:{port}")
    member_id = add(voter, learner, "--learner")
    join(stack, [voter], learner)
    for port in pages:
        assert ask(port, "GET", "/health")[::2] == (200, b'{"health":"true","reason":""}')
        assert ask(port, "GET", "/livez")[::2] == (200, b"ok\n")
        status, _, output = ask(port, "GET", "/readyz")
        assert status == 503
        assert output.decode().splitlines()[:4] == [
            "[+]data_corruption ok",
            "[+]serializable_read ok",
            "[+]linearizable_read ok",
            "[-]non_learner failed: not supported for learner",
        ]
        assert ask(port, "GET", "/readyz?exclude=non_learner")[::2] == (200, b"ok\n")

    def is_promoted() -> bool:
        return etcdctl(voter, "member", "promote", member_id, check=False).returncode == 0

    wait_for(is_promoted, "the promotion")
    for port in pages:
        wait_for(lambda port=port: ask(port, "GET", "/readyz")[0] == 200, "its readiness")  # type: ignore[misc]
