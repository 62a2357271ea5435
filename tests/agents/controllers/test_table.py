"""The table of controllers against upstream's list: names, users, events, workers, back-off."""

import dataclasses
import subprocess
import sys
from ipaddress import ip_network
from typing import Any

import pytest

from kvstack.agents.controllers.options import NodeRanges, Options, SignerOptions
from kvstack.agents.controllers.table import (
    ABSENT,
    CONTROLLERS,
    Entry,
    UnknownControllerError,
    check_names,
    controllers,
)
from kvstack.agents.reconcile.plan import Controller
from kvstack.component.certs.certificates import new_authority

# Name (without its suffix), service account, event component ("": none are recorded), workers.
UPSTREAM = """
endpoints                        endpoint-controller                endpoint-controller         5
endpointslice                    endpointslice-controller           endpoint-slice-controller   5
endpointslice-mirroring endpointslicemirroring-controller endpoint-slice-mirroring-controller 5
service-cidr                     service-cidrs-controller           service-cidr-controller     5
replicationcontroller            replication-controller             replication-controller      5
replicaset                       replicaset-controller              replicaset-controller       5
deployment                       deployment-controller              deployment-controller       5
statefulset                      statefulset-controller             statefulset-controller      5
daemonset                        daemon-set-controller              daemonset-controller        2
job                              job-controller                     job-controller              5
cronjob                          cronjob-controller                 cronjob-controller          5
ttl-after-finished               ttl-after-finished-controller      ttl-after-finished-controller 5
disruption                       disruption-controller              controllermanager           1
horizontal-pod-autoscaler        horizontal-pod-autoscaler          horizontal-pod-autoscaler   5
namespace                        namespace-controller               -                           10
garbage-collector                generic-garbage-collector          garbage-collector-controller 20
pod-garbage-collector            pod-garbage-collector              -                           1
resourcequota                    resourcequota-controller           -                           5
serviceaccount                   service-account-controller         -                           1
serviceaccount-token             -                                  -                           5
legacy-serviceaccount-token-cleaner legacy-service-account-token-cleaner -                      1
root-ca-certificate-publisher    root-ca-cert-publisher             -                           1
clusterrole-aggregation          clusterrole-aggregation-controller -                           5
validatingadmissionpolicy-status validatingadmissionpolicy-status-controller -                  5
storage-version-migrator         storage-version-migrator-controller -                          1
certificatesigningrequest-approving certificate-controller          -                           5
certificatesigningrequest-signing certificate-controller            -                           5
certificatesigningrequest-cleaner certificate-controller            -                           1
podcertificaterequest-cleaner    podcertificaterequestcleaner       -                           1
node-lifecycle                   node-controller                    node-controller             8
taint-eviction                   node-controller                    taint-eviction-controller   8
node-ipam                        node-controller                    cidrAllocator               1
ttl                              ttl-controller                     -                           5
bootstrap-signer                 bootstrap-signer                   -                           1
token-cleaner                    token-cleaner                      -                           1
persistentvolume-binder          persistent-volume-binder           persistentvolume-controller 1
persistentvolumeclaim-protection pvc-protection-controller          -                           1
persistentvolume-protection      pv-protection-controller           -                           1
volumeattributesclass-protection volumeattributesclass-protection-controller -                  1
persistentvolume-attach-detach   attachdetach-controller            attachdetach-controller     1
ephemeral-volume                 ephemeral-volume-controller        ephemeral_volume            5
persistentvolume-expander        expand-controller                  volume_expand               10
resourceclaim                    resource-claim-controller          resource_claim              50
"""
_BUNDLES = "kube-apiserver-serving-clustertrustbundle-publisher"
ROWS = [*(row.split() for row in UPSTREAM.strip().splitlines()), [_BUNDLES, _BUNDLES, "-", "1"]]

# Names of older releases, as launchers still give them.
ALIASES = """
attachdetach bootstrapsigner cloud-node-lifecycle clusterrole-aggregation cronjob csrapproving
csrcleaner csrsigning daemonset deployment disruption endpoint endpointslice endpointslicemirroring
ephemeral-volume garbagecollector horizontalpodautoscaling job legacy-service-account-token-cleaner
namespace nodeipam nodelifecycle persistentvolume-binder persistentvolume-expander podgc
pv-protection pvc-protection replicaset replicationcontroller resource-claim-controller
resourcequota root-ca-cert-publisher route service serviceaccount statefulset storage-version-gc
tokencleaner ttl ttl-after-finished
"""


