"""A client's TLS files are looked at before anybody is dialled."""

from pathlib import Path

import pytest

from kvstack.component.errors import ConfigError
from kvstore.client.options import ClientTls
from kvstore.client.tls_files import check_files, common_name_of
from tests.support.certificates import Authority


def test_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("me")
    check_files(ClientTls(cert, key, authority.file))
    check_files(ClientTls())
    with pytest.raises(ConfigError, match="must both be present"):
        check_files(ClientTls(cert_file=cert))
    with pytest.raises(ConfigError, match=r"KEY_VALUES_MISMATCH|mismatch"):
        check_files(ClientTls(cert, str(tmp_path / "ca.key")))
    with pytest.raises(ConfigError, match=r"gone\.pem"):
        check_files(ClientTls(trusted_ca_file=str(tmp_path / "gone.pem")))


def test_common_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("me")
    assert common_name_of(cert) == "me"
    with pytest.raises(ConfigError, match=r"gone\.pem"):
        common_name_of(str(tmp_path / "gone.pem"))
    with pytest.raises(ConfigError, match=r"me\.key"):
        common_name_of(key)
