"""Requests of agents to servers that speak HTTP/2, and to those that do not."""

import asyncio
from pathlib import Path

import pytest

from kvstack.agents.client.over_http import Credentials, OverHttp
from kvstack.agents.client.transport import UnreachableError
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import KeyPair, Listener, ServerTls
from kvstack.component.http.serving.request import Request
from kvstack.component.metrics.exposition import render
from kvstack.component.metrics.rest_client import HOSTS_MAX, OTHERS, REQUESTS, RequestCounts
from tests.support.certificates import Authority
from tests.support.http.serving import NEEDS_NATIVE, serving

_PORTABLE = [
    pytest.param(False, id="native", marks=NEEDS_NATIVE),
    pytest.param(True, id="portable"),
]


async def _echo(request: Request, answer: Answer) -> None:
    body = await request.read()
    text = f"{request.method} {request.target} {request.header('authorization')} {request.version}"
    answer.send(200, body=text.encode() + b" " + body)


@pytest.mark.parametrize("portable", _PORTABLE)
def test_requests_over_tls(tmp_path: Path, *, portable: bool) -> None:
    authority = Authority(tmp_path, "ca")
    cert, key = authority.issue("server")
    ca = Path(authority.file).read_bytes()

    async def main() -> list[bytes]:
        tls = ServerTls(KeyPair(str(cert), str(key)))
        listener = Listener("https://127.0.0.1:0", tls=tls)
        async with serving(_echo, listener, portable=portable) as under:
            client = OverHttp(under.url, Credentials(token="secret"), ca=ca)
            answers = []
            for number in range(20):
                body = b"x" * number
                answers.append(
                    client.request("POST", f"/p?n={number}", [("Accept", "a")], body, 20)
                )
            found = [await (await each).read() for each in answers[:2]]
            later = await asyncio.gather(*answers[2:])
            found += [await each.read() for each in later]
            await client.close()
            return found

    version = "1.1" if portable else "2"
    for number, answer in enumerate(asyncio.run(main())):
        assert answer.startswith(f"POST /p?n={number} Bearer secret".encode())
        assert f"HTTP/{version}".encode() in answer
        assert answer.endswith(b" " + b"x" * number)


@pytest.mark.parametrize("portable", _PORTABLE)
def test_a_server_that_starts_again_is_found_again(tmp_path: Path, *, portable: bool) -> None:
    authority = Authority(tmp_path, "ca")
    cert, key = authority.issue("server")
    ca = Path(authority.file).read_bytes()

    async def main() -> None:
        tls = ServerTls(KeyPair(str(cert), str(key)))
        listener = Listener("https://127.0.0.1:0", tls=tls)
        async with serving(_echo, listener, portable=portable) as under:
            url = under.url
            client = OverHttp(url, Credentials(), ca=ca)
            assert (await client.request("GET", "/", [], b"", 20)).status == 200
        with pytest.raises(UnreachableError):
            await client.request("GET", "/", [], b"", 20)
        async with serving(_echo, Listener(url, tls=tls), portable=portable):
            answer = await client.request("GET", "/", [], b"", 20)
            assert answer.status == 200
            assert (await answer.read()).startswith(b"GET / ")
            await client.close()

    asyncio.run(main())


def test_a_server_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path, "one").issue("server")
    other = Path(Authority(tmp_path, "other").file).read_bytes()

    async def main() -> None:
        tls = ServerTls(KeyPair(str(cert), str(key)))
        async with serving(_echo, Listener("https://127.0.0.1:0", tls=tls), portable=True) as under:
            client = OverHttp(under.url, Credentials(token="secret"), ca=other)
            with pytest.raises(UnreachableError, match="certificate verify failed"):
                await client.request("GET", "/", [], b"", 20)
            await client.close()

    asyncio.run(main())


def test_requests_are_counted_as_client_go_counts_them() -> None:
    async def refuse(request: Request, answer: Answer) -> None:
        answer.send(404 if request.target == "/none" else 200)

    async def main() -> str:
        async with serving(refuse, Listener("http://127.0.0.1:0"), portable=True) as under:
            client = OverHttp(under.url, Credentials())
            for target in ("/", "/", "/none"):
                (await client.request("GET", target, [], b"", 20)).close()
            (await client.request("POST", "/", [], b"x", 20)).close()
            await client.close()
        with pytest.raises(UnreachableError):
            await client.request("GET", "/", [], b"", 20)
        await client.close()
        return under.url.removeprefix("http://")

    host = asyncio.run(main())
    page = render(REQUESTS.samples()).decode()
    for code, method, count in (("200", "GET", 2), ("404", "GET", 1), ("200", "POST", 1)):
        series = f'{{code="{code}",host="{host}",method="{method}"}}'
        assert f"rest_client_requests_total{series} {count}\n" in page
    assert f'_total{{code="<error>",host="{host}",method="GET"}} 1\n' in page
    name = "rest_client_request_duration_seconds_count"
    assert f'{name}{{host="{host}",verb="GET"}} 4\n' in page


def test_servers_that_come_and_go_have_one_series() -> None:
    counts = RequestCounts()
    for number in range(HOSTS_MAX + 5):
        counts.count(f"h{number}", "GET", 200, 0.1)
    counts.count("h0", "GET", 200, 0.1)
    page = render(counts.samples()).decode()
    assert 'total{code="200",host="h0",method="GET"} 2\n' in page
    assert f'total{{code="200",host="{OTHERS}",method="GET"}} 5\n' in page
    assert f'host="h{HOSTS_MAX}"' not in page


def test_a_certificate_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="unable to load"):
        OverHttp("https://127.0.0.1:1", Credentials(certificate=b"none", key=b"none"))
