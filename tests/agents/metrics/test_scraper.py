"""What pods tell: files of rules, hostile pods, rates."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.metrics.custom import scraper as room
from kvstack.agents.metrics.custom.api import CustomApi
from kvstack.agents.metrics.custom.page_reader import PageOptions, PageReader
from kvstack.agents.metrics.custom.rules import Rules, load, parse
from kvstack.agents.metrics.custom.scraper import Scraper, ScraperOptions
from kvstack.apimachinery.objects import labels
from kvstack.component.errors import ConfigError
from tests.support.clocks import HandClock
from tests.support.list_log import ListLog

if TYPE_CHECKING:
    from kvstack.agents.client.informer import Informer

RULES = parse(
    {
        "allowLoopback": True,
        "metrics": [
            {"name": "depth", "sample": "queue_depth"},
            {"name": "rps", "sample": "requests_total", "type": "rate", "labels": {"code": "200"}},
        ],
    }
)
ALL = labels.parse("")
QUEUE = {"name": "a", "sample": "s", "page": "q"}
PAGES = {"q": "http://a/metrics"}
OPTIONS = ScraperOptions(timeout_s=30.0, bytes_max=1000)
HASTY = replace(OPTIONS, timeout_s=0.5)


class Pods:
    """The store of an informer that knows all there is."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.store = ObjectStore()
        for each in pods:
            self.store.set(each)


def pod(port: int | str, *, ip: str = "127.0.0.1", uid: str = "1", **more: str) -> dict[str, Any]:
    annotations = {room.SCRAPE: "true", room.PORT: str(port)}
    annotations |= {f"prometheus.io/{name}": value for name, value in more.items()}
    meta = {"namespace": "d", "name": "p", "uid": uid, "annotations": annotations}
    return {"metadata": meta, "spec": {}, "status": {"phase": "Running", "podIP": ip}}


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def telling(answer: Answer) -> Any:
    writers: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await answer(reader, writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for each in writers:
            each.close()
        await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)


def always(head: str, body: str) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {head}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    return answer


def scraper_of(
    pods: Pods,
    rules: Rules = RULES,
    log: ListLog | None = None,
    options: ScraperOptions = OPTIONS,
) -> Scraper:
    return Scraper(rules, cast("Informer", pods), HandClock(), log or ListLog(), options)


