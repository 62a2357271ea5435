"""TLS between members: what is presented, required and refused, on both sides, and with etcd."""

import os
import shutil
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from typing_extensions import override

from kvstack.component.errors import ConfigError
from kvstore.peers import questions
from kvstore.peers import tls as peer_tls
from kvstore.peers.certificates.crl import revoked_serials
from kvstore.peers.http_client import PeerRequestError
from kvstore.peers.questions import ask_once
from kvstore.peers.tls import PeerTls
from kvstore.raft.model import Message, MessageType
from kvstore.wire.varint import WireError
from tests.support.certificates import Authority, openssl
from tests.support.cluster.peer_member import LinkEnd, connect, wait_for
from tests.support.servers import Server, etcd, etcdctl, ours, running, together

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the openssl command is needed to make certificates"
)

A, B = 0xA1 << 56, 0xB2 << 56
URLS = ("https://127.0.0.1:0",)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def member(authority: Authority) -> tuple[str, str]:
    return authority.issue("member")


def tls_of(authority: Authority, files: tuple[str, str], **more: object) -> PeerTls:
    return PeerTls(files[0], files[1], trusted_ca_file=authority.file, **more)  # type: ignore[arg-type]


def probe(end: LinkEnd, tls: PeerTls) -> int:
    return ask_once(end.urls[0], "GET", "/raft/probing", tls, 5.0).status


def test_members_with_certificates_of_one_authority(
    authority: Authority, member: tuple[str, str], tmp_path: Path
) -> None:
    tls = tls_of(authority, member, client_cert_auth=True)
    with (
        LinkEnd(tmp_path / "a", A, tls=tls, urls=URLS) as a,
        LinkEnd(tmp_path / "b", B, tls=tls, urls=URLS) as b,
    ):
        connect(a, b)
        sent = [
            Message(MessageType.HEARTBEAT, B, A, 2, commit=index, context=b"x" * 300)
            for index in range(2000)
        ]
        for at in range(0, 2000, 100):
            a.network.send(sent[at : at + 100])
        assert b.await_messages(2000) == sent


def test_a_client_without_a_certificate_is_refused(
    authority: Authority, member: tuple[str, str], tmp_path: Path
) -> None:
    with LinkEnd(tmp_path / "a", A, tls=tls_of(authority, member), urls=URLS) as a:
        assert probe(a, tls_of(authority, member)) == 200
        with pytest.raises(PeerRequestError):
            probe(a, PeerTls(trusted_ca_file=authority.file))
        with pytest.raises(PeerRequestError, match="certificate verify failed"):
            probe(a, PeerTls(member[0], member[1]))  # the system's authorities do not know it
        (tmp_path / "other").mkdir()
        stranger = Authority(tmp_path / "other", "other").issue("stranger")
        with pytest.raises(PeerRequestError):
            probe(a, PeerTls(stranger[0], stranger[1], trusted_ca_file=authority.file))
        with pytest.raises(PeerRequestError):
            ask_once(a.urls[0].replace("https", "http"), "GET", "/raft/probing", PeerTls(), 5.0)
        wait_for(lambda: "rejected connection" in a.logger.text(), "a line in the log")


def test_names_are_checked_on_both_sides(
    authority: Authority, member: tuple[str, str], tmp_path: Path
) -> None:
    other = authority.issue("other")
    for check in ({"allowed_cns": ("member",)}, {"allowed_hostnames": ("localhost",)}):
        tls = tls_of(authority, member, **check)
        with LinkEnd(tmp_path / "a", A, tls=tls, urls=URLS) as a:
            assert probe(a, tls) == 200
            if "allowed_cns" in check:
                with pytest.raises(PeerRequestError):
                    probe(a, tls_of(authority, other))
    tls = tls_of(authority, other)
    with LinkEnd(tmp_path / "b", B, tls=tls, urls=URLS) as b:
        with pytest.raises(PeerRequestError, match="client certificate authentication failed"):
            probe(b, tls_of(authority, member, allowed_cns=("member",)))
        with pytest.raises(PeerRequestError, match="client certificate authentication failed"):
            probe(b, tls_of(authority, member, allowed_hostnames=("elsewhere",)))


def test_a_server_with_another_name_is_refused(authority: Authority, tmp_path: Path) -> None:
    elsewhere = authority.issue("elsewhere", host="elsewhere", ip="192.0.2.1")
    tls = tls_of(authority, elsewhere, skip_client_san_verification=True)
    with (
        LinkEnd(tmp_path / "a", A, tls=tls, urls=URLS) as a,
        pytest.raises(PeerRequestError, match="IP address mismatch"),
    ):
        probe(a, tls)


