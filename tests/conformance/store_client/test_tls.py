"""Stores over TLS: whom a client trusts, what it shows, as Go's TLS takes it; and unix sockets."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from typing_extensions import override

from kvstack.component import crate
from kvstack.component.errors import ConfigError
from kvstore.client import ClientOptions, ClientTls, connect
from kvstore.client.errors import UnavailableError
from kvstore.client.values import Events
from tests.support.certificates import Authority, openssl
from tests.support.servers import READY_TIMEOUT_S, Server, etcd, ours
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(not crate.is_available(), reason=f"no crate: {crate.MISSING}")

NATIVE = ClientOptions(transport="native", timeout_s=10.0)
MAKERS = {"ours": ours, "etcd": etcd}
REFUSED_S = 1.0


class SecureServer(Server):
    """A server at a URL of its own."""

    url = ""

    @override
    @property
    def client_url(self) -> str:
        return self.url or f"https://localhost:{self.client_port}"


@contextmanager
def serving(kind: str, directory: Path, *flags: str, url: str = "") -> Iterator[SecureServer]:
    made = MAKERS[kind](directory / "data")
    server = SecureServer(made.command, directory / "data", extra=flags)
    server.url = url
    server.start(wait=False)
    try:
        yield server
    finally:
        server.kill()


async def works(endpoint: str, tls: ClientTls, options: ClientOptions = NATIVE) -> None:
    """Put, get and watch; wait for the server to come up."""
    async with connect([endpoint], replace(options, tls=tls)) as store:
        put = await store.put(b"k", b"v", timeout_s=READY_TIMEOUT_S)
        assert (await store.get(b"k")).kv is not None
        async with store.watch(b"k", start_revision=put.revision) as watch:
            while not isinstance(await anext(watch), Events):
                pass


async def refused(endpoint: str, tls: ClientTls, options: ClientOptions = NATIVE) -> str:
    """Return why a call cannot be made."""
    async with connect([endpoint], replace(options, tls=tls)) as store:
        with pytest.raises(UnavailableError) as caught:
            await store.get(b"k", timeout_s=REFUSED_S)
    return caught.value.text


def self_signed(directory: Path, *extensions: str, curve: str = "prime256v1") -> tuple[str, str]:
    """Make a certificate that is its own authority; returns the files of it and of its key."""
    added = [each for text in extensions for each in ("-addext", text)]
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{curve}", "-nodes",
        "-keyout", "self.key", "-out", "self.pem", "-subj", "/O=self", "-days", "2", *added,
        cwd=directory,
    )  # fmt: skip
    return str(directory / "self.pem"), str(directory / "self.key")


@pytest.mark.parametrize("kind", ["ours", "etcd"])
def test_auto_tls(tmp_path: Path, kind: str) -> None:
    """The server's key is on P-521."""
    with serving(kind, tmp_path, "--auto-tls") as server:
        endpoint = f"https://localhost:{server.client_port}"

        async def play() -> None:
            await works(endpoint, ClientTls(is_unverified=True))
            made = next((tmp_path / "data" / "fixtures" / "client").glob("cert.pem"))
            await works(endpoint, ClientTls(trusted_ca_file=str(made), server_name="localhost"))
            assert "TLS" in await refused(endpoint, ClientTls())

        asyncio.run(play())


@pytest.mark.parametrize("curve", ["prime256v1", "secp521r1"])
@pytest.mark.parametrize("kind", ["ours", "etcd"])
def test_a_certificate_that_is_its_own_authority(tmp_path: Path, kind: str, curve: str) -> None:
    cert, key = self_signed(
        tmp_path,
        "basicConstraints=critical,CA:TRUE",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        curve=curve,
    )
    with serving(kind, tmp_path, f"--cert-file={cert}", f"--key-file={key}") as server:

        async def play() -> None:
            trusting = ClientTls(trusted_ca_file=cert)
            await works(f"https://localhost:{server.client_port}", trusting)
            await works(f"127.0.0.1:{server.client_port}", trusting)
            named = replace(trusting, server_name="elsewhere")
            assert "TLS" in await refused(f"https://localhost:{server.client_port}", named)
            other = Authority(tmp_path)
            text = await refused(
                f"https://localhost:{server.client_port}", ClientTls(trusted_ca_file=other.file)
            )
            assert "invalid peer certificate" in text

        asyncio.run(play())


