"""Certificates that the server makes itself: what they are for, and when they are renewed."""

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from kvstack.apiserver.policy.authentication.certificates import Authorities, CertificateUsers
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import (
    AUTHORITY_DAYS,
    LEAF_DAYS,
    Pair,
    Profile,
    ends_at,
    hosts_of,
    issue,
    new_authority,
    new_key,
    reason_to_renew,
)
from kvstack.component.certs.service_account_keys import KeyRing, SigningKey, public_keys
from kvstack.component.errors import ConfigError
from tests.support.clocks import HandClock

NOW_S = 1_800_000_000
DAY_S = 86_400
SERVER = Profile("kube-apiserver", hosts=("localhost", "10.0.0.1", "::1"), serves=True)
ADMIN = Profile("admin", groups=("system:masters",))


@pytest.fixture(scope="module")
def authority() -> Pair:
    return new_authority("kubernetes", NOW_S)


def test_a_server_is_verified_by_its_names(authority: Pair) -> None:
    cert = x509.load_pem_x509_certificate(issue(authority, SERVER, NOW_S).cert)
    store = verification.Store(x509.load_pem_x509_certificates(authority.cert))
    for subject in (x509.DNSName("localhost"),):
        verifier = (
            verification.PolicyBuilder()
            .store(store)
            .time(datetime.fromtimestamp(NOW_S, UTC))
            .build_server_verifier(subject)
        )
        assert verifier.verify(cert, [])[0] == cert
    assert sorted(hosts_of(cert)) == sorted(SERVER.hosts)
    usage = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_client_is_the_user_of_its_certificate(authority: Pair) -> None:
    cert = x509.load_pem_x509_certificate(issue(authority, ADMIN, NOW_S).cert)
    users = CertificateUsers(Authorities(authority.cert, HandClock(NOW_S)))
    from cryptography.hazmat.primitives.serialization import Encoding

    user = users.authenticate((cert.public_bytes(Encoding.DER),))
    assert user is not None
    assert (user.name, user.groups) == ("admin", ("system:masters",))


def test_lives(authority: Pair) -> None:
    assert ends_at(authority.cert) == NOW_S + AUTHORITY_DAYS * DAY_S
    assert ends_at(issue(authority, ADMIN, NOW_S).cert) == NOW_S + LEAF_DAYS * DAY_S


@pytest.mark.parametrize(
    ("profile", "days", "why"),
    [
        (ADMIN, 0, ""),
        (ADMIN, LEAF_DAYS * 0.75, ""),
        (ADMIN, LEAF_DAYS * 0.85, "it expires soon"),
        (ADMIN, LEAF_DAYS + 1, "it expires soon"),
        (Profile("other", groups=("system:masters",)), 0, "it has another subject"),
        (Profile("admin"), 0, "it has another subject"),
        (Profile("admin", ("system:masters",), hosts=("x",)), 0, "it lacks a host name"),
    ],
)
def test_when_a_certificate_is_renewed(
    authority: Pair, profile: Profile, days: float, why: str
) -> None:
    cert = issue(authority, ADMIN, NOW_S).cert
    assert reason_to_renew(authority.cert, cert, profile, NOW_S + days * DAY_S) == why


def test_a_certificate_of_another_authority_is_renewed(authority: Pair) -> None:
    other = new_authority("kubernetes", NOW_S)
    cert = issue(other, ADMIN, NOW_S).cert
    assert reason_to_renew(authority.cert, cert, ADMIN, NOW_S) == "another authority signed it"


def test_a_key_signs_tokens_that_its_public_half_verifies() -> None:
    private, public = new_key()
    key = SigningKey(private)
    token = key.sign({"iss": "x"})
    assert KeyRing(public_keys(public)).verify(token, key.public.id) == b'{"iss":"x"}'


def test_files_are_made_once_and_renewed_in_time(tmp_path: Path) -> None:
    files = CertFiles(tmp_path / "pki")
    first = files.authority("ca", "kubernetes", NOW_S)
    assert files.authority("ca", "kubernetes", NOW_S) == first
    assert files.pair("apiserver", "ca", SERVER, NOW_S) == "it does not exist"
    made = files.read("apiserver")
    assert files.pair("apiserver", "ca", SERVER, NOW_S + DAY_S) == ""
    assert files.read("apiserver") == made
    assert made is not None
    assert made.cert.endswith(first.cert), "the chain is shown"
    assert files.pair("apiserver", "ca", SERVER, NOW_S + 300 * DAY_S) == "it expires soon"
    assert files.read("apiserver") != made


def test_a_broken_certificate_is_made_anew(tmp_path: Path) -> None:
    files = CertFiles(tmp_path)
    files.authority("ca", "kubernetes", NOW_S)
    files.pair("admin", "ca", ADMIN, NOW_S)
    files.cert("admin").write_text("nonsense")
    assert files.pair("admin", "ca", ADMIN, NOW_S) == "it cannot be read"
    assert files.pair("admin", "ca", ADMIN, NOW_S) == ""


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    files = CertFiles(tmp_path / "pki")
    files.authority("ca", "kubernetes", NOW_S)
    key = files.key("sa")
    assert key.read_bytes() == files.key("sa").read_bytes()
    for path in (files.key_file("ca"), key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.directory.stat().st_mode) == 0o700


def test_what_is_half_there_is_reported(tmp_path: Path) -> None:
    files = CertFiles(tmp_path)
    with pytest.raises(ConfigError, match=r"ca\.crt or its key is missing"):
        files.pair("admin", "ca", ADMIN, NOW_S)
    files.authority("ca", "kubernetes", NOW_S)
    files.key_file("ca").unlink()
    with pytest.raises(ConfigError, match=r"ca\.crt exists without its key"):
        files.authority("ca", "kubernetes", NOW_S)


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used: Not a directory"):
        CertFiles(tmp_path / "file").authority("ca", "kubernetes", NOW_S)
