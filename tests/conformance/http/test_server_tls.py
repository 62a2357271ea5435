"""The HTTP server on a loop, with TLS: whose the client is, which certificate it is shown."""

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.x509 import Version, load_pem_x509_certificate

from kvstack.component.errors import ConfigError
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import ClientAuth, KeyPair, Listener, ServerTls
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpOptions, HttpServer
from tests.support.certificates import Authority, openssl
from tests.support.http.clients import TornError
from tests.support.http.serving import SERVERS, WAIT_S, WAYS, Way, run, serving, until

if TYPE_CHECKING:
    from kvstack.component.http.serving.transport import Connection

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the openssl command is needed to make certificates"
)
EVERY_WAY = pytest.mark.parametrize("way", WAYS)
EVERY_SERVER = pytest.mark.parametrize("way", SERVERS)


class Files:
    """Certificates of two authorities and of nobody's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ours = Authority(directory, "ours")
        self.proxies = Authority(directory, "proxies")
        self.others = Authority(directory, "others")
        self.server = self.ours.issue("server")
        self.client = self.ours.issue("client")
        self.proxy = self.proxies.issue("proxy")
        self.stranger = self.others.issue("stranger")

    def own_authority(self, name: str, *extensions: str, days: int = 2) -> tuple[str, str]:
        """Make a self-signed certificate that is its own authority."""
        options = [each for extension in extensions for each in ("-addext", extension)]
        openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}",
            "-days", str(days), *options,
            cwd=self.directory,
        )  # fmt: skip
        return str(self.directory / f"{name}.pem"), str(self.directory / f"{name}.key")

    def of_version_1(self, name: str) -> tuple[str, str]:
        """Make a certificate without extensions; skips where openssl adds some by itself."""
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
            cwd=self.directory,
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", self.ours.file, "-CAkey", "ours.key",
            "-set_serial", "77", "-days", "2", "-out", f"{name}.pem",
            cwd=self.directory,
        )  # fmt: skip
        made = load_pem_x509_certificate((self.directory / f"{name}.pem").read_bytes())
        if made.version is not Version.v1:
            pytest.skip("this openssl makes no certificates of version 1")
        return str(self.directory / f"{name}.pem"), str(self.directory / f"{name}.key")

    def tls(self, client_auth: ClientAuth = ClientAuth.NONE, **others: object) -> ServerTls:
        authorities = {} if client_auth is ClientAuth.NONE else {
            "clients": self.ours.file, "front-proxy": self.proxies.file,
        }  # fmt: skip
        tls = ServerTls(KeyPair(*self.server), client_auth=client_auth, authorities=authorities)
        return replace(tls, **others)  # type: ignore[arg-type]

    def trusting(
        self, pair: tuple[str, str] | None = None, version: ssl.TLSVersion | None = None
    ) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ours.file)
        if pair is not None:
            context.load_cert_chain(*pair)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def at(tls: ServerTls) -> Listener:
    return Listener("https://127.0.0.1:0", tls=tls)


def der(pem: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(pem).read_text())


class Seen:
    """A handler that remembers the connections it was asked on."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    async def __call__(self, request: Request, answer: Answer) -> None:
        self.connections.append(request.connection)
        answer.send(200, [], b"seen")


@EVERY_WAY
def test_https_is_served(way: Way, files: Files) -> None:
    seen = Seen()

    async def scenario() -> None:
        async with serving(seen, at(files.tls()), portable=way.portable) as under:
            assert under.url.startswith("https://127.0.0.1:")
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = files.trusting(version=version)
                async with way.connect(under.url, context=context) as client:
                    for _ in range(2):
                        assert (await client.ask("PUT", "/", [], b"x" * 100_000)).body == b"seen"
        first = seen.connections[0]
        assert first.is_tls
        assert first.protocol == ("h2" if way.protocol == "h2" else "http/1.1")
        assert first.server_name == "localhost"
        assert (first.certificates, first.verified_by, first.certificate_error) == ((), (), "")

    run(scenario())


