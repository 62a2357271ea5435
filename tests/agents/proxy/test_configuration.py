"""Flags and files of `kvstack proxy`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstack.agents.proxy.configuration import DEFAULTS, read_configuration, without_effect
from kvstack.agents.proxy.flags import FIELDS, TABLE, paths_of
from kvstack.agents.proxy.node_addresses import has_loopback, node_port_ips, own_addresses
from kvstack.agents.proxy.process import Settings, main, read_settings
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import read_command_line
from kvstack.component.flags.flag_table import BOOL
from kvstack.component.process.program import FAILED

FLAGS = {name for name, (kind, _, _) in FIELDS.items() if kind is BOOL}


def settings(*arguments: str) -> Settings:
    return read_settings(read_command_line(arguments, "kvstack proxy", TABLE))


def test_every_flag_changes_its_field() -> None:
    told = {
        "bind-address": "192.0.2.1",
        "detect-local-mode": "NodeCIDR",
        "cluster-cidr": "10.244.0.0/16",
        "iptables-masquerade-bit": "15",
        "iptables-sync-period": "1m",
        "iptables-min-sync-period": "2s",
        "nodeport-addresses": "10.0.0.0/8,primary",
        "proxy-mode": "nftables",
    }
    for name, (_, path, _) in FIELDS.items():
        usual = "false" if "localhost" in name else "true"
        text = told.get(name, usual if name in FLAGS else "x:1")
        whole = settings(f"--{name}={text}").configuration
        for field in paths_of(path):
            found: Any = whole
            before: Any = DEFAULTS
            for part in field:
                found, before = found[part], before[part]
            assert found != before, name
            assert type(found) is type(before), name


def test_a_file_of_kubeadm_means_the_defaults() -> None:
    found = read_configuration(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "bindAddress": "0.0.0.0",
            "bindAddressHardFail": False,
            "clientConnection": {"acceptContentTypes": "", "burst": 0, "kubeconfig": "/k"},
            "clusterCIDR": "10.244.0.0/16",
            "configSyncPeriod": "0s",
            "conntrack": {"maxPerCore": None, "tcpBeLiberal": False, "udpTimeout": "0s"},
            "detectLocal": {"bridgeInterface": "", "interfaceNamePrefix": ""},
            "detectLocalMode": "",
            "enableProfiling": False,
            "healthzBindAddress": "",
            "hostnameOverride": "",
            "iptables": {"localhostNodePorts": None, "masqueradeBit": None, "syncPeriod": "0s"},
            "ipvs": {"excludeCIDRs": None, "syncPeriod": "0s"},
            "logging": {"flushFrequency": 0},
            "metricsBindAddress": "",
            "mode": "",
            "nftables": {"masqueradeAll": False, "minSyncPeriod": "0s", "syncPeriod": "0s"},
            "nodePortAddresses": None,
            "oomScoreAdj": None,
            "portRange": "",
        }
    )
    own = {"clusterCIDR": "10.244.0.0/16", "clientConnection": {"kubeconfig": "/k"}}
    assert found == {**DEFAULTS, **own}


def test_a_file_goes_before_flags_but_for_the_name_of_the_node(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump({"clusterCIDR": "10.0.0.0/8", "oomScoreAdj": -1}))
    found = settings(
        f"--config={file}", "--cluster-cidr=11.0.0.0/8", "--hostname-override= Node-1 "
    )
    assert found.configuration["clusterCIDR"] == "10.0.0.0/8"
    assert found.node == "node-1"
    assert found.without_effect == ("oomScoreAdj",)


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ({"kind": "Pod"}, 'no kind "Pod" is registered'),
        ({"bindAdress": "x"}, 'unknown field "bindAdress"'),
        ({"nftables": {"masqueradebit": 1}}, 'unknown field "nftables.masqueradebit"'),
        ({"clusterCIDR": ["10.0.0.0/8"]}, "clusterCIDR: "),
        ({"nftables": "x"}, "nftables: "),
        ({"mode": "ipvs"}, 'mode: "ipvs"'),
        ({"mode": "x"}, "must be nftables, iptables, userspace or blank"),
        ({"nftables": {"syncPeriod": "-1s"}}, "syncPeriod: must be greater than 0"),
        ({"iptables": {"minSyncPeriod": "-1s"}}, "iptables.minSyncPeriod: must be greater than 0"),
        ({"iptables": {"masqueradeBit": -1}}, "iptables.masqueradeBit: from 0 to 31"),
        ({"nftables": {"syncPeriod": "x"}}, "nftables.syncPeriod"),
        ({"nftables": {"minSyncPeriod": "31s"}}, "must not be longer"),
        ({"nftables": {"masqueradeBit": 32}}, "from 0 to 31"),
        ({"detectLocalMode": "x"}, "one of ClusterCIDR"),
        ({"clusterCIDR": "10.0.0.0/33"}, "must be a valid CIDR"),
        ({"nodePortAddresses": ["primry"]}, "or one of the keywords"),
    ],
)
def test_what_cannot_be_meant_is_reported(obj: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_configuration(obj)
    assert text in str(caught.value)


def test_fields_without_effect_are_reported_if_they_say_something() -> None:
    told = {"conntrack": {"min": 0, "maxPerCore": 1}, "ipvs": {"scheduler": "rr"}, "logging": None}
    assert without_effect(told) == ["conntrack.maxPerCore", "ipvs.scheduler"]


def test_the_configuration_is_written_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "config"
    assert main([f"--write-config-to={file}", "--proxy-mode=nftables"]) == 0
    found = yaml.safe_load(file.read_text())
    assert found.pop("kind") == "KubeProxyConfiguration"
    assert settings(f"--config={file}").configuration == {**DEFAULTS, "mode": "nftables"}


def test_a_proxy_that_reaches_no_cluster_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main([]) == FAILED
    assert "--kubeconfig or --master" in capsys.readouterr().err


def test_where_node_ports_are_served() -> None:
    assert node_port_ips([], "192.0.2.5", 4) == ("192.0.2.5",)
    assert node_port_ips(["primary"], "127.0.0.1", 4) == ()
    assert node_port_ips(["primary"], "192.0.2.5", 6) == ()
    assert node_port_ips(["all"], "192.0.2.5", 4) is None
    assert node_port_ips(["localhost"], "192.0.2.5", 4) == ()
    assert has_loopback(["all"])
    assert has_loopback(["10.0.0.0/8", "127.0.0.0/8"])
    assert has_loopback(["localhost"])
    assert not has_loopback(["primary", "10.0.0.0/8", "::1/128"])
    own = [each for each in own_addresses(4) if not each.startswith("127.")]
    assert set(node_port_ips(["0.0.0.0/0"], "", 4) or ()) == set(own)
    assert "127.0.0.1" in own_addresses(4)
