"""The client port and certificates that are their own authority: taken where trusted themselves.

Go takes them, so many a cluster has one self-signed certificate (CA:TRUE, as openssl makes it) for
its servers, its clients and its trusted CA file. All else of TLS stays as strict as it was.
"""

import http.client
import shutil
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvstack.component.net.tls_errors import go_error_text
from kvstore.batch import Outbox
from kvstore.transport.native import NativeOptions, NativeTransport
from kvstore.transport.tls import TlsOptions
from tests.support.certificates import openssl
from tests.support.http.serving import NEEDS_NATIVE
from tests.support.waiting import wait_for

pytestmark = [
    NEEDS_NATIVE,
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="the openssl command is needed to make certificates"
    ),
]

WAIT_S = 60.0
Pair = tuple[str, str]


def self_signed(directory: Path, name: str, *extensions: str) -> Pair:
    options = [each for extension in extensions for each in ("-addext", extension)]
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", *options,
        cwd=directory,
    )  # fmt: skip
    return str(directory / f"{name}.pem"), str(directory / f"{name}.key")


@contextmanager
def serving(tls: TlsOptions) -> Iterator[tuple[int, list[str]]]:
    """Answer requests that are no gRPC with the common name of whoever asks."""
    notices: list[str] = []
    transport = NativeTransport(
        ["https://127.0.0.1:0"], [], NativeOptions(tls=tls, serves_http=True), notices.append
    )
    is_over = threading.Event()

    def turn() -> None:
        while not is_over.is_set():
            inbox = transport.poll(0.05)
            out = Outbox()
            for request in inbox.requests:
                name = dict(request[3]).get("tls-common-name", "")
                out.responses.append((request[0], 200, [], name.encode()))
            transport.flush(out)

    driver = threading.Thread(target=turn, daemon=True)
    driver.start()
    try:
        yield int(transport.bound_urls[0].rpartition(":")[2]), notices
    finally:
        is_over.set()
        driver.join(WAIT_S)
        transport.stop(0.0)


def ask(port: int, trusted: str, pair: Pair | None) -> str:
    """Return the name the server has of us; OSError if it does not want us."""
    context = ssl.create_default_context(cafile=trusted)
    if pair is not None:
        context.load_cert_chain(*pair)
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=WAIT_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def is_refused(port: int, trusted: str, pair: Pair | None) -> bool:
    try:
        ask(port, trusted, pair)
    except (OSError, http.client.HTTPException):
        return True
    return False


def test_one_certificate_for_servers_clients_and_trust(tmp_path: Path) -> None:
    own = self_signed(tmp_path, "own")
    twin = self_signed(tmp_path, "twin")
    with serving(TlsOptions(*own, trusted_ca_file=own[0])) as (port, notices):
        assert ask(port, own[0], own) == "own"
        assert is_refused(port, own[0], twin)
        assert is_refused(port, own[0], None)
        wait_for(lambda: len(notices) >= 2, lambda: notices, WAIT_S)
        assert [go_error_text(each.split(": ", 2)[2].rpartition(": ")[0]) for each in notices] == [
            "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            "tls: client didn't provide a certificate",
        ]


def test_only_the_very_same_bytes_are_taken(tmp_path: Path) -> None:
    own = self_signed(tmp_path, "own")
    openssl("req", "-x509", "-key", own[1], "-out", "again.pem", "-subj", "/CN=own", "-days", "2",
            cwd=tmp_path)  # fmt: skip
    with serving(TlsOptions(*own, trusted_ca_file=own[0])) as (port, _):
        assert is_refused(port, own[0], (str(tmp_path / "again.pem"), own[1]))


def test_it_must_be_in_its_time_for_clients_and_not_revoked(tmp_path: Path) -> None:
    server = self_signed(tmp_path, "server")
    for_servers = self_signed(tmp_path, "for-servers", "extendedKeyUsage=serverAuth")
    for_clients = self_signed(tmp_path, "for-clients", "extendedKeyUsage=clientAuth")
    revoked = self_signed(tmp_path, "revoked")
    old = str(tmp_path / "old.pem"), str(tmp_path / "old.key")
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", old[1], cwd=tmp_path)
    openssl("req", "-new", "-key", old[1], "-out", "old.csr", "-subj", "/CN=old", cwd=tmp_path)
    (tmp_path / "old.ext").write_text("basicConstraints=critical,CA:TRUE\n")
    openssl("x509", "-req", "-in", "old.csr", "-signkey", old[1], "-out", "old.pem", "-days", "-1",
            "-extfile", "old.ext", cwd=tmp_path)  # fmt: skip
    (tmp_path / "index.txt").write_text("")
    (tmp_path / "crlnumber").write_text("01\n")
    (tmp_path / "ca.cnf").write_text(
        "[ca]\ndefault_ca=x\n[x]\ndatabase=index.txt\ncrlnumber=crlnumber\ndefault_md=sha256\n"
        "default_crl_days=2\n"
    )
    signer = ("-config", "ca.cnf", "-keyfile", revoked[1], "-cert", revoked[0])
    openssl("ca", *signer, "-revoke", revoked[0], cwd=tmp_path)
    openssl("ca", *signer, "-gencrl", "-out", "crl.pem", cwd=tmp_path)
    bundle = tmp_path / "bundle.pem"
    pairs = (for_servers, for_clients, revoked, old)
    bundle.write_bytes(b"".join(Path(each[0]).read_bytes() for each in pairs))
    options = TlsOptions(*server, trusted_ca_file=str(bundle))
    with serving(options) as (port, _):
        assert ask(port, server[0], for_clients) == "for-clients"
        assert ask(port, server[0], revoked) == "revoked"
        assert is_refused(port, server[0], for_servers)
        assert is_refused(port, server[0], old)
    listed = TlsOptions(*server, trusted_ca_file=str(bundle), crl_file=str(tmp_path / "crl.pem"))
    with serving(listed) as (port, _):
        assert ask(port, server[0], for_clients) == "for-clients"
        assert is_refused(port, server[0], revoked)


def test_allowed_names_hold_for_it_too(tmp_path: Path) -> None:
    own, other = self_signed(tmp_path, "own"), self_signed(tmp_path, "other")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(Path(own[0]).read_bytes() + Path(other[0]).read_bytes())
    options = TlsOptions(*own, trusted_ca_file=str(bundle), allowed_names=("own",))
    with serving(options) as (port, _):
        assert ask(port, own[0], own) == "own"
        assert is_refused(port, own[0], other)
