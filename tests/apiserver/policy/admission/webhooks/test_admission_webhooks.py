"""Admission webhooks over HTTP: what recordings do not say, against a server in this process."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.settings.audit_options import AuditOptions, AuditSinkOptions
from tests.apiserver.server.in_process import World, options, run
from tests.apiserver.support.hook_server import HookServer, allowing, patching, reviewing
from tests.support.waiting import answered

pytestmark = pytest.mark.slow


CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
SCALERS = "namespaces/default/horizontalpodautoscalers"
WAIT_S = 60.0
STEP_S = 0.01


@pytest.fixture(scope="module")
def hooks() -> Iterator[HookServer]:
    with HookServer() as server:
        yield server


async def ask(world: World, server: ApiServer, method: str, path: str, obj: Any = None) -> Any:
    body = b"" if obj is None else json.dumps(obj).encode()
    status, answer = await world.ask(server, method, path, body=body, token="admin-token")
    return status, json.loads(answer) if answer.startswith(b"{") else answer


def webhook(hooks: HookServer, path: str, resources: list[str], **more: Any) -> Object:
    rule = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": resources,
    }
    return {
        "name": f"{path.strip('/')}.example.com",
        "clientConfig": {"url": hooks.url + path, "caBundle": hooks.ca},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


async def configure(world: World, server: ApiServer, kind: str, *webhooks: Object) -> str:
    """Add a configuration; return its path."""
    path = f"{CONFIGURATIONS}/{kind.lower()}webhookconfigurations"
    made = {"metadata": {"generateName": "x-"}, "webhooks": list(webhooks)}
    status, answer = await ask(world, server, "POST", path, made)
    assert status == 201, answer
    return f"{path}/{answer['metadata']['name']}"


def config_map(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "b"}}


def test_webhooks_see_the_version_of_their_rules(tmp_path: Path, hooks: HookServer) -> None:
    hooks.answers["/v1"] = patching(
        {"op": "add", "path": "/spec/targetCPUUtilizationPercentage", "value": 77}
    )
    hooks.answers["/exact"] = reviewing(allowed=False)

    async def main(world: World) -> None:
        server = await world.start()
        old = webhook(hooks, "/v1", ["horizontalpodautoscalers"])
        old["rules"][0]["apiVersions"] = ["v1"]
        exact = webhook(
            hooks, "/exact", ["horizontalpodautoscalers"], matchPolicy="Exact", failurePolicy="Fail"
        )
        exact["rules"][0]["apiVersions"] = ["v1"]
        await configure(world, server, "Mutating", old)
        await configure(world, server, "Validating", exact)
        hooks.calls.clear()
        target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
        scaler = {
            "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "scaleTargetRef": target},
        }
        status, made = await ask(world, server, "POST", f"/apis/autoscaling/v2/{SCALERS}", scaler)
        assert status == 201, made
        [metric] = made["spec"]["metrics"]
        assert metric["resource"]["target"]["averageUtilization"] == 77
        [call] = hooks.calls
        request = call["review"]["request"]
        assert request["kind"]["version"] == "v1"
        assert request["requestKind"]["version"] == "v2"
        assert request["object"]["apiVersion"] == "autoscaling/v1"

    run(tmp_path, main)


def test_failures_are_counted_and_ignored_where_they_may(tmp_path: Path, hooks: HookServer) -> None:
    hooks.answers["/fails"] = {"status": 500, "text": "boom"}
    hooks.answers["/denies"] = reviewing(
        allowed=False, status={"message": "no", "code": 409, "reason": "Conflict"}
    )

    async def main(world: World) -> None:
        server = await world.start()
        picks = {"matchLabels": {"pick": "me"}}
        ignored = webhook(hooks, "/fails", ["configmaps"], failurePolicy="Ignore")
        denies = webhook(hooks, "/denies", ["configmaps"], objectSelector=picks)
        path = await configure(world, server, "Validating", ignored, denies)
        assert (await ask(world, server, "POST", MAPS, config_map("a")))[0] == 201
        status, refused = await ask(world, server, "POST", MAPS, config_map("b", pick="me"))
        assert (status, refused["reason"], refused["message"]) == (
            409,
            "Conflict",
            'admission webhook "denies.example.com" denied the request: no',
        )
        assert (await ask(world, server, "DELETE", path))[0] == 200
        assert (await ask(world, server, "POST", MAPS, config_map("b", pick="me")))[0] == 201
        _, page = await world.get(server, "/metrics")
        for line in (
            'fail_open_count{name="fails.example.com",type="validating"} 2',
            'request_total{code="409",name="denies.example.com",operation="CREATE",'
            'rejected="true",type="validating"} 1',
            'rejection_count{error_type="no_error",name="denies.example.com",'
            'operation="CREATE",rejection_code="409",type="validating"} 1',
        ):
            assert f"apiserver_admission_webhook_{line}".encode() in page

    run(tmp_path, main)


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_a_bundle_that_cannot_be_read_is_subject_to_the_failure_policy(
    kind: str, tmp_path: Path, hooks: HookServer
) -> None:
    hooks.answers["/fine"] = allowing()

    async def main(world: World) -> None:
        server = await world.start()
        for number, bundle in enumerate((b"\xc3\xa9", b"0\x82\x01\x00", b64decode("aaaa"))):
            client = {"url": hooks.url + "/fine", "caBundle": b64encode(bundle).decode()}
            made = webhook(hooks, "/fine", ["configmaps"], clientConfig=client)
            ignored = {**made, "failurePolicy": "Ignore"}
            path = await configure(world, server, kind, ignored)
            status, answer = await ask(world, server, "POST", MAPS, config_map(f"a{number}"))
            assert status == 201, answer
            await ask(world, server, "DELETE", path)
            path = await configure(world, server, kind, made)
            status, answer = await ask(world, server, "POST", MAPS, config_map(f"b{number}"))
            assert (status, answer["message"]) == (
                500,
                'Internal error occurred: failed calling webhook "fine.example.com": could not get'
                " REST client: unable to load root certificates: unable to parse bytes as PEM"
                " block",
            )
            await ask(world, server, "DELETE", path)

    run(tmp_path, main)


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
@pytest.mark.parametrize(
    "position",
    [
        "kvstack.apiserver.policy.admission.webhooks.calls.read_verdict",
        "kvstack.apiserver.policy.admission.webhooks.plugins.request_of",
        "kvstack.apiserver.policy.admission.webhooks.selection.Selection.selects",
    ],
)
def test_an_error_of_this_server_is_subject_to_the_failure_policy(
    kind: str,
    position: str,
    tmp_path: Path,
    hooks: HookServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooks.answers["/fine"] = allowing()

    def fails(*_args: object, **_more: object) -> None:
        raise RuntimeError("out of order")

    async def main(world: World) -> None:
        server = await world.start()
        made = webhook(hooks, "/fine", ["configmaps"])
        ignored = {**made, "name": "ignored.example.com", "failurePolicy": "Ignore"}
        path = await configure(world, server, kind, ignored)
        monkeypatch.setattr(position, fails)
        status, answer = await ask(world, server, "POST", MAPS, config_map("a"))
        assert status == 201, answer
        _, page = await world.get(server, "/metrics")
        told = "admit" if kind == "Mutating" else "validating"
        counted = f'fail_open_count{{name="ignored.example.com",type="{told}"}} 1'
        assert f"apiserver_admission_webhook_{counted}".encode() in page
        await ask(world, server, "DELETE", path)
        await configure(world, server, kind, made)
        status, answer = await ask(world, server, "POST", MAPS, config_map("b"))
        assert (status, answer["message"]) == (
            500,
            'Internal error occurred: failed calling webhook "fine.example.com": RuntimeError: out'
            " of order",
        )

    run(tmp_path, main)


def test_the_chain_is_called_again_once(tmp_path: Path, hooks: HookServer) -> None:
    """A webhook after another changes the object: IfNeeded is asked again, Never is not."""
    hooks.answers["/first"] = allowing()
    hooks.answers["/never"] = allowing()
    hooks.answers["/changes"] = patching({"op": "add", "path": "/data/c", "value": "d"})

    async def main(world: World) -> None:
        server = await world.start()
        await configure(
            world,
            server,
            "Mutating",
            webhook(hooks, "/first", ["configmaps"], reinvocationPolicy="IfNeeded"),
            webhook(hooks, "/never", ["configmaps"]),
            webhook(hooks, "/changes", ["configmaps"]),
        )
        hooks.calls.clear()
        status, made = await ask(world, server, "POST", MAPS, config_map("a"))
        assert (status, made["data"]) == (201, {"a": "b", "c": "d"})
        assert [each["path"] for each in hooks.calls] == ["/first", "/never", "/changes", "/first"]
        assert hooks.calls[-1]["review"]["request"]["object"]["data"] == {"a": "b", "c": "d"}

    run(tmp_path, main)


AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  resources: [{resources: [secrets]}]
- level: Request
  resources: [{resources: [configmaps]}]
"""