def test_a_trusted_certificate_is_for_servers(tmp_path: Path) -> None:
    cert, key = self_signed(
        tmp_path,
        "basicConstraints=critical,CA:TRUE",
        "subjectAltName=DNS:localhost",
        "extendedKeyUsage=clientAuth",
    )
    with serving("ours", tmp_path, f"--cert-file={cert}", f"--key-file={key}") as server:
        endpoint = f"https://localhost:{server.client_port}"

        async def play() -> None:
            await works(endpoint, ClientTls(is_unverified=True))
            text = await refused(endpoint, ClientTls(trusted_ca_file=cert))
            assert "purpose" in text.lower()

        asyncio.run(play())


@pytest.mark.parametrize(("begin", "end", "why"), [(-20, -10, "expired"), (10, 20, "notvalidyet")])
def test_a_trusted_certificate_has_its_time(tmp_path: Path, begin: int, end: int, why: str) -> None:
    cert, key = made_for(tmp_path, begin, end)
    with serving("ours", tmp_path, f"--cert-file={cert}", f"--key-file={key}") as server:
        endpoint = f"https://localhost:{server.client_port}"

        async def play() -> None:
            await works(endpoint, ClientTls(is_unverified=True))
            text = await refused(endpoint, ClientTls(trusted_ca_file=cert))
            assert why in text.lower()

        asyncio.run(play())


def made_for(directory: Path, begin: int, end: int) -> tuple[str, str]:
    """Make an authority's certificate that is good between days from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "self")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now + timedelta(days=begin))
        .not_valid_after(now + timedelta(days=end))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    cert_file, key_file = directory / "timed.pem", directory / "timed.key"
    cert_file.write_bytes(certificate.public_bytes(pem))
    key_file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(cert_file), str(key_file)


@pytest.mark.parametrize("kind", ["ours", "etcd"])
def test_certificates_of_an_authority_on_both_sides(tmp_path: Path, kind: str) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    client_cert, client_key = authority.issue("client")
    flags = (
        f"--cert-file={cert}",
        f"--key-file={key}",
        f"--trusted-ca-file={authority.file}",
        "--client-cert-auth",
    )
    with serving(kind, tmp_path, *flags) as server:
        endpoint = f"https://127.0.0.1:{server.client_port}"
        whole = ClientTls(client_cert, client_key, authority.file)

        async def play() -> None:
            await works(endpoint, whole)
            await refused(endpoint, ClientTls(trusted_ca_file=authority.file))
            strangers = tmp_path / "strangers"
            strangers.mkdir()
            stranger = Authority(strangers)
            foreign_cert, foreign_key = stranger.issue("client")
            await refused(endpoint, ClientTls(foreign_cert, foreign_key, authority.file))
            await refused(endpoint, ClientTls(client_cert, client_key, stranger.file))
            absent = str(tmp_path / "absent.pem")
            assert "absent.pem" in await refused(endpoint, replace(whole, trusted_ca_file=absent))
            with pytest.raises(ConfigError):
                await refused(endpoint, replace(whole, key_file=""))

        asyncio.run(play())


def test_a_client_s_key_on_p_521(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    client_cert, client_key = self_signed(
        tmp_path,
        "basicConstraints=critical,CA:FALSE",
        "extendedKeyUsage=clientAuth",
        curve="secp521r1",
    )
    both = tmp_path / "both.pem"
    both.write_text(Path(authority.file).read_text() + Path(client_cert).read_text())
    flags = (
        f"--cert-file={cert}",
        f"--key-file={key}",
        f"--trusted-ca-file={both}",
        "--client-cert-auth",
    )
    with serving("etcd", tmp_path, *flags) as server:
        endpoint = f"https://localhost:{server.client_port}"
        asyncio.run(works(endpoint, ClientTls(client_cert, client_key, authority.file)))


def test_what_a_client_shows_is_judged_by_the_server(tmp_path: Path) -> None:
    """A certificate of the first version of X.509, which has no extensions, is shown as well."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    flags = (
        f"--cert-file={cert}",
        f"--key-file={key}",
        f"--trusted-ca-file={authority.file}",
        "--client-cert-auth",
    )
    openssl(
        "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", "old.key", "-out", "old.csr", "-subj", "/O=old", cwd=tmp_path,
    )  # fmt: skip
    openssl(
        "x509", "-req", "-in", "old.csr", "-CA", authority.file, "-CAkey", "ca.key",
        "-set_serial", "99", "-days", "2", "-out", "old.pem", cwd=tmp_path,
    )  # fmt: skip
    old = ClientTls(str(tmp_path / "old.pem"), str(tmp_path / "old.key"), authority.file)
    with serving("etcd", tmp_path, *flags) as server:
        endpoint = f"https://localhost:{server.client_port}"

        async def play() -> None:
            await works(endpoint, old)
            mixed = replace(old, cert_file=cert)
            assert "old.key" in await refused(endpoint, mixed)

        asyncio.run(play())


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    strangers = tmp_path / "strangers"
    strangers.mkdir()
    trusted = tmp_path / "trusted.pem"
    shutil.copyfile(Authority(strangers).file, trusted)
    with serving("ours", tmp_path, f"--cert-file={cert}", f"--key-file={key}") as server:
        endpoint = f"https://localhost:{server.client_port}"

        async def play() -> None:
            await works(endpoint, ClientTls(is_unverified=True))
            tls = ClientTls(trusted_ca_file=str(trusted))
            async with connect([endpoint], replace(NATIVE, tls=tls)) as store:
                with pytest.raises(UnavailableError, match="TLS"):
                    await store.get(b"k", timeout_s=REFUSED_S)
                trusted.write_text("half of a fi")
                with pytest.raises(UnavailableError, match=r"trusted\.pem"):
                    await store.get(b"k", timeout_s=2 * REFUSED_S)
                shutil.copyfile(authority.file, trusted)
                assert (await store.get(b"k", timeout_s=30)).kv is not None

        asyncio.run(play())


