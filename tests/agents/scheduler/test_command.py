"""The flags of the command, and its metrics."""

from pathlib import Path

import pytest
import yaml

from kvstack.agents.client.leader_election import LeaseName
from kvstack.agents.scheduler.configuration import Configuration, read_configuration
from kvstack.agents.scheduler.live import process
from kvstack.agents.scheduler.live.command_line import (
    COMMAND,
    Flags,
    read_flags,
    with_election,
)
from kvstack.agents.scheduler.live.flags import TABLE
from kvstack.agents.scheduler.live.metrics import Metrics, Sizes
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import default_value, help_text, read_command_line
from kvstack.component.flags.flag_table import Effect
from kvstack.component.metrics.exposition import render


def flags_of(*arguments: str) -> Flags:
    return read_flags(read_command_line(arguments, COMMAND, TABLE))


def test_flags_are_kube_schedulers() -> None:
    settings = flags_of("--leader-elect=false", "--secure-port", "0", "--kubeconfig=x").settings
    assert (settings.elects, settings.pages.port, settings.kubeconfig) == (False, 0, "x")
    assert flags_of().settings.elects
    assert flags_of("--leader-elect-lease-duration=1m").settings.terms.duration_s == 60
    assert flags_of("--v=4").settings.log_level == "debug"


def test_the_configuration_says_who_leads_unless_flags_do() -> None:
    election = {
        "leaderElect": False,
        "resourceName": "other",
        "leaseDuration": "1m",
        "renewDeadline": "40s",
    }
    settings = with_election(flags_of("--pod-max-in-unschedulable-pods-duration=1m"), {})
    assert (settings.elects, settings.lease.name) == (True, "kube-scheduler")
    config = {"leaderElection": election}
    settings = with_election(flags_of(), config)
    assert not settings.elects
    assert settings.lease == LeaseName("kube-system", "other")
    assert (settings.terms.duration_s, settings.terms.renew_deadline_s) == (60, 40.0)
    flags = flags_of("--leader-elect", "--leader-elect-resource-name=mine")
    settings = with_election(flags, config)
    assert (settings.elects, settings.lease.name) == (True, "mine")
    assert settings.terms.duration_s == 60
    for wrong in ({"leaseDuration": "5s"}, {"resourceLock": "endpoints"}):
        with pytest.raises(ConfigError, match="leaderElection"):
            with_election(flags_of(), {"leaderElection": wrong})


def test_every_default_can_be_read_and_is_reported() -> None:
    told = help_text("x", "y", TABLE)
    for flag in TABLE.flags:
        default_value(flag)
        assert bool(flag.help) == (flag.effect is not Effect.IGNORED)
        assert f"--{flag.name}\n" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["--colour"],
        ["--secure-port=x"],
        ["--tls-cert-file=a"],
        ["--leader-elect-renew-deadline=20s"],
        ["--tie-break=dice"],
    ],
)
def test_flags_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(ConfigError):
        flags_of(*arguments)


def test_the_command_tells_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\ncolour: red\n")
    assert process.main(["--master", "http://127.0.0.1:1", "--config", str(config)]) == 1
    assert capsys.readouterr().err == 'Error: strict decoding error: unknown field "colour"\n'
    assert process.main([]) == 1
    assert capsys.readouterr().err.startswith("Error: --kubeconfig or --master must be given, or")


