"""Making and changing pods."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.core.pod_resources import aggregate
from kvstack.apimachinery.objects.core.pod_status import condition_of, is_ready
from kvstack.apimachinery.objects.core.quality_of_service import computed_quality
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.schema.decode import normalize
from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.kinds.pods.cells import row_conditions
from kvstack.apiserver.kinds.pods.conditions import set_condition
from kvstack.apiserver.kinds.pods.containers.images import tag_of_image
from kvstack.apiserver.kinds.pods.strategy import PODS, selectable
from tests.apiserver.kinds.hooks import (
    NOW,
    cells_of,
    changed,
    context_of,
    patched,
    prepared_object,
    warnings_of,
)
from tests.apiserver.kinds.pods.examples import (
    POD,
    container_with,
    pod_with,
    refused,
    refused_change,
)

TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


def test_new_pods() -> None:
    """Defaults, an empty status with the class of service, the first generation."""
    pod = prepared_object(PODS, pod_with({}, {"generation": 7}, {"phase": "Running"}))
    assert pod["metadata"]["generation"] == 1
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    spec = pod["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    (container,) = spec["containers"]
    assert container["imagePullPolicy"] == "IfNotPresent"


def test_gated_pods_say_so() -> None:
    pod = prepared_object(PODS, pod_with({"schedulingGates": [{"name": "g"}]}))
    condition = condition_of(pod, "PodScheduled")
    assert condition is not None
    assert (condition["reason"], condition["lastTransitionTime"]) == ("SchedulingGated", NOW)
    assert condition_of(pod, "Ready") is None


def test_label_keys_complete_selectors() -> None:
    """Of affinity and of spread constraints, where the pod has the label."""
    spec = {
        "affinity": {
            "podAffinity": {
                TERMS: [{"labelSelector": {}, "matchLabelKeys": ["a", "c"], "topologyKey": "z"}]
            },
            "podAntiAffinity": {
                TERMS: [{"labelSelector": {}, "mismatchLabelKeys": ["a"], "topologyKey": "z"}]
            },
        },
        "topologySpreadConstraints": [
            {"labelSelector": {}, "matchLabelKeys": ["a"], "topologyKey": "z"}
        ],
    }
    made_spec = prepared_object(PODS, pod_with(spec, {"labels": {"a": "b"}}))["spec"]
    wanted = {"key": "a", "operator": "In", "values": ["b"]}
    (term,) = made_spec["affinity"]["podAffinity"][TERMS]
    assert term["labelSelector"] == {"matchExpressions": [wanted]}
    (term,) = made_spec["affinity"]["podAntiAffinity"][TERMS]
    assert term["labelSelector"] == {"matchExpressions": [{**wanted, "operator": "NotIn"}]}
    (constraint,) = made_spec["topologySpreadConstraints"]
    assert constraint["labelSelector"] == {"matchExpressions": [wanted]}


@pytest.mark.parametrize(
    ("annotation", "context", "profile", "warns"),
    [
        ("runtime/default", None, {"type": "RuntimeDefault"}, True),
        ("localhost/x", None, {"type": "Localhost", "localhostProfile": "x"}, True),
        ("nonsense", None, None, True),
        ("runtime/default", {"type": "RuntimeDefault"}, None, False),
    ],
)
def test_profiles_of_annotations(
    annotation: str,
    context: Object | None,
    profile: Object | None,
    warns: bool,  # noqa: FBT001
) -> None:
    """They become fields, unless the pod has the same one for all containers."""
    name = "container.apparmor.security.beta.kubernetes.io/c"
    spec = {"securityContext": {"appArmorProfile": context}} if context else {}
    pod, given = pod_with(spec, {"annotations": {name: annotation}}), context_of()
    PODS.default(pod)
    PODS.prepare_create(pod, given)
    (container,) = pod["spec"]["containers"]
    assert (container.get("securityContext") or {}).get("appArmorProfile") == profile
    warning = (
        f"metadata.annotations[{name}]: deprecated since v1.30;"
        ' use the "appArmorProfile" field instead'
    )
    assert given.warnings == ([warning] if warns else [])


def test_pod_resources_are_completed() -> None:
    """Requests of the whole pod from those of the containers, and from its limits."""
    container = {
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "hugepages-2Mi": "4Mi"}}
    }
    pod = container_with(container, resources={"limits": {"memory": "1Gi"}})
    resources = prepared_object(PODS, pod)["spec"]["resources"]
    assert resources == {
        "limits": {"memory": "1Gi", "hugepages-2Mi": "4Mi", "cpu": "2"},
        "requests": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi"},
    }


def test_updates_keep_the_status() -> None:
    old = pod_with({}, {"generation": 2}, {"phase": "Running"})
    new = changed(PODS, pod_with({}, {"generation": 2}, {"phase": "Failed"}), old)
    assert new["status"] == {"phase": "Running"}
    assert new["metadata"]["generation"] == 2
    other = changed(PODS, patched(old, {"spec": {"activeDeadlineSeconds": 5}}), old)
    assert other["metadata"]["generation"] == 3


GATE = {"schedulingGates": [{"name": "g"}]}
DISK = {
    "nodeAffinity": {
        TERMS: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "d", "operator": "Exists"}]}]}
    }
}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"containers": [{"name": "c", "image": "b:1"}]}, []),
        ({}, {"activeDeadlineSeconds": 5}, []),
        (
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": 6},
            [
                "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to"
                " previous value"
            ],
        ),
        (
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": None},
            [
                "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive"
                " integer to nil value"
            ],
        ),
        (
            {"activeDeadlineSeconds": 5},
            {"activeDeadlineSeconds": -1},
            [
                "spec.activeDeadlineSeconds: Invalid value: -1:"
                f" must be between {least} and 2147483647, inclusive"
                for least in (1, 0)
            ],
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Exists"}]},
            {
                "tolerations": [
                    {"key": "a", "operator": "Exists"},
                    {"key": "b", "operator": "Exists"},
                ]
            },
            [],
        ),
        (GATE, {"schedulingGates": None}, []),
        (
            GATE,
            {"schedulingGates": [{"name": "h"}]},
            [
                "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new"
                " scheduling gate 'h'"
            ],
        ),
        (GATE, {"nodeSelector": {"a": "b"}}, []),
        (GATE, {"affinity": DISK}, []),
        (
            {**GATE, "affinity": DISK},
            {"affinity": None},
            [
                f"spec.affinity.nodeAffinity.{TERMS}.nodeSelectorTerms: Invalid value: null:"
                " no additions/deletions to non-empty NodeSelectorTerms list are allowed"
            ],
        ),
    ],
)
def test_changes(old: Object, new: Object, expected: list[str]) -> None:
    """Few fields of a spec can change."""
    before = pod_with(old)
    assert refused_change(patched(before, {"spec": new}), before) == expected


def test_numbers_of_containers_stay() -> None:
    new = pod_with({"containers": [*POD["spec"]["containers"], {"name": "d", "image": "a"}]})
    assert refused_change(new, POD) == [
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    ]


def test_ephemeral_containers_come_through_their_own_endpoint() -> None:
    """An update that has them changes the spec."""
    debug = {"name": "d", "image": "a:1", "terminationMessagePolicy": "File"}
    (error,) = refused_change(pod_with({"ephemeralContainers": [debug]}), pod_with({}))
    assert error.startswith("spec: Forbidden: pod updates may not change fields other than")


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("a", "latest"),
        ("a:1", "1"),
        ("r.example:5000/a/b", "latest"),
        ("r.example:5000/a/b:2", "2"),
        (f"a@sha256:{'0' * 64}", ""),
        (f"a:3@sha256:{'0' * 64}", "3"),
        (f"a:3@sha256:{'0' * 63}", ""),
        ("A", ""),
        ("A/b", "latest"),
        ("localhost/a:x", "x"),
        ("", ""),
        ("0" * 64, ""),
        ("a/" * 130 + "a", ""),
        ("index.docker.io/a", "latest"),
    ],
)
def test_tags_of_images(image: str, tag: str) -> None:
    """`latest` without tag and digest, none where the name is wrong."""
    assert tag_of_image(image) == tag


COMPUTE = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [{}]}, "BestEffort"),
        ({"containers": [{"resources": {"requests": {"cpu": "0"}}}]}, "BestEffort"),
        ({"containers": [{"resources": {"requests": COMPUTE, "limits": COMPUTE}}]}, "Guaranteed"),
        ({"containers": [{"resources": {"requests": COMPUTE}}]}, "Burstable"),
        (
            {"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]},
            "Burstable",
        ),
        (
            {"containers": [{"resources": {"requests": COMPUTE, "limits": COMPUTE}}, {}]},
            "Burstable",
        ),
        (
            {
                "containers": [{}],
                "initContainers": [{"resources": {"requests": COMPUTE, "limits": COMPUTE}}],
            },
            "Burstable",
        ),
        ({"containers": [{}], "resources": {"requests": COMPUTE, "limits": COMPUTE}}, "Guaranteed"),
    ],
)
def test_classes_of_service(spec: Object, expected: str) -> None:
    assert computed_quality(spec) == expected


def amounts_of(milli: int) -> Object:
    """Return a container that asks for so much cpu."""
    return {"resources": {"requests": {"cpu": f"{milli}m"}}}


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 99), max_size=4),
    st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=5),
)
def test_needs_of_all_containers(regular: list[int], first: list[tuple[int, bool]]) -> None:
    """The most that is needed at any time: at each start, and when all run."""
    spec = {
        "containers": [amounts_of(each) for each in regular],
        "initContainers": [
            {**amounts_of(each), **({"restartPolicy": "Always"} if stays else {})}
            for each, stays in first
        ],
    }
    beside, most = 0, 0
    for needed, stays in first:
        most = max(most, beside + needed)
        beside += needed if stays else 0
    wanted = max(most, beside + sum(regular))
    found = aggregate(spec, "requests").get("cpu", parse("0"))
    assert found.milli_value() == wanted


def test_conditions_keep_their_time() -> None:
    """Unless their value changes."""
    status: Object = {}
    set_condition(status, "Ready", "True", "2026-01-01T00:00:00Z")
    set_condition(status, "Ready", "True", NOW, "Because")
    (condition,) = status["conditions"]
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert condition["reason"] == "Because"
    assert is_ready({"status": status})
    set_condition(status, "Ready", "False", NOW)
    assert status["conditions"][0]["lastTransitionTime"] == NOW
    assert not is_ready({"status": status})
    assert not is_ready({})


def test_selectable_fields() -> None:
    pod = prepared_object(PODS, pod_with({"nodeName": "n", "hostNetwork": True}))
    pod["status"]["podIPs"] = [{"ip": "1.2.3.4"}]
    assert selectable(pod) == {
        "spec.nodeName": "n",
        "spec.restartPolicy": "Always",
        "spec.schedulerName": "default-scheduler",
        "spec.serviceAccountName": "default",
        "spec.hostNetwork": "true",
        "status.phase": "Pending",
        "status.podIP": "1.2.3.4",
        "status.nominatedNodeName": "",
    }


RUNNING = {"name": "c", "ready": True, "state": {"running": {}}}
SIDECAR = {"name": "s", "image": "a", "restartPolicy": "Always"}
INIT = {"name": "i", "image": "a"}
READY = [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize(
    ("spec", "metadata", "status", "expected"),
    [
        ({}, {}, {"phase": "Pending"}, ("0/1", "Pending", "0")),
        ({}, {}, {"phase": "Running", "containerStatuses": [RUNNING]}, ("1/1", "Running", "0")),
        ({}, {}, {"phase": "Failed", "reason": "Evicted"}, ("0/1", "Evicted", "0")),
        (
            {},
            {},
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}],
            },
            ("0/1", "SchedulingGated", "0"),
        ),
        (
            {},
            {"deletionTimestamp": NOW},
            {"phase": "Running", "containerStatuses": [RUNNING]},
            ("1/1", "Terminating", "0"),
        ),
        (
            {},
            {"deletionTimestamp": NOW},
            {"phase": "Running", "reason": "NodeLost"},
            ("0/1", "Unknown", "0"),
        ),
        ({}, {"deletionTimestamp": NOW}, {"phase": "Succeeded"}, ("0/1", "Succeeded", "0")),
        (
            {},
            {},
            {
                "phase": "Running",
                "containerStatuses": [
                    {
                        "restartCount": 2,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"finishedAt": "2026-01-02T03:02:05Z"}},
                    }
                ],
            },
            ("0/1", "CrashLoopBackOff", "2 (5m ago)"),
        ),
        (
            {},
            {},
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
            ("0/1", "ExitCode:3", "0"),
        ),
        (
            {},
            {},
            {
                "phase": "Failed",
                "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}],
            },
            ("0/1", "Signal:9", "0"),
        ),
        (
            {"containers": [{"name": "c"}, {"name": "d"}]},
            {},
            {
                "phase": "Running",
                "conditions": READY,
                "containerStatuses": [
                    {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                    RUNNING,
                ],
            },
            ("1/2", "Running", "0"),
        ),
        (
            {"containers": [{"name": "c"}, {"name": "d"}]},
            {},
            {
                "phase": "Running",
                "containerStatuses": [
                    {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                    RUNNING,
                ],
            },
            ("1/2", "NotReady", "0"),
        ),
        (
            {"containers": [{"name": "c"}, {"name": "d"}]},
            {},
            {
                "phase": "Running",
                "containerStatuses": [
                    {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                    {"state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
                ],
            },
            ("0/2", "Error", "0"),
        ),
        (
            {"initContainers": [INIT]},
            {},
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "i", "state": {"running": {}}}],
            },
            ("0/1", "Init:0/1", "0"),
        ),
        (
            {"initContainers": [INIT]},
            {},
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    {
                        "name": "i",
                        "restartCount": 1,
                        "state": {"waiting": {"reason": "PodInitializing"}},
                    }
                ],
            },
            ("0/1", "Init:0/1", "1"),
        ),
        (
            {"initContainers": [INIT]},
            {},
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": "Slow"}}}],
            },
            ("0/1", "Init:Slow", "0"),
        ),
        (
            {"initContainers": [INIT]},
            {},
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 2}}}],
            },
            ("0/1", "Init:ExitCode:2", "0"),
        ),
        (
            {"initContainers": [SIDECAR, INIT]},
            {},
            {
                "phase": "Running",
                "initContainerStatuses": [
                    {
                        "name": "s",
                        "started": True,
                        "ready": True,
                        "restartCount": 1,
                        "state": {"running": {}},
                    },
                    {"name": "i", "restartCount": 5, "state": {"terminated": {"exitCode": 0}}},
                ],
                "containerStatuses": [RUNNING],
            },
            ("2/2", "Running", "1"),
        ),
    ],
)
def test_cells(
    spec: Object, metadata: Object, status: Object, expected: tuple[str, str, str]
) -> None:
    """Ready containers, what the pod is about, and how often containers were restarted."""
    cells = cells_of(PODS, pod_with(spec, metadata, status))
    assert (cells[1], cells[2], cells[3]) == expected
    assert cells[0] == "p"
    assert cells[4] == "3m"


def test_wide_cells() -> None:
    """Address, nodes and gates."""
    spec = {"nodeName": "n", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]}
    conditions = [{"type": "a", "status": "True"}]
    status = {"phase": "Running", "podIPs": [{"ip": "1.2.3.4"}], "conditions": conditions}
    pod = pod_with(spec, status={**status, "nominatedNodeName": "m"})
    assert cells_of(PODS, pod)[5:] == ["1.2.3.4", "n", "m", "1/2"]
    assert cells_of(PODS, pod_with({}, status={}))[5:] == ["<none>"] * 4


def test_rows_of_pods_that_have_ended() -> None:
    """Clients may leave them out."""
    (condition,) = row_conditions({"status": {"phase": "Succeeded"}})
    assert condition["message"] == "The pod has completed successfully."
    (condition,) = row_conditions({"status": {"phase": "Failed"}})
    assert (condition["type"], condition["reason"]) == ("Completed", "Failed")
    assert row_conditions({"status": {"phase": "Running"}}) == []


def test_hooks_leave_stored_objects_alone() -> None:
    """An update changes the new object only."""
    old = prepared_object(PODS, pod_with({"schedulingGates": [{"name": "g"}]}))
    before = deepcopy(old)
    changed(PODS, patched(old, {"spec": {"nodeSelector": {"a": "b"}}}), old)
    assert refused_change(patched(old, {"spec": {"nodeSelector": {"a": "b"}}}), old) == []
    assert old == before


def test_names_of_pods() -> None:
    """A name that no host can have is warned of; a pod with a hostname of its own is not."""
    assert refused({}, {"name": "a.b"}) == []
    (warning,) = warnings_of(PODS, pod_with({}, {"name": "a.b"}))
    assert warning == (
        "metadata.name: this is used in the Pod's hostname, which can result in surprising"
        " behavior; a DNS label is recommended: [must not contain dots]"
    )


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
def test_a_grpc_probe_without_a_service_asks_for_the_empty_one(probe: str) -> None:
    """As Go writes it: kubectl describe reads the member without a look at whether it is there."""
    pod = {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "containers": [
                {"name": "c", "image": "a:1", probe: {"grpc": {"port": 1}}},
                {"name": "d", "image": "a:1", probe: {"grpc": {"port": 1, "service": "s"}}},
            ]
        },
    }
    obj = normalize(pod, load().types["io.k8s.api.core.v1.Pod"])
    PODS.default(obj)
    services = [each[probe]["grpc"]["service"] for each in obj["spec"]["containers"]]
    assert services == ["", "s"]
