"""`kvstack bindings`: rights for the users of `kvstack certs`, once."""

from pathlib import Path

import pytest

from kvstack.agents.standalone import bindings_command
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.agents.standalone.parts import CONTROLLERS, NODES, SCHEDULER
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
