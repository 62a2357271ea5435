"""TLS of the transports: certificates of both sides, reloaded files, versions, shared ports.

What grpcio can do is asked of both, the rest of the native one; without the crate that is skipped
by name.

The certificates are made by the openssl command; without it the tests are skipped by name.
"""

import os
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from kvstack.component.errors import ConfigError
from kvstore.batch import Inbox, Outbox
from kvstore.transport import native
from kvstore.transport.grpcio.server import GrpcOptions, GrpcTransport
from kvstore.transport.native import NativeOptions, NativeTransport
from kvstore.transport.tls import TlsOptions
from kvstore.wire import rpc
from tests.support import raw_grpc
from tests.support.certificates import Authority, openssl
from tests.support.http.raw_http2 import RawConnection, message
from tests.support.servers import free_ports
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the openssl command is needed to make certificates"
)
NEEDS_NATIVE = pytest.mark.skipif(
    not native.is_available(), reason="the native transport is not built: it needs a Rust toolchain"
)

WAIT_S = 60.0
PUT = rpc.METHODS[rpc.PUT].path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def server_files(authority: Authority) -> tuple[str, str]:
    return authority.issue("server")


def _contents(files: tuple[str, str] | None) -> tuple[bytes | None, bytes | None]:
    return (
        (None, None)
        if files is None
        else (Path(files[0]).read_bytes(), Path(files[1]).read_bytes())
    )


