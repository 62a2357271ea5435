"""Metrics of Services, Ingresses and of what is outside: pages that the file of rules names."""

import asyncio
import json
from typing import Any

import pytest

from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.metrics.custom import page_reader as room
from kvstack.agents.metrics.custom.api import CustomApi
from kvstack.agents.metrics.custom.external_api import ExternalApi
from kvstack.agents.metrics.custom.page_reader import PageOptions, PageReader
from kvstack.agents.metrics.custom.rules import Rules, parse
from kvstack.agents.metrics.custom.scraper import Scraper, ScraperOptions
from tests.agents.metrics.test_scraper import Pods, always, telling
from tests.support.clocks import HandClock
from tests.support.list_log import ListLog

INGRESSES = "ingresses.networking.k8s.io"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
TEXT = """\
requests_total{namespace="d",service="web",code="200"} 100
requests_total{namespace="d",service="web",code="500"} 10
requests_total{namespace="d",service="other",code="200"} 7
requests_total{namespace="e",service="web",code="200"} 5
hits{namespace="d",ingress="web"} 2.5
hits{namespace="d"} 1000
messages{queue="mail",team="d"} 40
messages{queue="sms",team="d"} 2
messages{queue="mail",team="e"} 900
"""


def rules(port: int) -> Rules:
    return parse(
        {
            "pages": {"all": f"http://127.0.0.1:{port}/metrics?x=1"},
            "metrics": [
                {"name": "total", "sample": "requests_total", "of": "services", "page": "all"},
                {"name": "rate", "sample": "requests_total", "of": "services", "page": "all",
                 "type": "rate"},
                {"name": "hits", "sample": "hits", "of": INGRESSES, "page": "all"},
            ],
            "external": [
                {"name": "messages", "sample": "messages", "page": "all"},
                {"name": "own", "sample": "messages", "page": "all", "namespaceLabel": "team"},
                {"name": "grown", "sample": "messages", "page": "all", "type": "rate"},
            ],
        }
    )  # fmt: skip


def store(*names: str) -> ObjectStore:
    found = ObjectStore()
    for each in names:
        found.set({"metadata": {"namespace": "d", "name": each, "labels": {"app": each}}})
    return found


class Server:
    """Both APIs of one page."""

    def __init__(self, port: int, options: PageOptions | None = None) -> None:
        self.log = ListLog()
        self.clock = HandClock()
        found = rules(port)
        self.pages = PageReader(found, self.clock, self.log, options or PageOptions())
        none: Any = Pods()
        scraper = Scraper(found, none, self.clock, self.log, ScraperOptions())
        stores = {"pods": store(), "services": store("web", "other", "idle")}
        stores[INGRESSES] = store("web")
        self._custom = CustomApi(found, scraper, self.pages, stores)
        self._external = ExternalApi(found, self.pages)

    def get(self, path: str, **query: str) -> Any:
        api = self._custom if path.startswith("/apis/custom") else self._external
        asked = {name: [value] for name, value in query.items()}
        return json.loads(api.answer("GET", path, asked, "").body)

    def values(self, path: str, **query: str) -> list[str]:
        return [each["value"] for each in self.get(path, **query)["items"]]


async def served(text: str = TEXT, **options: Any) -> Server:
    """Return what serves a page, which was read once."""
    async with telling(always("200 OK", text)) as port:
        found = Server(port, PageOptions(**options))
        await found.pages.read_all()
    return found


