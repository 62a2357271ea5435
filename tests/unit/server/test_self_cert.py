"""Certificates a member makes for itself: when, for whom, until when, and what goes wrong."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from kvstack.component.errors import ConfigError
from kvstore.config.model import Config
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.server.boot.self_cert import provide, with_made_certificates
from tests.support.list_log import ListLog

NOW_S = 1_700_000_000
DAY_S = 86_400


def warnings(logger: ListLog) -> list[str]:
    return [msg for msg, _ in logger.of("warning")]


def config_of(arguments: list[str]) -> Config:
    return configure(read_command_line(arguments), {})


def certificate(path: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Path(path).read_bytes())


def test_names_and_life(tmp_path: Path) -> None:
    hosts = ["127.0.0.1", "localhost", "::1", "", "localhost"]
    cert_file, key_file = provide(tmp_path / "a" / "b", hosts, 2, NOW_S, ListLog())
    made = certificate(cert_file)
    begin = datetime.fromtimestamp(NOW_S, UTC)
    assert made.not_valid_before_utc == begin
    assert made.not_valid_after_utc == begin + timedelta(days=730)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses
    assert Path(key_file).is_absolute()
    assert 0 < made.serial_number < 1 << 128


def test_a_life_beyond_what_can_be_said_ends_there(tmp_path: Path) -> None:
    cert_file, _ = provide(tmp_path, [], 2**63, NOW_S, ListLog())
    assert certificate(cert_file).not_valid_after_utc.year == 9999


def test_it_is_made_once_and_warned_of_when_its_time_is_over(tmp_path: Path) -> None:
    logger = ListLog()
    first = provide(tmp_path, ["localhost"], 1, NOW_S, logger)
    before = Path(first[0]).read_bytes()
    assert warnings(logger) == ["generated a certificate"]
    assert provide(tmp_path, ["other"], 1, NOW_S + 364 * DAY_S, logger) == first
    assert len(warnings(logger)) == 1
    assert provide(tmp_path, ["other"], 1, NOW_S + 366 * DAY_S, logger) == first
    assert "has expired" in warnings(logger)[1]
    assert Path(first[0]).read_bytes() == before
    Path(first[1]).unlink()  # half of it is none
    provide(tmp_path, ["other"], 1, NOW_S, logger)
    assert Path(first[0]).read_bytes() != before
    Path(first[0]).write_text("-")
    with pytest.raises(ConfigError, match="cannot be read"):
        provide(tmp_path, [], 1, NOW_S, logger)


def test_the_flags_decide(tmp_path: Path) -> None:
    logger = ListLog()
    none = config_of(["--name=a"])
    assert with_made_certificates(none, tmp_path, NOW_S, logger) == none
    both = config_of(["--name=a", "--auto-tls", "--peer-auto-tls"])
    made = with_made_certificates(both, tmp_path, NOW_S, logger)
    assert made.client_tls.cert_file == str(tmp_path / "fixtures/client/cert.pem")
    assert made.peer_tls.key_file == str(tmp_path / "fixtures/peer/key.pem")
    assert both.client_tls.cert_file == ""
    given = config_of(["--name=a", "--peer-auto-tls", "--peer-cert-file=x", "--peer-key-file=y"])
    tls = with_made_certificates(given, tmp_path, NOW_S, logger).peer_tls
    assert (tls.cert_file, tls.auto_tls) == ("x", False)
    assert "ignoring --peer-auto-tls" in warnings(logger)[-1]


def test_what_cannot_be_made_is_reported(tmp_path: Path) -> None:
    config = config_of(["--name=a", "--auto-tls", "--self-signed-cert-validity=0"])
    with pytest.raises(ConfigError, match="should be greater than 0"):
        with_made_certificates(config, tmp_path, NOW_S, ListLog())
    (tmp_path / "fixtures").write_text("a file")
    config = config_of(["--name=a", "--auto-tls"])
    with pytest.raises(
        ConfigError, match=f"cannot generate a certificate in {tmp_path}/fixtures/client"
    ):
        with_made_certificates(config, tmp_path, NOW_S, ListLog())
