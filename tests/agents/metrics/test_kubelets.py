"""Kubelets over TLS: whom they are shown, which are believed, and what they may do."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.metrics.collector import UnreadableError
from kvstack.agents.metrics.kubelets import KubeletOptions, Kubelets, address_of
from kvstack.component.clock import SystemClock
from kvstack.component.http.tls import client_context
from tests.support.certificates import Authority

PAGE = "node_cpu_usage_seconds_total 2\nnode_memory_working_set_bytes 5\n"


def node(port: int, address: str = "127.0.0.1") -> dict[str, Any]:
    return {
        "metadata": {"name": "n"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    }


@asynccontextmanager
async def kubelet(authority: Authority, asked: list[str], code: int = 200) -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("kubelet"))
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_OPTIONAL

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
        peer = writer.get_extra_info("peercert") or {}
        asked.append(str(peer.get("subject", "")))
        writer.write(f"HTTP/1.1 {code} X\r\nContent-Length: {len(PAGE)}\r\n\r\n{PAGE}".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def test_a_kubelet_is_shown_a_certificate_or_a_token(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("reader")

    async def main() -> None:
        asked: list[str] = []
        async with kubelet(authority, asked) as port:
            options = KubeletOptions(cert, key, authority.file)
            found = await Kubelets(options, SystemClock()).read(node(port))
            assert (found.node.cpu_ns, found.node.memory_bytes) == (2 * 10**9, 5)
            assert asked[0].startswith("GET /metrics/resource HTTP/1.1\r\n")
            assert "reader" in asked[1]
            options = KubeletOptions(ca_file=authority.file, token=lambda: "secret")
            await Kubelets(options, SystemClock()).read(node(port))
            assert "Authorization: Bearer secret\r\n" in asked[2]

    asyncio.run(main())


def test_one_that_is_not_believed_learns_no_token(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")

    async def main() -> None:
        asked: list[str] = []
        async with kubelet(authority, asked) as port:
            options = KubeletOptions(ca_file=other.file, token=lambda: "secret")
            with pytest.raises(UnreadableError, match="certificate verify failed"):
                await Kubelets(options, SystemClock()).read(node(port))
        assert not asked

    asyncio.run(main())


def test_files_are_read_again_when_they_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    trusted, made = tmp_path / "trusted.crt", list[bytes]()
    trusted.write_bytes(Path(other.file).read_bytes())
    renewed = tmp_path / "renewed.crt"
    renewed.write_bytes(Path(authority.file).read_bytes())

    def make(ca: bytes, **options: Any) -> ssl.SSLContext:
        made.append(ca)
        return client_context(ca, **options)

    monkeypatch.setattr("kvstack.agents.metrics.kubelets.client_context", make)

    async def main() -> None:
        kubelets = Kubelets(KubeletOptions(ca_file=str(trusted)), SystemClock())
        async with kubelet(authority, []) as port:
            with pytest.raises(UnreadableError, match="certificate verify failed"):
                await kubelets.read(node(port))
            renewed.rename(trusted)
            for _ in range(2):
                await kubelets.read(node(port))
            assert len(made) == 2
            trusted.unlink()
            with pytest.raises(UnreadableError, match="unable to load root certificates"):
                await kubelets.read(node(port))

    asyncio.run(main())


def test_a_refusal_is_reported(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def main() -> None:
        async with kubelet(authority, [], 403) as port:
            with pytest.raises(UnreadableError, match="/metrics/resource answers 403"):
                await Kubelets(KubeletOptions(), SystemClock()).read(node(port))

    asyncio.run(main())


def test_where_kubelets_are() -> None:
    assert address_of(node(7), KubeletOptions()) == ("127.0.0.1", 7)
    assert address_of(node(7), KubeletOptions(port=9)) == ("127.0.0.1", 9)
    with pytest.raises(UnreadableError, match="no address of type Hostname"):
        address_of(node(7), KubeletOptions(address_types=("Hostname",)))
    with pytest.raises(UnreadableError, match="port 70000"):
        address_of(node(70000), KubeletOptions())


@pytest.mark.parametrize("address", ["a\r\nb", "x" * 300, "é" * 70])
def test_an_address_that_is_none(address: str) -> None:
    async def main() -> None:
        with pytest.raises(UnreadableError):
            await Kubelets(KubeletOptions(), SystemClock()).read(node(1, address))

    asyncio.run(main())
