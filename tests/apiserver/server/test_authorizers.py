"""Authorizers of a running server: webhooks over TLS, policies in files, changes while it runs."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kvstack.apiserver.server.authorizers import AuthorizerParts, Authorizers
from kvstack.apiserver.server.settings.authorization_options import AuthorizationOptions
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import LineLogger
from tests.apiserver.server.in_process import World, options, run
from tests.apiserver.support.web import Answer, web

CONFIG = """
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: outside
  webhook:
    timeout: 3s
    failurePolicy: %s
    subjectAccessReviewVersion: v1
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %s}
- {type: RBAC, name: rbac}
"""


def configured(directory: Path, **given: Any) -> Options:
    return options(directory, authorization=AuthorizationOptions(**given))


def test_a_webhook_decides_and_its_configuration_changes(tmp_path: Path) -> None:
    status: dict[str, Any] = {"allowed": True}

    def answer(_path: str, review: Any) -> Answer:
        return 200, {**review, "status": status}

    async def main(world: World) -> None:
        async with web(tmp_path, answer) as served:
            kubeconfig = served.kubeconfig(tmp_path / "hook.json", token="secret")
            config = tmp_path / "authorization.yaml"
            config.write_text(CONFIG % ("Deny", kubeconfig))
            server = await world.start(configured(tmp_path, config_file=str(config)))
            path = "/api/v1/namespaces/default/secrets"
            assert (await world.get(server, path, "bob-token"))[0] == 200
            asked = served.asked[-1][1]
            assert asked["spec"]["user"] == "bob"
            assert asked["spec"]["resourceAttributes"]["resource"] == "secrets"
            assert served.headers[-1]["Authorization"] == "Bearer secret"
            count = len(served.asked)
            assert (await world.get(server, path, "bob-token"))[0] == 200
            assert (await world.get(server, path))[0] == 200  # administrators ask nobody
            assert len(served.asked) == count
            status.update(allowed=False, denied=True, reason="not today")
            code, body = await world.get(server, "/api/v1/nodes", "bob-token")
            assert code == 403
            assert json.loads(body)["message"].endswith(": not today")
            metrics = (await world.get(server, "/metrics"))[1].decode()
            decided = "apiserver_authorization_decisions_total"
            denied = f'{decided}{{decision="denied",name="outside",type="Webhook"}} 1'
            assert denied in metrics.splitlines()
            assert 'authorization_attempts_total{result="denied"} 1' in metrics.splitlines()
            assert "serviceaccount_valid_tokens_total 0" in metrics.splitlines()
            # Conditions keep the webhook from being asked.
            conditions = (
                "    matchConditionSubjectAccessReviewVersion: v1\n"
                "    matchConditions: [{expression: \"request.user != 'bob'\"}]\n"
            )
            good = CONFIG % ("Deny", kubeconfig)
            config.write_text(good.replace("- {type: RBAC", f"{conditions}- {{type: RBAC"))
            await server.security.authorizers.reload()
            count = len(served.asked)
            assert (await world.get(server, "/api/v1/pods", "bob-token"))[0] == 403
            assert len(served.asked) == count
            config.write_text(good)
            await server.security.authorizers.reload()
            status.update(allowed=True, denied=False)
            assert (await world.get(server, path, "bob-token"))[0] == 200
            status.update(allowed=False, denied=True)
            # Nothing is changed by what cannot be used.
            config.write_text("nonsense")
            await server.security.authorizers.reload()
            assert (await world.get(server, path, "bob-token"))[0] == 200
            config.write_text((CONFIG % ("Deny", kubeconfig)).replace("outside", "other"))
            await server.security.authorizers.reload()
            assert (await world.get(server, path, "bob-token"))[0] == 403
            # RBAC has to stay, as the server began with it.
            config.write_text((CONFIG % ("NoOpinion", kubeconfig)).rpartition("- {")[0])
            await server.security.authorizers.reload()
            assert server.security.authorizers.rule_sources[-1] is server.security.authorizers.rbac

    run(tmp_path, main)


@pytest.mark.parametrize("policy", ["Deny", "NoOpinion"])
def test_a_webhook_that_is_gone(tmp_path: Path, policy: str) -> None:
    async def main(world: World) -> None:
        async with web(tmp_path, lambda _path, _body: (404, b"")) as served:
            kubeconfig = served.kubeconfig(tmp_path / "hook.json")
        config = tmp_path / "authorization.yaml"
        config.write_text(CONFIG % (policy, kubeconfig))
        server = await world.start(configured(tmp_path, config_file=str(config)))
        code, body = await world.get(server, "/api/v1/nodes", "bob-token")
        assert code == 500
        assert body.startswith(b'Internal Server Error: "/api/v1/nodes": Post "https://127.0.0.1:')
        # What another authorizer allows goes on, unless no answer denies.
        code, _ = await world.get(server, "/version", "bob-token")
        assert code == (500 if policy == "Deny" else 200)
        assert (await world.get(server, "/api/v1/nodes"))[0] == 200

    run(tmp_path, main)


def test_policies_in_a_file_and_a_webhook_by_flags(tmp_path: Path) -> None:
    policies = tmp_path / "policies.jsonl"
    policies.write_text('{"user":"bob","resource":"configmaps","readonly":true}\n')

    async def main(world: World) -> None:
        async with web(tmp_path, lambda _path, body: (200, {**body, "status": {}})) as served:
            kubeconfig = served.kubeconfig(tmp_path / "hook.json")
            given = configured(tmp_path, policy_file=str(policies), webhook_file=str(kubeconfig))
            given = dataclasses.replace(given, authorization_modes=("Webhook", "ABAC"))
            server = await world.start(given)
            maps = "/api/v1/namespaces/default/configmaps"
            assert (await world.get(server, maps, "bob-token"))[0] == 200
            assert served.asked[-1][1]["apiVersion"] == "authorization.k8s.io/v1beta1"
            code, body = await world.get(server, "/api/v1/nodes", "bob-token")
            assert code == 403
            assert json.loads(body)["message"].endswith(": abac: No policy matched.")

    run(tmp_path, main)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "must be an object"),
        (CONFIG % ("Deny", "/no/such/file"), "error loading file"),
        (CONFIG % ("Perhaps", "/dev/null"), "must be a regular file"),
    ],
)
def test_a_bad_configuration_ends_the_start(tmp_path: Path, content: str, message: str) -> None:
    config = tmp_path / "c"
    config.write_text(content)
    parts = AuthorizerParts(SystemClock(), lambda: 0.5, LineLogger([], "fatal"))
    with pytest.raises(ConfigError, match=message):
        Authorizers(Options(authorization=AuthorizationOptions(str(config))), parts)
