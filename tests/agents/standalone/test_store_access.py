"""Where the store of `kvstack up` listens: which path, which flags, which variables."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from typing_extensions import override

from kvstack.agents.standalone.store_access import OWN_SOCKET, StoreAccess, exports, with_schemes
from kvstack.agents.standalone.store_socket import make_directory, restrict, socket_path
from kvstack.component.certs.certificates import hosts_of
from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import LineLogger


class Log(LineLogger):
    """Keeps the warnings."""

    def __init__(self) -> None:
        super().__init__([], "fatal")
        self.warnings: list[str] = []

    @override
    def warning(self, msg: str, **_: Any) -> None:
        self.warnings.append(msg)


def access(
    directory: Path, *urls: str, flags: tuple[str, ...] = (), log: Log | None = None
) -> StoreAccess:
    return StoreAccess(directory, directory / "pki", urls, flags, {}, log or Log())


def as_user(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)


def test_an_address_without_a_scheme_is_of_tls() -> None:
    assert with_schemes(["127.0.0.1:1", "http://a:1", "unix:", "unix:///x", "unixs://y"]) == (
        "https://127.0.0.1:1",
        "http://a:1",
        "unix:",
        "unix:///x",
        "unixs://y",
    )


def test_the_socket_is_in_the_data_directory(tmp_path: Path) -> None:
    path = tmp_path / "run" / "etcd.sock"
    assert socket_path(tmp_path, {}) == path
    found = access(tmp_path, OWN_SOCKET)
    assert found.urls == (f"unix://{path}",)
    assert found.flags == []
    assert found.variables(found.urls) == {"ETCDCTL_ENDPOINTS": f"unix://{path}"}
    assert exports(found.variables(found.urls)) == f"export ETCDCTL_ENDPOINTS=unix://{path}\n"
    assert access(tmp_path).variables(()) == {}


@pytest.mark.parametrize("name", ["a" * 120, "a b", "a,b", "a%20b", "ä"])
def test_a_path_that_clients_cannot_take_is_replaced(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_user(monkeypatch, 1000)
    directory = tmp_path / name
    found = socket_path(directory, {"XDG_RUNTIME_DIR": "/run/user/1000"})
    assert found.match("/run/user/1000/kvstack/store-*/etcd.sock")
    assert found != socket_path(tmp_path / f"{name}2", {"XDG_RUNTIME_DIR": "/run/user/1000"})
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        socket_path(directory, {})
    as_user(monkeypatch, 0)
    assert socket_path(directory, {}).match("/run/kvstack/store-*/etcd.sock")


def test_the_longest_path(monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 1000)
    longest = Path("/" + "a" * (107 - len("/run/etcd.sock") - 1))
    assert len(str(socket_path(longest, {}))) == 107
    with pytest.raises(ConfigError, match=r"\(this one 108\)"):
        socket_path(Path(f"{longest}a"), {})


def test_the_directory_of_the_socket_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "run" / "etcd.sock"
    make_directory(path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.parent.chmod(0o755)
    make_directory(path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.touch(0o755)
    restrict(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="not a directory of this user"):
        make_directory(tmp_path / "run" / "etcd.sock")
    if os.geteuid() == 0:
        (tmp_path / "run").unlink()
        (tmp_path / "run").mkdir()
        os.chown(tmp_path / "run", 65534, 65534)
        with pytest.raises(ConfigError, match="not a directory of this user"):
            make_directory(tmp_path / "run" / "etcd.sock")


def test_tls_with_certificates_of_clients_is_the_default(tmp_path: Path) -> None:
    log = Log()
    found = access(tmp_path, "https://0.0.0.0:0", "https://192.0.2.9:1", log=log)
    pki = tmp_path / "pki" / "etcd"
    assert found.flags == [
        f"--cert-file={pki}/server.crt",
        f"--key-file={pki}/server.key",
        "--client-cert-auth=true",
        f"--trusted-ca-file={pki}/ca.crt",
    ]
    assert found.variables(["https://0.0.0.0:5"]) == {
        "ETCDCTL_ENDPOINTS": "https://127.0.0.1:5",
        "ETCDCTL_CACERT": f"{pki}/ca.crt",
        "ETCDCTL_CERT": f"{pki}/healthcheck-client.crt",
        "ETCDCTL_KEY": f"{pki}/healthcheck-client.key",
    }
    found.prepare()
    found.ensure()
    assert log.warnings == []
    shown = x509.load_pem_x509_certificate((pki / "server.crt").read_bytes())
    assert {"localhost", "127.0.0.1", "::1", "192.0.2.9"} <= set(hosts_of(shown))
    assert "0.0.0.0" not in hosts_of(shown)
    assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in pki.glob("*.key")} == {
        "ca.key": 0o600,
        "server.key": 0o600,
        "healthcheck-client.key": 0o600,
    }
    made = {each.name: each.read_bytes() for each in pki.iterdir()}
    found.ensure()
    assert {each.name: each.read_bytes() for each in pki.iterdir()} == made


@pytest.mark.parametrize(
    ("given", "names", "variables"),
    [
        (
            ("--cert-file=/c", "--key-file=/k"),
            ["--client-cert-auth", "--trusted-ca-file"],
            ["ETCDCTL_CERT", "ETCDCTL_KEY"],
        ),
        (
            ("--trusted-ca-file=/ca",),
            ["--cert-file", "--key-file", "--client-cert-auth"],
            ["ETCDCTL_CACERT"],
        ),
        (("--client-cert-auth=false",), ["--cert-file", "--key-file"], ["ETCDCTL_CACERT"]),
        (
            ("--auto-tls=true",),
            ["--client-cert-auth", "--trusted-ca-file"],
            ["ETCDCTL_CERT", "ETCDCTL_KEY"],
        ),
    ],
)
def test_flags_that_are_given_count(
    given: tuple[str, ...], names: list[str], variables: list[str], tmp_path: Path
) -> None:
    found = access(tmp_path, "https://127.0.0.1:1", flags=given)
    assert [each.partition("=")[0] for each in found.flags] == names
    assert list(found.variables(found.urls)) == ["ETCDCTL_ENDPOINTS", *variables]


def test_plaintext_is_warned_of(tmp_path: Path) -> None:
    for flags, urls in (
        ((), ("http://127.0.0.1:1",)),
        (("--listen-client-http-urls=http://127.0.0.1:2",), (OWN_SOCKET,)),
        (("--listen-peer-urls=http://127.0.0.1:2",), (OWN_SOCKET,)),
        (("--initial-cluster=a=http://127.0.0.1:2380",), (OWN_SOCKET,)),
    ):
        log = Log()
        found = access(tmp_path, *urls, flags=flags, log=log)
        assert found.flags == []
        found.prepare()
        assert len(log.warnings) == 1, json.dumps(log.warnings)
        assert "without TLS and without credentials" in log.warnings[0]
        found.ensure()
        assert not (tmp_path / "pki").exists()
