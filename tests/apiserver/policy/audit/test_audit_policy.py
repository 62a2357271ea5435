import pytest

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.policy.audit.policy import LEVELS, read_policy

ALICE = User("alice", groups=("devs", "system:authenticated"))
BOB = User("bob")
WHOLE = b"""
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: [bob], verbs: [watch]}
- {level: RequestResponse, resources: [{group: "", resources: [pods, "*/scale"]}], namespaces: [a]}
- {level: Request, resources: [{group: apps, resources: [deployments], resourceNames: [web]}]}
- {level: Metadata, resources: [{group: "*", resources: ["secrets/*"]}], omitStages: [Panic]}
- {level: Metadata, nonResourceURLs: ["/health*", /version]}
- {level: Metadata, userGroups: [devs], omitManagedFields: false}
"""


def of(
    verb: str, group: str, resource: str, ns: str = "a", name: str = "", user: User = BOB
) -> str:
    resource, _, below = resource.partition("/")
    asked = Attributes(user, verb, group, "v1", resource, below, ns, name)
    return LEVELS[read_policy(WHOLE).of(asked).level]


def test_the_first_rule_that_matches_counts() -> None:
    assert of("watch", "", "pods") == "None"
    assert of("get", "", "pods") == "RequestResponse"
    assert of("get", "", "pods", "b") == "None"
    assert of("get", "", "pods/log") == "None"
    assert of("update", "", "replicationcontrollers/scale") == "RequestResponse"
    assert of("get", "apps", "deployments", name="web") == "Request"
    assert of("get", "apps", "deployments", name="db") == "None"
    assert of("get", "", "secrets") == "Metadata"
    assert of("get", "", "secrets/x") == "Metadata"
    assert of("watch", "", "pods", "b", user=ALICE) == "Metadata"


def test_paths_have_rules_of_their_own() -> None:
    policy = read_policy(WHOLE)
    found = {
        path: LEVELS[policy.of(Attributes.of_path(BOB, "get", path)).level]
        for path in ("/healthz", "/health", "/version", "/version/x", "/metrics")
    }
    assert found == {
        "/healthz": "Metadata",
        "/health": "Metadata",
        "/version": "Metadata",
        "/version/x": "None",
        "/metrics": "None",
    }


def test_stages_and_fields_are_left_out() -> None:
    policy = read_policy(WHOLE)
    secrets = policy.of(Attributes(BOB, "get", "", "v1", "secrets"))
    assert secrets.omit_stages == {"RequestReceived", "Panic"}
    assert secrets.omit_managed_fields
    assert not policy.of(Attributes(ALICE, "get", "", "v1", "nodes")).omit_managed_fields


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"level: None", b"level: Some", "Unsupported value"),
        (b"level: None, ", b"", "rules[0].level: Required value"),
        (b"[Panic]", b"[Fear]", "allowed stages are RequestReceived,ResponseStarted"),
        (b"/version]", b"version]", "must begin with a '/' character"),
        (b"/health*", b"/h*z", "must be the final character"),
        (b"/version]", b"/version], namespaces: [a]", "cannot apply to both regular resources"),
        (b"resources: [deployments], ", b"", "using resourceNames requires at least one resource"),
        (b"userGroups", b"groups", 'unknown field "rules[5].groups"'),
        (b"audit.k8s.io/v1", b"audit.k8s.io/v1beta1", 'no kind "Policy" is registered'),
        (WHOLE.partition(b"rules:")[2], b" []", "loaded illegal policy with 0 rules"),
    ],
)
def test_what_is_wrong_is_reported(old: bytes, new: bytes, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_policy(WHOLE.replace(old, new))
    assert message in str(caught.value)
