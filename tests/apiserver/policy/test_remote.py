"""Kubeconfigs, and connections to what is behind them."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.policy.remote.connection import Connection, RemoteError
from kvstack.apiserver.policy.remote.kubeconfig import Target, TargetTls, read_kubeconfig
from kvstack.component.certs.kubeconfig_reader import Pem
from tests.apiserver.support.web import Answer, web

BASE = Path("/etc/k")


def kubeconfig(cluster: dict[str, Any], user: dict[str, Any]) -> bytes:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [
                {"name": "other", "cluster": {}},
                {"name": "c", "cluster": {"server": "https://h/p", **cluster}},
            ],
            "users": [{"name": "u", "user": user}],
        }
    ).encode()


def test_where_a_kubeconfig_leads() -> None:
    pem = base64.b64encode(b"PEM").decode()
    cluster = {"certificate-authority-data": pem, "tls-server-name": "n"}
    user = {"client-certificate": "c.pem", "client-key": "/k.pem", "tokenFile": "t"}
    assert read_kubeconfig(kubeconfig(cluster, user), BASE) == Target(
        "https://h/p",
        TargetTls(Pem(b"PEM"), Pem(file="/etc/k/c.pem"), Pem(file="/k.pem"), "n"),
        token_file="/etc/k/t",
    )


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({}, {"exec": {"command": "x"}}, '"exec" is not supported'),
        ({}, {"client-key": "k"}, "must be given together"),
        ({"server": "h"}, {}, "invalid server URL"),
        ({"server": "file:///x"}, {}, "invalid server URL"),
        ({"proxy-url": "https://p"}, {}, "only proxies with a URL of http://"),
        ({"certificate-authority-data": "*"}, {}, "certificate-authority-data"),
        ({"insecure-skip-tls-verify": "yes"}, {}, "must be of type boolean"),
    ],
)
def test_kubeconfigs_that_cannot_be_used(
    cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    with pytest.raises(DocumentError, match=message):
        read_kubeconfig(kubeconfig(cluster, user), BASE)


def test_a_context_that_is_not_there() -> None:
    with pytest.raises(DocumentError, match='context "y" does not exist'):
        read_kubeconfig(b'{"current-context": "y"}', BASE)


async def _request(target: Target, timeout_s: float = 5.0, bytes_max: int = 1000) -> Any:
    connection = Connection(target)
    try:
        return await connection.ask("POST", b"{}", timeout_s=timeout_s, bytes_max=bytes_max)
    except RemoteError as error:
        return error
    finally:
        await connection.close()


def test_connections(tmp_path: Path) -> None:
    async def answer(path: str, _body: Any) -> Answer:
        if path == "/slow":
            await asyncio.Event().wait()  # for ever
        return (302, b"") if path == "/away" else (200, b"x" * (2000 if path == "/big" else 10))

    async def main() -> None:
        async with web(tmp_path, answer) as served:
            ca = TargetTls(Pem(file=served.ca_file))
            url = served.url
            assert (await _request(Target(url, ca))).body == b"x" * 10
            assert (await _request(Target(url, ca, user="a", password="b"))).code == 200
            assert served.headers[-1]["Authorization"] == "Basic YTpi"
            assert (await _request(Target(f"{url}/away", ca))).code == 302
            assert "more than 1000 bytes" in str(await _request(Target(f"{url}/big", ca)))
            slow = await _request(Target(f"{url}/slow", ca), timeout_s=0.2)
            assert slow.is_timeout
            # A certificate of another authority or name is not believed, unless nothing matters.
            assert isinstance(await _request(Target(url)), RemoteError)
            named = TargetTls(Pem(file=served.ca_file), server_name="other.example")
            assert isinstance(await _request(Target(url, named)), RemoteError)
            assert (await _request(Target(url, TargetTls(is_insecure=True)))).code == 200
            missing = TargetTls(Pem(file="/no/such/file"))
            assert "No such file" in str(await _request(Target(url, missing)))

    asyncio.run(main())
