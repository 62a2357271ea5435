"""Contents of YAML and JSON: what they lack is made, what cannot be is named with file and line."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kvstack.clusters.contents import Contents
from kvstack.clusters.sources.manifests import ManifestSource
from kvstack.clusters.sources.source import ReadOptions, Silent, SourceError
from tests.clusters.support.sources import definition, objects_of

SHOP = """\
# a chart's output
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}], selector: {app: web}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
---
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hunter2}
"""


def read(*paths: Path, **options: Any) -> Contents:
    return asyncio.run(ManifestSource(paths).read(ReadOptions(**options), Silent()))


def test_what_manifests_lack_is_made_the_same_each_time(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    contents = read(path)
    assert contents == read(path)
    found = objects_of(contents.rows)
    assert list(found) == [
        "/registry/deployments/shop/web",
        "/registry/namespaces/default",
        "/registry/namespaces/shop",
        "/registry/secrets/default/s",
        "/registry/services/specs/shop/web",
    ]
    deployment = found["/registry/deployments/shop/web"]
    assert deployment["spec"]["strategy"]["type"] == "RollingUpdate"  # defaults
    assert deployment["metadata"]["creationTimestamp"].startswith("20")
    assert len({each["metadata"]["uid"] for each in found.values()}) == 5
    service = found["/registry/services/specs/shop/web"]["spec"]
    assert service["clusterIP"] == "10.96.1.0"
    assert found["/registry/secrets/default/s"]["data"] == {"password": "aHVudGVyMg=="}
    assert found["/registry/namespaces/shop"]["status"] == {"phase": "Active"}
    revisions = [kv.mod_revision for kv in contents.rows]
    assert sorted(revisions) == [1, 2, 3, 4, 5]
    assert contents.revision == 5
    assert contents.history is None


def test_what_manifests_say_is_kept(tmp_path: Path) -> None:
    listing = {
        "kind": "ConfigMapList",
        "apiVersion": "v1",
        "items": [
            {
                "metadata": {
                    "name": "a",
                    "namespace": "x",
                    "uid": "u-1",
                    "resourceVersion": "71",
                    "creationTimestamp": "2026-01-02T03:04:05Z",
                }
            },
            {"metadata": {"name": "b", "namespace": "x"}},
        ],
    }
    (tmp_path / "dump.json").write_text(json.dumps(listing))
    contents = read(tmp_path / "dump.json")
    found = objects_of(contents.rows)
    a, b = (found[f"/registry/configmaps/x/{each}"]["metadata"] for each in "ab")
    assert (a["uid"], a["resourceVersion"]) == ("u-1", "71")
    assert int(b["resourceVersion"]) > 71
    assert b["creationTimestamp"] == "2026-01-02T03:04:05Z"  # the last that is known
    assert contents.revision == max(kv.mod_revision for kv in contents.rows)


def test_directories_and_their_definitions(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    (tmp_path / "a" / "widget.json").write_text(json.dumps(widget))
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    (tmp_path / "z.yml").write_text(json.dumps(crd | definition()))
    unknown = {"apiVersion": "other.io/v1", "kind": "Thing", "metadata": {"name": "t"}}
    (tmp_path / "unknown.yaml").write_text(json.dumps(unknown))
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    (tmp_path / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
    )
    (tmp_path / "notes.txt").write_text("not read")
    contents = read(tmp_path)
    assert "/registry/example.com/widgets/default/w" in objects_of(contents.rows)
    left = {Path(each.what).name: each.why for each in contents.left_out}
    assert left["values.yaml:1"] == "it has no apiVersion and kind"
    assert left["kustomization.yaml:1"] == "Kustomization has no metadata.name"
    assert "broken.yaml:1" in left
    assert "kept, but not served" in left["things.other.io"]
    crds = [kv for kv in contents.rows if b"customresourcedefinitions" in kv.key]
    status = objects_of(crds).popitem()[1]["status"]
    assert {each["type"] for each in status["conditions"]} == {"NamesAccepted", "Established"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n", r"m\.yaml:1: it has no apiVersion and kind"),
        ("- a\n", r"m\.yaml:1: expected an object"),
        ("# c\n---\na: [\n", r"m\.yaml:3: .*line 1"),
        ("kind: Pod\napiVersion: v1\nmetadata: {}\n", r"m\.yaml:1: Pod has no metadata.name"),
        (
            "kind: Pod\napiVersion: v1\nmetadata: {name: a/b}\n",
            r"m\.yaml:1: metadata.name 'a/b': may not contain '/'",
        ),
        (
            "kind: ../x\napiVersion: v1\nmetadata: {name: a}\n",
            r"m\.yaml:1: unknown kind v1 \.\./x",
        ),
        (
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: 3\n",
            r"m\.yaml:1: /registry/configmaps/default/a: ",
        ),
        (
            "kind: ConfigMap\napiVersion: v9\nmetadata: {name: a}\n",
            r'm\.yaml:1: .* no kind "ConfigMap" is registered for version "v9"',
        ),
        (
            "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a, resourceVersion: '"
            + "9" * 30
            + "'}\n",
            r"m\.yaml:1: resourceVersion 9+ is above",
        ),
        ("kind: List\napiVersion: v1\nitems: [1]\n", r"m\.yaml:1: item 0 is not an object"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    with pytest.raises(SourceError, match=message):
        read(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="none"):
        read(tmp_path / "none.yaml")
    with pytest.raises(SourceError, match=r"no file ends in \.yaml"):
        read(tmp_path)
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceError, match=r"b\.yaml"):
        read(tmp_path / "b.yaml")
    with pytest.raises(SourceError, match="files have no past"):
        read(tmp_path / "b.yaml", at="5")


def test_a_small_text_becomes_no_large_object(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(SourceError, match=r"bomb\.yaml:1"):
        read(path)


def test_the_later_of_two_counts(tmp_path: Path) -> None:
    for number in (1, 2):
        head = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n"
        text = f"{head}data: {{number: '{number}'}}\n"
        (tmp_path / f"{number}.yaml").write_text(text)
    found = objects_of(read(tmp_path).rows)
    assert found["/registry/configmaps/default/a"]["data"] == {"number": "2"}
