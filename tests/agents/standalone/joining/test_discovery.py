"""Who stands between a machine and the cluster that it joins is found out."""

import asyncio
import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from typing_extensions import override

from kvstack.agents.controllers.cluster.bootstrap_tokens import signature
from kvstack.agents.standalone.joining.discovery import (
    DiscoveredCluster,
    discover,
    key_hash,
    parse_hash,
)
from kvstack.agents.standalone.joining.tokens import Token
from kvstack.component.errors import ConfigError
from tests.support.certificates import Authority

TOKEN = Token("abcdef", "0123456789abcdef")
SERVER = "https://192.0.2.1:6443"


class Cluster:
    """What answers; each request takes the next answer, the last one again and again."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.authority = Authority(directory)
        self.pem = Path(self.authority.file).read_bytes()
        self.answers: list[dict[str, str]] = []
        self.port = 0

    @property
    def hash(self) -> str:
        return key_hash(x509.load_pem_x509_certificate(self.pem))

    def info(self, server: str = SERVER, token: Token = TOKEN, pem: bytes = b"") -> dict[str, str]:
        """Return the data of a cluster-info, signed with a token."""
        cluster = {
            "server": server,
            "certificate-authority-data": b64encode(pem or self.pem).decode(),
        }
        content = yaml.safe_dump({"clusters": [{"name": "", "cluster": cluster}]})
        signed = signature(content, token.id, token.secret)
        return {"kubeconfig": content, f"jws-kubeconfig-{token.id}": signed}


@contextmanager
def answering(cluster: Cluster, shown: Cluster | None = None) -> Iterator[None]:
    """Answer as a cluster; shown: whose certificate it has."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = cluster.answers.pop(0) if len(cluster.answers) > 1 else cluster.answers[0]
            body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "data": found}
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        @override
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(shown or cluster).authority.issue("server"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    cluster.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def discovered(cluster: Cluster, *hashes: str, within_s: float = 0.0) -> DiscoveredCluster:
    url = f"https://127.0.0.1:{cluster.port}"
    return asyncio.run(discover(url, TOKEN, hashes, within_s))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("own") / "pki")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("other") / "pki")


def test_a_cluster_that_is_what_it_says(cluster: Cluster) -> None:
    cluster.answers = [cluster.info()]
    with answering(cluster):
        assert discovered(cluster, cluster.hash) == DiscoveredCluster(SERVER, cluster.pem)
        assert discovered(cluster) == DiscoveredCluster(
            SERVER, cluster.pem
        )  # whoever knows the token


def test_a_signature_that_is_just_being_made_is_waited_for(cluster: Cluster) -> None:
    unsigned = {"kubeconfig": cluster.info()["kubeconfig"]}
    cluster.answers = [{}, unsigned, cluster.info()]
    with answering(cluster):
        assert discovered(cluster, cluster.hash, within_s=60).server == SERVER


def test_a_token_that_has_ended_is_not_waited_for_forever(cluster: Cluster) -> None:
    cluster.answers = [cluster.info(token=Token("zzzzzz", "0" * 16))]
    with answering(cluster), pytest.raises(ConfigError, match="unknown or has ended"):
        discovered(cluster, cluster.hash)


def test_a_server_that_is_not_reached_is_named(cluster: Cluster) -> None:
    cluster.answers = [{}]
    with answering(cluster):
        pass
    with pytest.raises(ConfigError, match=r"https://127\.0\.0\.1:\d+: it is not reached"):
        discovered(cluster, cluster.hash)


def test_who_does_not_know_the_token_is_not_believed(cluster: Cluster) -> None:
    cluster.answers = [cluster.info(token=Token(TOKEN.id, "f" * 16))]
    with answering(cluster), pytest.raises(ConfigError, match="another secret") as raised:
        discovered(cluster, cluster.hash)
    assert TOKEN.secret not in str(raised.value)


def test_another_holder_of_the_token_has_not_the_authority(
    cluster: Cluster, other: Cluster
) -> None:
    other.answers = [other.info()]
    with answering(other), pytest.raises(ConfigError, match="this is another cluster"):
        discovered(other, cluster.hash)


def test_an_authority_beside_that_of_the_cluster_is_not_believed(
    cluster: Cluster, other: Cluster
) -> None:
    other.answers = [other.info(pem=cluster.pem + other.pem)]
    with answering(other), pytest.raises(ConfigError, match="this is another cluster"):
        discovered(other, cluster.hash)


def test_who_only_passes_on_has_not_the_certificate(cluster: Cluster, other: Cluster) -> None:
    cluster.answers = [cluster.info()]
    with answering(cluster, other), pytest.raises(ConfigError, match="it is not reached"):
        discovered(cluster, cluster.hash)


def test_what_is_read_twice_has_to_be_one(cluster: Cluster) -> None:
    cluster.answers = [cluster.info("https://192.0.2.2:6443"), cluster.info()]
    with answering(cluster), pytest.raises(ConfigError, match="is another where"):
        discovered(cluster, cluster.hash)


@pytest.mark.parametrize("server", ["http://192.0.2.1:6443", "", "ftp://x"])
def test_only_https_is_led_to(cluster: Cluster, server: str) -> None:
    cluster.answers = [cluster.info(server)]
    with answering(cluster), pytest.raises(ConfigError, match="names no server"):
        discovered(cluster, cluster.hash)


@pytest.mark.parametrize("content", ["[]", "clusters: 7", "clusters: [{}, {}]", "{", "x"])
def test_what_is_no_kubeconfig_is_refused(cluster: Cluster, content: str) -> None:
    signed = signature(content, TOKEN.id, TOKEN.secret)
    cluster.answers = [{"kubeconfig": content, f"jws-kubeconfig-{TOKEN.id}": signed}]
    with answering(cluster), pytest.raises(ConfigError, match="has no kubeconfig"):
        discovered(cluster, cluster.hash)


@pytest.mark.parametrize("text", ["", "sha256:12", f"sha1:{'0' * 64}", f"sha256:{'g' * 64}"])
def test_what_is_no_hash_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="sha256: and 64 hexadecimal digits"):
        parse_hash(text)
