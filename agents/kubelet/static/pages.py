"""Static pods from URLs."""

import asyncio
from typing import Final
from urllib.parse import urljoin

from kvstack.component.http.answers import AnswerError, HttpAnswer
from kvstack.component.http.client import HttpClient
from kvstack.component.http.faults import fault_text
from kvstack.component.http.request_head import UrlError, head_lines, site_of
from kvstack.component.http.tls import client_context

PAGE_BYTES_MAX: Final = 10 << 20
_TIMEOUT_S: Final = 10
_REDIRECTS_MAX: Final = 10
_HEAD: Final = head_lines((("Accept", "*/*"), ("User-Agent", "kubelet")))


async def page(url: str) -> bytes:
    """Return a page of a server; raises OSError."""
    client = HttpClient()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            answer = await _followed(client, url)
    except UrlError as error:
        raise OSError(str(error)) from error
    except (AnswerError, OSError) as error:
        site = site_of(url)
        raise OSError(f"{url}: {fault_text(error, site.host, site.port)}") from error
    finally:
        client.close()
    if answer.code != 200:
        raise OSError(f"{url} answers {answer.code}")
    return answer.body


async def _followed(client: HttpClient, url: str) -> HttpAnswer:
    context = client_context()
    for _ in range(_REDIRECTS_MAX):
        answer = await client.request(
            "GET", url, _HEAD, b"", context=context, bytes_max=PAGE_BYTES_MAX
        )
        if not (300 <= answer.code < 400 and answer.header("location")):
            return answer
        url = urljoin(url, answer.header("location"))
    raise OSError(f"stopped after {_REDIRECTS_MAX} redirects")