def test_metrics_of_objects_are_sums_of_their_series() -> None:
    here = asyncio.run(served())
    assert here.values(f"{CUSTOM}/d/services/web/total") == ["110"]
    assert here.values(f"{CUSTOM}/d/services/web/total", metricLabelSelector="code=500") == ["10"]
    found = here.get(f"{CUSTOM}/d/services/*/total")["items"]
    assert [each["describedObject"]["name"] for each in found] == ["other", "web"]
    assert here.values(f"{CUSTOM}/d/services/*/total", labelSelector="app=other") == ["7"]
    [item] = here.get(f"{CUSTOM}/d/{INGRESSES}/web/hits")["items"]
    assert item["value"] == "2500m"
    described = item["describedObject"]
    assert (described["kind"], described["apiVersion"]) == ("Ingress", "networking.k8s.io/v1")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("d/services/none/total", 'services "none" not found'),
        ("e/services/web/total", 'services "web" not found'),
        ("d/services/idle/total", "could not find the metric total for services idle"),
        ("d/services/web/hits", "could not find the metric hits for services"),
        ("d/services/web/rate", "could not find the metric rate for services web"),
        ("d/nodes/web/total", "could not find the requested resource"),
        ("d/pods/web/total", "could not find the metric total for pods"),
    ],
)
def test_what_there_is_not_is_reported(path: str, message: str) -> None:
    found = asyncio.run(served()).get(f"{CUSTOM}/{path}")
    assert (found["kind"], found["code"]) == ("Status", 404)
    assert message in found["message"]


def test_external_metrics_are_series() -> None:
    here = asyncio.run(served())
    assert here.values(f"{EXTERNAL}/d/messages") == ["40", "900", "2"]
    assert here.values(f"{EXTERNAL}/d/messages", labelSelector="queue=mail,team=d") == ["40"]
    [item] = here.get(f"{EXTERNAL}/d/own", labelSelector="queue=sms")["items"]
    assert item["metricLabels"] == {"queue": "sms", "team": "d"}
    assert item["metricName"] == "own"
    assert here.values(f"{EXTERNAL}/e/own") == ["900"]
    assert here.values(f"{EXTERNAL}/f/own") == []
    found = here.get(f"{EXTERNAL}/d/none")
    assert "could not find the external metric none" in found["message"]
    found = here.get(f"{EXTERNAL}/d/messages", labelSelector="a b")
    assert (found["code"], found["reason"]) == (400, "BadRequest")


def test_rates_are_of_series_and_of_objects() -> None:
    texts = iter((TEXT, TEXT.replace("} 100\n", "} 130\n").replace("} 40\n", "} 55\n")))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        assert asked.startswith(b"GET /metrics?x=1 HTTP/1.1\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\n\r\n{next(texts)}".encode())
        await writer.drain()
        writer.close()

    async def main() -> Server:
        async with telling(answer) as port:
            here = Server(port)
            await here.pages.read_all()
            assert here.values(f"{EXTERNAL}/d/grown") == []
            here.clock.now += 15
            await here.pages.read_all()
        return here

    here = asyncio.run(main())
    [item] = here.get(f"{CUSTOM}/d/services/web/rate")["items"]
    assert (item["value"], item["windowSeconds"]) == ("2", 15)
    assert here.values(f"{EXTERNAL}/d/grown") == ["1", "0", "0"]
    [item, _] = here.get(f"{EXTERNAL}/d/grown", labelSelector="queue=mail")["items"]
    assert item["window"] == 15


def test_a_page_above_its_limits_has_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    here = asyncio.run(served(bytes_max=100))
    assert here.values(f"{EXTERNAL}/d/messages") == []
    [(_, fields)] = here.log.of("warning")
    assert "more than 100 bytes" in str(fields["error"])
    monkeypatch.setattr(room, "SERIES_MAX", 2)
    here = asyncio.run(served())
    [(_, fields)] = here.log.of("warning")
    assert "requests_total has more than 2 series" in str(fields["error"])


def test_discovery_has_all_metrics() -> None:
    here = Server(1)
    found = here.get("/apis/custom.metrics.k8s.io/v1beta2")["resources"]
    names = ["services/total", "services/rate", f"{INGRESSES}/hits"]
    assert [each["name"] for each in found] == names
    found = here.get("/apis/external.metrics.k8s.io/v1beta1")["resources"]
    assert [each["name"] for each in found] == ["messages", "own", "grown"]
    assert {each["kind"] for each in found} == {"ExternalMetricValueList"}