def test_tls_1_2(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    flags = (f"--cert-file={cert}", f"--key-file={key}", "--tls-max-version=TLS1.2")
    with serving("ours", tmp_path, *flags) as server:
        endpoint = f"https://localhost:{server.client_port}"
        asyncio.run(works(endpoint, ClientTls(trusted_ca_file=authority.file)))


@pytest.mark.parametrize("transport", ["native", "grpcio"])
def test_unix_sockets(tmp_path: Path, transport: str) -> None:
    path = tmp_path / "kv.sock"
    options = replace(NATIVE, transport=transport)  # type: ignore[arg-type]
    with serving("ours", tmp_path, url=f"unix://{path}"):

        async def play() -> None:
            await eventually(path.exists)  # for grpcio
            await works(f"unix://{path}", ClientTls(), options)
            await works(f"unix:{path}", ClientTls(), options)

        asyncio.run(play())


def test_unix_sockets_with_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    path = tmp_path / "localhost:1"
    flags = (f"--cert-file={cert}", f"--key-file={key}")
    with serving("ours", tmp_path, *flags, url=f"unixs://{path}"):
        asyncio.run(works(f"unixs://{path}", ClientTls(trusted_ca_file=authority.file)))


def test_plaintext_and_tls_do_not_mix(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    with serving("ours", tmp_path, f"--cert-file={cert}", f"--key-file={key}") as server:

        async def play() -> None:
            tls = ClientTls(trusted_ca_file=authority.file)
            await works(f"localhost:{server.client_port}", tls)  # something is set: TLS
            await refused(f"http://localhost:{server.client_port}", tls)

        asyncio.run(play())


def test_what_is_no_endpoint() -> None:
    for bad in ("ftp://localhost:1", "http://", "http://localhost:port", "unix:", ""):
        with pytest.raises(ConfigError, match="endpoint"):
            connect([bad], NATIVE)
    with pytest.raises(ConfigError, match="at least one"):
        connect([], NATIVE)
    with pytest.raises(ConfigError, match="token"):
        connect(["localhost:1"], replace(NATIVE, token="t", user="u"))