class Echo:
    """A transport that answers calls, and requests, with their own bodies."""

    def __init__(
        self,
        tls: TlsOptions | None,
        urls: tuple[str, ...],
        *,
        http_urls: tuple[str, ...] = (),
        kind: str = "native",
    ) -> None:
        self.notices: list[str] = []
        self.seen = Inbox()
        self.transport: NativeTransport | GrpcTransport
        if kind == "grpcio":
            self.transport = GrpcTransport(
                urls, [rpc.PUT], GrpcOptions(tls=tls), self.notices.append
            )
        else:
            options = NativeOptions(tls=tls, serves_http=not http_urls)
            self.transport = NativeTransport(
                urls, [rpc.PUT], options, self.notices.append, http_urls
            )
        self.urls = self.transport.bound_urls
        port = self.urls[0].rpartition(":")[2]
        self.port = int(port) if port.isdecimal() else 0
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            inbox = self.transport.poll(0.05)
            self.seen.metadata.update(inbox.metadata)
            self.seen.requests += inbox.requests
            self.transport.flush(
                Outbox(
                    replies=[(c[0], 0, c[2]) for c in inbox.calls],
                    responses=[(r[0], 200, [], r[4]) for r in inbox.requests],
                )
            )

    def until(self, condition: Callable[[], object]) -> None:
        wait_for(condition, lambda: self.notices, WAIT_S, every_s=0.005)

    def close(self) -> None:
        self._over = True
        self._thread.join(WAIT_S)
        self.transport.stop(0.0)

    def call(
        self, authority: Authority | None, certificate: tuple[str, str] | None = None
    ) -> bytes:
        """Make one call; without an authority in plaintext."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        target = f"localhost:{self.port}"
        if authority is None:
            channel = grpc.insecure_channel(target, options)
        else:
            roots = Path(authority.file).read_bytes()
            chain, key = _contents(certificate)
            credentials = grpc.ssl_channel_credentials(roots, key, chain)
            channel = grpc.secure_channel(target, credentials, options)
        with channel:
            answer: bytes = raw_grpc.unary(channel, PUT)(b"hello", timeout=WAIT_S)
            return answer


StartEcho = Callable[..., Echo]


@pytest.fixture(params=[pytest.param("native", marks=NEEDS_NATIVE)])
def start(request: pytest.FixtureRequest) -> Iterator[StartEcho]:
    yield from starter(request.param)


@pytest.fixture(params=["grpcio", pytest.param("native", marks=NEEDS_NATIVE)])
def start_any(request: pytest.FixtureRequest) -> Iterator[StartEcho]:
    yield from starter(request.param)


def starter(kind: str) -> Iterator[StartEcho]:
    started: list[Echo] = []

    def begin(tls: TlsOptions | None, *urls: str, http_urls: tuple[str, ...] = ()) -> Echo:
        echo = Echo(tls, urls or ("https://127.0.0.1:0",), http_urls=http_urls, kind=kind)
        started.append(echo)
        return echo

    yield begin
    for echo in started:
        echo.close()


def test_a_call_over_tls(
    start_any: StartEcho, authority: Authority, server_files: tuple[str, str]
) -> None:
    echo = start_any(TlsOptions(*server_files))
    assert echo.urls[0].startswith("https://127.0.0.1:")
    assert echo.call(authority) == b"hello"
    with pytest.raises(grpc.RpcError):
        echo.call(None)
    assert echo.call(authority) == b"hello"
    assert echo.seen.metadata == {}


def test_plaintext_and_tls_on_one_port(
    start: StartEcho, authority: Authority, server_files: tuple[str, str]
) -> None:
    [port] = free_ports(1)
    echo = start(TlsOptions(*server_files), f"http://127.0.0.1:{port}", f"https://127.0.0.1:{port}")
    assert echo.call(authority) == b"hello"
    assert echo.call(None) == b"hello"


def post(stream: socket.socket) -> bytes:
    """Ask by HTTP/1.1; return the head of the answer."""
    stream.sendall(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody")
    data = b""
    while not data.endswith(b"\r\n\r\nbody"):
        more = stream.recv(4096)
        assert more, data
        data += more
    return data


def unix_call(path: Path, authority: Authority | None) -> bytes:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost")]
    if authority is None:
        channel = grpc.insecure_channel(f"unix:{path}", options[:1])
    else:
        credentials = grpc.ssl_channel_credentials(Path(authority.file).read_bytes())
        channel = grpc.secure_channel(f"unix:{path}", credentials, options)
    with channel:
        answer: bytes = raw_grpc.unary(channel, PUT)(b"hello", timeout=WAIT_S)
        return answer


@pytest.mark.parametrize("schemes", [("unix",), ("unixs",), ("unix", "unixs")])
def test_everything_on_a_unix_socket(
    start: StartEcho,
    authority: Authority,
    server_files: tuple[str, str],
    tmp_path: Path,
    schemes: tuple[str, ...],
) -> None:
    path = tmp_path / "kv.sock"
    tls = TlsOptions(*server_files) if "unixs" in schemes else None
    echo = start(tls, *(f"{scheme}://{path}" for scheme in schemes))
    assert echo.urls == [f"{scheme}://{path}" for scheme in schemes]
    for scheme in schemes:
        assert unix_call(path, authority if scheme == "unixs" else None) == b"hello"
        with socket.socket(socket.AF_UNIX) as stream:
            stream.settimeout(WAIT_S)
            stream.connect(str(path))
            if scheme == "unix":
                post(stream)
            else:
                context = ssl.create_default_context(cafile=authority.file)
                with context.wrap_socket(stream, server_hostname="localhost") as secured:
                    post(secured)
    schemes_seen = [dict(request[3])[":scheme"] for request in echo.seen.requests]
    assert schemes_seen == [{"unix": "http", "unixs": "https"}[scheme] for scheme in schemes]
    assert dict(echo.seen.requests[0][3])[":peer"] == str(path)


def test_http_over_tls_by_either_version(
    start: StartEcho, authority: Authority, server_files: tuple[str, str]
) -> None:
    echo = start(TlsOptions(*server_files))
    context = ssl.create_default_context(cafile=authority.file)
    with (
        socket.create_connection(("127.0.0.1", echo.port), timeout=WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        assert secured.selected_alpn_protocol() is None
        assert post(secured).startswith(b"HTTP/1.1 200 OK\r\n")
    assert echo.call(authority) == b"hello"


def test_http_at_addresses_of_its_own(
    start: StartEcho, authority: Authority, server_files: tuple[str, str]
) -> None:
    """As etcd's --listen-client-http-urls: HTTP only there, gRPC only at the others."""
    echo = start(
        TlsOptions(*server_files),
        "http://127.0.0.1:0",
        "https://127.0.0.1:0",
        http_urls=("http://127.0.0.1:0", "https://127.0.0.1:0"),
    )
    grpc_ports = [int(url.rpartition(":")[2]) for url in echo.urls]
    assert isinstance(echo.transport, NativeTransport)
    http_ports = [int(url.rpartition(":")[2]) for url in echo.transport.bound_http_urls]
    assert len({*grpc_ports, *http_ports}) == 4
    assert echo.call(None) == b"hello"
    echo.port = grpc_ports[1]
    assert echo.call(authority) == b"hello"
    for port in http_ports[:1]:
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain:
            assert post(plain).startswith(b"HTTP/1.1 200 OK\r\n")
    with (
        socket.create_connection(("127.0.0.1", grpc_ports[0]), timeout=WAIT_S) as plain,
        pytest.raises((AssertionError, ConnectionError)),
    ):
        post(plain)
    with RawConnection(f"127.0.0.1:{http_ports[0]}") as client:  # gRPC is one more request here
        client.call(1, PUT, message(b"hello"), content_length="10")
        headers, data = client.answer(1)
        assert (headers[":status"], data) == ("200", message(b"hello"))
        assert "grpc-status" not in headers


