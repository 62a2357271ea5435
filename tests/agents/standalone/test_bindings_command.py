"""`kvstack bindings`: rights for the users of `kvstack certs`, once."""

import stat
from pathlib import Path

import pytest

from kvstack.agents.standalone import bindings_command
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.agents.standalone.joining.discovery_file import (
    read_discovery_file,
    write_discovery_file,
)
from kvstack.agents.standalone.joining.join_command import JoinError, read_arguments
from kvstack.agents.standalone.joining.tokens import new_token
from kvstack.agents.standalone.parts import CONTROLLERS, NODES, SCHEDULER
from kvstack.component.errors import ConfigError
from tests.support.certificates import Authority
from tests.support.network.ports import free_ports

ALONE = Settings(without=frozenset((CONTROLLERS, SCHEDULER, NODES)))


def test_bindings_are_made_once_and_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BackgroundCluster(tmp_path / "cluster", ALONE) as cluster:
        directory = cluster.kubeconfig.parent
        for hollow in ("created", "exists"):
            file = directory / "super-admin.conf"
            assert bindings_command.main([f"--kubeconfig={file}"]) == 0
            assert capsys.readouterr().out == (
                "clusterrolebinding kubeadm:cluster-admins exists\n"
                "clusterrolebinding kvstack:kubelet-clients exists\n"
                f"clusterrolebinding kvstack:hollow-nodes {hollow}\n"
            )
        made = {each.key for each in cluster.rows().records if b"clusterrolebindings" in each.key}
        assert b"/registry/clusterrolebindings/kvstack:hollow-nodes" in made


def test_what_it_cannot_do_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bindings_command.main([f"--kubeconfig={tmp_path / 'none'}"]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err
    monkeypatch.setattr(bindings_command, "REACHED_S", 0.0)
    (port,) = free_ports(1)
    assert bindings_command.main([f"--master=https://127.0.0.1:{port}"]) == 1
    assert "Error: " in capsys.readouterr().err
    assert bindings_command.main(["--colour"]) == 1
    assert "unknown flag: --colour" in capsys.readouterr().err


def test_machines_may_join_where_that_is_requested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "join.conf"
    with BackgroundCluster(tmp_path / "cluster", ALONE) as cluster:
        kubeconfig = f"--kubeconfig={cluster.kubeconfig.parent / 'super-admin.conf'}"
        words = [
            kubeconfig, "--join-server=https://api", f"--join-file={file}",
            "--cluster-cidr=10.200.0.0/16", "--cluster-dns=10.96.0.10",
        ]  # fmt: skip
        assert bindings_command.main(words) == 0
        out = capsys.readouterr().out
        assert "role kubeadm:bootstrap-signer-clusterinfo " in out
        assert "clusterrole kvstack:network-policies " in out
        assert "configmap kube-public/cluster-info written" in out
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        first = read_discovery_file(file)
        assert first.token is not None
        assert str(first.token) not in out
        assert first.server == "https://api:6443"
        assert first.authority == cluster.ca_file.read_bytes()
        arguments = read_arguments([f"--discovery-file={file}", "--node-name=n"])
        assert arguments.token == first.token
        assert (arguments.server, arguments.hashes) == (first.server, first.hashes)
        rows = {each.key.decode(): each.value for each in cluster.rows().records}
        assert f"/registry/secrets/kube-system/bootstrap-token-{first.token.id}" in rows
        facts = rows["/registry/configmaps/kube-system/kubeadm-config"]
        assert b"10.200.0.0/16" in facts
        # Each time a token of its own.
        assert bindings_command.main(words) == 0
        second = read_discovery_file(file)
        assert second.token not in (None, first.token)
        # None is made that has no end, or that nobody gets.
        capsys.readouterr()
        for bad, text in (
            ([kubeconfig, f"--join-file={file}"], "--join-file needs --join-server"),
            ([*words, "--join-token-ttl=0s"], "--join-token-ttl: must be above 0"),
        ):
            assert bindings_command.main(bad) == 1
            assert text in capsys.readouterr().err


def test_discovery_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    file = tmp_path / "join.conf"
    with pytest.raises(ConfigError, match=str(file)):
        read_arguments([f"--discovery-file={file}"])
    write_discovery_file(file, "https://api:6443", b"no certificate", new_token())
    with pytest.raises(ConfigError, match=str(file)):
        read_arguments([f"--discovery-file={file}"])
    authority = Authority(tmp_path)
    write_discovery_file(file, "https://api:6443", Path(authority.file).read_bytes(), new_token())
    for more in (["other:6443"], [f"--discovery-token-ca-cert-hash=sha256:{'a' * 64}"]):
        with pytest.raises(JoinError, match="--discovery-file says which server"):
            read_arguments([f"--discovery-file={file}", *more])
    given = new_token()
    assert read_arguments([f"--discovery-file={file}", f"--token={given}"]).token == given
