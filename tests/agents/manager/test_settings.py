"""The flags of the controller manager, and what they set."""

from pathlib import Path

import pytest

from kvstack.agents.client.rate_limiter import NO_LIMIT, TokenBucket
from kvstack.agents.controllers.options import VolumeOptions
from kvstack.agents.controllers.table import CONTROLLERS, controllers
from kvstack.agents.manager.configuration import FIELDS, configz
from kvstack.agents.manager.flags import SIGNERS, TABLE, WORKERS
from kvstack.agents.manager.process import limiter_of, main
from kvstack.agents.manager.settings import ManagerSettings, manager_settings
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import (
    default_value,
    help_text,
    read_command_line,
)
from kvstack.component.flags.flag_table import Effect, Flag
from tests.support.clocks import HandClock

KUBEADM = """
--allocate-node-cidrs=true --authentication-kubeconfig=/etc/kubernetes/controller-manager.conf
--authorization-kubeconfig=/etc/kubernetes/controller-manager.conf --bind-address=127.0.0.1
--cluster-cidr=10.244.0.0/16 --cluster-name=kubernetes
--controllers=*,bootstrapsigner,tokencleaner --kubeconfig=/etc/kubernetes/controller-manager.conf
--leader-elect=true --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
--service-cluster-ip-range=10.96.0.0/12 --use-service-account-credentials=true
"""


def settings(*arguments: str) -> ManagerSettings:
    return manager_settings(read_command_line(arguments, "x", TABLE))


@pytest.mark.parametrize("flag", TABLE.flags, ids=lambda each: each.name)
def test_every_flag_is_there_once_and_reported(flag: Flag) -> None:
    default_value(flag)
    assert sum(1 for each in TABLE.flags if each.name == flag.name) == 1
    assert bool(flag.help) == (flag.effect is not Effect.IGNORED)
    assert f"--{flag.name}\n" in help_text("x", "y", TABLE)


def test_a_launcher_of_kubeadm_is_taken_as_it_is() -> None:
    found = settings(*KUBEADM.split())
    assert found.own_accounts
    assert found.process.pages.bind_address == "127.0.0.1"
    assert found.process.lease == ("kube-system", "kube-controller-manager")
    assert found.controllers.node_ranges is not None
    assert str(found.controllers.node_ranges.clusters[0]) == "10.244.0.0/16"
    assert found.controllers.node_ranges.masks == (24,)
    names = {each.identity.name for each in controllers(found.controllers, found.chosen)}
    assert {"bootstrap-signer-controller", "node-ipam-controller"} <= names
    assert found.process.without_effect == ("cluster-name", "requestheader-client-ca-file")


def test_workers_are_those_of_the_controllers_unless_set() -> None:
    found = settings("--concurrent-deployment-syncs=9", "--concurrent_rc_syncs=3")
    assert found.workers["deployment-controller"] == 9
    assert found.workers["replicationcontroller-controller"] == 3
    assert set(found.workers) <= {entry.name for entry in CONTROLLERS} | {
        "resourceclaim-controller"
    }
    assert {controller for controller, _ in WORKERS.values()} == set(found.workers)