def test_the_whole_configuration_is_written_and_means_the_same(tmp_path: Path) -> None:
    given = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "podMaxBackoffSeconds": 20,
        "leaderElection": {"resourceName": "other"},
        "profiles": [
            {
                "schedulerName": "mine",
                "plugins": {
                    "multiPoint": {
                        "enabled": [{"name": "ImageLocality", "weight": 5}, {"name": "NodeName"}],
                        "disabled": [{"name": "NodeName"}, {"name": "NodePorts"}],
                    },
                    "score": {"disabled": [{"name": "NodeResourcesFit"}]},
                },
                "pluginConfig": [
                    {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 7}}
                ],
            },
            {"schedulerName": "plain"},
        ],
    }
    config, written = tmp_path / "config.yaml", tmp_path / "whole.yaml"
    config.write_text(yaml.safe_dump(given))
    arguments = ["--config", str(config), "--write-config-to", str(written), "--kubeconfig=k"]
    assert process.main(arguments) == 0
    whole = yaml.safe_load(written.read_text())
    assert _comparable(read_configuration(whole)) == _comparable(read_configuration(given))
    assert whole["parallelism"] == 16
    assert whole["podMaxBackoffSeconds"] == 20
    assert whole["clientConnection"]["kubeconfig"] == "k"
    assert whole["leaderElection"] == {
        "leaderElect": True,
        "leaseDuration": "15s",
        "renewDeadline": "10s",
        "retryPeriod": "2s",
        "resourceLock": "leases",
        "resourceName": "other",
        "resourceNamespace": "kube-system",
    }
    mine, plain = whole["profiles"]
    enabled = mine["plugins"]["multiPoint"]["enabled"]
    assert {"name": "ImageLocality", "weight": 5} in enabled
    assert enabled[-1]["name"] == "NodeName"
    assert {"name": "NodePorts"} in mine["plugins"]["multiPoint"]["disabled"]
    weights = {each["name"]: each["weight"] for each in plain["plugins"]["multiPoint"]["enabled"]}
    assert (weights["TaintToleration"], weights["NodePorts"]) == (3, 0)
    args = {each["name"]: each["args"] for each in mine["pluginConfig"]}
    assert args["InterPodAffinity"] == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "InterPodAffinityArgs",
        "hardPodAffinityWeight": 7,
        "ignorePreferredTermsOfExistingPods": False,
    }


def _comparable(configuration: Configuration) -> object:
    """Return what two configurations that mean the same have in common."""
    return [
        (
            profile.name,
            [plugin.name for plugin in profile.filters],
            [(plugin.name, weight) for plugin, weight in profile.scorers],
            [plugin.name for plugin in profile.post_filters],
            [plugin.name for plugin in profile.pre_binds],
        )
        for profile in configuration.profiles.values()
    ]


def test_a_file_that_cannot_be_written_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert process.main(["--write-config-to", str(tmp_path)]) == 1
    assert "--write-config-to" in capsys.readouterr().err


def test_metrics_bear_upstreams_names() -> None:
    metrics = Metrics()
    metrics.attempted("default-scheduler", "scheduled", 0.0015)
    metrics.bound(16, 0.2)
    metrics.preempted(3)
    metrics.decided("mine", {"": 1.0, "Filter": 1.5, "Score": 1.75}, is_placed=True)
    metrics.decided("mine", {"": 1.0, "Filter": 1.5}, is_placed=False)
    metrics.took("Bind", "mine", 0.25)
    incoming = {("active", "UnscheduledPodAdd"): 7}
    sizes = Sizes({"active": 1, "gated": 2}, 3, 4, 5, incoming)
    text = render(metrics.readings(sizes)).decode()
    for line in (
        'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1',
        'scheduler_scheduling_attempt_duration_seconds_bucket{profile="default-scheduler",'
        'result="scheduled",le="0.002"} 1',
        'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="15+"} 1',
        "scheduler_pod_scheduling_attempts_sum 16",
        "scheduler_preemption_attempts_total 1",
        'scheduler_preemption_victims_bucket{le="4"} 1',
        'scheduler_pending_pods{queue="gated"} 2',
        'scheduler_queue_incoming_pods_total{event="UnscheduledPodAdd",queue="active"} 7',
        *(
            f'scheduler_framework_extension_point_duration_seconds_sum{{extension_point="{point}",'
            f'profile="mine",status="{status}"}} {took}'
            for point, status, took in (
                ("Filter", "Success", 0.5),
                ("Filter", "Unschedulable", 0.5),
                ("Score", "Success", 0.25),
                ("Bind", "Success", 0.25),
            )
        ),
        'scheduler_cache_size{type="assumed_pods"} 5',
    ):
        assert line in text.splitlines()