@pytest.fixture(scope="module")
def named_controllers() -> dict[str, Any]:
    authority = new_authority("ca", 0.0)
    options = Options(
        root_ca="PEM",
        service_account_key=authority.key,
        signers={"kubernetes.io/legacy-unknown": SignerOptions(authority.cert, authority.key)},
        node_ranges=NodeRanges((ip_network("10.0.0.0/16"),), (24,)),
    )
    found = controllers(options, "*,bootstrap-signer-controller,token-cleaner-controller")
    return {each.identity.name: each for each in found}


@pytest.mark.parametrize(("name", "account", "component", "workers"), ROWS)
def test_each_controller_is_as_upstream(
    named_controllers: dict[str, Any], name: str, account: str, component: str, workers: str
) -> None:
    found = named_controllers[f"{name}-controller"]
    assert found.identity.service_account == ("" if account == "-" else account)
    if component != "-":
        assert found.identity.event_component == component
    assert found.workers == int(workers)


def test_there_are_no_others(named_controllers: dict[str, Any]) -> None:
    assert set(named_controllers) == {f"{name}-controller" for name, *_ in ROWS}
    assert [entry.name for entry in CONTROLLERS if entry.name not in named_controllers] == []


def test_two_are_off_by_default() -> None:
    off = {entry.name for entry in CONTROLLERS if not entry.is_on_by_default}
    assert off == {"bootstrap-signer-controller", "token-cleaner-controller"}
    names = {each.identity.name for each in controllers()}
    assert not off & names


def test_old_names_are_known() -> None:
    assert check_names(",".join(f"-{alias}" for alias in ALIASES.split()))
    with pytest.raises(UnknownControllerError, match="nonsense"):
        check_names("*,-nonsense")


def test_absent_controllers_are_named_and_not_run() -> None:
    names = {absent.name for absent in ABSENT}
    assert not names & {entry.name for entry in CONTROLLERS}
    assert controllers(chosen=",".join(sorted(names))) == []
    assert all(absent.why for absent in ABSENT)


def test_chosen_by_alias_or_sign() -> None:
    assert [each.identity.name for each in controllers(chosen="+podgc")] == [
        "pod-garbage-collector-controller"
    ]
    assert controllers(chosen="podgc,-podgc") == []
    everything = {each.identity.name for each in controllers()}
    without = {each.identity.name for each in controllers(chosen="*,-ttl,-node-route-controller")}
    assert everything - without == {"ttl-controller"}


def _limits(found: Controller) -> tuple[float, float, bool, int | None]:
    terms = found.back_off
    return terms.base_s, terms.max_s, terms.has_bucket, terms.retries_max


DEFAULT = (0.005, 1000.0, True, None)
GIVES_UP = (0.005, 1000.0, True, 15)


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("deployment", GIVES_UP),
        ("endpoints", GIVES_UP),
        ("service-cidr", GIVES_UP),
        ("endpointslice", (1.0, 1000.0, False, 15)),
        ("endpointslice-mirroring", (1.0, 100.0, True, 15)),
        ("namespace", (0.005, 60.0, True, None)),
        ("certificatesigningrequest-approving", (0.2, 1000.0, True, None)),
        ("job", (1.0, 60.0, False, None)),
        ("horizontal-pod-autoscaler", (15.0, 15.0, False, None)),
        ("replicaset", DEFAULT),
        ("statefulset", DEFAULT),
        ("daemonset", DEFAULT),
        ("cronjob", DEFAULT),
        ("garbage-collector", DEFAULT),
    ],
)
def test_how_long_failed_keys_wait(
    named_controllers: dict[str, Any], name: str, limits: tuple[float, float, bool, int | None]
) -> None:
    assert _limits(named_controllers[f"{name}-controller"]) == limits


def test_only_modules_of_controllers_that_run_are_imported() -> None:
    """With two of them, none of the others' modules are loaded."""
    program = """
import sys
from kvstack.agents.controllers import table
rooms = ("cluster", "network", "nodes", "storage", "workloads")
prefixes = tuple(f"kvstack.agents.controllers.{room}" for room in rooms)
def loaded():
    return sorted(each.split(".", 3)[3] for each in sys.modules if each.startswith(prefixes))
assert loaded() == [], loaded()
table.controllers(chosen="namespace,ttl")
print(*loaded())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    modules = {entry.factory.partition(":")[0] for entry in CONTROLLERS}
    assert modules & set(done.stdout.split()) == {"cluster.namespaces", "nodes.ttl"}


@pytest.mark.parametrize("entry", CONTROLLERS, ids=lambda entry: entry.name)
def test_a_row_names_what_there_is(entry: Entry) -> None:
    known = {each.name for each in dataclasses.fields(Options)}
    named = {each for each in (*entry.takes, entry.needs) if each and ":" not in each}
    assert named <= known
    assert entry.make(Options()) is None or not entry.needs
