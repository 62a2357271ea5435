"""How a process of agents finds its API server."""

from pathlib import Path

import pytest

from kvstack.agents.client import kubeconfig
from kvstack.agents.client.kubeconfig import KubeconfigError
from kvstack.agents.process.settings import cluster_of
from kvstack.component.errors import ConfigError


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kubeconfig, "_SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return tmp_path


def test_in_a_pod_it_is_the_pods_account(account: Path) -> None:
    (account / "ca.crt").write_bytes(b"ca")
    found = cluster_of("")
    assert (found.server, found.ca) == ("https://[fd00::1]:443", b"ca")
    assert found.credentials.token_file == str(account / "token")


def test_a_flag_goes_before_the_pod(account: Path) -> None:
    assert cluster_of("", "https://10.0.0.1:6443").server == "https://10.0.0.1:6443"


def test_an_account_without_files(account: Path) -> None:
    with pytest.raises(KubeconfigError, match="not in a cluster"):
        cluster_of("")


def test_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="--kubeconfig or --master must be given"):
        cluster_of("")