def test_the_audit_has_patches_where_it_has_objects(tmp_path: Path, hooks: HookServer) -> None:
    """The patch of a webhook holds parts of the object: it is told from the level Request on."""
    hooks.answers["/told"] = patching(
        {"value": {"c": "<d>"}, "path": "/metadata/annotations", "op": "add"}
    )
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(AUDIT_POLICY)

    async def main(world: World) -> None:
        audit = AuditOptions(str(policy), AuditSinkOptions(str(log)))
        server = await world.start(options(tmp_path, audit=audit))
        picks = {"matchLabels": {"pick": "me"}}
        told = webhook(hooks, "/told", ["configmaps", "secrets"], objectSelector=picks)
        await configure(world, server, "Mutating", told)
        for kind in ("configmaps", "secrets"):
            path = f"/api/v1/namespaces/default/{kind}"
            made = {"metadata": {"name": "a", "labels": {"pick": "me"}}}
            assert (await ask(world, server, "POST", path, made))[0] == 201

    run(tmp_path, main)
    events = [json.loads(each) for each in log.read_text().splitlines()]
    told = {
        each["objectRef"]["resource"]: each["annotations"]
        for each in events
        if each["verb"] == "create" and each["objectRef"].get("name") == "a"
    }
    number = "round_0_index_0"
    patch = told["configmaps"][f"patch.webhook.admission.k8s.io/{number}"]
    assert '[{"op":"add","path":"/metadata/annotations","value":{"c":"\\u003cd\\u003e"}}]' in patch
    assert json.loads(patch)["patchType"] == "JSONPatch"
    assert f"mutation.webhook.admission.k8s.io/{number}" in told["secrets"]
    assert not any(name.startswith("patch.") for name in told["secrets"])