def test_values_are_sums_and_rates_take_two_readings() -> None:
    counts = iter((100, 160, 20))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert asked.startswith("GET /stats?x=1 HTTP/1.1\r\n")
        count = next(counts)
        body = (
            f'queue_depth{{q="a"}} 2.5\nqueue_depth{{q="b"}} 1\n'
            f'requests_total{{code="200"}} {count}\nrequests_total{{code="500"}} 9999\n'
        )
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        writer.close()

    async def main() -> None:
        async with telling(answer) as port:
            pods = Pods(pod(port, path="/stats?x=1"))
            scraper = scraper_of(pods)
            clock = cast("HandClock", scraper._clock)
            depth, rps = RULES.metrics["depth"], RULES.metrics["rps"]
            await scraper.read_all()
            found = scraper.value("d", "p", depth, ALL)
            assert found is not None
            assert found.value == 3.5
            found = scraper.value("d", "p", depth, labels.parse("q=b"))
            assert found is not None
            assert found.value == 1
            assert scraper.value("d", "p", depth, labels.parse("q=c")) is None
            assert scraper.value("d", "p", rps, ALL) is None
            clock.now += 15
            await scraper.read_all()
            found = scraper.value("d", "p", rps, ALL)
            assert found is not None
            assert (found.value, found.window_s) == (4.0, 15.0)
            pages = PageReader(RULES, clock, ListLog(), PageOptions())
            api = CustomApi(RULES, scraper, pages, {"pods": pods.store})
            path = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/d/pods/*/rps"
            assert b'"metricName":"rps","window":15' in api.answer("GET", path, {}, "").body
            clock.now += 15
            await scraper.read_all()
            assert scraper.value("d", "p", rps, ALL) is None, "the counter began anew"
            pods.store.remove("d/p")
            await scraper.read_all()
            assert scraper.value("d", "p", depth, ALL) is None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("head", "body", "message"),
    [
        ("500 no", "", "answers 500"),
        ("302 Found\r\nLocation: http://127.0.0.1:1/", "", "answers 302"),
        ("200 OK", "queue_depth 1\n" * 100, "more than 1000 bytes"),
        ("200 OK\r\nTransfer-Encoding: chunked", "FFFFFFFFFF\r\nx", "unexpected EOF"),
        ("200 OK\r\nTransfer-Encoding: chunked", "-5\r\nx\r\n", "malformed chunked"),
        ("200 OK", "queue_depth here\n", "line 1 is not a sample"),
        ("200 OK", "queue_depth NaN\n", "queue_depth is nan"),
        ("nonsense", "", "malformed HTTP response"),
    ],
)
def test_a_hostile_pod_has_no_values(head: str, body: str, message: str) -> None:
    async def main() -> None:
        log = ListLog()
        async with telling(always(head, body)) as port:
            scraper = scraper_of(Pods(pod(port)), log=log)
            await scraper.read_all()
            await scraper.read_all()
        assert scraper.value("d", "p", RULES.metrics["depth"], ALL) is None
        [(_, fields)] = log.of("warning")
        assert message in str(fields["error"]), "and it is told once"

    asyncio.run(main())


def test_a_pod_that_says_nothing_is_waited_for_only_so_long() -> None:
    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)
        writer.close()

    async def main() -> None:
        log = ListLog()
        async with telling(silent) as port:
            await scraper_of(Pods(pod(port)), log=log, options=HASTY).read_all()
        [(_, fields)] = log.of("warning")
        assert fields["error"] == "no answer within 0.5 s"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ip": ""}, "'' is not an address"),
        ({"ip": "169.254.169.254"}, "address 169.254.169.254 is not read"),
        ({"port": "0"}, "prometheus.io/port: '0'"),
        ({"port": "70000"}, "prometheus.io/port: '70000'"),
        ({"port": "http"}, "prometheus.io/port: 'http'"),
        ({"path": "/x\r\nX-Evil: 1"}, "is not a path"),
        ({"path": "stats"}, "is not a path"),
    ],
)
def test_where_a_pod_may_not_lead(given: Mapping[str, str], message: str) -> None:
    log = ListLog()
    ip = given.get("ip", "127.0.0.1")
    port, path = given.get("port", "1"), given.get("path", "/metrics")
    asyncio.run(scraper_of(Pods(pod(port, ip=ip, path=path)), log=log).read_all())
    [(_, fields)] = log.of("warning")
    assert message in str(fields["error"])


def test_loopback_is_read_only_if_it_is_allowed() -> None:
    log = ListLog()
    rules = RULES._replace(allows_loopback=False)
    asyncio.run(scraper_of(Pods(pod(1)), rules, log).read_all())
    [(_, fields)] = log.of("warning")
    assert "allowLoopback is not set" in str(fields["error"])


def test_series_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SERIES_MAX", 2)
    log = ListLog()
    body = "".join(f'queue_depth{{q="{number}"}} 1\n' for number in range(3))

    async def main() -> None:
        async with telling(always("200 OK", body)) as port:
            await scraper_of(Pods(pod(port)), log=log).read_all()

    asyncio.run(main())
    [(_, fields)] = log.of("warning")
    assert "queue_depth has more than 2 series" in str(fields["error"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "an object with metrics"),
        ({"metrics": []}, "at least one"),
        ({"metrics": [1]}, r"metrics\[0\]: an object"),
        ({"metrics": [{"name": "a/b", "sample": "s"}]}, "invalid metric name 'a/b'"),
        ({"metrics": [{"name": "a", "sample": "1"}]}, "invalid sample name '1'"),
        ({"metrics": [{"name": "a", "sample": "s", "type": "x"}]}, "one of value, rate"),
        ({"metrics": [{"name": "a", "sample": "s", "labels": {"a": 1}}]}, "texts by names"),
        ({"metrics": [{"name": "a", "sample": "s", "kind": 1}]}, r"metrics\[0\].kind: one of"),
        ({"metrics": [{"name": "a", "sample": "s"}] * 2}, "a is there twice"),
        ({"metrics": [{"name": "a", "sample": "s"}] * 101}, "101 of them, more than 100"),
        ({"metrics": [{"name": "a", "sample": "s"}], "allowLoopback": 1}, "true or false"),
        ({"metric": []}, "metric: one of allowLoopback, external, metrics, pages"),
        ({"metrics": {}}, "metrics: a list"),
        ({"external": [QUEUE] * 2, "pages": PAGES}, "external.1..name: a is there twice"),
        ({"external": [{**QUEUE, "of": "pods"}], "pages": PAGES}, r"external\[0\].of: one of"),
        ({"external": [QUEUE]}, r"external\[0\].page: 'q' is not one of pages"),
        ({"external": [{**QUEUE, "namespaceLabel": "a-b"}], "pages": PAGES}, "invalid label name"),
        ({"metrics": [{**QUEUE, "of": "nodes"}], "pages": PAGES}, "one of pods, services"),
        ({"metrics": [{**QUEUE, "of": []}], "pages": PAGES}, "one of pods, services"),
        ({"metrics": [QUEUE], "pages": PAGES}, "page: pods expose their metrics themselves"),
        (
            {"metrics": [{**QUEUE, "of": "services", "nameLabel": 1}], "pages": PAGES},
            "invalid label name 1",
        ),
        ({"pages": []}, "pages: addresses by names"),
        ({"pages": dict.fromkeys("abcdefghijklmnopqrstu", "http://a/")}, "at most 20"),
        ({"pages": {"q": 1}}, "pages.q: 1 is not of the form"),
        ({"pages": {"q": "ftp://a/"}}, "'ftp://a/' is not of the form"),
        ({"pages": {"q": "http://u:p@a/"}}, "is not of the form"),
        ({"pages": {"q": "http://a:0/"}}, "is not of the form"),
        ({"pages": {"q": "http://a:99999/"}}, "is not of the form"),
        ({"pages": {"q": "http://a/\r\nX: y"}}, "is not of the form"),
        ({"pages": {"q": "http:///x"}}, "is not of the form"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(given)


def test_a_file_that_cannot_be_read(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(str(tmp_path / "none"))
    (tmp_path / "bad").write_text("{")
    with pytest.raises(ConfigError, match=r"--custom .*bad: "):
        load(str(tmp_path / "bad"))
