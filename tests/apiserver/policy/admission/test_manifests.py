"""Webhooks and policies in files: what is read, what is refused, and what they are asked about."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.policy.admission.configuration import AdmissionSettings, read_configuration
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.manifests import ManifestFiles
from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import LineLogger
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.server.in_process import World, options, run
from tests.apiserver.support.hook_server import HookServer, reviewing

API = {"apiVersion": "admissionregistration.k8s.io/v1"}
POLICIES = "ValidatingAdmissionPolicy"
HOOKS = "ValidatingAdmissionWebhook"
PATHS = "/apis/admissionregistration.k8s.io/v1"


def rule(*resources: str, group: str = "") -> Object:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": list(resources),
    }


def policy(expression: str, *rules: Object, name: str = "p.static.k8s.io", **spec: Any) -> Object:
    found = {
        "matchConstraints": {"resourceRules": list(rules) or [rule("configmaps")]},
        "validations": [{"expression": expression}],
        **spec,
    }
    return {**API, "kind": POLICIES, "metadata": {"name": name}, "spec": found}


def binding(policy: str = "p.static.k8s.io", name: str = "b.static.k8s.io", **spec: Any) -> Object:
    found = {"policyName": policy, "validationActions": ["Deny"], **spec}
    return {**API, "kind": f"{POLICIES}Binding", "metadata": {"name": name}, "spec": found}


def webhook(url: str = "https://127.0.0.1:1/", ca: str = "", **client: Any) -> Object:
    hook = {
        "name": "w.example.com",
        "clientConfig": {**({"url": url} if url else {}), "caBundle": ca, **client},
        "rules": [rule("configmaps")],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    kind = "ValidatingWebhookConfiguration"
    return {**API, "kind": kind, "metadata": {"name": "w.static.k8s.io"}, "webhooks": [hook]}


def write(folder: Path, *objects: Object, name: str = "all.yaml") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(yaml.safe_dump_all(objects))


def files(plugin: str, folder: Path) -> ManifestFiles:
    settings = AdmissionSettings(manifest_folders={plugin: str(folder)})
    return ManifestFiles(settings, load(), FakeClock(), LineLogger([], "fatal"))


def names(found: ManifestFiles, resource: str) -> list[str]:
    from kvstack.apimachinery.objects.groups import GroupResource

    listed = found.manifests.list(GroupResource("admissionregistration.k8s.io", resource))
    return [each["metadata"]["name"] for each in listed]


def test_objects_of_all_files_in_order(tmp_path: Path) -> None:
    write(tmp_path, policy("true", name="z.static.k8s.io"), binding("z.static.k8s.io"))
    listed = {"apiVersion": "v1", "kind": "List", "items": [policy("true")]}
    write(tmp_path, listed, name="b.yml")
    write(tmp_path, {"kind": "Unread"}, name="notes.txt")
    (tmp_path / "empty.json").write_text("")
    found = files(POLICIES, tmp_path)
    assert names(found, "validatingadmissionpolicies") == ["p.static.k8s.io", "z.static.k8s.io"]
    assert names(found, "validatingadmissionpolicybindings") == ["b.static.k8s.io"]
    [first, _] = found.manifests._objects.values()
    assert first[0]["spec"]["failurePolicy"] == "Fail", "defaults are filled in"


@pytest.mark.parametrize(
    ("plugin", "objects", "text"),
    [
        (POLICIES, [policy("true", name="p")], 'must have a name ending with ".static.k8s.io"'),
        (POLICIES, [policy("true", name="")], "must have a name"),
        (POLICIES, [policy("true"), policy("true")], "duplicate name"),
        (POLICIES, [policy("1 +")], "compilation failed"),
        (
            POLICIES,
            [policy("true", paramKind={"apiVersion": "v1", "kind": "A"})],
            "paramKind is not",
        ),
        (POLICIES, [policy("true", wrong=1)], 'strict decoding error: unknown field "spec.wrong"'),
        (POLICIES, [binding()], "which does not exist in the manifest directory"),
        (POLICIES, [binding("p")], 'spec.policyName "p" must end with'),
        (POLICIES, [webhook()], 'unsupported resource type "ValidatingWebhookConfiguration"'),
        (POLICIES, [{"apiVersion": "v1", "kind": "ConfigMap"}], "apiVersion must be"),
        (HOOKS, [webhook("")], "clientConfig.url is required|exactly one of"),
        (HOOKS, [webhook("", service={"name": "a", "namespace": "b"})], "service is not supported"),
    ],
)
def test_what_cannot_stand_in_files(
    plugin: str, objects: list[Object], text: str, tmp_path: Path
) -> None:
    write(tmp_path, *objects)
    with pytest.raises(ConfigError, match=text) as caught:
        files(plugin, tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        files(POLICIES, tmp_path / "none")


def test_files_that_change_count_together_or_not_at_all(tmp_path: Path) -> None:
    write(tmp_path, policy("true"), binding())
    found = files(POLICIES, tmp_path)
    told: list[None] = []
    for resource in list(found.manifests._objects):
        found.manifests.subscribe(resource, lambda: told.append(None))
    asyncio.run(found.reload())
    assert not told, "nothing is new"
    write(tmp_path, policy("true", name="q.static.k8s.io"), binding("q.static.k8s.io"))
    asyncio.run(found.reload())
    assert names(found, "validatingadmissionpolicies") == ["q.static.k8s.io"]
    assert told
    write(tmp_path, binding("q.static.k8s.io"))
    asyncio.run(found.reload())
    assert names(found, "validatingadmissionpolicies") == ["q.static.k8s.io"], "what was good stays"


def read(plugin: str, **own: Any) -> AdmissionSettings:
    kinds = {"apiVersion": "apiserver.config.k8s.io/v1"}
    entry = {"name": plugin, "configuration": {**kinds, **own}}
    document = {**kinds, "kind": "AdmissionConfiguration", "plugins": [entry]}
    return read_configuration(json.dumps(document).encode(), lambda _: b"", AdmissionSettings())


def test_the_configuration() -> None:
    found = read(HOOKS, kind="WebhookAdmissionConfiguration", staticManifestsDir="/a")
    assert found.manifest_folders == {HOOKS: "/a"}
    assert read(HOOKS, kind="WebhookAdmissionConfiguration").manifest_folders == {}
    found = read(POLICIES, kind=f"{POLICIES}Configuration", staticManifestsDir="/b")
    assert found.manifest_folders == {POLICIES: "/b"}
    with pytest.raises(DocumentError, match="must be an absolute file path"):
        read(HOOKS, kind="WebhookAdmissionConfiguration", staticManifestsDir="a")
    with pytest.raises(DocumentError, match="kubeConfigFile"):
        read(HOOKS, kind="WebhookAdmissionConfiguration", kubeConfigFile="/k")


@pytest.mark.slow
def test_what_stands_in_files_cannot_be_taken_away(tmp_path: Path) -> None:
    """It looks at objects, and at policies too, which those of the API do not."""
    policies, hooks = tmp_path / "policies", tmp_path / "hooks"
    own = rule("validatingadmissionpolicies", group="admissionregistration.k8s.io")
    write(
        policies,
        policy("oldObject != null || object.metadata.name != 'bad'", rule("configmaps"), own),
        binding(),
    )

    async def main(world: World) -> None:
        given = {POLICIES: str(policies), HOOKS: str(hooks)}
        settings = AdmissionSettings(manifest_folders=given)
        server = await world.start(options(tmp_path, admission=settings))
        maps = "/api/v1/namespaces/default/configmaps"
        for path in (maps, f"{PATHS}/validatingadmissionpolicies"):
            code, refused = await ask(world, server, path, "bad")
            assert code == 422, refused
            assert "ValidatingAdmissionPolicy 'p.static.k8s.io' with binding" in refused["message"]
        assert (await ask(world, server, maps, "good"))[0] == 201
        assert (await ask(world, server, maps, "hooked"))[0] == 403
        listed = await world.object(server, f"{PATHS}/validatingadmissionpolicies")
        assert listed["items"] == []
        write(policies)
        await server.security.reload()
        assert (await ask(world, server, maps, "bad"))[0] == 201

    with HookServer() as server:
        server.answers["/"] = refuses_hooked
        write(hooks, webhook(f"{server.url}/", server.ca))
        run(tmp_path, main)


def refuses_hooked(review: Object) -> Object:
    is_allowed = review["request"]["name"] != "hooked"
    return reviewing(allowed=is_allowed, status={"code": 403, "message": "no"})


async def ask(world: World, server: ApiServer, path: str, name: str) -> Any:
    """Make an object by the API."""
    made: Object = {"metadata": {"name": name}}
    if "admission" in path:
        made["spec"] = policy("true")["spec"]
    code, answer = await world.ask(
        server, "POST", path, body=json.dumps(made).encode(), token="admin-token"
    )
    return code, json.loads(answer)
