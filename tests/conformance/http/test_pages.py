"""The same requests to etcd and here: gateway, health, version; statuses, headers and bodies.

Against etcd 3.7.1 by what it once answered, against a living etcd 3.5.1 where the two agree.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.transport import native
from tests.support import servers
from tests.support.http.cases import CASES, Answer, read_golden
from tests.support.http.plain_client import answer

SOURCES = ["client port", "own server"]


@pytest.fixture(scope="module", params=SOURCES)
def ours(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Answer]]:
    """What each case is answered here, asked in order."""
    extra = ["--cors=*"]  # etcd's default, which has to be given here
    port = 0
    if request.param == "own server":
        (port,) = servers.free_ports(1)
        extra += [f"--listen-client-http-urls=http://127.0.0.1:{port}", "--transport=grpcio"]
    elif not native.is_available():
        pytest.skip("the native transport is not built")
    data_dir = tmp_path_factory.mktemp("pages") / "ours"
    with servers.running(servers.ours(data_dir, extra=extra)) as server:
        yield {case.name: answer(port or server.client_port, case) for case in CASES}


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_as_etcd_3_7(ours: dict[str, Answer], name: str) -> None:
    assert ours[name] == read_golden()[name]


def test_as_etcd_3_5(ours: dict[str, Answer], tmp_path: Path) -> None:
    """Successes have the bodies of 3.5 too; errors had another form then, but the same status."""
    with servers.running(servers.etcd(tmp_path / "etcd")) as server:
        theirs = {case.name: answer(server.client_port, case) for case in CASES if case.in_3_5}
    differing = {
        name: (each, ours[name])
        for name, each in theirs.items()
        if each.status != ours[name].status or (each.status == 200 and each.body != ours[name].body)
    }
    assert not differing
