"""Client certificates: who is believed, until when, and what broken ones lead to."""

import hashlib

import pytest
from cryptography.x509 import Version, load_der_x509_certificate
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.policy.authentication.certificates import Authorities, CertificateUsers
from kvstack.apiserver.policy.authentication.results import AuthenticationError
from tests.apiserver.policy.certificates import (
    CLIENT,
    SERVER,
    Authority,
    curve_key,
    rsa_key,
    subject,
)
from tests.apiserver.policy.clocks import FakeClock

DAY_S = 86_400
CA, OTHER = Authority.root(0), Authority.root(1)


def users(*authorities: Authority, clock: FakeClock | None = None) -> CertificateUsers:
    pem = b"".join(each.pem for each in authorities or (CA,))
    return CertificateUsers(Authorities(pem, clock or FakeClock()))


def test_subject_becomes_user() -> None:
    der = CA.client(subject("bob", ("devs", "ops"), ("u-1",)))
    fingerprint = f"X509SHA256={hashlib.sha256(der).hexdigest()}"
    extra = {"authentication.kubernetes.io/credential-id": (fingerprint,)}
    assert users().authenticate((der,)) == User("bob", "u-1", ("devs", "ops"), extra)


@pytest.mark.parametrize("key", [None, rsa_key(0)])
def test_keys_of_clients(key: object) -> None:
    der = CA.client("bob", key=key)  # type: ignore[arg-type]
    assert users().authenticate((der,)) is not None


def test_subject_without_name_is_nobody() -> None:
    assert users().authenticate((CA.client(subject(groups=("devs",))),)) is None


@pytest.mark.parametrize(
    ("uids", "text"),
    [(("a", "b"), "expected 1 UID, but found multiple: [a b]"), (("",), "cannot be an empty")],
)
def test_uids(uids: tuple[str, ...], text: str) -> None:
    try:
        der = CA.client(subject("bob", uids=uids))
    except ValueError:
        pytest.skip("the library makes no such certificate")
    with pytest.raises(AuthenticationError, match=text.replace("[", r"\[")):
        users().authenticate((der,))


@pytest.mark.parametrize(
    "der",
    [
        OTHER.client("bob"),
        CA.client("bob", days=-0.5),
        CA.client("bob", begins=0.5),
        CA.client("bob", purposes=(SERVER,)),
        CA.client("bob")[:-1],
        CA.client("bob") + b"\0",
        b"",
        b"\x30\x00",
        b"junk",
    ],
)
def test_refused(der: bytes) -> None:
    with pytest.raises(AuthenticationError, match="x509"):
        users().authenticate((der,))


@pytest.mark.parametrize("purposes", [(), (CLIENT, SERVER)])
def test_purposes_that_are_good(purposes: tuple[object, ...]) -> None:
    der = CA.client("bob", purposes=purposes)  # type: ignore[arg-type]
    assert users().authenticate((der,)) is not None


def test_version_1() -> None:
    der = CA.client_of_version_1("bob")
    assert load_der_x509_certificate(der).version is Version.v1
    found = users(OTHER, CA).authenticate((der,))
    assert found is not None
    assert found.name == "bob"


@pytest.mark.parametrize(
    ("der", "text"),
    [
        (OTHER.client_of_version_1("bob"), "unknown authority"),
        (CA.below(2).client_of_version_1("bob"), "unknown authority"),
        (CA.client_of_version_1("bob", days=-0.5), "expired"),
        (CA.client_of_version_1("bob", begins=0.5), "not yet valid"),
    ],
)
def test_refused_of_version_1(der: bytes, text: str) -> None:
    with pytest.raises(AuthenticationError, match=text):
        users().authenticate((der,))


def test_version_1_signed_by_what_is_no_authority() -> None:
    own = load_der_x509_certificate(CA.client("carl", key=curve_key(7)))
    carl = Authority(own, curve_key(7))
    assert users(carl, CA).authenticate((CA.client_of_version_1("bob"),)) is not None
    with pytest.raises(AuthenticationError, match="unknown authority"):
        users(carl, CA).authenticate((carl.client_of_version_1("bob"),))


def test_version_1_ends_while_it_is_remembered() -> None:
    clock = FakeClock()
    known = users(clock=clock)
    der = CA.client_of_version_1("bob")
    assert known.authenticate((der,)) is not None
    clock.seconds += 2 * DAY_S
    with pytest.raises(AuthenticationError, match="expired"):
        known.authenticate((der,))


def test_an_authority_that_calls_itself_like_ours_is_another() -> None:
    same_name = Authority(CA.certificate, OTHER.key)
    with pytest.raises(AuthenticationError, match="x509"):
        users().authenticate((same_name.client("bob"),))


