"""Audit, encryption at rest, fairness and plugins of admission in a whole server."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvstack.apiserver.policy.admission.configuration import AdmissionSettings
from kvstack.apiserver.registry.encryption.kms import HEALTHY_S
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.settings.audit_options import AuditOptions, AuditSinkOptions
from kvstack.apiserver.server.settings.options import EncryptionOptions
from kvstack.component.errors import ConfigError
from tests.apiserver.registry.encryption.plugin import Plugin, listening
from tests.apiserver.server.in_process import World, options, run

SECRETS = "/api/v1/namespaces/default/secrets"
SECRET = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, resources: [{group: "", resources: [secrets]}], users: [admin]}
"""


def encryption(*providers: str) -> str:
    lines = "".join(f"  - {each}\n" for each in providers)
    return (
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
        f"resources:\n- resources: [secrets]\n  providers:\n{lines}"
    )


def aes(name: str) -> str:
    return f"aescbc: {{keys: [{{name: {name}, secret: {SECRET}}}]}}"


async def send(
    world: World, server: ApiServer, method: str, path: str, obj: dict[str, Any]
) -> tuple[int, bytes]:
    """Send an object as the administrator."""
    body = json.dumps(obj).encode()
    return await world.ask(server, method, path, body=body, token="admin-token")


async def stored(server: ApiServer, name: str) -> bytes:
    found = await server.registry.store.get(f"/registry/secrets/default/{name}".encode())
    assert found.kv is not None
    return found.kv.value


async def later(server: ApiServer, seconds: float) -> None:
    """Look after encryption as the job does when so much time has gone by."""
    kept = server.encryption
    assert kept is not None
    kept._checked_ns -= int(seconds * 1e9)
    await kept.keep(server.registry)


def test_secrets_are_encrypted_and_recorded(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        config, policy, log = (tmp_path / each for each in ("enc.yaml", "policy.yaml", "audit.log"))
        socket, plugin = tmp_path / "kms.sock", Plugin()
        config.write_text(encryption(aes("first"), "identity: {}"))
        policy.write_text(POLICY)
        given = options(
            tmp_path,
            encryption=EncryptionOptions(str(config), reloads=True),
            audit=AuditOptions(str(policy), AuditSinkOptions(str(log))),
        )
        async with listening(plugin, socket):
            server = await world.start(given)
            await server.ready()
            body: dict[str, Any] = {"metadata": {"name": "s"}, "data": {"a": "c2VjcmV0"}}
            code, made = await send(world, server, "POST", SECRETS, body)
            assert code == 201, made
            assert (await stored(server, "s")).startswith(b"k8s:enc:aescbc:v1:first:")
            # Nothing changes but the rules; a plain update then writes the secret anew.
            kms = f'kms: {{apiVersion: v2, name: vault, endpoint: "unix://{socket}"}}'
            config.write_text(encryption(kms, aes("first"), "identity: {}"))
            await later(server, 1)
            await send(world, server, "PUT", f"{SECRETS}/s", body)
            assert (await stored(server, "s")).startswith(b"k8s:enc:aescbc:v1:first:")
            await later(server, HEALTHY_S)
            code, same = await send(world, server, "PUT", f"{SECRETS}/s", body)
            assert code == 200, same
            assert (await stored(server, "s")).startswith(b"k8s:enc:kms:v2:vault:")
            assert (await world.get(server, "/readyz/kms-providers"))[0] == 200
            plugin.healthz = "ill"
            await later(server, HEALTHY_S)
            assert (await world.get(server, "/readyz/kms-providers"))[0] == 500
            config.write_text("nonsense")
            await later(server, HEALTHY_S)
            page = (await world.get(server, "/metrics"))[1].decode()
            assert (
                'apiserver_encryption_config_controller_automatic_reloads_total{status="failure"} 1'
                in page
            )
            assert 'transformation_type="to_storage"' in page
            await server.stop()
        events = [json.loads(line) for line in log.read_text().splitlines()]
        assert [each["verb"] for each in events] == ["create", "update", "update"]
        assert all("requestObject" not in each for each in events)
        assert "c2VjcmV0" not in log.read_text()
        assert os.stat(log).st_mode & 0o777 == 0o600

    run(tmp_path, main)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encryption": EncryptionOptions("/nowhere")}, "/nowhere cannot be read"),
        ({"audit": AuditOptions("/nowhere")}, "/nowhere cannot be read"),
    ],
)
def test_files_that_cannot_be_read_end_the_start(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    async def main(world: World) -> None:
        with pytest.raises(ConfigError, match=message):
            await world.start(options(tmp_path, **changes))

    run(tmp_path, main)


def test_a_namespace_is_made_and_owners_are_found(tmp_path: Path) -> None:
    """Plugins that need more than the view: the server's own writes, and the table of kinds."""

    async def main(world: World) -> None:
        plugins = ("NamespaceAutoProvision", "OwnerReferencesPermissionEnforcement")
        given = options(tmp_path, enabled_plugins=plugins, admission=AdmissionSettings())
        server = await world.start(given)
        await server.ready()
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
        metadata = {"name": "c", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
        path = "/api/v1/namespaces/fresh/configmaps"
        code, made = await send(world, server, "POST", path, {"metadata": metadata})
        assert code == 201, made
        namespace = await world.object(server, "/api/v1/namespaces/fresh")
        assert namespace["status"]["phase"] == "Active"
        assert namespace["spec"]["finalizers"] == ["kubernetes"]

    run(tmp_path, main)


def test_without_fairness_the_two_limits_hold(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        given = options(tmp_path)
        server = await world.start(replace(given, serving=replace(given.serving, is_fair=False)))
        assert server.flow_control is None
        await asyncio.sleep(0)
        assert "apiserver_flowcontrol" not in (await world.get(server, "/metrics"))[1].decode()

    run(tmp_path, main)
