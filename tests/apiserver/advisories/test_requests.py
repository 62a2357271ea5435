"""What is asked: paths that mislead, bodies and patches that grow, labels of metrics.

Each test opens with the advisory, in our own words, or with the attack.
"""

import time
from itertools import pairwise
from typing import Any

import pytest

from tests.apiserver.advisories.target import ADMIN, BOB, Target

RBAC = "/apis/rbac.authorization.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
GROUP = "advisories.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SECONDS_MAX = 5.0


def allow(
    target: Target, name: str, resources: list[str], namespace: str = "", **rule: Any
) -> None:
    """Give bob a role, in a namespace or everywhere."""
    made = {"apiGroups": ["", GROUP], "resources": resources, "verbs": ["*"], **rule}
    target.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [made]})
    subject = {"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {**subject, "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
    place = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    target.create(f"{RBAC}/{place}", binding)


def define(target: Target, plural: str, scope: str) -> str:
    """Define a custom resource, and return the path of its objects in no namespace."""
    kind = plural.title()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}
    }  # fmt: skip
    spec = {
        "group": GROUP, "scope": scope, "versions": [version],
        "names": {"plural": plural, "kind": kind, "singular": kind.lower()},
    }  # fmt: skip
    target.create(DEFINITIONS, {"metadata": {"name": f"{plural}.{GROUP}"}, "spec": spec})
    path = f"/apis/{GROUP}/v1/{plural}"
    began = time.monotonic()
    while target.ask("GET", path).code != 200:
        assert time.monotonic() - began < 60
    return path


@pytest.fixture(scope="module")
def secret(target: Target) -> str:
    path = "/api/v1/namespaces/kube-system/secrets"
    target.create(path, {"metadata": {"name": "treasure"}, "stringData": {"a": "gold"}})
    return "treasure"


@pytest.fixture(scope="module")
def own_namespace(target: Target) -> str:
    """A namespace in which bob may do everything with everything."""
    target.create("/api/v1/namespaces", {"metadata": {"name": "own"}})
    allow(target, "own", ["*"], "own", apiGroups=["*"])
    assert target.ask("GET", "/api/v1/namespaces/own/secrets", token=BOB).code == 200
    return "own"


def test_cve_2019_11247_objects_of_the_cluster_in_a_namespace(
    target: Target, own_namespace: str
) -> None:
    """Custom objects of the whole cluster were served below a namespace, to whoever was allowed
    everything in that namespace."""
    path = define(target, "clusterthings", "Cluster")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Clusterthings", "metadata": {"name": "x"}}
    target.create(path, body)
    below = f"/apis/{GROUP}/v1/namespaces/{own_namespace}/clusterthings"
    for method, rest in (("GET", ""), ("GET", "/x"), ("PUT", "/x"), ("DELETE", "/x"), ("POST", "")):
        sent = body if method in {"PUT", "POST"} else None
        for token in (BOB, ADMIN):
            reply = target.ask(method, f"{below}{rest}", sent, token=token)
            assert reply.code == 404, (method, rest, reply)
    for built_in in ("nodes", "persistentvolumes", "namespaces"):
        reply = target.ask("GET", f"/api/v1/namespaces/{own_namespace}/{built_in}", token=BOB)
        assert reply.code in {403, 404}
    target.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    inside = f"/api/v1/namespaces/{own_namespace}/namespaces"
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        for rest in ("", "/other", "/other/status", "?fieldSelector=metadata.name%3Dother"):
            reply = target.ask(method, f"{inside}{rest}", token=BOB)
            assert reply.code in {403, 404, 405}, (method, rest, reply)
    assert target.ask("GET", "/api/v1/namespaces/other").code == 200
    assert target.ask("GET", f"{path}/x").code == 200


