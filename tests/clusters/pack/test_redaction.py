"""What is secret is left out of packed files: the result is scanned."""

import asyncio
import base64
import json
import zipfile
from pathlib import Path
from typing import Any

import orjson
import pytest

from kvstack.clusters.contents import Contents, History, Origin
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.pack.masking import is_secret_name
from kvstack.clusters.pack.packed_file import write_pack
from kvstack.clusters.pack.redaction import Redaction
from kvstack.clusters.sources.source import ReadOptions, Silent
from kvstack.clusters.sources.state_files import StateFileSource
from kvstore.client.values import KeyValue
from tests.clusters.support.snapshots import real_snapshot
from tests.clusters.support.sources import objects_of

WORD = "hunter2-correct-horse"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.c2lnbmF0dXJl"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{WORD}\n-----END RSA PRIVATE KEY-----\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def container(**more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", **more}


def obj(kind: str, name: str = "x", api_version: str = "v1", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "n", **more.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


OBJECTS: dict[str, dict[str, Any]] = {
    "secrets/n/s": obj(
        "Secret",
        data={"password": encoded(WORD), "user": encoded(WORD)},
        metadata={
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": json.dumps(
                    {"data": {"password": encoded(WORD)}}
                )
            }
        },
    ),
    "configmaps/n/c": obj(
        "ConfigMap",
        data={
            "db-password": WORD,
            "url": f"postgres://user:{WORD}@db/x",
            "key.pem": PEM,
            "jwt": f"token is {JWT}",
            "mode": "production",
        },
    ),
    "configmaps/n/helm": obj(
        "ConfigMap", metadata={"labels": {"owner": "helm"}}, data={"release": WORD}
    ),
    "pods/n/p": obj(
        "Pod",
        metadata={
            "annotations": {
                "example.com/api-token": WORD,
                "kubectl.kubernetes.io/last-applied-configuration": json.dumps(
                    {"spec": {"containers": [{"env": [{"name": "API_KEY", "value": WORD}]}]}}
                ),
            }
        },
        spec={
            "containers": [
                container(
                    env=[
                        {"name": "DB_PASSWORD", "value": WORD},
                        {"name": "DATABASE_URL", "value": f"mysql://u:{WORD}@h/d"},
                        {"name": "MODE", "value": "production"},
                        {
                            "name": "TOKEN",
                            "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}},
                        },
                    ],
                    args=["serve", f"--password={WORD}", "--token", WORD, "--mode", "fast"],
                    command=["sh", "-c", f"export KEY={PEM}; run"],
                )
            ],
            "initContainers": [container(name="i", env=[{"name": "SECRET", "value": WORD}])],
            "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
        },
    ),
    "controllerrevisions/n/r": obj(
        "ControllerRevision",
        api_version="apps/v1",
        revision=1,
        data={
            "spec": {
                "template": {"spec": {"containers": [{"env": [{"name": "PASSWD", "value": WORD}]}]}}
            }
        },
    ),
    "example.com/things/n/t": obj(
        "Thing",
        api_version="example.com/v1",
        spec={"env": [{"name": "MY_SECRET", "value": WORD}], "ref": {"secretName": "s"}},
    ),
}


def contents() -> Contents:
    rows = [
        KeyValue(f"/registry/{path}".encode(), orjson.dumps(each) + b"\n", 5, 5, 1, 0)
        for path, each in sorted(OBJECTS.items())
    ]
    unreadable = KeyValue(b"/registry/zz.io/odd/n/o", b"k8s\0" + WORD.encode(), 5, 5, 1, 0)
    older = [kv._replace(mod_revision=4, create_revision=4) for kv in rows]
    return Contents([*rows, unreadable], 5, Origin("test", "x"), history=History(3, older))


def packed_text(path: Path) -> bytes:
    """Return everything in a file, unpacked, and what is in base64 in it."""
    with zipfile.ZipFile(path) as archive:
        data = b"".join(archive.read(name) for name in archive.namelist())
    found = [data]
    for word in data.replace(b'"', b" ").split():
        try:
            found.append(base64.b64decode(word, validate=True))
        except ValueError:
            continue
    return b"\n".join(found)