@EVERY_WAY
@pytest.mark.parametrize("auth", [ClientAuth.REQUEST, ClientAuth.VERIFY_IF_GIVEN])
def test_a_certificate_is_asked_for_and_not_demanded(
    way: Way, files: Files, auth: ClientAuth
) -> None:
    seen = Seen()

    async def scenario() -> None:
        async with serving(seen, at(files.tls(auth)), portable=way.portable) as under:
            for pair in (None, files.client, files.proxy):
                for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                    context = files.trusting(pair, version)
                    async with way.connect(under.url, context=context) as client:
                        assert (await client.ask("GET", "/")).body == b"seen"
        certificates_seen = [(each.certificates[:1], each.verified_by) for each in seen.connections]
        assert certificates_seen == [
            ((), ()), ((), ()),
            ((der(files.client[0]),), ("clients",)), ((der(files.client[0]),), ("clients",)),
            ((der(files.proxy[0]),), ("front-proxy",)), ((der(files.proxy[0]),), ("front-proxy",)),
        ]  # fmt: skip
        assert all(each.certificate_error == "" for each in seen.connections)

    run(scenario())


@EVERY_WAY
@pytest.mark.parametrize("auth", list(ClientAuth))
def test_a_certificate_that_nobody_verifies(way: Way, files: Files, auth: ClientAuth) -> None:
    seen = Seen()
    # Python's ssl cannot take a certificate that it does not verify.
    is_taken = auth is ClientAuth.NONE or (auth is ClientAuth.REQUEST and not way.portable)

    async def scenario() -> None:
        async with serving(seen, at(files.tls(auth)), portable=way.portable) as under:
            context = files.trusting(files.stranger)
            if is_taken:
                async with way.connect(under.url, context=context) as client:
                    assert (await client.ask("GET", "/")).body == b"seen"
            else:
                with pytest.raises((OSError, TornError)):
                    async with way.connect(under.url, context=context) as client:
                        await client.ask("GET", "/")
                await until(lambda: under.notices)
                assert (
                    "unknown authority" in under.notices[0] or "UnknownIssuer" in under.notices[0]
                )
        if auth is ClientAuth.REQUEST and not way.portable:
            [connection] = seen.connections
            assert connection.certificates == (der(files.stranger[0]),)
            assert connection.verified_by == ()
            assert connection.certificate_error == (
                "tls: failed to verify certificate: x509: certificate signed by unknown authority"
            )

    run(scenario())


@EVERY_WAY
def test_a_certificate_of_version_1_is_taken_where_another_verifies_it(
    way: Way, files: Files
) -> None:
    pair = files.of_version_1("old")
    if way.portable:
        pytest.skip("Python's ssl verifies every certificate itself")
    seen = Seen()

    async def scenario() -> None:
        async with serving(seen, at(files.tls(ClientAuth.REQUEST)), portable=False) as under:
            context = files.trusting(pair, ssl.TLSVersion.TLSv1_3)
            async with way.connect(under.url, context=context) as client:
                assert (await client.ask("GET", "/")).body == b"seen"
        [connection] = seen.connections
        assert connection.certificates[:1] == (der(pair[0]),)

    run(scenario())


@EVERY_SERVER
def test_a_certificate_may_be_demanded(way: Way, files: Files) -> None:
    seen = Seen()

    async def scenario() -> None:
        tls = files.tls(ClientAuth.REQUIRE_AND_VERIFY)
        async with serving(seen, at(tls), portable=way.portable) as under:
            with pytest.raises((OSError, TornError)):
                async with way.connect(under.url, context=files.trusting()) as client:
                    await client.ask("GET", "/")
            async with way.connect(under.url, context=files.trusting(files.client)) as client:
                assert (await client.ask("GET", "/")).status == 200
            await until(lambda: under.notices)
            assert under.notices[0].startswith("connection closed: handshake: TLS: ")

    run(scenario())


@EVERY_SERVER
@pytest.mark.parametrize("auth", [ClientAuth.REQUEST, ClientAuth.REQUIRE_AND_VERIFY])
def test_a_certificate_that_is_its_own_authority_is_taken_where_it_is_trusted_itself(
    way: Way, files: Files, auth: ClientAuth, tmp_path: Path
) -> None:
    own = files.own_authority("own")  # CA:TRUE, as openssl makes it
    twin = files.own_authority("twin")
    # The same names and key, but not the same bytes.
    openssl("req", "-x509", "-key", own[1], "-out", "again.pem", "-subj", "/CN=own", "-days", "2",
            cwd=tmp_path)  # fmt: skip
    for_servers = files.own_authority("for-servers", "extendedKeyUsage=serverAuth")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(b"".join(Path(each[0]).read_bytes() for each in (own, for_servers)))
    seen = Seen()

    async def accepted(under_url: str, pair: tuple[str, str]) -> bool:
        before = len(seen.connections)
        try:
            async with way.connect(under_url, context=files.trusting(pair)) as client:
                await client.ask("GET", "/")
        except (OSError, TornError):
            return False
        return bool(seen.connections[before].verified_by)

    async def scenario() -> None:
        tls = replace(files.tls(auth), authorities={"own": str(bundle)})
        async with serving(seen, at(tls), portable=way.portable) as under:
            assert await accepted(under.url, own)
            assert seen.connections[0].verified_by == ("own",)
            assert seen.connections[0].certificates == (der(own[0]),)
            assert not await accepted(under.url, twin)
            assert not await accepted(under.url, for_servers)
            if not way.portable:  # OpenSSL finds the trusted one with the same key and name
                assert not await accepted(under.url, (str(tmp_path / "again.pem"), own[1]))
            assert not await accepted(under.url, files.stranger)

    run(scenario())


