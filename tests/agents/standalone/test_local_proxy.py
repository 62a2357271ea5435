"""The pages of the proxy of a process: where they are, and what happens if that is taken."""

import asyncio
import socket
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest
from typing_extensions import override

from kvstack.agents.proxy.configuration import read_configuration
from kvstack.agents.standalone.local_proxy import LocalProxy, LocalProxyOptions
from kvstack.agents.standalone.page_addresses import page_address
from kvstack.component.clock import SystemClock
from tests.agents.dns.given import GivenInformers
from tests.agents.proxy.test_proxier import Written
from tests.support.http.pages import get
from tests.support.list_log import ListLog
from tests.support.network.ports import free_ports

if TYPE_CHECKING:
    from kvstack.agents.proxy.backend import Backend
    from kvstack.agents.proxy.services import Family


class WritesNothing(LocalProxy):
    """A proxy that leaves the machine as it is."""

    @override
    def _backends(self) -> "dict[Family, Backend]":
        return {4: Written()}


def of_a_node(log: ListLog, metrics: str, healthz: str) -> WritesNothing:
    options = LocalProxyOptions(
        "n",
        ("192.0.2.7",),
        ("10.244.0.0/16",),
        metrics_address=metrics,
        healthz_address=healthz,
    )
    return WritesNothing(cast("Any", GivenInformers()), options, SystemClock(), log)


def test_two_nodes_of_one_machine() -> None:
    """The first one has the addresses; the second one goes on without, and says so."""

    async def body() -> None:
        metrics, healthz = (f"127.0.0.1:{port}" for port in free_ports(2))
        log = ListLog()
        first, second = (of_a_node(log, metrics, healthz) for _ in range(2))
        try:
            await first.start()
            await second.start()
            warnings = [fields["address"] for _, fields in log.of("warning")]
            assert warnings == [healthz, metrics]
            assert await get(f"http://{metrics}/proxyMode") == (200, b"kept")
            assert (await get(f"http://{metrics}/healthz"))[0] == 200
            code, body = await get(f"http://{metrics}/configz")
            shown = orjson.loads(body)["kubeproxy.config.k8s.io"]
            assert (code, shown["metricsBindAddress"]) == (200, metrics)
            assert read_configuration({**shown, "mode": ""})["clusterCIDR"] == "10.244.0.0/16"
            assert b"kubeproxy_" in (await get(f"http://{metrics}/metrics"))[1]
            # It has not written anything yet: Services are not known.
            assert (await get(f"http://{healthz}/livez"))[0] == 503
        finally:
            await first.stop()
            await second.stop()
        with socket.create_server(("127.0.0.1", int(metrics.rpartition(":")[2]))):
            pass  # nothing listens any more

    asyncio.run(body())


def test_pages_that_are_not_desired() -> None:
    async def body() -> None:
        log = ListLog()
        proxy = of_a_node(log, page_address("none"), page_address("none"))
        await proxy.start()
        await proxy.stop()
        assert not log.of("warning")

    asyncio.run(body())


@pytest.mark.parametrize("text", ["127.0.0.1:10249", "[::1]:1", "0.0.0.0:65535"])
def test_addresses(text: str) -> None:
    assert page_address(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:80x", "a:1", ":1", "[::1:1", "::1:1"],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"IP:PORT|does not appear"):
        page_address(text)