def test_cve_2022_3162_objects_of_another_resource(target: Target) -> None:
    """A name that climbs out of its place in the store let those who may list one custom resource
    read others of the group; so did one resource whose name another's begins with."""
    things = define(target, "things", "Namespaced")
    define(target, "thingsmore", "Namespaced")
    hidden = {"apiVersion": f"{GROUP}/v1", "kind": "Thingsmore", "metadata": {"name": "hidden"}}
    in_default = f"/apis/{GROUP}/v1/namespaces/default"
    target.create(f"{in_default}/thingsmore", hidden)
    allow(target, "things", ["things"])
    assert target.ask("GET", things, token=BOB).json["items"] == []
    for path in (
        f"{things}?limit=1",
        f"/apis/{GROUP}/v1/namespaces/..%2Fthingsmore%2Fdefault/things",
        f"/apis/{GROUP}/v1/namespaces/../things",
        f"/apis/{GROUP}/v1/namespaces/%2e%2e/things",
        f"{in_default}/things/..%2F..%2Fthingsmore%2Fdefault%2Fhidden",
        f"{in_default}/things/%2e%2e%2f%2e%2e%2fthingsmore%2fdefault%2fhidden",
        f"{in_default}/things/../thingsmore/hidden",
        f"{things}more",
        f"{things}%2f..%2fthingsmore",
    ):
        reply = target.ask("GET", path, token=BOB)
        assert b"hidden" not in reply.body or reply.code in {403, 404}, (path, reply)
        assert b'"uid"' not in reply.body
    for name in ("..", ".", "a/b", "a%b", "../../secrets/kube-system/treasure"):
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Things", "metadata": {"name": name}}
        assert target.ask("POST", f"{in_default}/things", body).code == 422


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/own/../kube-system/secrets/treasure",
        "/api/v1/namespaces/own/%2e%2e/kube-system/secrets/treasure",
        "/api/v1/namespaces/own%2F..%2Fkube-system/secrets/treasure",
        "/api/v1/namespaces/own/secrets/..%2F..%2Fkube-system%2Fsecrets%2Ftreasure",
        "/api/v1/namespaces/own/secrets/%2e%2e/%2e%2e/kube-system/secrets/treasure",
        "/api/v1/namespaces/own/secrets/..",
        "//api/v1/namespaces/kube-system/secrets/treasure",
        "/api//v1/namespaces/kube-system/secrets/treasure",
        "/api/v1//namespaces/kube-system/secrets/treasure",
        "/api/v1/namespaces//kube-system/secrets/treasure",
        "/api/v1/namespaces/kube-system//secrets/treasure",
        "/api/v1/namespaces/kube-system/secrets//treasure",
        "/api/v1/namespaces/kube-system/secrets/treasure/",
        "/./api/v1/namespaces/kube-system/secrets/treasure",
        "/version/../api/v1/namespaces/kube-system/secrets/treasure",
        "/healthz/..%2f../api/v1/namespaces/kube-system/secrets/treasure",
        "/api/v1/namespaces/kube-system/secrets/treasure%00",
        "/api/v1/namespaces/kube-system/secrets/treasure%20",
        "/api/v1/namespaces/kube-system/secrets/TREASURE",
        "/API/v1/namespaces/kube-system/secrets/treasure",
        "/%61pi/v1/namespaces/kube-system/secrets/treasure",
        "/api/v1/watch/namespaces/kube-system/secrets/treasure?timeoutSeconds=1",
        "/api/v1/proxy/namespaces/kube-system/secrets/treasure",
        "/api/v1/namespaces/kube-system/secrets?watch=1&timeoutSeconds=1",
        "/at/1/api/v1/namespaces/kube-system/secrets/treasure",
        "/at/1//api/v1/namespaces/kube-system/secrets/treasure",
        "/at//api/v1/namespaces/kube-system/secrets/treasure",
        "http://localhost/api/v1/namespaces/kube-system/secrets/treasure",
        "http:///api/v1/namespaces/kube-system/secrets/treasure",
        "/api/v1/secrets?fieldSelector=metadata.namespace%3Down",
        "/api/v1/secrets?fieldSelector=metadata.name%3Dtreasure",
    ],
)
def test_paths_against_authorization(
    target: Target, secret: str, own_namespace: str, path: str
) -> None:
    """What is authorized is what is served, however it is written."""
    for headers in ([], [("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]):
        reply = target.ask("GET", path, token=BOB, headers=headers)
        assert reply.code >= 400 or b"gold" not in reply.body
        assert b"Z29sZA" not in reply.body, reply  # in base64
        assert reply.code in {301, 400, 403, 404, 406}, reply


def test_methods_against_authorization(target: Target, secret: str) -> None:
    """No method or override of one is another request than the one that was allowed."""
    path = f"/api/v1/namespaces/kube-system/secrets/{secret}"
    for method in ("HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "GETX", "PROPFIND"):
        reply = target.ask(method, path, token=BOB)
        assert reply.code in {400, 403, 405, 501}, (method, reply)
        assert b"Z29sZA" not in reply.body
    for header in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        assert target.ask("GET", path, token=ADMIN, headers=[(header, "DELETE")]).code == 200
    assert target.ask("GET", path).code == 200


def test_names_in_bodies_against_those_of_paths(target: Target, own_namespace: str) -> None:
    """Who is allowed a path does not write elsewhere by what the body says."""
    path = f"/api/v1/namespaces/{own_namespace}/configmaps"
    elsewhere = {"metadata": {"name": "a", "namespace": "kube-system"}}
    assert target.ask("POST", path, elsewhere, token=BOB).code == 400
    target.create(path, {"metadata": {"name": "a"}}, token=BOB)
    assert target.ask("PUT", f"{path}/a", elsewhere, token=BOB).code == 400
    other = {"metadata": {"name": "b"}}
    assert target.ask("PUT", f"{path}/a", other, token=BOB).code == 400
    merge = "application/merge-patch+json"
    for patch in (elsewhere, other):
        reply = target.ask("PATCH", f"{path}/a", patch, token=BOB, content_type=merge)
        assert reply.code in {400, 422}
    assert target.ask("GET", "/api/v1/namespaces/kube-system/configmaps/a").code == 404


def timed(target: Target, *arguments: Any, **more: Any) -> int:
    """Return the code of an answer that has to come soon; others are served meanwhile."""
    began = time.process_time()  # that of the server, too: it is in this process
    code = target.ask(*arguments, **more).code
    assert time.process_time() - began < SECONDS_MAX
    assert target.ask("GET", "/version").code == 200
    return code


def test_cve_2019_1002100_a_patch_that_copies(target: Target) -> None:
    """A JSON patch whose copies double what is there took all memory."""
    target.create(MAPS, {"metadata": {"name": "grows"}, "data": {"a": "x" * 1000}})
    copies: list[Any] = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 999}}]
    for number in range(60):
        paths = {"from": "/metadata/annotations", "path": f"/metadata/annotations/k{number}"}
        copies.append({"op": "copy", **paths})
    kind = "application/json-patch+json"
    assert 400 <= timed(target, "PATCH", f"{MAPS}/grows", copies, content_type=kind) < 500
    many = [{"op": "add", "path": "/data/b", "value": "x"}] * 10_001
    assert timed(target, "PATCH", f"{MAPS}/grows", many, content_type=kind) == 413


@pytest.mark.parametrize(
    "body",
    [
        # Aliases of aliases: 9^9 values.
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9))
            for n in range(9)
        ),
        # Keys and comments whose reading took the square of their length.
        b"#" + b"x" * 500_000 + b"\n" + b"a: b\n" * 10_000,
        b"- " * 100_000,
        b"a: " * 2_000 + b"b",
        b"? " * 50_000,
        b"{" * 50_000,
        b"a: '" + b"''" * 200_000,
        b"%TAG ! " + b"a" * 200_000,
        b"a: !!binary " + b"A" * 200_000,
        b"&a " * 50_000,
        b"\xef\xbb\xbf\x00\x01",
        b"a: 0x" + b"f" * 100_000,
        b"<<: *a\n" * 10_000,
    ],
)
def test_cve_2019_11253_11254_and_2022_28948_yaml_that_grows(target: Target, body: bytes) -> None:
    """A small document in YAML took minutes, or all memory, or ended the server."""
    kind = "application/yaml"
    code = timed(target, "POST", MAPS, body, content_type=kind)
    assert 400 <= code < 500
    assert timed(target, "POST", MAPS, body, token="", content_type=kind) == 403


def test_cve_2020_8552_labels_of_metrics_are_not_the_clients(target: Target) -> None:
    """Each path, method and user that a client made up became a series of metrics of its own,
    until the memory was full."""

    def count() -> int:
        return len(target.ask("GET", "/metrics").body.splitlines())

    def attack(first: int) -> None:
        for number in range(first, first + 20):
            target.ask("GET", f"/made-up/{number}", token="")
            target.ask("GET", f"/api/v1/made-up-{number}", token=BOB)
            target.ask("GET", f"/apis/made-up-{number}.io/v1/things", token="")
            target.ask(f"M{number}", "/version", token="")
            target.ask("GET", "/version", token=f"unknown{number}")
            as_user = [("Impersonate-User", f"u{number}")]
            target.ask("GET", "/version", headers=as_user)
            target.ask("GET", "/version", headers=[("User-Agent", f"agent{number}")])

    count()
    attack(0)
    counts = [count()]
    for first in (100, 200, 300):
        attack(first)
        counts.append(count())
    # A series of the server's own may begin meanwhile, but not beside each of the attacks.
    assert min(after - before for before, after in pairwise(counts)) < 20, counts
