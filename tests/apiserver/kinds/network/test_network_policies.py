"""NetworkPolicies by way of the API: every verb, and the ports that a rule may name."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.network.network_policies import NETWORK_POLICIES
from tests.apiserver.kinds.hooks import refusals
from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import run

GROUP = "/apis/networking.k8s.io/v1"
POLICIES = f"{GROUP}/namespaces/a/networkpolicies"
PATCH = "application/merge-patch+json"


def policy(name: str, port: dict[str, Any]) -> dict[str, Any]:
    labels = {"special": "yes"}
    rules = [{"ports": [port]}]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"podSelector": {}, "ingress": rules},
    }


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        ({"port": 80, "endPort": 80}, None),
        ({"port": 80, "endPort": 90}, None),
        ({"port": 80, "endPort": 79}, "79: must be greater than or equal to `port`"),
        ({"port": "web", "endPort": 80}, "80: may not be specified when `port` is non-numeric"),
        ({"endPort": 80}, "80: may not be specified when `port` is not specified"),
    ],
)
def test_ends_of_ranges(port: dict[str, Any], expected: str | None) -> None:
    path = "spec.ingress[0].ports[0].endPort: Invalid value: "
    assert refusals(NETWORK_POLICIES, policy("p", port)) == [f"{path}{expected}"] * bool(expected)


def test_what_is_done_to_policies() -> None:
    async def main() -> None:
        async with site() as api:
            await _story(api)

    run(main())


async def _story(api: Api) -> None:
    for name in "pqr":
        made = await api.ask("POST", POLICIES, policy(name, {"port": 80}))
        assert made.status == 201, made.body
        assert made.json["spec"]["ingress"] == [{"ports": [{"port": 80, "protocol": "TCP"}]}]
        assert made.json["spec"]["policyTypes"] == ["Ingress"]
    got = (await api.ask("GET", f"{POLICIES}/p")).json
    for path in (POLICIES, f"{GROUP}/networkpolicies"):
        listed = (await api.ask("GET", f"{path}?labelSelector=special%3Dyes")).json["items"]
        assert [each["metadata"]["name"] for each in listed] == ["p", "q", "r"]

    annotated = {"metadata": {"annotations": {"patched": "true"}}}
    patched = (await api.ask("PATCH", f"{POLICIES}/p", annotated, content_type=PATCH)).json
    assert patched["metadata"]["annotations"] == {"patched": "true"}
    stale = await api.ask("PUT", f"{POLICIES}/p", got)
    assert stale.status == 409
    changed = patched | {"spec": {"podSelector": {}, "policyTypes": ["Egress"]}}
    put = (await api.ask("PUT", f"{POLICIES}/p", changed)).json
    assert put["spec"] == {"podSelector": {}, "policyTypes": ["Egress"]}
    assert put["metadata"]["generation"] == 2

    assert (await api.ask("DELETE", f"{POLICIES}/p")).status == 200
    assert (await api.ask("GET", f"{POLICIES}/p")).status == 404
    await api.ask("DELETE", f"{POLICIES}?labelSelector=special%3Dyes")
    assert (await api.ask("GET", POLICIES)).json["items"] == []
