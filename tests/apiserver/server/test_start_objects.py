"""What a server makes by itself is what a kube-apiserver makes, to the last managed field."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvstack.apiserver.policy.authentication.front_proxy import FrontProxySettings
from kvstack.apiserver.server.settings.options import AuthenticationOptions
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.clock import SystemClock
from tests.apiserver.server.in_process import World, options, run

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "start-objects.jsonl.gz"
DIFFERS = frozenset(
    [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "time",
        "lastTransitionTime",
        "renewTime",
        "holderIdentity",
    ]
)
PROXY_LISTS = {
    "requestheader-username-headers": ("X-Remote-User",),
    "requestheader-uid-headers": ("X-Remote-Uid",),
    "requestheader-group-headers": ("X-Remote-Group",),
    "requestheader-extra-headers-prefix": ("X-Remote-Extra-",),
    "requestheader-allowed-names": ("front-proxy-client",),
}


def test_objects_made_at_start_are_upstreams(tmp_path: Path) -> None:
    lines = gzip.decompress(RECORDED.read_bytes()).splitlines()
    expected = {line["path"]: line["object"] for line in map(json.loads, lines)}
    found: dict[str, Any] = {}

    async def main(world: World) -> None:
        given = options(tmp_path)
        files = CertFiles(tmp_path)
        files.authority("proxies", "proxies", SystemClock().unix_s())
        authentication = given.authentication
        server = await world.start(
            options(
                tmp_path,
                authentication=AuthenticationOptions(
                    client_ca_file=authentication.client_ca_file,
                    token_file=authentication.token_file,
                    accounts=authentication.accounts,
                    proxy_ca_file=str(files.cert("proxies")),
                    proxies=FrontProxySettings(allowed_names=("front-proxy-client",)),
                    proxy_lists=PROXY_LISTS,
                ),
            )
        )
        for job in server.jobs:
            if not job.begins_later:
                await job.done.wait()
        for path in sorted({re.sub(r"/[^/]*/[^/]*$", "", each) for each in expected}):
            answer = await world.object(server, path)
            for each in answer["items"]:
                metadata = each["metadata"]
                name = f"{path}/{metadata.get('namespace', '')}/{metadata['name']}"
                found[_path(name)] = _plain(each, server.port)

    run(tmp_path, main)
    assert sorted(found) == sorted(expected)
    for path, wanted in expected.items():
        assert found[path] == wanted, path


def _path(path: str) -> str:
    return re.sub(r"/leases/kube-system/.*", "/leases/kube-system/<lease>", path)


def _plain(obj: dict[str, Any], port: int) -> dict[str, Any]:
    """Return an object without what differs from start to start."""
    found: dict[str, Any] = _without(obj)
    metadata, data = found["metadata"], found.get("data") or {}
    metadata["managedFields"].sort(key=lambda e: (e["manager"], e.get("subresource", "")))
    for name in ("client-ca-file", "requestheader-client-ca-file"):
        if name in data:
            assert data[name].startswith("-----BEGIN CERTIFICATE-----")
            data[name] = "<certificates>"
    if "since" in data:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", data["since"])
        data["since"] = "<day>"
    if "kubernetes.io/hostname" in (metadata.get("labels") or {}):
        metadata["labels"]["kubernetes.io/hostname"] = "<host>"
        metadata["name"] = "<lease>"
    text = json.dumps(found)
    for before, after in (
        (f'"targetPort": {port}', '"targetPort": "<port>"'),
        (f'"port": {port}', '"port": "<port>"'),
        (f":{port}", ":<port>"),
    ):
        text = text.replace(before, after)
    plain: dict[str, Any] = json.loads(text)
    return plain


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without(each) for name, each in value.items() if name not in DIFFERS}
    if isinstance(value, list):
        return [_without(each) for each in value]
    return value
