"""The modules that touch no page: texts, amounts, differences, addresses, the terminal."""

import base64
import random
from typing import Any

import orjson
import pytest

from kvstack.apimachinery.objects.core.pod_resources import pod_requests
from kvstack.apimachinery.objects.text import yaml_text
from tests.agents.dashboard.javascript import call, needs_node

pytestmark = needs_node

OVERRIDE = "\u202e"
TEXTS = [
    "", "a", "1", "1e3", "0x1", "010", "true", "null", "~", "yes", "No", "-", "- a", "a: b", "a:",
    ":a", "a:b", "#a", "a #b", "a#b", " a", "a ", "a\n", "a\nb", "a\nb\n", "\na", "a\n\n",
    "a\n b\n", "a \nb", "\t", "a\tb", "a\n\tb", "{a}", "[a]", "*a", "&a", "!a", "|", ">", "%a",
    "@a", "`a`", '"a"', "'a'", "a'b", 'a"b', "\\", "é", "日本", "😀", "\x00", "\x1b[31m", "\x7f",
    "\x85", "\u2028", "\ufeff",
    OVERRIDE + "gnp.exe", "2026-01-01", "2026-01-01T00:00:00Z", "12:30:00", ".5", "+1", "=", "<<",
    "host:latest", "registry.example:5000/a/b:v1.2", "a" * 5000, "<script>alert(1)</script>",
    "a: b\nc: d\n",
]  # fmt: skip


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return rng.choice(TEXTS)
    if kind == 1:
        return rng.randrange(-(2**40), 2**40)
    if kind == 2:
        return rng.choice([True, False, None])
    if kind == 3:
        return rng.choice([0, 0.5, 1e-7, 1.25e21, -3.75])
    if kind == 4:
        return "".join(
            rng.choice(" ab:#-\n\t'\"{}[],&*!|>%@`\\é\u202e\x07") for _ in range(rng.randrange(12))
        )
    if kind == 5:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(TEXTS): random_value(rng, depth + 1) for _ in range(rng.randrange(4))}


def test_yaml_is_read_back_as_what_was_written() -> None:
    rng = random.Random(7)
    objects = [{"kind": "A", "metadata": {"name": "a"}, "v": text} for text in TEXTS]
    objects += [{"kind": "A", "metadata": {}, "v": random_value(rng)} for _ in range(400)]
    for obj, text in zip(
        objects, call("text/yaml.js", "yamlText", [[each] for each in objects]), strict=True
    ):
        read = orjson.loads(orjson.dumps(yaml_text.parse(text.encode()).value))
        assert read == orjson.loads(orjson.dumps(obj)), text
        for character in text:  # what is edited has nothing that cannot be seen
            assert character.isprintable() or character in "\n\t", repr(text)


def test_lines_have_the_managers_of_their_fields() -> None:
    fields = {"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}}
    items: dict[str, Any] = {
        "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}}}}
    }
    obj = {
        "kind": "A",
        "metadata": {
            "name": "n",
            "labels": {"x": "1", "y": "2"},
            "managedFields": [
                {"manager": "m", "fieldsV1": fields},
                {"manager": "k", "subresource": "status", "fieldsV1": items},
                {"manager": "bad", "fieldsV1": {"f:spec": {"f:containers": {"k:{": {}}}}},
            ],
        },
        "data": {"a": "1", "b": "2"},
        "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]},
    }
    (lines,) = call("text/yaml.js", "yamlLines", [[obj]])
    owned = [(each["text"].strip(), each["managers"]) for each in lines if each["managers"]]
    assert owned == [('a: "1"', ["m"]), ('x: "1"', ["m"]), ("- image: i", ["k/status"])]
    assert not any("managedFields" in each["text"] for each in lines)


def test_secrets_are_hidden_wherever_their_values_stand() -> None:
    value = base64.b64encode(b"secret").decode()
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"data":{{"k":"{value}"}}}}'}
    secret = {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {"annotations": {"a": "b", **applied}},
        "data": {"k": value},
    }
    other = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}, "data": {"k": value}}
    hidden, same = call("text/yaml.js", "withoutSecrets", [[secret], [other]])
    assert value not in str(hidden)
    assert hidden["metadata"]["annotations"]["a"] == "b"
    assert hidden["data"] == {"k": "hidden"}
    assert same == other


