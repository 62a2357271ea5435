"""Kubeconfig files: several of them, and programs that give credentials."""

import base64
import stat
from pathlib import Path

import pytest
import yaml

from kvstack.agents.client.exec_plugin import PluginError
from kvstack.agents.client.kubeconfig import KubeconfigError, Kubeconfigs, load

ANSWER = '{"kind": "ExecCredential", "status": {"token": "t-1"}}'


def write(path: Path, **content: object) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def config(path: Path, user: object, **cluster: object) -> Path:
    return write(
        path,
        clusters=[{"name": "c", "cluster": {"server": "https://c:6443", **cluster}}],
        users=[{"name": "u", "user": user}],
        contexts=[{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        **{"current-context": "x"},
    )


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def plugin(command: str, **more: object) -> dict[str, object]:
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": command, **more}}


def test_of_several_files_the_first_that_has_a_name_counts(tmp_path: Path) -> None:
    one = config(tmp_path / "one", {"token": "first"})
    other = write(
        tmp_path / "other",
        users=[{"name": "u", "user": {"token": "second"}}],
        contexts=[
            {"name": "x", "context": {"cluster": "none"}},
            {"name": "w", "context": {"cluster": "c", "user": "u"}},
        ],
        **{"current-context": "w"},
    )
    files = Kubeconfigs([one, other])
    assert (files.contexts, files.current) == (["x", "w"], "x")
    assert files.cluster().namespace == "shop"
    assert files.cluster("w").credentials.token == "first"
    with pytest.raises(KubeconfigError, match="context 'z' does not exist"):
        files.cluster("z")


@pytest.mark.parametrize("member", ["auth-provider", "username", "as", "as-groups"])
def test_what_is_not_supported_is_named(tmp_path: Path, member: str) -> None:
    path = config(tmp_path / "c", {"token": "t", member: "x"})
    with pytest.raises(KubeconfigError, match=f"user 'u': {member} is not supported"):
        load(path)
    path = config(tmp_path / "c", {"token": "t"}, **{"proxy-url": "http://p"})
    with pytest.raises(KubeconfigError, match="cluster 'c': proxy-url is not supported"):
        load(path)


def test_a_program_gives_credentials_where_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(b"authority")
    told = tmp_path / "told"
    program(tmp_path / "p", f"echo \"$1 $A $KUBERNETES_EXEC_INFO\" > {told}; echo '{ANSWER}'")
    user = plugin("./p", args=["get"], env=[{"name": "A", "value": "b"}], provideClusterInfo=True)
    path = config(tmp_path / "c", user, **{"certificate-authority": "ca"})
    with pytest.raises(KubeconfigError, match="user 'u': exec is not supported"):
        load(path)
    assert not told.exists()
    assert Kubeconfigs([path]).cluster(runs_plugins=True).credentials.token == "t-1"
    text = told.read_text()
    assert text.startswith("get b {")
    assert base64.b64encode(b"authority").decode() in text
    assert '"server":"https://c:6443"' in text


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "ended with exit code 3"),
        ("echo no", "did not print JSON"),
        ("echo '{}'", "did not print an ExecCredential with a status"),
        ('echo \'{"kind": "ExecCredential", "status": {}}\'', "neither a token nor"),
        ("head -c 2000000 /dev/zero", "printed more than 1048576 bytes"),
    ],
)
def test_a_program_that_gives_none(tmp_path: Path, script: str, message: str) -> None:
    program(tmp_path / "p", script)
    with pytest.raises(PluginError, match=message):
        Kubeconfigs([config(tmp_path / "c", plugin("./p"))]).cluster(runs_plugins=True)


def test_a_program_that_is_not_there_or_cannot_be_asked(tmp_path: Path) -> None:
    path = config(tmp_path / "c", plugin("./none", installHint="install it"))
    with pytest.raises(PluginError, match="No such file or directory\ninstall it"):
        Kubeconfigs([path]).cluster(runs_plugins=True)
    path = config(tmp_path / "c", {"exec": {"apiVersion": "v0", "command": "p"}})
    with pytest.raises(PluginError, match="apiVersion 'v0' is not one of"):
        Kubeconfigs([path]).cluster(runs_plugins=True)
    path = config(tmp_path / "c", plugin("p", interactiveMode="Always"))
    with pytest.raises(PluginError, match="needs a terminal"):
        Kubeconfigs([path]).cluster(runs_plugins=True)
