"""The certificate a server shows: made where there is none, and never in place of another's."""

from pathlib import Path

import pytest

from kvstack.apiserver.server.certs.serving_certificate import ServingCertificate
from kvstack.apiserver.server.settings.options import ServingOptions
from kvstack.component.certs.certificates import Pair, Profile, issue, new_authority
from tests.support.clocks import HandClock
from tests.support.node.group import ListLog

NOW_S = 1_800_000_000
DAY_S = 86_400


def certificate(directory: Path, now_s: int = NOW_S, host: str = "10.0.0.7") -> ServingCertificate:
    serving = ServingOptions(cert_dir=str(directory))
    return ServingCertificate(serving, host, (), HandClock(now_s), ListLog())


def test_it_is_made_once_and_renewed(tmp_path: Path) -> None:
    certificate(tmp_path).ensure()
    first = (tmp_path / "apiserver.crt").read_bytes()
    certificate(tmp_path).ensure()
    assert (tmp_path / "apiserver.crt").read_bytes() == first
    certificate(tmp_path, host="10.0.0.8").ensure()
    second = (tmp_path / "apiserver.crt").read_bytes()
    assert second != first
    certificate(tmp_path, NOW_S + 10_000 * DAY_S, host="10.0.0.8").ensure()
    assert (tmp_path / "apiserver.crt").read_bytes() != second


@pytest.mark.parametrize("has_own_authority", [False, True])
def test_what_somebody_else_put_there_is_left_alone(
    tmp_path: Path, *, has_own_authority: bool
) -> None:
    if has_own_authority:
        certificate(tmp_path).ensure()
    theirs: Pair = issue(new_authority("theirs", NOW_S), Profile("theirs", serves=True), NOW_S)
    (tmp_path / "apiserver.crt").write_bytes(theirs.cert)
    (tmp_path / "apiserver.key").write_bytes(theirs.key)
    shown = certificate(tmp_path)
    shown.ensure()
    assert (tmp_path / "apiserver.crt").read_bytes() == theirs.cert
    assert (tmp_path / "apiserver.key").read_bytes() == theirs.key
    assert (tmp_path / "apiserver-ca.crt").exists() is has_own_authority
    assert shown.fault() == ""