def test_a_client_whose_address_is_not_in_its_certificate(
    authority: Authority, member: tuple[str, str], tmp_path: Path
) -> None:
    roaming = tls_of(authority, authority.issue("roaming", host="", ip="192.0.2.1"))
    with LinkEnd(tmp_path / "a", A, tls=tls_of(authority, member), urls=URLS) as a:
        with pytest.raises(PeerRequestError):
            probe(a, roaming)
        wait_for(lambda: "valid for 192.0.2.1, not 127.0.0.1" in a.logger.text(), "the reason")
    lenient = tls_of(authority, member, skip_client_san_verification=True)
    with LinkEnd(tmp_path / "b", B, tls=lenient, urls=URLS) as b:
        assert probe(b, roaming) == 200


def test_revoked_certificates(
    authority: Authority, member: tuple[str, str], tmp_path: Path
) -> None:
    lost = authority.issue("lost")
    crl = authority.revoke(lost[0])
    der = tmp_path / "crl.der"
    subprocess.run(
        ["openssl", "crl", "-in", crl, "-outform", "DER", "-out", str(der)],
        check=True,
        capture_output=True,
    )
    assert revoked_serials(Path(crl).read_bytes()) == revoked_serials(der.read_bytes()) != set()
    for file in (crl, str(der)):
        tls = tls_of(authority, member, crl_file=file)
        with LinkEnd(tmp_path / "a", A, tls=tls, urls=URLS) as a:
            assert probe(a, tls) == 200
            with pytest.raises(PeerRequestError):
                probe(a, tls_of(authority, lost))
            wait_for(lambda a=a: "revoked" in a.logger.text(), "the reason")  # type: ignore[misc]
    empty = authority.revoke()
    assert revoked_serials(Path(empty).read_bytes()) == set()


@pytest.mark.parametrize("data", [b"", b"0", b"\x30\x80", b"\x30\x03\x02\x01", b"\x02\x01\x05"])
def test_invalid_revocation_lists(data: bytes) -> None:
    with pytest.raises(WireError):
        revoked_serials(data)


def test_renewed_certificates_are_used(authority: Authority, tmp_path: Path) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(files: tuple[str, str]) -> None:
        for source, target in zip(files, (cert, key), strict=True):
            shutil.copy(source, f"{target}.new")
            os.replace(f"{target}.new", target)

    install(first)
    tls = tls_of(authority, (str(cert), str(key)))
    with LinkEnd(tmp_path / "a", A, tls=tls, urls=URLS) as a:
        only_second = tls_of(authority, second, allowed_cns=("second",))
        with pytest.raises(PeerRequestError):
            probe(a, only_second)
        install(second)
        assert probe(a, only_second) == 200


def test_versions_of_tls(authority: Authority, member: tuple[str, str], tmp_path: Path) -> None:
    tls = tls_of(authority, member, min_version="TLS1.3")
    with LinkEnd(tmp_path / "a", A, tls=tls, urls=URLS) as a:
        with pytest.raises(PeerRequestError):
            probe(a, tls_of(authority, member, max_version="TLS1.2"))
        assert probe(a, tls_of(authority, member)) == 200
    suites = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)
    tls = tls_of(authority, member, max_version="TLS1.2", cipher_suites=suites)
    with LinkEnd(tmp_path / "b", B, tls=tls, urls=URLS) as b:
        assert probe(b, tls_of(authority, member)) == 200
        other = ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",)
        with pytest.raises(PeerRequestError):
            probe(b, tls_of(authority, member, max_version="TLS1.2", cipher_suites=other))


def test_unusable_files_are_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot listen on TLS for https"):
        LinkEnd(tmp_path / "a", A, urls=URLS)
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    with pytest.raises(ConfigError, match=str(broken)):
        LinkEnd(tmp_path / "b", A, tls=PeerTls(str(broken), str(broken)), urls=URLS)


class SecureEtcd(Server):
    """Real etcd whose peer port is TLS."""

    @override
    @property
    def peer_url(self) -> str:
        return f"https://127.0.0.1:{self.peer_port}"


def test_etcd_requires_and_presents_certificates(
    authority: Authority, member: tuple[str, str], tmp_path: Path
) -> None:
    plain = etcd(tmp_path / "etcd")
    secure = SecureEtcd(
        plain.command,
        tmp_path / "etcd",
        extra=[
            f"--peer-cert-file={member[0]}",
            f"--peer-key-file={member[1]}",
            f"--peer-trusted-ca-file={authority.file}",
            "--peer-client-cert-auth",
        ],
    )
    with running(secure):
        cluster = questions.fetch_members([secure.peer_url], tls_of(authority, member), 5.0)
        assert [each.peer_urls for each in cluster.members] == [[secure.peer_url]]
        with pytest.raises(PeerRequestError):
            questions.fetch_members([secure.peer_url], PeerTls(trusted_ca_file=authority.file), 5.0)
        (tmp_path / "other").mkdir()
        stranger = PeerTls(
            *Authority(tmp_path / "other", "other").issue("stranger"),
            trusted_ca_file=authority.file,
        )
        with pytest.raises(PeerRequestError, match="remote error: tls: bad certificate"):
            questions.fetch_members([secure.peer_url], stranger, 5.0)