def test_fields_are_sorted_as_kubectl_sorts_them() -> None:
    obj = {
        "kind": "A",
        "metadata": {"b": {"z": 1, "10": 2, "9": 3, "B": 4}, "a": []},
        "apiVersion": "v1",
    }
    (text,) = call("text/yaml.js", "yamlText", [[obj]])
    assert [line.split(":")[0].strip() for line in text.splitlines()] == [
        "apiVersion", "kind", "metadata", "a", "b", '"10"', '"9"', "B", "z",
    ]  # fmt: skip


def test_names_of_files_are_harmless() -> None:
    cases = [
        ("pod-default-web.yaml", "pod-default-web.yaml"),
        ("clusterrole-system:node.yaml", "clusterrole-system_node.yaml"),
        ("../../.bashrc.yaml", "_._.._.bashrc.yaml"),
        (f"a\u202e\n\0/\\{OVERRIDE}b.log", "a______b.log"),
        (f"{'x' * 300}.yaml", f"{'x' * 200}.yaml"),
    ]
    found = call("parts/files.js", "fileName", [[name] for name, _ in cases])
    assert found == [safe for _, safe in cases]


def test_a_line_of_a_log_cannot_move_the_cursor_or_turn_the_line() -> None:
    cases = [
        ("a\x1b[31mb\x1b[0m", "ab"),
        ("\x1b]0;title\x07a", "a"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP+q544e\x1b\\a", "a"),
        ("\x1b(0a\x1bc", "a"),
        ("a\rb", "a⟨U+000D⟩b"),
        ("a\r", "a"),
        ("a\x08\x08b", "a⟨U+0008⟩⟨U+0008⟩b"),
        (f"a{OVERRIDE}b", "a⟨U+202E⟩b"),
        ("a\u2066b\u200bc", "a⟨U+2066⟩b⟨U+200B⟩c"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("a\tb", "a\tb"),
        ("\x1b", "⟨U+001B⟩"),
    ]
    found = call("text/plain.js", "plain", [[text] for text, _ in cases])
    assert found == [shown for _, shown in cases]


def random_spec(rng: random.Random) -> dict[str, Any]:
    def amounts() -> dict[str, str]:
        return {
            name: rng.choice(["100m", "1", "0.5", "2k", "64Mi", "1Gi", "1e3", "128974848", "1500u"])
            for name in rng.sample(
                ["cpu", "memory", "example.com/a", "hugepages-2Mi"], rng.randrange(3)
            )
        }

    def container(name: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": name, "resources": {"requests": amounts()}}
        if rng.random() < 0.4:
            found["restartPolicy"] = "Always"
        return found

    spec: dict[str, Any] = {
        "containers": [container(f"c{number}") for number in range(rng.randrange(1, 4))],
        "initContainers": [container(f"i{number}") for number in range(rng.randrange(4))],
    }
    if rng.random() < 0.3:
        spec["overhead"] = amounts()
    if rng.random() < 0.3:
        spec["resources"] = {"requests": amounts()}
    return spec


def test_what_pods_request_is_what_the_scheduler_counts() -> None:
    rng = random.Random(11)
    specs = [random_spec(rng) for _ in range(300)]
    for spec, found in zip(
        specs, call("text/amounts.js", "podRequests", [[each] for each in specs]), strict=True
    ):
        wanted = {name: amount.as_float() for name, amount in pod_requests(spec).items()}
        assert found.keys() == wanted.keys(), spec
        for name, value in wanted.items():
            assert found[name] == pytest.approx(value), (name, spec)


def test_bad_amounts_are_nothing() -> None:
    texts: list[Any] = ["", None, "x", "1x", "Infinity", "--1", "1.2.3", {}]
    assert call("text/amounts.js", "amount", [[each] for each in texts]) == [0] * len(texts)


def test_differences_lead_from_one_text_to_the_other() -> None:
    rng = random.Random(3)
    texts = ["\n".join(rng.choice("abcd") for _ in range(rng.randrange(12))) for _ in range(120)]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    pairs.append(("a\n" * 3000, "b\n" * 3000))  # too many to compare one by one
    for (before, after), lines in zip(
        pairs, call("text/difference.js", "difference", pairs), strict=True
    ):
        assert "\n".join(each["text"] for each in lines if each["sign"] != "+") == before
        assert "\n".join(each["text"] for each in lines if each["sign"] != "-") == after
    (small,) = call("text/difference.js", "difference", [["a\nb\nc\nd", "a\nx\nc\nd"]])
    assert [each["sign"] for each in small] == [" ", "-", "+", " ", " "]


def test_addresses_are_read_as_they_are_written() -> None:
    pods, time = {"group": "", "version": "v1", "resource": "pods"}, "2026-01-02T15:04:05Z"
    routes: list[dict[str, str]] = [
        {"view": ""},
        {"view": "nodes"},
        {"view": "kind", "group": "apps", "version": "v1", "resource": "deployments"},
        {"view": "kind", **pods, "namespace": "a", "moment": "17"},
        {"view": "object", **pods, "of": "n", "name": "a/b %", "tab": "yaml", "moment": time},
        {"view": "object", **pods, "resource": "nodes", "of": "", "name": "n"},
    ]
    hashes = call("shell/routes.js", "write", [[each] for each in routes])
    for route, found in zip(
        routes, call("shell/routes.js", "parse", [[each] for each in hashes]), strict=True
    ):
        assert {name: value for name, value in found.items() if value} == {
            name: value for name, value in route.items() if value
        }
    for bad in ("#/%", "#/object", "#/at", "#/in/x", "#/__proto__/x", "#view", "#/" + "a/" * 1000):
        (found,) = call("shell/routes.js", "parse", [[bad]])
        assert isinstance(found["view"], str)


def test_where_a_document_goes_is_read_from_it() -> None:
    cases = [
        ("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  namespace: n\n", ("v1", "Pod", "n")),
        (
            "kind: 'Pod'\napiVersion: \"apps/v1\" # c\nmetadata: {name: a, namespace: n}\n",
            ("apps/v1", "Pod", "n"),
        ),
        (
            "metadata:\n   labels:\n     namespace: o\n   namespace: n\nkind: A\napiVersion: b/v1",
            ("b/v1", "A", "n"),
        ),
        ("metadata:\n  labels:\n    namespace: other\nkind: A\napiVersion: v1", ("v1", "A", None)),
        ('{"apiVersion":"v1","kind":"A","metadata":{"namespace":"n"}}', ("v1", "A", "n")),
        (
            "spec:\n  kind: Other\nkind: A\napiVersion: v1\ndata:\n  namespace: x\n",
            ("v1", "A", None),
        ),
    ]
    results = call("screens/create.js", "about", [[text] for text, _ in cases])
    for (text, wanted), found in zip(cases, results, strict=True):
        got = found.get("apiVersion"), found.get("kind"), found.get("namespace")
        assert got == wanted, text


def test_documents_are_split_at_their_marks() -> None:
    text = "# only a comment\n---\na: 1\n--- # more\nb: '---'\n---\n\n---\nc: 2\n"
    (found,) = call("screens/create.js", "split", [[text]])
    assert [each.strip() for each in found] == ["a: 1", "b: '---'", "c: 2"]


def test_going_back_keeps_what_is_the_deployments_own() -> None:
    kind = {"group": "apps", "resource": "deployments"}
    own = {"deployment.kubernetes.io/revision": "3", "own": "x"}
    now = {"metadata": {"resourceVersion": "9", "generation": 4, "annotations": own}}
    to = {
        "template": {"spec": {}},
        "annotations": {"deployment.kubernetes.io/revision": "1", "then": "y"},
    }
    ((patch, media_type),) = call("screens/revisions.js", "patchTo", [[kind, now, to]])
    assert media_type == "application/json-patch+json"
    assert patch == [
        # Not the resourceVersion: a status that the controller writes meanwhile is no obstacle.
        {"op": "test", "path": "/metadata/generation", "value": 4},
        {"op": "test", "path": "/metadata/annotations", "value": own},
        {"op": "replace", "path": "/spec/template", "value": {"spec": {}}},
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {"deployment.kubernetes.io/revision": "3", "then": "y"},
        },
    ]
    ((data, media_type),) = call(
        "screens/revisions.js",
        "patchTo",
        [[{"group": "apps", "resource": "daemonsets"}, now, {"data": {"spec": 1}}]],
    )
    assert (data, media_type) == ({"spec": 1}, "application/strategic-merge-patch+json")


def test_a_drain_leaves_what_must_stay() -> None:
    def pod(
        owner: str = "", *, volumes: bool = False, phase: str = "Running", mirror: bool = False
    ) -> dict[str, Any]:
        annotations = {"kubernetes.io/config.mirror": "x"} if mirror else {}
        owners = [{"kind": owner, "controller": True}] if owner else []
        spec = {"volumes": [{"name": "v", "emptyDir": {}}]} if volumes else {}
        return {
            "metadata": {"ownerReferences": owners, "annotations": annotations},
            "spec": spec,
            "status": {"phase": phase},
        }

    no, yes = {"isAlone": False, "isLocal": False}, {"isAlone": True, "isLocal": True}
    cases = [
        (pod("ReplicaSet"), no, ""),
        (pod("DaemonSet"), yes, "of a DaemonSet"),
        (pod(), no, "nobody would make it again"),
        (pod(), yes, ""),
        (pod("ReplicaSet", volumes=True), no, "has an emptyDir"),
        (pod("ReplicaSet", volumes=True), yes, ""),
        (pod("", volumes=True, phase="Succeeded"), no, ""),
        (pod(mirror=True), yes, "a static pod"),
    ]
    found = call("actions/drain.js", "obstacle", [[each, options] for each, options, _ in cases])
    assert found == [wanted for _, _, wanted in cases]


def test_kinds_are_found_by_what_people_call_them() -> None:
    def kind(resource: str, name: str, group: str = "", *short: str) -> dict[str, Any]:
        return {"resource": resource, "kind": name, "group": group, "short": short}

    kinds = [
        kind("pods", "Pod", "", "po"), kind("podmetrics", "PodMetrics", "metrics.k8s.io"),
        kind("deployments", "Deployment", "apps", "deploy"),
        kind("poddisruptionbudgets", "PodDisruptionBudget", "policy", "pdb"),
    ]  # fmt: skip
    asked = ["po", "pod", "Deploy", "pdb", "disrupt", "deployments.apps", "x", " "]
    found = call("server/kinds.js", "named", [[kinds, each] for each in asked])
    first = [each[0]["resource"] if each else "" for each in found]
    assert first == [
        "pods",
        "pods",
        "deployments",
        "poddisruptionbudgets",
        "poddisruptionbudgets",
        "deployments",
        "",
        "",
    ]


# The terminal.


def screen(*texts: Any, columns: int = 10, rows: int = 4) -> dict[str, Any]:
    ((found),) = call("", "terminal", [[columns, rows, list(texts)]])
    assert found["size"] == [rows, columns] or any(isinstance(each, list) for each in texts)
    result: dict[str, Any] = found
    return result


def test_what_a_program_writes_is_on_the_screen() -> None:
    cases = [
        ("ab\r\ncd", ["ab", "cd", "", ""]),
        ("0123456789ab", ["0123456789", "ab", "", ""]),
        ("0123456789\r\nab", ["0123456789", "ab", "", ""]),
        ("abc\b\bX", ["aXc", "", "", ""]),
        ("a\tb", ["a       b", "", "", ""]),
        ("a\x1b[2;3Hb\x1b[Hc", ["c", "  b", "", ""]),
        ("abcdef\x1b[3D\x1b[K", ["abc", "", "", ""]),
        ("abcdef\x1b[3D\x1b[1K", ["    ef", "", "", ""]),
        ("a\r\nb\r\nc\x1b[2J", ["", "", "", ""]),
        ("a\r\nb\r\nc\x1b[2;1H\x1b[J", ["a", "", "", ""]),
        ("a\r\nb\r\nc\x1b[2;1H\x1b[L", ["a", "", "b", "c"]),
        ("a\r\nb\r\nc\x1b[2;1H\x1b[M", ["a", "c", "", ""]),
        ("abcdef\x1b[1;3H\x1b[2P", ["abef", "", "", ""]),
        ("abcdef\x1b[1;3H\x1b[2@", ["ab  cdef", "", "", ""]),
        ("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\n", ["1", "3", "", "4"]),
        ("1\r\n2\r\n3\r\n4\r\n5", ["2", "3", "4", "5"]),
        ("\x1bM1", ["1", "", "", ""]),
        ("a\x1b7\x1b[3;3Hb\x1b8c", ["ac", "", "  b", ""]),
        ("main\x1b[?1049hother\x1b[?1049l", ["main", "", "", ""]),
        ("\x1b]0;" + "x" * 50 + "\x07a", ["a", "", "", ""]),
        ("\x1b]52;c;ZXZpbA==\x1b\\a", ["a", "", "", ""]),
        ("\x1b(0lqk\x1b(Bq", ["┌─┐q", "", "", ""]),
        ("\xc3\xa9\xe6\x97\xa5", ["é日", "", "", ""]),
        ("\x1b[?7l0123456789abc", ["012345678c", "", "", ""]),
        ("\x1b[999;999Hx\x1b[999A\x1b[999Dy", ["y", "", "", "         x"]),
    ]
    # Whole, and cut into pieces of a byte.
    played = [(10, 4, pieces) for text, _ in cases for pieces in ([text], list(text))]
    results = call("", "terminal", played)
    for number, (text, rows) in enumerate(cases):
        assert results[2 * number]["rows"] == rows, text
        assert results[2 * number + 1]["rows"] == rows, text


def test_a_program_learns_where_the_cursor_is_and_nothing_else() -> None:
    found = screen("\x1b[2;3H\x1b[6n\x1b[c\x1b[5n\x1b[>c\x1b[21t\x1bZ\x1b[?6n\x05\x1bP$qm\x1b\\")
    assert found["replies"] == "\x1b[2;3R\x1b[?1;2c\x1b[0n"


def test_colours_end_where_they_should() -> None:
    found = screen("a\x1b[1;31mb\x1b[38;5;200mc\x1b[38;2;255;0;0md\x1b[0me")["styles"]
    assert [text for text, _ in found] == ["a", "b", "c", "d", "e"]
    assert [style["foreground"] for _, style in found] == [-1, 1, 200, 196, -1]
    assert [style["bold"] for _, style in found] == [False, True, True, True, False]


def test_a_flood_and_noise_stay_within_bounds() -> None:
    rng = random.Random(5)
    noise = "".join(chr(rng.randrange(256)) for _ in range(20_000))
    sequences = "".join(
        f"\x1b[{rng.choice(['', '?', '>'])}{rng.randrange(10**6)};{rng.randrange(99)}"
        f"{rng.choice('ABCDEFGHJKLMPSTXdfghlmnrsu@')}"
        for _ in range(5000)
    )
    found = screen(noise, sequences, "x\r\n" * 5000, [3, 2], [400, 90], "y", [10, 4])
    assert found["history"] <= 2000
    assert len(found["rows"]) == 4
    assert 0 <= found["row"] < 4
    assert 0 <= found["column"] < 10


def test_a_token_stands_in_a_subprotocol_without_padding() -> None:
    tokens = ["a", "ab", "abc", "eyJ.x-_~é", ">>>???"]
    found = call("server/exec.js", "base64url", [[each] for each in tokens])
    assert found == [
        base64.urlsafe_b64encode(each.encode()).decode().rstrip("=") for each in tokens
    ]


def test_revisions_have_the_time_of_their_note() -> None:
    notes = [[1000, 5, 9], [2000, 10, 10], [5000, 11, 30]]
    found = call("screens/changes.js", "timeOf", [[notes, each] for each in (5, 9, 10, 11, 30, 31)])
    assert found == [1000, 1000, 2000, 5000, 5000, 0]