def test_intermediate_authorities() -> None:
    between = CA.below(2)
    der = between.client("bob")
    with pytest.raises(AuthenticationError, match="x509"):
        users().authenticate((der,))
    assert users().authenticate((der, between.der)) is not None


def test_a_client_is_no_authority() -> None:
    """A chain through a certificate that may not sign others is no chain."""
    eve = CA.client("eve", key=OTHER.key)
    der = Authority(load_der_x509_certificate(eve), OTHER.key).client("admin")
    with pytest.raises(AuthenticationError, match="x509"):
        users().authenticate((der, eve))


def test_chain_that_is_too_long() -> None:
    der = CA.client("bob")
    with pytest.raises(AuthenticationError, match="too long"):
        users().authenticate((der, *[CA.der] * 10))


def test_ends_while_it_is_remembered() -> None:
    clock = FakeClock()
    known = users(clock=clock)
    chain = (CA.client("bob", days=1),)
    assert known.authenticate(chain) is not None
    clock.seconds += DAY_S + 1
    with pytest.raises(AuthenticationError, match="x509"):
        known.authenticate(chain)


def test_its_authority_ends_while_it_is_remembered() -> None:
    clock = FakeClock()
    short = Authority.root(3, days=1)
    known = users(short, clock=clock)
    chain = (short.client("bob", days=50),)
    assert known.authenticate(chain) is not None
    clock.seconds += DAY_S + 1
    with pytest.raises(AuthenticationError, match="x509"):
        known.authenticate(chain)


def test_authorities_are_replaced() -> None:
    known = users(CA)
    mine, others = (CA.client("bob"),), (OTHER.client("eve"),)
    assert known.authenticate(mine) is not None
    known.authorities.replace(OTHER.pem)
    with pytest.raises(AuthenticationError):
        known.authenticate(mine)
    assert known.authenticate(others) is not None
    known.authorities.replace(CA.pem + OTHER.pem)
    assert known.authenticate(mine) is not None
    with pytest.raises(ValueError, match="PEM"):
        known.authorities.replace(b"nothing")
    assert known.authenticate(mine) is not None


GOOD = CA.client(subject("bob", ("devs",)))


# A later release of cryptography refuses such certificates, which is then a refusal here, too.
@pytest.mark.filterwarnings("ignore:Parsed a serial number which wasn't positive")
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
@settings(max_examples=300)
def test_a_changed_byte_never_makes_another_user(position: int, change: int) -> None:
    broken = bytearray(GOOD)
    broken[position] ^= change
    try:
        found = users().authenticate((bytes(broken),))
    except AuthenticationError:
        return
    assert found is not None
    assert (found.name, found.groups) == ("bob", ("devs",))


def test_how_long_certificates_are_good_is_counted() -> None:
    found = users()
    for days in (0.01, 1.5, 1.5):  # a quarter of an hour, and a day and a half
        found.authenticate((CA.client("bob", days=days),))
    counts = dict(zip([*found.left.bounds, float("inf")], found.left.counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {1800.0: 1, 172800.0: 2}


def refuse(known: CertificateUsers, chain: tuple[bytes, ...]) -> str:
    """Return why a chain is refused."""
    with pytest.raises(AuthenticationError) as caught:
        known.authenticate(chain)
    return str(caught.value)


def test_what_was_refused_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user of the cluster is first asked whether it is a proxy, at each request."""
    known = users(CA)
    chains = [(OTHER.client("eve"),), (b"junk",), (b"", b"junk"), (b"junk", b"")]
    texts = [refuse(known, each) for each in chains]

    def look(*_: object) -> None:
        raise AssertionError("it is known")

    monkeypatch.setattr(Authorities, "_verified", look)
    assert [refuse(known, each) for each in chains] == texts
    with pytest.raises(AssertionError):
        known.authenticate((OTHER.client("eve"), b"junk"))


@pytest.mark.parametrize("is_known_for_long", [False, True])
def test_a_refusal_ends_when_the_certificate_begins(*, is_known_for_long: bool) -> None:
    clock = FakeClock()
    known = users(clock=clock)
    chain = (CA.client("bob", begins=0.5),)
    refuse(known, chain)
    clock.seconds += DAY_S / 2 - 1
    if is_known_for_long:
        refuse(known, chain)
    clock.seconds += 2
    assert known.authenticate(chain) is not None


def test_a_refusal_does_not_hold_before_it_was_made() -> None:
    """The clock of a machine may be set back."""
    clock = FakeClock()
    known = users(clock=clock)
    chain = (CA.client("bob", days=1),)
    clock.seconds += DAY_S + 1
    refuse(known, chain)
    clock.seconds -= 2
    assert known.authenticate(chain) is not None
