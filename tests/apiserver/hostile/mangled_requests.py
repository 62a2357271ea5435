"""Requests that a fuzzer makes: valid ones with something wrong, and bytes that are none."""

import json
from typing import Any, NamedTuple
from urllib.parse import quote

from hypothesis import strategies as st

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "FOO")
PREFIXES = (
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/serviceaccounts/default/token",
    "/api/v1/namespaces/default/events",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/batch/v1/namespaces/default/cronjobs",
    "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
)  # fmt: skip
PAGES = (
    "/", "/api", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openapi/v3",
    "/openapi/v3/apis/apps/v1", "/version", "/healthz", "/livez", "/readyz", "/metrics",
    "/.well-known/openid-configuration", "/openid/v1/jwks", "/at", "/at/1/api/v1/pods", "/logs",
)  # fmt: skip
TAILS = ("", "/x", "/x/status", "/x/scale", "/x/log", "/x/exec", "/x/eviction", "/x/binding", "/")
PARAMETERS = (
    "watch", "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion",
    "resourceVersionMatch", "timeoutSeconds", "sendInitialEvents", "allowWatchBookmarks", "dryRun",
    "fieldManager", "fieldValidation", "force", "pretty", "gracePeriodSeconds", "propagationPolicy",
    "orphanDependents", "timeout", "container", "follow", "includeObject", "x",
)  # fmt: skip
VALUES = (
    "", "true", "false", "1", "0", "-1", "99999999999999999999", "All", "Strict", "Exact",
    "NotOlderThan", "a=b", "a in (b,c)", "!a", "a notin (", "metadata.name=x", "spec.x!=y", "x",
    ",", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhXHUwMDAwIn0", "Foreground", "None",
    "\x00",
)  # fmt: skip
TYPES = (
    "application/json", "application/yaml", "application/vnd.kubernetes.protobuf",
    "application/json-patch+json", "application/merge-patch+json",
    "application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/cbor",
    "text/plain", "application/json; charset=utf-8", ";", "",
)  # fmt: skip
ACCEPTS = (
    "application/json", "*/*", "application/yaml", "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io", "text/html", "application/json;stream=watch",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", ";;;", "application/*;q=x",
)  # fmt: skip
OBJECTS: tuple[dict[str, Any], ...] = (
    {"metadata": {"name": "x", "labels": {"a": "b"}}, "data": {"k": "v"}},
    {"metadata": {"generateName": "x-", "annotations": {"a": "b"}, "finalizers": ["a.b/c"]}},
    {
        "metadata": {"name": "x"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "containers": [
                        {
                            "name": "c",
                            "image": "i",
                            "ports": [{"containerPort": 80}],
                            "env": [{"name": "E", "value": "v"}],
                            "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
                        }
                    ]
                },
            },
        },
    },
    {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}},
    {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    {"kind": "DeleteOptions", "preconditions": {"uid": "u"}, "gracePeriodSeconds": 0},
    {"spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}},
    {"metadata": {"name": "x"}, "rules": [{"verbs": ["get"], "resources": ["pods"]}]},
)

numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False))
texts = st.text(max_size=12)
documents = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


class Sent(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes | None


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All places in a document, as paths of keys and indexes."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(place for key, each in inner for place in _paths(each, (*at, key)))]


@st.composite
def mangled_objects(draw: st.DrawFn) -> Any:
    """An object with other values at some of its places, or with keys that are none of its own."""
    document = json.loads(json.dumps(draw(st.sampled_from(OBJECTS))))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.sampled_from(_paths(document)))
        value = draw(documents)
        if not place:
            document = value if draw(st.booleans()) else document
            continue
        around = document
        for key in place[:-1]:
            around = around[key]
        if isinstance(around, dict) and draw(st.booleans()):
            around[draw(texts)] = value
        else:
            around[place[-1]] = value
    return document


@st.composite
def bodies(draw: st.DrawFn) -> bytes | None:
    """A body: none, mangled JSON, a JSON patch, a torn one, an envelope of protobuf, any bytes."""
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return None
    if kind == 1:
        return draw(st.binary(max_size=200))
    if kind == 2:
        return b"k8s\x00" + draw(st.binary(max_size=100))
    if kind == 3:
        operations = st.fixed_dictionaries(
            {
                "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]),
                "path": st.sampled_from(["", "/", "/metadata/name", "/data/-", "/spec", "/a~2b"]),
            },
            optional={"value": documents, "from": texts},
        )
        return json.dumps(draw(st.lists(operations, max_size=4))).encode()
    text = json.dumps(draw(mangled_objects()))
    if kind == 4:
        return text[: draw(st.integers(0, len(text)))].encode()
    if kind == 5:
        return text.replace('"', "").encode()  # near to YAML
    return text.encode()


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    """A request that HTTP allows, whatever Kubernetes says of it."""
    if draw(st.integers(0, 4)):
        path = draw(st.sampled_from(PREFIXES)) + draw(st.sampled_from(TAILS))
    else:
        path = draw(st.sampled_from(PAGES))
    if not draw(st.integers(0, 5)):
        path += "/" + quote(draw(texts), safe=draw(st.sampled_from(["", "/%"])))
    given = draw(
        st.lists(
            st.tuples(st.sampled_from(PARAMETERS), st.one_of(st.sampled_from(VALUES), texts)),
            max_size=3,
        )
    )
    if any(name in ("watch", "follow") for name, _ in given):
        given.append(("timeoutSeconds", "1"))  # of two the first counts; all end with the test
    query = "&".join(f"{quote(name)}={quote(value)}" for name, value in given)
    headers = {
        "Content-Type": draw(st.sampled_from(TYPES)),
        "Accept": draw(st.sampled_from(ACCEPTS)),
    }
    method = draw(st.sampled_from(METHODS))
    return Sent(method, f"{path}?{query}" if query else path, headers, draw(bodies()))