def self_signed(directory: Path, name: str, *extensions: str, issuer: str = "") -> tuple[str, str]:
    """Make a certificate for localhost that is an authority; issuer signs it instead of itself."""
    options = [each for extension in extensions for each in ("-addext", extension)]
    if issuer:
        options += ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key"]
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", *options,
        cwd=directory,
    )  # fmt: skip
    return str(directory / f"{name}.pem"), str(directory / f"{name}.key")


def own_authority(files: tuple[str, str]) -> PeerTls:
    return PeerTls(files[0], files[1], trusted_ca_file=files[0], client_cert_auth=True)


@pytest.mark.parametrize(
    "extensions",
    [
        (),
        ("keyUsage=critical,keyCertSign,cRLSign",),
        ("keyUsage=keyCertSign", "extendedKeyUsage=serverAuth,clientAuth"),
        ("keyUsage=keyCertSign", "extendedKeyUsage=anyExtendedKeyUsage"),
    ],
)
def test_a_certificate_that_is_its_own_authority(
    extensions: tuple[str, ...], tmp_path: Path
) -> None:
    """As Go does: what is in the trusted CA file is trusted for what its extended use allows."""
    own = own_authority(self_signed(tmp_path, "own", *extensions))
    twin = own_authority(self_signed(tmp_path, "twin", *extensions))
    with LinkEnd(tmp_path / "a", A, tls=own, urls=URLS) as a:
        assert probe(a, own) == 200
        with pytest.raises(PeerRequestError):
            probe(a, twin)
        stranger = own._replace(cert_file=twin.cert_file, key_file=twin.key_file)
        with pytest.raises(PeerRequestError, match=r"remote error: tls: \w+"):
            probe(a, stranger)


def test_a_trusted_certificate_of_another_use_is_refused(tmp_path: Path) -> None:
    for_servers = own_authority(self_signed(tmp_path, "s", "extendedKeyUsage=serverAuth"))
    with (
        LinkEnd(tmp_path / "a", A, tls=for_servers, urls=URLS) as a,
        pytest.raises(PeerRequestError, match="remote error: tls: bad certificate"),
    ):
        probe(a, for_servers)


def test_a_trusted_certificate_that_another_has_signed(tmp_path: Path) -> None:
    """The root need not be in the trusted CA file, neither for an authority nor for a member."""
    self_signed(tmp_path, "root")
    own = own_authority(self_signed(tmp_path, "own", issuer="root"))
    with LinkEnd(tmp_path / "a", A, tls=own, urls=URLS) as a:
        assert probe(a, own) == 200


def test_both_members_log_whose_certificate_was_refused(
    authority: Authority, member: tuple[str, str], tmp_path: Path
) -> None:
    sound = tls_of(authority, member, client_cert_auth=True)
    stranger_files = self_signed(tmp_path, "stranger")
    stranger = PeerTls(*stranger_files, trusted_ca_file=authority.file, client_cert_auth=True)
    with (
        LinkEnd(tmp_path / "a", A, tls=sound, urls=URLS) as a,
        LinkEnd(tmp_path / "b", B, tls=stranger, urls=URLS) as b,
    ):
        a.network.set_members({B: b.urls})
        b.network.set_members({A: a.urls})
        for end in (a, b):  # as dialler and as listener
            end.wait_logged("the TLS handshake with the peer fails")
            end.wait_logged("rejected connection on peer endpoint")
        assert "remote error: tls: unknown certificate authority" in b.logger.text()
        assert "certificate verify failed" in a.logger.text()