@EVERY_SERVER
def test_a_trusted_certificate_out_of_its_time_is_refused(
    way: Way, files: Files, tmp_path: Path
) -> None:
    seen = Seen()
    key = tmp_path / "old.key"
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key), cwd=tmp_path)
    openssl("req", "-new", "-key", str(key), "-out", "old.csr", "-subj", "/CN=old", cwd=tmp_path)
    (tmp_path / "old.ext").write_text("basicConstraints=critical,CA:TRUE\n")
    openssl("x509", "-req", "-in", "old.csr", "-signkey", str(key), "-out", "old.pem",
            "-days", "-1", "-extfile", "old.ext", cwd=tmp_path)  # fmt: skip
    old = str(tmp_path / "old.pem"), str(key)

    async def scenario() -> None:
        tls = replace(files.tls(ClientAuth.VERIFY_IF_GIVEN), authorities={"old": old[0]})
        async with serving(seen, at(tls), portable=way.portable) as under:
            with pytest.raises((OSError, TornError)):
                async with way.connect(under.url, context=files.trusting(old)) as client:
                    await client.ask("GET", "/")
            await until(lambda: under.notices)

    run(scenario())


@EVERY_SERVER
def test_certificates_may_be_in_memory(way: Way, files: Files) -> None:
    seen = Seen()

    cert, key = (Path(each).read_bytes() for each in files.server)
    trusted = Path(files.ours.file).read_bytes()

    async def scenario() -> None:
        tls = ServerTls(
            KeyPair(cert, key),
            client_auth=ClientAuth.REQUIRE_AND_VERIFY,
            authorities={"clients": trusted},
        )
        async with (
            serving(seen, at(tls), portable=way.portable) as under,
            way.connect(under.url, context=files.trusting(files.client)) as client,
        ):
            assert (await client.ask("GET", "/")).status == 200
        assert seen.connections[0].verified_by == ("clients",)

    run(scenario())


@EVERY_SERVER
def test_the_certificate_is_the_one_asked_for(way: Way, files: Files) -> None:
    star = files.ours.issue("star", "*.example.org")
    own = files.ours.issue("named", "named.test")
    given = files.ours.issue("given", "whatever.test")
    expected = {
        "localhost": files.server, "named.test": own, "named": own, "a.example.org": star,
        "A.Example.ORG": star, "a.b.example.org": files.server, "example.org": files.server,
        "given.test": given, "whatever.test": files.server, "x.given.test": given,
    }  # fmt: skip

    async def certificate_of(url: str, name: str) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        host, _, port = url.removeprefix("https://").partition(":")
        _, writer = await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname=name
        )
        certificate = writer.get_extra_info("ssl_object").getpeercert(True)
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        assert isinstance(certificate, bytes)
        return certificate

    async def scenario() -> None:
        others = (
            KeyPair(*star),
            KeyPair(*own),
            KeyPair(*given, ("given.test", "*.given.test")),
            KeyPair(*star, ("given.test",)),  # the earlier one wins
        )
        async with serving(Seen(), at(files.tls(others=others)), portable=way.portable) as under:
            for name, pair in expected.items():
                assert await certificate_of(under.url, name) == der(pair[0]), name

    run(scenario())


