"""Servers that made their own certificates, with keys on P-521, and what of ours reaches them.

Where the crate is not there, grpcio would have to, and cannot.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from kvstack.component import crate
from tests.support.proxies import proxy
from tests.support.servers import ETCDCTL, Server, etcd, etcdctl, ours

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not crate.is_available(), reason=f"no crate: {crate.MISSING}"),
]
START = ("grpc-proxy", "start")


class SelfMade(Server):
    """A server that makes its own certificate."""

    @override
    @property
    def client_url(self) -> str:
        return f"https://{self.endpoint}"


@pytest.fixture(params=["ours", "etcd"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SelfMade]:
    made = {"ours": ours, "etcd": etcd}[request.param](tmp_path / "secure")
    found = SelfMade(made.command, tmp_path / "secure", extra=["--auto-tls"])
    found.start(wait=False)
    try:
        yield found
    finally:
        found.kill()


def ctl(server: Server, *arguments: str) -> str:
    command = [
        str(ETCDCTL), f"--endpoints=https://{server.endpoint}", "--insecure-skip-tls-verify",
        "--insecure-transport=false", "--command-timeout=20s", "--dial-timeout=20s", *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def certificate(server: Server) -> str:
    return str(server.data_dir / "fixtures" / "client" / "cert.pem")


def test_members_meet_in_a_registry_with_such_a_certificate(
    server: SelfMade, tmp_path: Path
) -> None:
    ctl(server, "put", "/_etcd/registry/token/_config/size", "1")
    flags = [
        f"--discovery-endpoints={server.client_url}",
        "--discovery-token=token",
        "--discovery-insecure-transport=false",
        f"--discovery-cacert={certificate(server)}",
    ]
    member = ours(tmp_path / "m", name="m", extra=flags)
    arguments = [a for a in member.arguments() if not a.startswith("--initial-cluster=")]
    member.arguments = lambda: arguments
    member.start()
    try:
        etcdctl(member, "put", "found", "it")
        assert f"m={member.peer_url}" in ctl(
            server, "get", "--prefix", "/_etcd/registry/token/members"
        )
    finally:
        member.kill()


@pytest.mark.parametrize("verified", [True, False], ids=["verified", "unverified"])
def test_a_proxy_before_such_a_server(
    server: SelfMade,
    tmp_path: Path,
    verified: bool,  # noqa: FBT001
) -> None:
    ctl(server, "put", "k", "v")
    trust = f"--cacert={certificate(server)}" if verified else "--insecure-skip-tls-verify"
    front = (*START, f"--endpoints={server.client_url}", trust)
    with proxy(tmp_path, *front, ready="ready to proxy client requests") as found:
        assert etcdctl(found, "get", "k").stdout == "k\nv\n"  # type: ignore[arg-type]
        etcdctl(found, "put", "k", "w")  # type: ignore[arg-type]
    assert ctl(server, "get", "k") == "k\nw\n"