def certificate(
    directory: Path,
    tag: str,
    signer: tuple[str, str] | None = None,
    *,
    host: str = "127.0.0.1",
    name: str = "same",
) -> tuple[str, str]:
    """Make a certificate that does not name its issuer's key; its issuer's name is "same".

    Without a signer it is an authority.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    signing = key
    if signer is not None:
        loaded = load_pem_private_key(Path(signer[1]).read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signing = loaded
    subject, issuer = (
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, "same")
    )
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(signer is None, None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), False)
        .sign(signing, hashes.SHA256())
    )
    files = directory / f"{tag}.pem", directory / f"{tag}.key"
    files[0].write_bytes(made.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(files[0]), str(files[1])


@pytest.mark.parametrize("versions", ["TLS1.2", "TLS1.3"])
def test_certificates_that_bear_the_name_of_their_authority(versions: str, tmp_path: Path) -> None:
    """Go checks the signature; OpenSSL takes them for self-signed."""
    ca = certificate(tmp_path, "ca")
    tls = PeerTls(
        *certificate(tmp_path, "member", ca),
        trusted_ca_file=ca[0],
        client_cert_auth=True,
        min_version=versions,
        max_version=versions,
    )
    with (
        LinkEnd(tmp_path / "a", A, tls=tls, urls=URLS) as a,
        LinkEnd(tmp_path / "b", B, tls=tls, urls=URLS) as b,
    ):
        connect(a, b)
        sent = [
            Message(MessageType.HEARTBEAT, B, A, 2, commit=index, context=b"x" * 3000)
            for index in range(2000)
        ]
        for at in range(0, 2000, 100):
            a.network.send(sent[at : at + 100])
        assert b.await_messages(2000) == sent


def test_such_a_name_alone_is_not_trusted(tmp_path: Path) -> None:
    ca = certificate(tmp_path, "ca")
    mimic = certificate(tmp_path, "mimic")
    sound = PeerTls(*certificate(tmp_path, "member", ca), trusted_ca_file=ca[0])
    by_mimic = certificate(tmp_path, "by-mimic", mimic)
    elsewhere = certificate(tmp_path, "elsewhere", ca, host="192.0.2.1")
    with LinkEnd(tmp_path / "a", A, tls=sound, urls=URLS) as a:
        assert probe(a, sound) == 200
        for files in (mimic, by_mimic, mimic):
            with pytest.raises(PeerRequestError):
                probe(a, sound._replace(cert_file=files[0], key_file=files[1]))
        with pytest.raises(PeerRequestError, match=r"remote error: tls: \w+"):
            probe(a, sound._replace(cert_file=by_mimic[0], key_file=by_mimic[1]))
        with pytest.raises(PeerRequestError):
            probe(a, PeerTls(trusted_ca_file=ca[0]))
        with pytest.raises(PeerRequestError, match="certificate verify failed"):
            probe(a, sound._replace(trusted_ca_file=mimic[0]))
        wait_for(lambda: a.logger.text().count("rejected connection") >= 3, "lines in the log")
        assert "x509: certificate signed by unknown authority" in a.logger.text()
        assert "tls: client didn't provide a certificate" in a.logger.text()
    there = PeerTls(*elsewhere, trusted_ca_file=ca[0], skip_client_san_verification=True)
    with (
        LinkEnd(tmp_path / "b", B, tls=there, urls=URLS) as b,
        pytest.raises(PeerRequestError, match="IP address mismatch"),
    ):
        probe(b, sound)


def test_members_with_and_without_the_name_of_their_authority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first handshakes are refused; the next ones check signatures."""
    monkeypatch.setattr(peer_tls, "_seen_self_signed", threading.Event())
    ca = certificate(tmp_path, "ca")
    alike = PeerTls(*certificate(tmp_path, "member", ca), trusted_ca_file=ca[0])
    other = PeerTls(*certificate(tmp_path, "other", ca, name="other"), trusted_ca_file=ca[0])
    with (
        LinkEnd(tmp_path / "a", A, tls=alike, urls=URLS) as a,
        LinkEnd(tmp_path / "b", B, tls=other, urls=URLS) as b,
    ):
        connect(a, b)


@pytest.mark.parametrize("kind", ["own authority", "authority's name"])
def test_etcd_and_this_member_accept_the_same_certificates(kind: str, tmp_path: Path) -> None:
    """Cluster of two, the second of this project: both dial, and both are dialled."""
    if kind == "own authority":
        tls = own_authority(self_signed(tmp_path, "own"))
    else:
        ca = certificate(tmp_path, "ca")
        tls = PeerTls(*certificate(tmp_path, "member", ca), trusted_ca_file=ca[0])
    flags = [
        f"--peer-cert-file={tls.cert_file}",
        f"--peer-key-file={tls.key_file}",
        f"--peer-trusted-ca-file={tls.trusted_ca_file}",
        "--peer-client-cert-auth",
    ]
    servers = [
        made(tmp_path / name, name=name, extra=flags) for name, made in (("e", etcd), ("o", ours))
    ]
    for server in servers:
        server.__class__ = SecureEtcd
    with together(servers):
        etcdctl(servers[0], "put", "k", "v")
        assert etcdctl(servers[1], "get", "k").stdout == "k\nv\n"
        for server in servers:
            assert "rejected connection" not in server.log()