@NEEDS_NATIVE
def test_one_address_is_not_both(server_files: tuple[str, str]) -> None:
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with pytest.raises(ConfigError, match=f"cannot bind both --listen-.* url {url}"):
        NativeTransport([url], [rpc.PUT], http_urls=[url])


def test_keys_of_every_usual_kind(
    start: StartEcho, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """etcd's own made certificates have keys on P-521."""
    for number, kind in enumerate(
        (["ec", "ec_paramgen_curve:P-521"], ["rsa", ""], ["ed25519", ""])
    ):
        directory = tmp_path_factory.mktemp("keys")
        options = ["-pkeyopt", kind[1]] if kind[1] else []
        openssl(
            "req", "-x509", "-newkey", kind[0], *options, "-nodes", "-keyout", "k.pem",
            "-out", "c.pem", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1",
            cwd=directory,
        )  # fmt: skip
        echo = start(TlsOptions(str(directory / "c.pem"), str(directory / "k.pem")))
        context = ssl.create_default_context(cafile=str(directory / "c.pem"))
        with (
            socket.create_connection(("127.0.0.1", echo.port), timeout=WAIT_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            assert post(secured)
        assert len(echo.seen.requests) == 1, number


def test_clients_need_a_certificate_of_the_authority(
    start_any: StartEcho, authority: Authority, server_files: tuple[str, str], tmp_path: Path
) -> None:
    echo = start_any(TlsOptions(*server_files, trusted_ca_file=authority.file))
    assert echo.call(authority, authority.issue("alice")) == b"hello"
    assert list(echo.seen.metadata.values()) == [{"tls-common-name": "alice"}]
    with pytest.raises(grpc.RpcError):
        echo.call(authority)
    stranger = Authority(tmp_path, "other").issue("alice")
    with pytest.raises(grpc.RpcError):
        echo.call(authority, stranger)
    if isinstance(echo.transport, NativeTransport):  # grpcio keeps it to itself
        echo.until(lambda: any("TLS" in notice for notice in echo.notices))


def test_revoked_certificates_and_a_list_that_changes(
    start: StartEcho, authority: Authority, server_files: tuple[str, str]
) -> None:
    good, bad = authority.issue("good"), authority.issue("bad")
    crl = authority.revoke()
    echo = start(TlsOptions(*server_files, trusted_ca_file=authority.file, crl_file=crl))
    assert echo.call(authority, bad) == b"hello"
    authority.revoke(bad[0])
    _touch_later(crl)
    with pytest.raises(grpc.RpcError):
        echo.call(authority, bad)
    assert echo.call(authority, good) == b"hello"


def _touch_later(path: str) -> None:
    """Make a file look changed, also where its time is coarse."""
    at = os.stat(path).st_mtime_ns + 2_000_000_000
    os.utime(path, ns=(at, at))


def test_allowed_names(
    start: StartEcho, authority: Authority, server_files: tuple[str, str]
) -> None:
    alice, eve = authority.issue("alice2", "a.kv.test"), authority.issue("eve", "e.kv.test")
    by_name = start(
        TlsOptions(*server_files, trusted_ca_file=authority.file, allowed_names=("alice2", "bob"))
    )
    by_host = start(
        TlsOptions(*server_files, trusted_ca_file=authority.file, allowed_hosts=("a.kv.test",))
    )
    for echo in (by_name, by_host):
        assert echo.call(authority, alice) == b"hello"
        with pytest.raises(grpc.RpcError):
            echo.call(authority, eve)


def test_a_new_certificate_is_used_without_a_restart(
    start_any: StartEcho, authority: Authority, tmp_path: Path
) -> None:
    chain, key = authority.issue("before")
    files = (str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))
    shutil.copy(chain, files[0])
    shutil.copy(key, files[1])
    echo = start_any(TlsOptions(*files))
    assert _name_of(echo, authority) == "before"
    chain, key = authority.issue("after")
    shutil.copy(chain, files[0])  # for a moment the key does not fit
    _touch_later(files[0])
    for _ in range(3):
        assert _name_of(echo, authority) == "before"
    os.unlink(files[0])
    for _ in range(3):
        assert _name_of(echo, authority) == "before"
    echo.until(lambda: len(warnings(echo)) == 2)  # one a change, not one a handshake
    assert files[0] in warnings(echo)[1]
    shutil.copy(chain, files[0])
    shutil.copy(key, files[1])
    assert _name_of(echo, authority) == "after"
    assert len(warnings(echo)) == 2


def warnings(echo: Echo) -> list[str]:
    return [notice for notice in echo.notices if "the last good ones are" in notice]


def _context(authority: Authority) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    context.set_alpn_protocols(["h2"])
    return context


def _name_of(echo: Echo, authority: Authority) -> str:
    with (
        socket.create_connection(("127.0.0.1", echo.port), timeout=WAIT_S) as plain,
        _context(authority).wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        assert secured.selected_alpn_protocol() == "h2"
        certificate = secured.getpeercert()
    assert certificate is not None
    subject: tuple[tuple[tuple[str, str], ...], ...] = certificate["subject"]  # type: ignore[assignment]
    return dict(pair for part in subject for pair in part)["commonName"]


def test_versions_and_cipher_suites(
    start: StartEcho, authority: Authority, server_files: tuple[str, str]
) -> None:
    def negotiated(echo: Echo, newest: ssl.TLSVersion) -> tuple[str, str]:
        context = _context(authority)
        context.maximum_version = newest
        with (
            socket.create_connection(("127.0.0.1", echo.port), timeout=WAIT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            cipher = secured.cipher()
            assert cipher is not None
            return secured.version() or "", cipher[0]

    suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    chosen = start(TlsOptions(*server_files, cipher_suites=(suite,)))
    assert negotiated(chosen, ssl.TLSVersion.TLSv1_2) == (
        "TLSv1.2",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    )
    assert negotiated(chosen, ssl.TLSVersion.TLSv1_3)[0] == "TLSv1.3"
    newest = start(TlsOptions(*server_files, min_version="TLS1.3"))
    with pytest.raises(ssl.SSLError):
        negotiated(newest, ssl.TLSVersion.TLSv1_2)
    oldest = start(TlsOptions(*server_files, max_version="TLS1.2"))
    assert negotiated(oldest, ssl.TLSVersion.TLSv1_3)[0] == "TLSv1.2"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cert_file": "/none.pem"}, "/none.pem"),
        ({"trusted_ca_file": "/none.pem"}, "/none.pem"),
        ({"min_version": "TLS1.1"}, 'TLS version "TLS1.1"'),
        ({"min_version": "TLS1.3", "max_version": "TLS1.2"}, "above the newest"),
        ({"cipher_suites": ("TLS_RSA_WITH_RC4_128_SHA",)}, "TLS_RSA_WITH_RC4_128_SHA"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    start: StartEcho, server_files: tuple[str, str], change: dict[str, object], text: str
) -> None:
    cert_file, key_file = server_files
    settings = {"cert_file": cert_file, "key_file": key_file, **change}
    with pytest.raises(ConfigError, match=text):
        start(TlsOptions(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"cert_file": "/none.pem"}, "/none.pem: No such file"),
        ({"trusted_ca_file": "/none.pem"}, "/none.pem: No such file"),
        ({"key_file": "a key of another"}, "server.pem with key .*another.key: KEY_VALUES_MISM"),
        ({"trusted_ca_file": __file__}, f"trusted CA file {__file__}: NO_CERTIFICATE"),
        ({"crl_file": "crl.pem"}, "--client-crl-file needs the native transport"),
        ({"allowed_hosts": ("a",)}, "--client-cert-allowed-hostname needs the native transport"),
        ({"min_version": "TLS1.3"}, "--tls-min-version needs the native transport"),
        ({"max_version": "TLS1.2"}, "--tls-max-version needs the native transport"),
        ({"cipher_suites": ("x",)}, "--cipher-suites needs the native transport"),
    ],
)
def test_what_grpcio_cannot_do_is_refused_by_name(
    authority: Authority, server_files: tuple[str, str], change: dict[str, object], text: str
) -> None:
    settings = {"cert_file": server_files[0], "key_file": server_files[1], **change}
    if settings["key_file"] == "a key of another":
        settings["key_file"] = authority.issue("another")[1]
    tls = TlsOptions(**settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=text):
        GrpcTransport(["https://127.0.0.1:0"], [rpc.PUT], GrpcOptions(tls=tls))


def test_grpcio_refuses_plaintext_beside_tls(server_files: tuple[str, str]) -> None:
    [port] = free_ports(1)
    urls = [f"http://127.0.0.1:{port}", f"https://127.0.0.1:{port}"]
    with pytest.raises(ConfigError, match="plaintext beside TLS on one address needs the native"):
        GrpcTransport(urls, [rpc.PUT], GrpcOptions(tls=TlsOptions(*server_files)))


@NEEDS_NATIVE
def test_https_without_certificates_is_refused() -> None:
    with pytest.raises(ConfigError, match="only http:// and unix:// are served"):
        NativeTransport(["https://127.0.0.1:0"], [rpc.PUT])
