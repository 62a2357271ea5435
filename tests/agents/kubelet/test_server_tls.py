"""The TLS of a node's port is that of its configuration."""

import asyncio
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kvstack.agents.kubelet.configuration import read_configuration, with_flags
from kvstack.agents.kubelet.server.server import KubeletServer
from kvstack.component.clock import SystemClock
from kvstack.component.http.serving.listeners import KeyPair
from kvstore.transport import native
from tests.support.certificates import Authority

pytestmark = pytest.mark.skipif(not native.is_available(), reason="TLS is the crate's")


def agreed(directory: Path, flags: dict[str, str], newest: ssl.TLSVersion) -> str:
    """Return the version of TLS that a server and a client agree on; SSLError: none."""
    authority = Authority(directory)
    pair = KeyPair(*authority.issue("node"))
    configuration = with_flags(read_configuration({}), flags)
    nobody: Any = None  # nothing is asked of the node

    async def run() -> str:
        server = KubeletServer(
            nobody, nobody, SystemClock(), "https://127.0.0.1:0", pair, "", configuration
        )
        await server.start()
        context = ssl.create_default_context(cafile=authority.file)
        context.maximum_version = newest
        try:
            port = urlsplit(server.urls[0]).port
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            found: str = writer.get_extra_info("ssl_object").version()
            writer.close()
        finally:
            await server.stop()
        return found

    return asyncio.run(run())


def test_old_versions_are_refused_where_the_configuration_says_so(tmp_path: Path) -> None:
    assert agreed(tmp_path, {}, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    only_new = {"tls-min-version": "VersionTLS13"}
    assert agreed(tmp_path, only_new, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises(ssl.SSLError):
        agreed(tmp_path, only_new, ssl.TLSVersion.TLSv1_2)
