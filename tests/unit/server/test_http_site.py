"""Paths, access, headers of calls."""

import json
from pathlib import Path

import pytest

from kvstore.config.model import Config, TlsConfig
from kvstore.errors import Code
from kvstore.http.exchange import PageRequest
from kvstore.http.page_router import clean_path
from kvstore.runtime.local_client import CallRefusedError
from kvstore.server.gateway.call_options import call_options
from kvstore.server.pages.access import host_name
from kvstore.server.pages.service import Extras
from tests.support.http.harness import Pages


@pytest.mark.parametrize(
    ("path", "cleaned"),
    [
        ("/", "/"),
        ("", "/"),
        ("//", "/"),
        ("/a//b/", "/a/b/"),
        ("/a/./b", "/a/b"),
        ("/a/../../b", "/b"),
        ("/..", "/"),
        ("/a/..", "/"),
    ],
)
def test_paths_are_cleaned(path: str, cleaned: str) -> None:
    assert clean_path(path) == cleaned


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("example.com:2379", "example.com"),
        ("example.com", "example.com"),
        ("[::1]:2379", "::1"),
        ("[::1]", "[::1]"),
        ("::1", "::1"),
        ("a:b:1", "a:b:1"),
        ("", ""),
    ],
)
def test_hosts_lose_their_port(host: str, name: str) -> None:
    assert host_name(host) == name


def test_targets() -> None:
    request = PageRequest("GET", "http://h:1/a%2Fb?x=1&x=2&y=#f", [])
    assert (request.raw_path, request.path) == ("/a%2Fb", "/a/b")
    assert request.query == {"x": ["1", "2"], "y": [""]}
    assert PageRequest("OPTIONS", "*", []).path == "*"
    assert PageRequest("GET", "/?" + "a&" * 2000, []).query == {}


def test_metadata_of_calls() -> None:
    context = call_options(
        [
            ("authorization", "one"),
            ("authorization", "two"),
            ("grpc-metadata-token", "t"),
            ("grpc-metadata-x-bin", "AP8"),
            ("grpc-metadata-:root", "true"),
            ("grpc-metadata-bad", "\x00"),
            ("grpc-metadata-tls-common-name", "root"),
            ("grpc-timeout", "1500m"),
            ("accept", "x"),
            (":scheme", "http"),
        ]
    )
    assert context.metadata == {"authorization": "one", "token": "t", "x-bin": "\x00\xff"}
    assert context.timeout_s == 1.5


@pytest.mark.parametrize("text", ["", "0S", "0n"])
def test_no_timeout(text: str) -> None:
    assert call_options([("grpc-timeout", text)]).timeout_s is None


@pytest.mark.parametrize("text", ["S", "5", "5s", "1.5S", " 5S", "9" * 19 + "n", "9" * 5000 + "S"])
def test_timeouts_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(CallRefusedError) as caught:
        call_options([("grpc-timeout", text)])
    assert (caught.value.code, caught.value.text) == (3, f"invalid grpc-timeout: {text}")


def test_long_timeouts_are_cut() -> None:
    timeout_s = call_options([("grpc-timeout", "9223372036854775807H")]).timeout_s
    assert timeout_s is not None
    assert timeout_s < 1e9


def test_timeouts_that_are_over() -> None:
    with pytest.raises(CallRefusedError) as caught:
        call_options([("grpc-timeout", "-1S")])
    assert caught.value.code == Code.DEADLINE_EXCEEDED


def test_binary_headers_that_are_none() -> None:
    with pytest.raises(CallRefusedError, match="invalid binary header Grpc-Metadata-X-Bin"):
        call_options([("grpc-metadata-x-bin", "@@")])


def test_hosts_that_are_not_whitelisted(tmp_path: Path) -> None:
    with Pages(tmp_path, Config(host_whitelist=("good", "::1"))) as pages:
        for host, status in (("good:1", 200), ("[::1]:5", 200), ("evil:1", 421), ("", 421)):
            answer = pages.ask("GET", "/health", headers=[("host", host)])
            assert answer.status == status, host
        text = pages.ask("GET", "/health", headers=[("host", 'e"vil:1')]).body.decode()
        assert text.startswith(
            "\netcd received your request, but the Host header was unrecognized."
        )
        assert '  - e.g. etcd --host-whitelist "e\\"vil"\n' in text
        assert text.endswith('"DNS Rebinding" attacks (CVE-2018-5702).\n\n')
        secure = pages.ask("GET", "/health", headers=[("host", "evil")], is_tls=True)
        assert secure.status == 200


