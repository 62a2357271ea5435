"""The table of flags: complete, consistent, and every default can be read."""

import pytest

from kvstack.apiserver.server.settings.flags import BY_NAME, FLAGS, SHORT, TABLE, Effect, Flag, Kind
from kvstack.apiserver.server.settings.options import GATES_FILE, options_of
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import (
    default_value,
    help_text,
    read_command_line,
)

OWN = {"history"}
UPSTREAM_COUNT = 177
"""As many flags kube-apiserver 1.37.1 has, five of them hidden."""
KUBEADM = """
--advertise-address=192.0.2.10 --allow-privileged=true --authorization-mode=Node,RBAC
--client-ca-file=/etc/kubernetes/pki/ca.crt --enable-admission-plugins=NodeRestriction
--enable-bootstrap-token-auth=true --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt
--etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt
--etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key --etcd-servers=https://127.0.0.1:2379
--kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt
--kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key
--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname
--proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt
--proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key
--requestheader-allowed-names=front-proxy-client
--requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
--requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group
--requestheader-username-headers=X-Remote-User --secure-port=6443
--service-account-issuer=https://kubernetes.default.svc.cluster.local
--service-account-key-file=/etc/kubernetes/pki/sa.pub
--service-account-signing-key-file=/etc/kubernetes/pki/sa.key
--service-cluster-ip-range=10.96.0.0/12 --tls-cert-file=/etc/kubernetes/pki/apiserver.crt
--tls-private-key-file=/etc/kubernetes/pki/apiserver.key
"""
NEEDED = [
    "--etcd-servers=http://127.0.0.1:2379",
    "--service-account-issuer=https://a",
    "--service-account-key-file=a",
    "--service-account-signing-key-file=b",
]


def test_the_table_has_every_flag_of_upstream_once() -> None:
    assert len(BY_NAME) == len(FLAGS) == UPSTREAM_COUNT + len(OWN)
    assert set(BY_NAME) >= OWN
    assert set(SHORT.values()) <= set(BY_NAME)


@pytest.mark.parametrize("flag", FLAGS, ids=lambda each: each.name)
def test_every_default_can_be_read(flag: Flag) -> None:
    default_value(flag)


@pytest.mark.parametrize("flag", FLAGS, ids=lambda each: each.name)
def test_what_a_flag_does_is_reported(flag: Flag) -> None:
    assert bool(flag.help) == (flag.effect is not Effect.IGNORED)
    assert f"--{flag.name}\n" in help_text("x", "y", TABLE)


@pytest.mark.parametrize(
    "flag",
    [each for each in FLAGS if each.effect is Effect.REFUSED],
    ids=lambda each: each.name,
)
def test_a_flag_whose_absence_would_be_unsafe_ends_the_start(flag: Flag) -> None:
    given = read_command_line([*NEEDED, f"--{flag.name}=/some/value"], "kvstack apiserver", TABLE)
    with pytest.raises(ConfigError, match=f"--{flag.name} is not supported here"):
        options_of(given)


_VALUES = {
    Kind.BOOL: "true",
    Kind.INT: "3",
    Kind.FLOAT: "0.5",
    Kind.TEXT: "some",
    Kind.IP: "192.0.2.3",
    Kind.DURATION: "3m",
    Kind.LIST: "a,b",
    Kind.ARRAY: "a",
    Kind.MAP: "a=b",
}


@pytest.mark.parametrize(
    "flag",
    [each for each in FLAGS if each.effect is Effect.IGNORED],
    ids=lambda each: each.name,
)
def test_a_flag_without_effect_is_accepted_and_reported(flag: Flag) -> None:
    text = flag.default or _VALUES[flag.kind]
    given = read_command_line([*NEEDED, f"--{flag.name}={text}"], "kvstack apiserver", TABLE)
    assert options_of(given).without_effect == (flag.name,)


def test_a_launcher_of_kubeadm_is_taken_as_it_is() -> None:
    options = options_of(read_command_line(KUBEADM.split(), "kvstack apiserver", TABLE))
    assert options.store.servers == ("https://127.0.0.1:2379",)
    assert options.authorization_modes == ("Node", "RBAC")
    assert options.service_ranges[0].cidr == "10.96.0.0/12"
    assert options.enabled_plugins == ("NodeRestriction",)
    assert options.authentication.proxies.user_headers == ("x-remote-user",)
    assert options.kubelets.key_file.endswith("apiserver-kubelet-client.key")
    assert options.kubelet_addresses[0] == "InternalIP"


def test_feature_gates_are_listed_once() -> None:
    names = GATES_FILE.read_text().split()
    assert names == sorted(set(names))
    assert {"WatchList", "AllAlpha", "CoordinatedLeaderElection"} <= set(names)