def test_no_webhook_stands_before_its_own_configuration(tmp_path: Path, hooks: HookServer) -> None:
    hooks.answers["/all"] = reviewing(allowed=False)

    async def main(world: World) -> None:
        server = await world.start()
        path = await configure(world, server, "Validating", webhook(hooks, "/all", ["*/*"]))
        assert (await ask(world, server, "POST", MAPS, config_map("a")))[0] == 400
        review = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
        url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert (await ask(world, server, "POST", url, review))[0] == 201
        assert (await ask(world, server, "DELETE", path))[0] == 200
        assert (await ask(world, server, "POST", MAPS, config_map("a")))[0] == 201

    run(tmp_path, main)


def test_a_service_that_comes_late_is_reached(tmp_path: Path, hooks: HookServer) -> None:
    async def main(world: World) -> None:
        server = await world.start()
        late = webhook(hooks, "/x", ["configmaps"], failurePolicy="Fail", timeoutSeconds=1)
        late["clientConfig"] = {"service": {"namespace": "default", "name": "hook", "path": "/x"}}
        await configure(world, server, "Validating", late)
        status, refused = await ask(world, server, "POST", MAPS, config_map("a"))
        assert status == 500
        assert refused["message"].endswith(
            'Post "https://hook.default.svc:443/x?timeout=1s": service "hook" not found'
        )
        service = {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}}
        await ask(world, server, "POST", "/api/v1/namespaces/default/services", service)
        told = await _refusal(world, server, 'service "hook" not found')
        assert told.endswith('no endpoints available for service "hook"')

    run(tmp_path, main)


async def _refusal(world: World, server: ApiServer, before: str) -> str:
    """Return the message of a refusal once it is another one."""

    async def message() -> str:
        _, refused = await ask(world, server, "POST", MAPS, config_map("a"))
        found = str(refused["message"])
        return "" if found.endswith(before) else found

    return await answered(message, within_s=WAIT_S)
