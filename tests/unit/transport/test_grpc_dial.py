"""Endpoints and files into targets and credentials of grpcio."""

from pathlib import Path

import pytest

from kvstack.component.errors import ConfigError
from kvstore.transport.grpcio.dial import DialTls, dial_plan, uses_tls
from tests.support.certificates import Authority


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("127.0.0.1:2379", "127.0.0.1:2379"),
        ("http://a.example.org.:2379", "a.example.org:2379"),
        ("http://[::1]:2379/path", "[::1]:2379"),
        ("unix:///run/kv.sock", "unix:/run/kv.sock"),
        ("unix:kv.sock", "unix:kv.sock"),
    ],
)
def test_plaintext(endpoint: str, target: str) -> None:
    plan = dial_plan(endpoint, DialTls())
    assert (plan.target, plan.credentials) == (target, None)


def test_who_says_whether_it_is_tls() -> None:
    wanted = DialTls(is_enabled=True)
    assert not uses_tls("h:1", DialTls())
    assert uses_tls("h:1", wanted)
    assert uses_tls("h:1", DialTls(trusted_ca_file="ca.pem"))
    assert uses_tls("https://h:1", DialTls())
    assert uses_tls("unixs:///s", DialTls())
    assert not uses_tls("http://h:1", wanted)
    assert not uses_tls("unix:///s", wanted)


def test_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("me")
    good = DialTls(cert, key, authority.file)
    assert dial_plan("https://h:1", good).credentials is not None
    with pytest.raises(ConfigError, match=r"KEY_VALUES_MISMATCH|mismatch"):
        dial_plan("https://h:1", DialTls(cert, str(tmp_path / "ca.key")))
    with pytest.raises(ConfigError, match=r"gone\.pem"):
        dial_plan("https://h:1", DialTls(trusted_ca_file=str(tmp_path / "gone.pem")))


def test_a_certificate_of_an_unreachable_server() -> None:
    with pytest.raises(OSError, match="refused"):
        dial_plan("https://127.0.0.1:1", DialTls(is_unverified=True))
