"""What users type: tokens, and the flags of `kvstack join`."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.standalone.joining import join_command, tokens
from kvstack.agents.standalone.joining.cluster_facts import ClusterFacts
from kvstack.agents.standalone.joining.join_command import JoinError, read_arguments, server_of
from kvstack.agents.standalone.joining.token_command import announcement_of
from kvstack.agents.standalone.joining.token_command import main as token_main
from kvstack.agents.standalone.stack_settings import announced_url, split_own, stack_options
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import read_command_line
from kvstack.component.net.hosts import address_towards, has_ipv6
from tests.support.certificates import Authority
from tests.support.network.ports import free_ports

TEXT = "abcdef.0123456789abcdef"
PIN = f"sha256:{'a' * 64}"


def test_a_token_and_its_secret() -> None:
    token = tokens.parse(TEXT)
    assert str(token) == TEXT
    secret = tokens.secret_of(token, "for two", "2026-11-24T12:00:00Z")
    assert secret["metadata"] == {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
    assert secret["type"] == "bootstrap.kubernetes.io/token"
    at_ten = 1_795_514_400.0
    assert format_time(at_ten) == "2026-11-24T10:00:00Z"
    assert tokens.row_of(secret, at_ten) == (
        *(TEXT, "120m", "2026-11-24T12:00:00Z", "authentication,signing", "for two"),
        "system:bootstrappers:kubeadm:default-node-token",
    )
    assert tokens.row_of(secret, at_ten + 7200).ttl == "<expired>"
    endless = tokens.row_of(tokens.secret_of(token, "", ""), at_ten)
    assert (endless.ttl, endless.expires, endless.description) == ("<forever>", "<never>", "<none>")


def test_no_two_tokens_are_one() -> None:
    made = {tokens.new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(tokens.parse(str(each)) == each for each in made)


@pytest.mark.parametrize("text", ["", "abcdef", "ABCDEF.0123456789abcdef", f"{TEXT}0", f"{TEXT}\n"])
def test_what_is_no_token_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(tokens.TokenError) as raised:
        tokens.parse(text)
    assert "0123456789" not in str(raised.value)


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("h", "https://h:6443"),
        ("h:7443", "https://h:7443"),
        ("https://10.0.0.1", "https://10.0.0.1:6443"),
        ("https://[fd00::1]:7443/", "https://[fd00::1]:7443"),
    ],
)
def test_the_address_of_a_cluster(typed: str, url: str) -> None:
    assert server_of(typed) == url


@pytest.mark.parametrize("typed", ["http://h", "https://h/x", "https://", "h:seven", "h:70000"])
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        server_of(typed)


def test_flags_of_join_and_of_the_kubelet(tmp_path: Path) -> None:
    found = read_arguments(
        [
            *("10.0.0.1:6443", "--token", TEXT, "--discovery-token-ca-cert-hash", PIN),
            *(
                "--node-name=Two",
                "--root-dir",
                str(tmp_path),
                "--node-labels=a=b",
                "--without-proxy",
            ),
        ]
    )
    assert (found.server, found.node, found.has_proxy) == ("https://10.0.0.1:6443", "two", False)
    assert (found.token, found.hashes) == (tokens.parse(TEXT), (PIN,))
    assert found.kubeconfig == tmp_path / "kubelet.conf"
    assert found.kubelet == ("--root-dir", str(tmp_path), "--node-labels=a=b")
    assert found.within_s == 60.0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "one API server is asked, not 0"),
        (("a", "b"), "one API server is asked, not 2"),
        (("a", "--kubeconfig=x"), "--kubeconfig is not for kvstack join"),
        (("a", "--token=abc"), "invalid token"),
        (("a", "--discovery-token-ca-cert-hash=abc"), "64 hexadecimal digits"),
        (("a", "--without-proxy=maybe"), "--without-proxy maybe: true or false"),
        (("a", "--discovery-timeout=soon"), "soon"),
    ],
)
def test_what_cannot_be_meant(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(JoinError, match=text):
        read_arguments(arguments)


def test_unknown_flags_and_modes_end_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert join_command.main(["a", "--colour=red"]) == 1
    assert "unknown flag: --colour=red" in capsys.readouterr().err
    assert join_command.main(["a", "--network=pigeons"]) == 1
    assert "--network pigeons: one of auto, host-gw, vxlan, none" in capsys.readouterr().err
    assert token_main(["forge"]) == 1
    assert "kvstack token forge: one of create, list, delete" in capsys.readouterr().err
    assert token_main(["delete"]) == 1
    assert "is required" in capsys.readouterr().err
    assert token_main(["list", "more"]) == 1
    assert "takes no 'more'" in capsys.readouterr().err


def test_a_machine_of_another_cluster_joins_anew(tmp_path: Path) -> None:
    """The hash that is given decides: what is kept of a cluster that was made anew is of no use."""
    root, pki = tmp_path / "node", tmp_path / "pki"
    root.mkdir()
    pki.mkdir()
    (root / "ca.crt").write_bytes(Path(Authority(pki).file).read_bytes())
    (root / "kubelet.conf").write_text("of before")
    wanted = read_arguments(["h", f"--discovery-token-ca-cert-hash={PIN}", f"--root-dir={root}"])
    with pytest.raises(JoinError, match="--token is needed"):
        asyncio.run(join_command.prepare(wanted))
    assert not (root / "kubelet.conf").exists()


def test_a_node_starts_again_without_an_api_server(tmp_path: Path) -> None:
    root = tmp_path / "node"
    root.mkdir()
    (port,) = free_ports(1)
    cluster = {"server": f"https://127.0.0.1:{port}"}
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (root / "kubelet.conf").write_text(yaml.safe_dump(kubeconfig))
    wanted = read_arguments(["h", f"--root-dir={root}"])
    with pytest.raises(UnreachableError):
        asyncio.run(join_command.prepare(wanted))  # it was never told how the cluster is set up
    (root / "config.yaml").write_text("{}")
    (root / "cluster.yaml").write_text("{networking: {podSubnet: 10.244.0.0/16}}")
    assert asyncio.run(join_command.prepare(wanted)) == "10.244.0.0/16"


def options(*flags: str) -> Any:
    own, rest = split_own(flags)
    return stack_options(own, read_command_line(rest, "kvstack up", TABLE))


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ((), "https://127.0.0.1:6443"),
        (("--bind-address=192.0.2.7", "--secure-port=7443"), "https://192.0.2.7:7443"),
        (("--bind-address=0.0.0.0", "--advertise-address=192.0.2.8"), "https://192.0.2.8:6443"),
        (("--bind-address=0.0.0.0", "--external-hostname=api.example"), "https://api.example:6443"),
    ],
)
def test_where_joining_machines_are_led(flags: tuple[str, ...], url: str) -> None:
    assert announced_url(options(*flags)) == url


def test_a_cluster_that_only_its_own_machine_reaches_is_not_announced(tmp_path: Path) -> None:
    pem = Path(Authority(tmp_path).file).read_bytes()
    for host in ("127.0.0.1", "[::1]", "localhost"):
        maps = ClusterFacts(f"https://{host}:6443", pem).maps()
        with pytest.raises(ConfigError, match=r"--bind-address=0\.0\.0\.0"):
            announcement_of(maps["kube-public", "cluster-info"]["kubeconfig"])


def test_what_is_announced() -> None:
    facts = ClusterFacts("https://h:6443", b"pem", dns="10.96.0.10", pods="10.244.0.0/16")
    maps = facts.maps()
    kubelet = yaml.safe_load(maps["kube-system", "kubelet-config"]["kubelet"])
    assert (kubelet["clusterDNS"], kubelet["clusterDomain"]) == (["10.96.0.10"], "cluster.local")
    cluster = yaml.safe_load(maps["kube-system", "kubeadm-config"]["ClusterConfiguration"])
    assert cluster["networking"] == {"dnsDomain": "cluster.local", "podSubnet": "10.244.0.0/16"}


def test_a_node_has_an_address_of_each_family_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {4: "192.0.2.7", 6: "2001:db8::7"}
    monkeypatch.setattr(join_command, "own_address", own.__getitem__)
    found = partial(join_command.node_ips, "https://127.0.0.1:6443")
    monkeypatch.setattr(join_command, "address_towards", lambda _url, _port: "192.0.2.9")
    assert found("10.244.0.0/16") == ["192.0.2.9"]
    assert found("10.244.0.0/16,fd00::/48") == ["192.0.2.9", own[6]]
    assert found("fd00::/48,10.244.0.0/16") == [own[6], "192.0.2.9"]
    assert found("fd00::/48") == [own[6]]
    assert found("") == ["192.0.2.9"]
    own[6] = "::1"  # the machine has no IPv6 towards others
    assert found("fd00::/48,10.244.0.0/16") == ["192.0.2.9"]
    assert found("fd00::/48") == ["192.0.2.9"]
    monkeypatch.setattr(join_command, "address_towards", lambda _url, _port: "")
    assert found("10.244.0.0/16") == []


def test_the_address_towards_a_server_has_its_family() -> None:
    assert address_towards("https://127.0.0.1:6443", 6443) == "127.0.0.1"
    if has_ipv6():
        assert address_towards("https://[::1]:6443", 6443) == "::1"
    assert address_towards("https://no.such.name.invalid:6443", 6443) == ""
