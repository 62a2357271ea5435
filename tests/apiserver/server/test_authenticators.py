"""Authenticators of a running server: an issuer of tokens over TLS, a webhook, changes."""

import asyncio
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from kvstack.apiserver.server.settings.authentication_options import (
    OidcOptions,
    TokenWebhookOptions,
)
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.errors import ConfigError
from tests.apiserver.policy.authentication.issuer import Issuer
from tests.apiserver.server.in_process import World, options, run
from tests.apiserver.support.web import Answer, Served, web

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ASKED = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
CONFIG = """
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s
    audiences: [kubernetes]
    certificateAuthority: %s
  claimMappings:
    username: {claim: sub, prefix: "%s"}
    groups: {claim: roles, prefix: ""}
%s
"""
ANONYMOUS = "anonymous: {enabled: true, conditions: [{path: /livez}]}"


def with_authentication(directory: Path, **changes: Any) -> Options:
    given = options(directory)
    authentication = dataclasses.replace(given.authentication, **changes)
    return dataclasses.replace(given, authentication=authentication)


async def who(world: World, server: Any, token: str) -> Any:
    code, body = await world.ask(server, "POST", WHO, body=ASKED, token=token)
    return json.loads(body)["status"]["userInfo"] if code == 201 else code


def configuration(served: Served, prefix: str, rest: str = ANONYMOUS) -> str:
    ca = json.dumps(Path(served.ca_file).read_text())
    return CONFIG % (served.url, ca, prefix, rest)


def test_an_issuer_and_its_configuration(tmp_path: Path) -> None:
    issuer = Issuer()

    def answer(path: str, _body: Any) -> Answer:
        return 200, issuer.documents()[path]

    async def main(world: World) -> None:
        async with web(tmp_path, answer) as served:
            issuer.url = served.url
            config = tmp_path / "authentication.yaml"
            config.write_text(configuration(served, "oidc:"))
            server = await world.start(with_authentication(tmp_path, config_file=str(config)))
            token = issuer.token(issuer.claims(exp=time.time() + 600, roles=["devs"]))  # noqa: TID251
            assert await who(world, server, token) == {
                "username": "oidc:bob",
                "groups": ["devs", "system:authenticated"],
            }
            assert await who(world, server, "admin-token")
            forged = Issuer(served.url).token(issuer.claims(exp=9**10, sub="x"))[:-3]
            assert await who(world, server, forged) == 401
            # Anonymous where the configuration says so.
            assert (await world.get(server, "/livez", ""))[0] == 200
            for path in ("/readyz", "/livez/ping", "/livez/", "/version"):
                assert (await world.get(server, path, ""))[0] == 401
            # Another configuration counts at once, also for tokens that were just used.
            config.write_text(configuration(served, "new:"))
            await server.security.reload()
            assert (await who(world, server, token))["username"] == "new:bob"
            for bad in ("nonsense", configuration(served, "x:", "anonymous: {enabled: true}")):
                config.write_text(bad)
                await server.security.reload()
                assert (await who(world, server, token))["username"] == "new:bob"
            config.write_text(configuration(served, "x:").replace(served.url, "https://other"))
            await server.security.reload()
            assert await who(world, server, token) == 401

    run(tmp_path, main)


def test_an_issuer_by_flags_and_a_webhook(tmp_path: Path) -> None:
    issuer = Issuer()

    def answer(path: str, body: Any) -> Answer:
        if path == "/hook":
            known = body["spec"]["token"] == "known"
            status = {"authenticated": known, "user": {"username": "al"}} if known else {}
            return 201, {**body, "status": status}
        return 200, issuer.documents()[path]

    async def main(world: World) -> None:
        async with web(tmp_path, answer) as served:
            issuer.url = served.url
            kubeconfig = served.kubeconfig(tmp_path / "hook.json")
            given = with_authentication(
                tmp_path,
                oidc=OidcOptions(served.url, "kubernetes", served.ca_file),
                webhook=TokenWebhookOptions(str(kubeconfig)),
                bootstrap_tokens=True,
            )
            server = await world.start(given)
            claims = issuer.claims(exp=time.time() + 600)  # noqa: TID251
            found = await asyncio.gather(
                *(who(world, server, issuer.token(claims)) for _ in range(5))
            )
            assert {each["username"] for each in found} == {"bob"}
            assert (await who(world, server, "known"))["username"] == "al"
            assert await who(world, server, "unknown") == 401
            assert await who(world, server, "abcdef.0123456789abcdef") == 401
            fetched = [path for path, _ in served.asked if path == "/keys"]
            assert len(fetched) == 1

    run(tmp_path, main)


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        ("nonsense", {}, "must be an object"),
        ("kind: Other", {}, "no kind"),
        (CONFIG % ("http://i", '""', "", ""), {}, "URL scheme must be https"),
        (
            CONFIG % ("https://kubernetes.default.svc.cluster.local", '""', "", ""),
            {},
            "must not overlap with disallowed issuers",
        ),
        (CONFIG % ("https://i", '""', "", ANONYMOUS), {"is_anonymous_given": True}, "Forbidden"),
    ],
)
def test_a_bad_configuration_ends_the_start(
    tmp_path: Path, content: str, more: dict[str, Any], message: str
) -> None:
    config = tmp_path / "c"
    config.write_text(content)

    async def main(world: World) -> None:
        with pytest.raises(ConfigError, match=message):
            await world.start(with_authentication(tmp_path, config_file=str(config), **more))

    run(tmp_path, main)
