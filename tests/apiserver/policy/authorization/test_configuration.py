"""AuthorizationConfiguration: what is taken, and everything that is wrong with it."""

import pytest

from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.policy.authorization.configuration import (
    AuthorizerChoice,
    of_modes,
    read_authorizers,
)

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:"
INLINE = ("[]", "nonsense")
WEBHOOK = """
- type: Webhook
  name: outside
  webhook:
    timeout: 3s
    failurePolicy: Deny
    subjectAccessReviewVersion: v1
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/k}
"""


def read(
    text: str, needed: tuple[str, ...] = (), *, is_there: bool = True
) -> list[AuthorizerChoice]:
    return read_authorizers(
        (HEAD + (" " if text in INLINE else "\n") + text).encode(),
        lambda _path: "" if is_there else "it is gone",
        needed,
    )


def refusal(text: str, needed: tuple[str, ...] = (), *, is_there: bool = True) -> str:
    with pytest.raises(DocumentError) as caught:
        read(text, needed, is_there=is_there)
    return str(caught.value)


def test_what_is_said() -> None:
    node, webhook, rbac = read(f"- {{type: Node, name: node}}{WEBHOOK}- {{type: RBAC, name: rbac}}")
    assert node == AuthorizerChoice("Node", "node")
    assert rbac.type == "RBAC"
    chosen = webhook.webhook
    assert chosen is not None
    assert chosen.kubeconfig == "/etc/k"
    assert chosen.timeout_ns == 3_000_000_000
    assert chosen.settings.name == "outside"
    assert chosen.settings.denies_on_error
    assert (chosen.settings.allowed_ns, chosen.settings.other_ns) == (300 * 10**9, 30 * 10**9)


def test_answers_need_not_be_remembered() -> None:
    (made,) = read(f"{WEBHOOK}    cacheAuthorizedRequests: false\n    unauthorizedTTL: 5s")
    assert made.webhook is not None
    assert (made.webhook.settings.allowed_ns, made.webhook.settings.other_ns) == (0, 5 * 10**9)


def test_conditions() -> None:
    (made,) = read(
        f"{WEBHOOK}    matchConditionSubjectAccessReviewVersion: v1\n"
        "    matchConditions: [{expression: has(request.user)}, {expression: 'true'}]"
    )
    assert made.webhook is not None
    assert made.webhook.conditions == ("has(request.user)", "true")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "authorizers: Required value: at least one authorization mode must be defined"),
        ("- {name: x}", "authorizers[0].type: Required value"),
        ("- {type: Other, name: x}", 'authorizers[0].type: Unsupported value: "Other"'),
        ("- {type: RBAC}", "authorizers[0].name: Required value"),
        ("- {type: RBAC, name: x}", "expected name rbac for authorizer RBAC instead of x"),
        ("- {type: RBAC, name: Ä}", "authorizers[0].name: Invalid value"),
        (
            "- {type: RBAC, name: rbac}\n- {type: RBAC, name: rbac}",
            'authorizers[1].type: Duplicate value: "RBAC"',
        ),
        (f"{WEBHOOK}{WEBHOOK}", 'authorizers[1].name: Duplicate value: "outside"'),
        ("- {type: Webhook, name: x}", "authorizers[0].webhook: Required value: required when"),
        ("- {type: RBAC, name: rbac, webhook: {}}", "may only be specified when type=Webhook"),
        ("- {type: RBAC, name: rbac, other: x}", 'unknown field "authorizers[0].other"'),
        (f"{WEBHOOK}    other: x", 'unknown field "authorizers[0].webhook.other"'),
        (WEBHOOK.replace("3s", "31s"), 'timeout: Invalid value: "31s": must be > 0s and <= 30s'),
        (WEBHOOK.replace("    timeout: 3s\n", ""), "authorizers[0].timeout: Required value"),
        (WEBHOOK.replace("Deny", "Allow"), 'failurePolicy: Unsupported value: "Allow"'),
        (WEBHOOK.replace("v1\n", "v2\n"), 'subjectAccessReviewVersion: Unsupported value: "v2"'),
        (WEBHOOK.replace("/etc/k", "k"), "must be an absolute path"),
        (
            WEBHOOK.replace("KubeConfigFile,", "InClusterConfig,"),
            "an API server cannot be its own authorizer",
        ),
        (f"{WEBHOOK}    matchConditions: [{{expression: x}}]", "required if match conditions are"),
        (f"{WEBHOOK}    authorizedTTL: -1s", "authorizedTTL: Invalid value"),
        ("nonsense", "authorizers must be of type list"),
    ],
)
def test_what_is_wrong(text: str, message: str) -> None:
    assert message in refusal(text)


def test_files_have_to_be_there() -> None:
    assert 'Invalid value: "/etc/k": it is gone' in refusal(WEBHOOK, is_there=False)


def test_types_that_have_to_stay() -> None:
    assert refusal(WEBHOOK, ("RBAC", "Node")) == "missing required types: [Node RBAC]"
    read("- {type: RBAC, name: rbac}", ("RBAC",))


def test_modes_of_flags() -> None:
    assert of_modes(("Node", "RBAC"), None) == [
        AuthorizerChoice("Node", "node"),
        AuthorizerChoice("RBAC", "rbac"),
    ]