def test_origins_that_are_named(tmp_path: Path) -> None:
    with Pages(tmp_path, Config(cors=("http://a", "http://b"))) as pages:
        for origin, status, allowed in (
            ("http://b", 200, "http://b"),
            ("http://c", 403, None),
            ("", 200, None),
        ):
            answer = pages.ask("GET", "/health", headers=[("host", "x"), ("origin", origin)])
            assert answer.header("Access-Control-Allow-Origin") == allowed
            assert answer.status == status
        asked = pages.ask("OPTIONS", "/v3/kv/put", headers=[("origin", "http://a")])
        assert (asked.status, asked.body) == (200, b"")
        assert asked.header("Access-Control-Allow-Headers") == "accept, content-type, authorization"
        assert pages.ask("OPTIONS", "/v3/kv/put", headers=[("origin", "http://c")]).status == 403
    with Pages(tmp_path / "all", Config(cors=("*",))) as pages:
        answer = pages.ask("POST", "/v3/kv/range", b"{}", headers=[("origin", "http://evil")])
        assert answer.status == 400  # the key is missing: the gateway was asked
        assert answer.header("Access-Control-Allow-Origin") == "*"


LOOPBACK = ("http://127.0.0.1:2379",)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:2379", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:2379", 200),
        ("127.1.2.3", 200),
        ("[::1]:2379", 200),
        ("store.example:2379", 200),  # advertised
        ("", 200),  # no browser: they all name a host
        ("evil.example:2379", 421),
        ("localhost.evil.example", 421),
        ("10.0.0.1:2379", 421),
        ("x", 421),
    ],
)
def test_hosts_on_loopback(tmp_path: Path, host: str, status: int) -> None:
    config = Config(
        listen_client_urls=(*LOOPBACK, "unix:///run/x.sock"),
        advertise_client_urls=("http://store.example:2379",),
    )
    with Pages(tmp_path, config) as pages:
        for target in ("/health", "/metrics", "/v3/kv/range", "/nope"):
            answer = pages.ask(
                "POST", target, b"{}", headers=[("host", host)], remote_ip="127.0.0.1"
            )
            assert (answer.status == 421) == (status == 421), target
        asked = pages.ask("GET", "/health", headers=[("host", host)], remote_ip="127.0.0.1")
        assert asked.status == status


def test_any_host_where_others_reach_the_port(tmp_path: Path) -> None:
    for number, urls in enumerate((("http://0.0.0.0:2379",), (*LOOPBACK, "http://10.0.0.1:2379"))):
        with Pages(tmp_path / str(number), Config(listen_client_urls=urls)) as pages:
            answer = pages.ask("GET", "/health", headers=[("host", "e")], remote_ip="10.0.0.9")
            assert answer.status == 200


def test_any_host_on_a_unix_socket_and_for_a_star(tmp_path: Path) -> None:
    with Pages(tmp_path, Config(listen_client_urls=LOOPBACK)) as pages:
        assert pages.ask("GET", "/health", headers=[("host", "e")]).status == 200
    config = Config(listen_client_urls=LOOPBACK, host_whitelist=("*",))
    with Pages(tmp_path / "star", config) as pages:
        answer = pages.ask("GET", "/health", headers=[("host", "e")], remote_ip="127.0.0.1")
        assert answer.status == 200


@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        ("localhost:2379", {}, 200),
        ("localhost:2379", {"origin": "http://localhost:2379"}, 200),
        ("127.0.0.1:2379", {"origin": "http://127.0.0.1:2379"}, 200),
        ("10.0.0.5:2379", {"origin": "http://10.0.0.5:2379"}, 200),
        ("localhost:2379", {"origin": "https://localhost:2379"}, 403),
        ("localhost:2379", {"origin": "http://localhost:3000"}, 403),
        ("localhost:2379", {"origin": "http://evil.example"}, 403),
        ("localhost:2379", {"origin": "null"}, 403),
        # A name that an attacker has pointed at this server: the page is its own origin.
        ("evil.example:2379", {"origin": "http://evil.example:2379"}, 403),
        ("localhost:2379", {"sec-fetch-site": "cross-site"}, 403),
        ("localhost:2379", {"sec-fetch-site": "same-origin"}, 200),
        ("localhost:2379", {"sec-fetch-site": "none"}, 200),
    ],
)
def test_origins_that_may_ask(
    tmp_path: Path, host: str, headers: dict[str, str], status: int
) -> None:
    sent = [("host", host), ("content-type", "text/plain"), *headers.items()]
    with Pages(tmp_path, Config(listen_client_urls=("http://0.0.0.0:2379",))) as pages:
        for target in ("/v3/maintenance/status", "/v3beta/maintenance/status"):
            answer = pages.ask("POST", target, b"{}", headers=sent, remote_ip="127.0.0.1")
            assert answer.status == status, answer.body
            assert answer.header("Access-Control-Allow-Origin") is None


