"""The certificates of a whole cluster, and the administrator's kubeconfig."""

import base64
import stat
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.apiserver.server.certs.pki import Pki
from kvstack.apiserver.server.settings.options import Options, ServingOptions
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile, hosts_of
from kvstack.component.certs.kubeconfig import kubeconfig
from kvstack.component.line_log.line_logger import LineLogger
from tests.support.clocks import HandClock

NOW_S = 1_800_000_000
DAY_S = 86_400
OPTIONS = Options(
    serving=ServingOptions(
        bind_address="0.0.0.0", advertise_address="192.0.2.7", external_host="api.example.org"
    )
)


def pki(directory: Path, clock: HandClock) -> Pki:
    log = LineLogger([], "fatal")
    return Pki(directory / "pki", directory / "admin.conf", OPTIONS, "https://a:1", log, clock)


def subject(directory: Path, name: str) -> tuple[str, ...]:
    """Return common name and organizations of a certificate."""
    found = x509.load_pem_x509_certificate((directory / "pki" / f"{name}.crt").read_bytes()).subject
    kinds = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    return tuple(str(each.value) for kind in kinds for each in found.get_attributes_for_oid(kind))


def test_system_masters_is_for_the_super_admin_alone(tmp_path: Path) -> None:
    pki(tmp_path, HandClock(NOW_S)).ensure()
    admins = "kubeadm:cluster-admins"
    assert subject(tmp_path, "admin") == ("kubernetes-admin", admins)
    assert subject(tmp_path, "super-admin") == ("kubernetes-super-admin", "system:masters")
    assert subject(tmp_path, "apiserver-kubelet-client") == ("kube-apiserver-kubelet-client",)
    for name, file in (("admin", "admin.conf"), ("super-admin", "super-admin.conf")):
        path = tmp_path / file
        shown = yaml.safe_load(path.read_bytes())["users"][0]["user"]["client-certificate-data"]
        assert base64.b64decode(shown) == (tmp_path / "pki" / f"{name}.crt").read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in tmp_path.rglob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_an_administrator_of_an_older_start_is_renewed(tmp_path: Path) -> None:
    clock, files = HandClock(NOW_S), CertFiles(tmp_path / "pki")
    authority = files.authority("ca", "kubernetes", NOW_S)
    for name, user in (("admin", "kubernetes-admin"), ("apiserver-kubelet-client", "k")):
        files.pair(name, "ca", Profile(user, groups=("system:masters",)), NOW_S)
    pair = files.read("admin")
    assert pair is not None
    old = kubeconfig("https://a:1", authority.cert, "kubernetes-admin", pair)
    (tmp_path / "admin.conf").write_bytes(old)
    pki(tmp_path, clock).ensure()
    assert (tmp_path / "admin.conf").read_bytes() != old
    assert subject(tmp_path, "admin")[1:] == ("kubeadm:cluster-admins",)
    assert subject(tmp_path, "apiserver-kubelet-client")[1:] == ()
    assert files.authority("ca", "kubernetes", NOW_S) == authority


def test_nothing_is_written_before_it_is_requested(tmp_path: Path) -> None:
    made_by = pki(tmp_path, HandClock(NOW_S))
    made_by.prepare()
    assert not list(tmp_path.iterdir())
    made_by.ensure()
    key = (tmp_path / "pki" / "sa.key").read_bytes()
    made_by.prepare()
    made_by.ensure()
    assert (tmp_path / "pki" / "sa.key").read_bytes() == key


def test_everything_is_made_once_and_renewed_in_time(tmp_path: Path) -> None:
    clock = HandClock(NOW_S)
    file = tmp_path / "admin.conf"
    made_by = pki(tmp_path, clock)
    made_by.ensure()
    made = {each.name: each.read_bytes() for each in (tmp_path / "pki").iterdir()}
    assert set(made) == {
        *("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"),
        *("apiserver.crt", "apiserver.key", "admin.crt", "admin.key"),
        *("super-admin.crt", "super-admin.key"),
        *("front-proxy-client.crt", "front-proxy-client.key"),
        *("apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"),
    }
    conf = file.read_bytes()
    made_by.ensure()
    assert {e.name: e.read_bytes() for e in (tmp_path / "pki").iterdir()} == made
    clock.now += 300 * DAY_S
    made_by.ensure()
    renewed = {e.name for e in (tmp_path / "pki").iterdir() if e.read_bytes() != made[e.name]}
    assert renewed == {
        *("apiserver.crt", "apiserver.key", "admin.crt", "admin.key"),
        *("super-admin.crt", "super-admin.key"),
        *("front-proxy-client.crt", "front-proxy-client.key"),
        *("apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"),
    }
    assert file.read_bytes() != conf
    shown = yaml.safe_load(file.read_bytes())["users"][0]["user"]["client-certificate-data"]
    assert base64.b64decode(shown) == (tmp_path / "pki" / "admin.crt").read_bytes()


def test_a_server_is_shown_by_all_its_names(tmp_path: Path) -> None:
    clock = HandClock(NOW_S)
    pki(tmp_path, clock).ensure()
    pair = CertFiles(tmp_path / "pki").read("apiserver")
    assert pair is not None
    hosts = set(hosts_of(x509.load_pem_x509_certificate(pair.cert)))
    assert hosts >= {
        *("api.example.org", "192.0.2.7", "localhost", "127.0.0.1", "10.0.0.1"),
        *("kubernetes", "kubernetes.default.svc.cluster.local"),
    }
    assert "0.0.0.0" not in hosts
