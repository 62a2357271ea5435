"""etcdctl played on a real etcd, once directly and once through the gRPC proxy: it prints the same.

What etcdctl asks of each member by its address is not here: the proxy tells its own. Nor are the
largest values, which the proxy does not send on (--max-send-bytes).
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.e2e.test_etcdctl import PLAYS, SAME_IDS, _compare
from tests.support.ctl import Ctl
from tests.support.proxies import Proxy, proxy
from tests.support.servers import Server, etcd, running

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("grpc-proxy etcdctl")]

LEFT_OUT = {"member list", "endpoint", "maintenance", "lease ends"} | {"large values"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Proxy]]:
    tmp = tmp_path_factory.mktemp("proxied")
    with ExitStack() as stack:
        direct, behind = (
            stack.enter_context(running(etcd(tmp / name, extra=SAME_IDS)))
            for name in ("direct", "behind")
        )
        front = proxy(
            tmp,
            "grpc-proxy",
            "start",
            f"--endpoints={behind.endpoint}",
            ready="started gRPC proxy",
        )
        yield direct, stack.enter_context(front)


@pytest.mark.parametrize("name", [name for name in PLAYS if name not in LEFT_OUT])
def test_etcdctl_prints_the_same_through_the_proxy(name: str, pair: tuple[Server, Proxy]) -> None:
    direct, front = pair
    theirs = Ctl(direct, other=front)  # type: ignore[arg-type]
    _compare(PLAYS[name], theirs, Ctl(front, other=direct))  # type: ignore[arg-type]
