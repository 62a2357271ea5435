"""TLS by flags, with etcd's own client; and the certificates that servers make for themselves."""

import shutil
import socket
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from kvstore.transport import native
from tests.support.servers import Server, etcd, etcdctl, ours, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

WAIT_S = 60.0
FAST = "--unsafe-no-fsync"
HAS_NATIVE = pytest.mark.skipif(not native.is_available(), reason="the native transport is needed")


def secure(server: Server, *extra: str) -> Server:
    """Let a server's client port be https."""
    url = f"https://{server.endpoint}"
    server.extra += [f"--listen-client-urls={url}", f"--advertise-client-urls={url}", *extra]
    return server


def wait_tls(server: Server) -> bytes:
    """Wait until a TLS handshake succeeds; the server's certificate in DER."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])

    def certificate() -> bytes:
        assert server.process is not None
        assert server.process.poll() is None, server.log()
        try:
            with (
                socket.create_connection(("127.0.0.1", server.client_port), 1.0) as plain,
                context.wrap_socket(plain) as secured,
            ):
                return secured.getpeercert(binary_form=True) or b""
        except OSError:
            return b""

    return wait_for(certificate, server.log, WAIT_S)


def put_and_get(server: Server, *flags: str) -> None:
    for arguments in (("put", "key", "value"), ("get", "key")):
        done = etcdctl(server, *flags, f"--endpoints=https://{server.endpoint}", *arguments)
    assert done.stdout == "key\nvalue\n"


def shape(certificate: x509.Certificate, key_file: Path) -> dict[str, object]:
    """Return what is alike in two certificates that were made the same way."""
    key = load_pem_private_key(key_file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert certificate.public_key() == key.public_key()
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return {
        "curve": key.curve.name,
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "signed with": certificate.signature_algorithm_oid.dotted_string,
        "life": life,
        "hosts": certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName),
        "uses": certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage),
        "key file": key_file.read_bytes().partition(b"\n")[0],
        "key mode": stat.S_IMODE(key_file.stat().st_mode),
    }


def issued(server: Server, side: str) -> dict[str, object]:
    directory = server.data_dir / "fixtures" / side
    certificate = x509.load_pem_x509_certificate((directory / "cert.pem").read_bytes())
    return shape(certificate, directory / "key.pem")


@HAS_NATIVE
def test_made_certificates_are_etcds_own(tmp_path: Path) -> None:
    flags = ("--auto-tls", "--peer-auto-tls", "--self-signed-cert-validity=3")
    theirs = secure(etcd(tmp_path / "theirs"), *flags)
    with running(theirs.start(wait=False)):
        wait_tls(theirs)
    here = secure(ours(tmp_path / "here"), *flags, FAST)
    fixtures = here.data_dir / "fixtures"
    with running(here.start(wait=False)):
        first = wait_tls(here)
        assert first == ssl.PEM_cert_to_DER_cert((fixtures / "client" / "cert.pem").read_text())
        put_and_get(here, f"--cacert={fixtures}/client/cert.pem")
    for side in ("client", "peer"):
        assert issued(here, side) == issued(theirs, side)
    extensions = x509.load_der_x509_certificate(first).extensions
    assert [(each.oid._name, each.critical) for each in extensions] == [  # as of etcd 3.7
        ("keyUsage", True),
        ("extendedKeyUsage", False),
        ("basicConstraints", True),
        ("subjectKeyIdentifier", False),
        ("subjectAltName", False),
    ]
    with running(here.start(wait=False)):
        assert wait_tls(here) == first  # made once
        here.stop()
    for name in ("cert.pem", "key.pem"):  # and what etcd has made is gone on with
        shutil.copy(theirs.data_dir / "fixtures" / "client" / name, fixtures / "client" / name)
    with running(here.start(wait=False)):
        assert wait_tls(here) != first
        put_and_get(here, f"--cacert={fixtures}/client/cert.pem")


@pytest.mark.parametrize("transport", ["grpcio", pytest.param("native", marks=HAS_NATIVE)])
def test_certificates_of_both_sides(tmp_path: Path, transport: str) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command is needed to make certificates")
    authority = tmp_path / "ca.pem"
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)

    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    (tmp_path / "ext").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "alice"):
        openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", "/CN=a")
        openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-out", f"{name}.pem", "-extfile", "ext", "-CAcreateserial",
        )  # fmt: skip
    server = secure(
        ours(tmp_path / "data"),
        f"--cert-file={tmp_path}/server.pem",
        f"--key-file={tmp_path}/server.key",
        f"--trusted-ca-file={authority}",
        "--client-cert-auth",
        f"--transport={transport}",
        FAST,
    )
    with running(server.start(wait=False)):
        wait_tls(server)
        trusting = f"--cacert={authority}"
        put_and_get(server, trusting, f"--cert={tmp_path}/alice.pem", f"--key={tmp_path}/alice.key")
        url = f"--endpoints=https://{server.endpoint}"
        stranger = etcdctl(server, trusting, url, "--command-timeout=1s", "get", "key", check=False)
        assert stranger.returncode != 0
        assert server.stop() == 0


def test_invalid_settings_are_reported_before_anything_is_served(tmp_path: Path) -> None:
    server = secure(ours(tmp_path / "data"), "--auto-tls", "--self-signed-cert-validity=0")
    server.start(wait=False)
    assert server.process is not None
    assert server.process.wait(WAIT_S) != 0
    assert "it should be greater than 0" in server.log()
