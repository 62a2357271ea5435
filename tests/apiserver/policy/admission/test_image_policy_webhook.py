"""ImagePolicyWebhook: what is asked, what is remembered, and what is decided without an answer."""

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apiserver.policy.admission.configuration import AdmissionSettings, read_configuration
from kvstack.apiserver.policy.admission.plugins.optional.image_policy_webhook import (
    ImagePolicySettings,
    ImagePolicyWebhook,
)
from kvstack.apiserver.policy.admission.request import AdmissionRequest
from kvstack.apiserver.policy.remote.connection import RemoteError
from tests.apiserver.policy.admission.requests import admission_request, pod
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.server.in_process import World, options, run
from tests.apiserver.support.hook_server import HookServer

EPHEMERAL = "ephemeralcontainers"
ALLOWED: Object = {"allowed": True}


class Answers:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self, *answers: Object | RemoteError) -> None:
        self.answers = list(answers)
        self.specs: list[Object] = []

    async def review(self, review: Object) -> Object:
        self.specs.append(review["spec"])
        found = self.answers.pop(0)
        if isinstance(found, RemoteError):
            raise found
        return found


def judged(plugin: ImagePolicyWebhook, request: AdmissionRequest) -> str:
    """Return what is refused; empty: nothing."""

    async def ask() -> None:
        found = plugin.validate(request)
        if inspect.isawaitable(found):
            await found

    try:
        asyncio.run(ask())
    except ApiError as error:
        return str(error).removeprefix('pods "p" is forbidden: ')
    return ""


def make_webhook(
    *answers: Object | RemoteError, clock: FakeClock | None = None, **settings: Any
) -> tuple[ImagePolicyWebhook, Answers]:
    reviewer = Answers(*answers)
    found = ImagePolicySettings("k", **settings)
    return ImagePolicyWebhook(reviewer, found, clock or FakeClock()), reviewer


def test_what_is_asked() -> None:
    plugin, reviewer = make_webhook(ALLOWED, ALLOWED)
    given = pod(initContainers=[{"name": "i", "image": "j"}])
    given["spec"]["ephemeralContainers"] = [{"name": "e", "image": "k"}]
    given["metadata"]["annotations"] = {"a.image-policy.k8s.io/b": "c", "other": "d"}
    assert not judged(plugin, admission_request(given))
    assert not judged(plugin, admission_request(given, given, subresource=EPHEMERAL))
    annotations = {"a.image-policy.k8s.io/b": "c"}
    assert reviewer.specs == [
        {
            "containers": [{"image": "i"}, {"image": "j"}],
            "annotations": annotations,
            "namespace": "a",
        },
        {"containers": [{"image": "k"}], "annotations": annotations, "namespace": "a"},
    ]
    assert not plugin.handles("UPDATE", admission_request(given).resource, "status")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (ALLOWED, ""),
        ({"reason": "no"}, "image policy webhook backend denied one or more images: no"),
        ({"allowed": "true"}, "one or more images rejected by webhook backend"),
    ],
)
def test_answers_are_heard_and_remembered(status: Object, text: str) -> None:
    told = {"auditAnnotations": {"why": "because"}}
    clock = FakeClock()
    plugin, reviewer = make_webhook({**status, **told}, ALLOWED, clock=clock)
    for _ in range(2):
        request = admission_request(pod())
        assert judged(plugin, request) == text
        assert request.annotations == {"imagepolicywebhook.image-policy.k8s.io/why": "because"}
    assert len(reviewer.specs) == 1
    clock.seconds += 301 if status is ALLOWED else 31
    assert not judged(plugin, admission_request(pod()))
    assert len(reviewer.specs) == 2


def test_without_an_answer_the_configuration_decides() -> None:
    plugin, _ = make_webhook(RemoteError("gone"))
    assert judged(plugin, admission_request(pod())) == "gone"
    plugin, _ = make_webhook(RemoteError("gone"), ALLOWED, allows_by_default=True)
    request = admission_request(pod())
    assert not judged(plugin, request)
    assert request.annotations == {"imagepolicywebhook.image-policy.k8s.io/failed-open": "true"}
    annotations = request.new["metadata"]["annotations"]
    assert annotations == {"alpha.image-policy.k8s.io/failed-open": "true"}
    assert not judged(plugin, admission_request(pod())), "what nobody answered is not remembered"


def configuration(**image_policy: Any) -> bytes:
    entry = {"name": "ImagePolicyWebhook", "configuration": {"imagePolicy": image_policy}}
    kinds = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    return json.dumps({**kinds, "plugins": [entry]}).encode()


def read(**image_policy: Any) -> ImagePolicySettings | None:
    data = configuration(**image_policy)
    return read_configuration(data, lambda _: b"", AdmissionSettings()).image_policy


def test_the_configuration() -> None:
    assert read(kubeConfigFile="k") == ImagePolicySettings("k")
    assert read(
        kubeConfigFile="k", allowTTL=-1, denyTTL=60, retryBackoff=250, defaultAllow=True
    ) == ImagePolicySettings("k", 0, 60 * 10**9, 0.25, allows_by_default=True)
    for given, text in (
        ({}, "imagePolicy.kubeConfigFile: Required value"),
        ({"kubeConfigFile": "k", "allowTTL": 1801}, "allowTTL: Invalid value: 1801"),
        ({"kubeConfigFile": "k", "denyTTL": -2}, "denyTTL: Invalid value: -2"),
        ({"kubeConfigFile": "k", "retryBackoff": 300_001}, "retryBackoff: Invalid value: 300001"),
    ):
        with pytest.raises(DocumentError, match=text):
            read(**given)


def no_bad_images(review: Object) -> Object:
    images = [each["image"] for each in review["spec"]["containers"]]
    status = {"allowed": "bad" not in images, "reason": "a bad image"}
    return {"status": 200, "json": {**review, "status": status}}


@pytest.mark.slow
def test_pods_and_their_ephemeral_containers(tmp_path: Path) -> None:
    """CVE-2023-2727: containers that come later are looked at, too."""
    with HookServer() as hooks:
        hooks.answers["/images"] = no_bad_images
        cluster = {"server": f"{hooks.url}/images", "certificate-authority-data": hooks.ca}
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "current-context": "c",
        }
        path = tmp_path / "images.yaml"
        path.write_text(yaml.safe_dump(kubeconfig))
        settings = AdmissionSettings(image_policy=ImagePolicySettings(str(path)))

        async def main(world: World) -> None:
            given = options(
                tmp_path,
                enabled_plugins=("ImagePolicyWebhook",),
                disabled_plugins=("ServiceAccount",),
                admission=settings,
            )
            server = await world.start(given)

            async def ask(method: str, path: str, obj: Object) -> tuple[int, Object]:
                where = f"/api/v1/namespaces/default/pods{path}"
                body = json.dumps(obj).encode()
                code, answer = await world.ask(
                    server, method, where, body=body, token="admin-token"
                )
                return code, json.loads(answer)

            good = {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }
            bad = {
                "metadata": {"name": "q"},
                "spec": {"containers": [{"name": "c", "image": "bad"}]},
            }
            code, refused = await ask("POST", "", bad)
            assert (code, refused["message"]) == (
                403,
                'pods "q" is forbidden: image policy webhook backend denied one or more images: a'
                " bad image",
            )
            code, created = await ask("POST", "", good)
            assert code == 201, created
            created["spec"]["ephemeralContainers"] = [{"name": "e", "image": "bad"}]
            code, refused = await ask("PUT", f"/p/{EPHEMERAL}", created)
            assert code == 403, refused

        run(tmp_path, main)