def test_a_packed_file_holds_no_secret(tmp_path: Path) -> None:
    before = contents()
    redaction = Redaction(Kinds.of(before.rows))
    after = redaction.contents(before)
    write_pack(tmp_path / "a.kvs", after, redaction.counts)
    text = packed_text(tmp_path / "a.kvs")
    for secret in (WORD, "hunter2", JWT.split(".")[1], encoded(WORD), "PRIVATE KEY-----\\n"):
        assert secret.encode() not in text, secret
    assert b"production" in text
    write_pack(tmp_path / "b.kvs", before, None)
    assert WORD.encode() in packed_text(tmp_path / "b.kvs")  # else nothing is proven
    assert {key: number for key, number in redaction.counts.items() if number} == {
        "secret values": 4,
        "environment variables": 10,
        "annotations": 4,
        "values of ConfigMaps": 4,
        "arguments": 4,
        "keys and tokens in texts": 10,
    }
    [left] = after.left_out
    assert (left.what, left.number) == ("zz.io", 1)
    assert len(after.rows) == len(before.rows) - 1


def test_what_is_no_secret_stays(tmp_path: Path) -> None:
    before = contents()
    found = objects_of(Redaction(Kinds.of(before.rows)).contents(before).rows)
    assert found["/registry/secrets/n/s"]["data"] == {"password": "", "user": ""}
    config = found["/registry/configmaps/n/c"]["data"]
    assert config["mode"] == "production"
    assert config["url"] == "postgres://user:(left out)@db/x"
    assert config["jwt"] == "token is (left out)"
    spec = found["/registry/pods/n/p"]["spec"]
    [first] = spec["containers"]
    env = {each["name"]: each for each in first["env"]}
    assert env["MODE"]["value"] == "production"
    assert env["TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "s", "key": "token"}
    assert first["args"] == [
        "serve",
        "--password=(left out)",
        "--token",
        "(left out)",
        "--mode",
        "fast",
    ]
    assert spec["volumes"][0]["secret"]["secretName"] == "s"
    thing = orjson.loads(
        next(
            kv.value
            for kv in Redaction(Kinds.of(before.rows)).contents(before).rows
            if b"things" in kv.key
        )
    )
    assert thing["spec"]["ref"] == {"secretName": "s"}


def test_objects_without_secrets_keep_their_bytes(tmp_path: Path) -> None:
    source = StateFileSource(real_snapshot(tmp_path))
    before = asyncio.run(source.read(ReadOptions(), Silent()))
    redaction = Redaction(Kinds.of(before.rows))
    after = redaction.contents(before)
    changed = {
        old.key.decode()
        for old, new in zip(before.rows, after.rows, strict=True)
        if old.value != new.value
    }
    kinds = {key.split("/")[2] for key in changed}
    assert kinds == {"deployments", "pods", "replicasets", "secrets"}
    assert [kv.key for kv in after.rows] == [kv.key for kv in before.rows]
    write_pack(tmp_path / "a.kvs", after, redaction.counts)
    assert b"hunter2" not in packed_text(tmp_path / "a.kvs")
    names = {each["metadata"]["name"] for each in objects_of(after.rows).values()}
    assert names == {each["metadata"]["name"] for each in objects_of(before.rows).values()}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("DB_PASSWORD", True),
        ("db-passwd", True),
        ("apiKey", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("GITHUB_TOKEN", True),
        ("client-key-data", True),
        ("authorization", True),
        ("secretName", False),
        ("PASSWORD_FILE", False),
        ("TOKEN_PATH", False),
        ("token-ttl", False),
        ("automountServiceAccountToken", False),
        ("MODE", False),
        ("image", False),
    ],
)
def test_names(name: str, *, is_one: bool) -> None:
    assert is_secret_name(name) is is_one
