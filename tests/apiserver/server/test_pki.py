"""The certificates of a whole cluster, and the administrator's kubeconfig."""

import base64
from pathlib import Path

import yaml
from cryptography import x509

from kvstack.apiserver.server.certs.cert_files import CertFiles
from kvstack.apiserver.server.certs.certificates import hosts_of
from kvstack.apiserver.server.certs.pki import Pki
from kvstack.apiserver.server.settings.options import Options, ServingOptions
from kvstore.runtime.log.line_logger import LineLogger
from tests.apiserver.server.fixed_clock import FixedClock

NOW_S = 1_800_000_000
DAY_S = 86_400
OPTIONS = Options(
    serving=ServingOptions(
        bind_address="0.0.0.0", advertise_address="192.0.2.7", external_host="api.example.org"
    )
)


def test_everything_is_made_once_and_renewed_in_time(tmp_path: Path) -> None:
    clock = FixedClock(NOW_S)
    file = tmp_path / "admin.conf"
    pki = Pki(tmp_path / "pki", file, OPTIONS, "https://a:1", LineLogger([], "fatal"), clock)
    pki.ensure()
    made = {each.name: each.read_bytes() for each in (tmp_path / "pki").iterdir()}
    assert set(made) == {
        *("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"),
        *("apiserver.crt", "apiserver.key", "admin.crt", "admin.key"),
        *("front-proxy-client.crt", "front-proxy-client.key"),
        *("apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"),
    }
    conf = file.read_bytes()
    pki.ensure()
    assert {e.name: e.read_bytes() for e in (tmp_path / "pki").iterdir()} == made
    clock.now_s += 300 * DAY_S
    pki.ensure()
    renewed = {e.name for e in (tmp_path / "pki").iterdir() if e.read_bytes() != made[e.name]}
    assert renewed == {
        *("apiserver.crt", "apiserver.key", "admin.crt", "admin.key"),
        *("front-proxy-client.crt", "front-proxy-client.key"),
        *("apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"),
    }
    assert file.read_bytes() != conf
    shown = yaml.safe_load(file.read_bytes())["users"][0]["user"]["client-certificate-data"]
    assert base64.b64decode(shown) == (tmp_path / "pki" / "admin.crt").read_bytes()


def test_a_server_is_shown_by_all_its_names(tmp_path: Path) -> None:
    clock = FixedClock(NOW_S)
    Pki(
        tmp_path, tmp_path / "admin.conf", OPTIONS, "https://a:1", LineLogger([], "fatal"), clock
    ).ensure()
    pair = CertFiles(tmp_path).read("apiserver")
    assert pair is not None
    hosts = set(hosts_of(x509.load_pem_x509_certificate(pair.cert)))
    assert hosts >= {
        *("api.example.org", "192.0.2.7", "localhost", "127.0.0.1", "10.0.0.1"),
        *("kubernetes", "kubernetes.default.svc.cluster.local"),
    }
    assert "0.0.0.0" not in hosts
