"""TLS between members: what is shown, demanded and refused, on either side, and with real etcd."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kvstore.errors import ConfigError
from kvstore.peers import questions
from kvstore.peers.crl import revoked_serials
from kvstore.peers.http_client import PeerRequestError
from kvstore.peers.questions import ask_once
from kvstore.peers.tls import PeerTls
from kvstore.raft.model import Message, MessageType
from kvstore.wire.varint import WireError
from tests.support.certificates import Authority
from tests.support.peer_member import LinkEnd, connect, wait_for
from tests.support.servers import Server, etcd, running

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


def test_a_caller_without_a_certificate_is_turned_away(
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


def test_a_server_of_another_name_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    elsewhere = authority.issue("elsewhere", host="elsewhere", ip="192.0.2.1")
    tls = tls_of(authority, elsewhere, skip_client_san_verification=True)
    with (
        LinkEnd(tmp_path / "a", A, tls=tls, urls=URLS) as a,
        pytest.raises(PeerRequestError, match="IP address mismatch"),
    ):
        probe(a, tls)


def test_a_caller_from_another_address_than_its_certificate_s(
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
def test_lists_that_are_none(data: bytes) -> None:
    with pytest.raises(WireError):
        revoked_serials(data)


def test_certificates_are_read_anew(authority: Authority, tmp_path: Path) -> None:
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


def test_files_that_are_no_use_are_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot listen on TLS for https"):
        LinkEnd(tmp_path / "a", A, urls=URLS)
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    with pytest.raises(ConfigError, match=str(broken)):
        LinkEnd(tmp_path / "b", A, tls=PeerTls(str(broken), str(broken)), urls=URLS)


class SecureEtcd(Server):
    """Real etcd whose peer port is TLS."""

    @property
    def peer_url(self) -> str:
        return f"https://127.0.0.1:{self.peer_port}"


def test_etcd_demands_and_shows_certificates(
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