def test_one_authority_signs_for_all_or_each_for_its_own(tmp_path: Path) -> None:
    cert, key = tmp_path / "ca.crt", tmp_path / "ca.key"
    cert.write_bytes(b"certificate")
    key.write_bytes(b"key")
    common = (f"--cluster-signing-cert-file={cert}", f"--cluster-signing-key-file={key}")
    own = (
        f"--cluster-signing-kubelet-client-cert-file={cert}",
        f"--cluster-signing-kubelet-client-key-file={key}",
    )
    assert set(settings(*common).controllers.signers) == set(SIGNERS.values())
    assert set(settings(*own).controllers.signers) == {
        "kubernetes.io/kube-apiserver-client-kubelet"
    }
    with pytest.raises(ConfigError, match="at the same time"):
        settings(*common, *own)
    with pytest.raises(ConfigError, match="cannot specify cert without key"):
        settings(common[0])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--controllers=*,-colour"], '"colour" is not in the list of known controllers'),
        (["--concurrent-job-syncs=0"], "--concurrent-job-syncs must be greater than 0"),
        (["--root-ca-file=/does/not/exist"], "--root-ca-file: /does/not/exist: No such file"),
        (["--allocate-node-cidrs"], "--allocate-node-cidrs needs --cluster-cidr"),
        (["--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/25"], "does not suit"),
        (["--allocate-node-cidrs", "--cluster-cidr=10.0.0.1/8"], "host bits set"),
        (["--leader-elect-resource-lock=endpoints"], "leases is the only one"),
        (["--secure-port=70000"], "must be between 0 and 65535"),
    ],
)
def test_flags_that_make_no_sense_are_refused(arguments: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        settings(*arguments)


def test_controllers_are_chosen_by_name_or_alias() -> None:
    def chosen(*arguments: str) -> set[str]:
        found = settings(*arguments)
        return {each.identity.name for each in controllers(found.controllers, found.chosen)}

    assert chosen("--controllers=deployment,replicaset-controller") == {
        "deployment-controller",
        "replicaset-controller",
    }
    everything = chosen()
    assert "token-cleaner-controller" not in everything
    assert chosen("--controllers=*,-job") == everything - {"job-controller"}
    assert chosen("--enable-garbage-collector=false") == everything - {
        "garbage-collector-controller"
    }
    assert chosen("--controllers=*,+tokencleaner") == everything | {"token-cleaner-controller"}


def test_the_command_tells_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--controllers=x", "--secure-port=-1"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("Error: [--secure-port -1 must be")
    assert '"x" is not in the list' in told
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("Error: --kubeconfig or --master must be given, or")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "Kubernetes v1.37.1\n"


def test_the_page_of_the_configuration_shows_flags_at_their_fields() -> None:
    page = configz(read_command_line(("--node-monitor-period=90s", "--v=2"), "x", TABLE))
    [(name, found)] = page.items()
    assert name == "kubecontrollermanager.config.k8s.io"
    assert found["kind"] == "KubeControllerManagerConfiguration"
    assert found["KubeCloudShared"]["NodeMonitorPeriod"] == "1m30s"
    assert found["Generic"]["ClientConnection"]["qps"] == 20.0
    assert found["Generic"]["Controllers"] == ("*",)
    assert found["CSRSigningController"]["LegacyUnknownSignerConfiguration"] == {
        "CertFile": "",
        "KeyFile": "",
    }


def test_each_worker_flag_that_upstream_shows_is_shown() -> None:
    """Of one upstream's configuration tells nothing that is known here."""
    assert len(set(FIELDS.values())) == len(FIELDS)
    assert set(WORKERS) - set(FIELDS.values()) == {
        "concurrent-disruption-syncs",
        "concurrent-resourceclaim-syncs",
    }


def test_how_volumes_are_bound_is_reported() -> None:
    arguments = ("--pvclaimbinder-sync-period=1m", "--enable-dynamic-provisioning=false")
    assert settings(*arguments).controllers.volumes == VolumeOptions(60.0, provisions=False)
    assert settings().controllers.volumes == VolumeOptions()


@pytest.mark.parametrize(
    ("flags", "account", "burst", "per_second"),
    [
        ((), "deployment-controller", 30, 20.0),
        ((), "", 30, 20.0),
        (("--kube-api-qps=50", "--kube-api-burst=100"), "job-controller", 100, 50.0),
        # Those that delete what others have made ask for much more.
        ((), "namespace-controller", 3000, 400.0),
        ((), "generic-garbage-collector", 30, 40.0),
        (("--kube-api-qps=-1",), "namespace-controller", 0, 0.0),
    ],
)
def test_how_fast_a_controller_may_ask(
    flags: tuple[str, ...], account: str, burst: int, per_second: float
) -> None:
    limiter = limiter_of(settings("--kubeconfig=x", *flags), HandClock(0.0), account)
    if not per_second:
        assert limiter is NO_LIMIT
        return
    assert isinstance(limiter, TokenBucket)
    assert [limiter.wait_s() for _ in range(burst)] == [0.0] * burst
    assert limiter.wait_s() == pytest.approx(1 / per_second)