@EVERY_SERVER
def test_renewed_files_are_taken_and_broken_ones_are_not(
    way: Way, files: Files, tmp_path: Path
) -> None:
    second = files.ours.issue("second")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(pair: tuple[str, str]) -> None:
        for source, target in zip(pair, (cert, key), strict=True):
            fresh = target.with_suffix(".new")
            fresh.write_bytes(Path(source).read_bytes())
            os.replace(fresh, target)

    async def certificate_of(url: str) -> bytes:
        host, _, port = url.removeprefix("https://").partition(":")
        context = files.trusting()
        _, writer = await asyncio.open_connection(
            host, int(port), ssl=context, server_hostname="localhost"
        )
        certificate = writer.get_extra_info("ssl_object").getpeercert(True)
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        assert isinstance(certificate, bytes)
        return certificate

    async def scenario() -> None:
        install(files.server)
        tls = ServerTls(KeyPair(str(cert), str(key)))
        async with serving(Seen(), at(tls), portable=way.portable) as under:
            assert await certificate_of(under.url) == der(files.server[0])
            install(second)
            assert await certificate_of(under.url) == der(second[0])
            cert.write_text("nonsense")
            for _ in range(3):
                assert await certificate_of(under.url) == der(second[0])
            await until(lambda: under.notices)
            assert len([each for each in under.notices if "last good" in each]) == 1
            install(files.server)
            assert await certificate_of(under.url) == der(files.server[0])

    run(scenario())


@EVERY_SERVER
def test_plaintext_at_a_port_of_tls_is_refused(way: Way, files: Files) -> None:
    async def scenario() -> None:
        async with serving(Seen(), at(files.tls()), portable=way.portable) as under:
            host, _, port = under.url.removeprefix("https://").partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            try:
                answer = await asyncio.wait_for(reader.read(), WAIT_S)
            except ConnectionError:
                answer = b""
            if not way.portable:  # Python's ssl answers nothing
                assert answer.startswith(b"HTTP/1.0 400 ")
                assert answer.endswith(b"Client sent an HTTP request to an HTTPS server.\n")
            writer.close()
            await until(lambda: under.notices)

    run(scenario())


@EVERY_SERVER
def test_http2_may_be_left_out_of_the_handshake(way: Way, files: Files) -> None:
    async def scenario() -> None:
        async with serving(Seen(), at(files.tls(http2=False)), portable=way.portable) as under:
            host, _, port = under.url.removeprefix("https://").partition(":")
            context = files.trusting()
            context.set_alpn_protocols(["h2", "http/1.1"])
            _, writer = await asyncio.open_connection(
                host, int(port), ssl=context, server_hostname="localhost"
            )
            secure = writer.get_extra_info("ssl_object")
            assert secure.selected_alpn_protocol() == "http/1.1"
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    run(scenario())


@EVERY_SERVER
def test_a_handshake_has_to_come_in_time(way: Way, files: Files) -> None:
    async def scenario() -> None:
        listener = at(files.tls())
        listener = replace(listener, limits=replace(listener.limits, handshake_timeout_s=0.2))
        async with serving(Seen(), listener, portable=way.portable) as under:
            host, _, port = under.url.removeprefix("https://").partition(":")
            for begun in (b"", b"\x16\x03\x01"):
                begin = time.monotonic()
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(begun)
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
                assert time.monotonic() - begin < 15  # without a limit of its own: 20
                writer.close()

    run(scenario())


@EVERY_SERVER
def test_files_that_cannot_be_used_are_named_at_the_start(
    way: Way, files: Files, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    cert, key = files.server
    bad = (
        (ServerTls(KeyPair("/no/such.pem", key)), "/no/such.pem"),
        (ServerTls(KeyPair(cert, files.client[1])), ""),  # a key that does not fit
        (ServerTls(KeyPair(str(empty), key)), "empty.pem"),
        (files.tls(ClientAuth.REQUEST, authorities={"a": str(empty)}), "empty.pem"),
        (ServerTls(KeyPair(b"nonsense", b"nonsense")), "the PEM given"),
    )

    async def scenario() -> None:
        for tls, text in bad:
            server = HttpServer([at(tls)], Seen(), HttpOptions(portable=way.portable))
            with pytest.raises(ConfigError) as caught:
                await server.start()
            assert text in str(caught.value)

    run(scenario())


@EVERY_SERVER
def test_a_client_that_never_ends_its_tls_does_not_keep_the_server(
    way: Way, tmp_path: Path
) -> None:
    files = Files(tmp_path)

    async def scenario() -> None:
        async with serving(Seen(), at(files.tls()), portable=way.portable) as under:
            address = ("127.0.0.1", int(under.url.rpartition(":")[2]))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            raw = await asyncio.to_thread(socket.create_connection, address)
            silent = await asyncio.to_thread(context.wrap_socket, raw)
            silent.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await asyncio.to_thread(silent.recv, 12) == b"HTTP/1.1 200"
            began = time.monotonic()
        assert time.monotonic() - began < 20
        silent.close()

    run(scenario())