def test_the_first_maintenance_status_has_a_storage_version(tmp_path: Path) -> None:
    with Pages(tmp_path, Config(listen_client_urls=LOOPBACK)) as pages:
        answer = pages.ask("POST", "/v3/maintenance/status", b"{}")
        status = json.loads(answer.body)
    assert answer.status == 200
    # No commit of the database has written a version yet; etcd names 3.5's schema then.
    assert status["storageVersion"] in ("3.5.0", "3.7.0")
    assert status["version"].startswith("3.7.")


def test_a_websocket_of_another_origin_is_refused(tmp_path: Path) -> None:
    asked = [("host", "localhost:1"), ("connection", "upgrade"), ("upgrade", "websocket")]
    with Pages(tmp_path, Config(listen_client_urls=LOOPBACK)) as pages:
        evil = [*asked, ("origin", "http://evil.example")]
        assert pages.ask("GET", "/v3/watch", headers=evil).status == 403
        own = [*asked, ("origin", "http://localhost:1")]
        assert pages.ask("GET", "/v3/watch", headers=own).status == 400  # only its key is missing


def test_a_link_to_the_status_page_of_another_site_works(tmp_path: Path) -> None:
    sent = [("host", "localhost:1"), ("sec-fetch-site", "cross-site")]
    with Pages(tmp_path, Config(listen_client_urls=LOOPBACK)) as pages:
        assert pages.ask("GET", "/health", headers=sent).status == 200


def test_named_certificates_have_no_gateway_while_authentication_is_on(tmp_path: Path) -> None:
    enabled = False
    extras = Extras(is_auth_enabled=lambda: enabled)
    with Pages(tmp_path, Config(client_tls=TlsConfig(client_cert_auth=True)), extras) as pages:

        def status(name: str, target: str = "/v3/maintenance/status") -> int:
            return pages.ask("POST", target, b"{}", is_tls=True, common_name=name).status

        assert status("root") == 200
        enabled = True
        assert status("") == 200
        assert status("root", "/nope") == 404
        assert status("root") == 400
        assert status("root", "/v3beta/maintenance/status") == 400


def test_without_the_gateway(tmp_path: Path) -> None:
    with Pages(tmp_path, Config(enable_grpc_gateway=False)) as pages:
        assert pages.ask("POST", "/v3/kv/put", b"{}").body == b"404 page not found\n"
        assert pages.ask("GET", "/health").status == 200


def test_handlers_of_other_packages(tmp_path: Path) -> None:
    async def metrics() -> tuple[bytes, str]:
        return b"m 1\n", "text/plain; version=0.0.4"

    async def page(_request: PageRequest, respond: object) -> None:
        await respond.whole(200, [], b"ui")  # type: ignore[attr-defined]

    with Pages(tmp_path, extras=Extras(metrics=metrics, ui={"/ui": page, "/ui/": page})) as pages:
        answer = pages.ask("GET", "/metrics")
        assert (answer.status, answer.body) == (200, b"m 1\n")
        assert answer.header("Content-Type") == "text/plain; version=0.0.4"
        assert pages.ask("POST", "/metrics").status == 405
        assert pages.ask("GET", "/ui/app.js").body == b"ui"
        site = pages.service._metrics_pages.serve
        assert pages.ask("GET", "/metrics", handler=site).status == 200
        assert pages.ask("GET", "/readyz", handler=site).body == b"ok\n"
        for target in ("/version", "/debug/vars", "/v3/kv/range", "/ui/"):
            assert pages.ask("GET", target, handler=site).status == 404
