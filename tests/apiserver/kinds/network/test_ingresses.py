"""What Ingresses and IngressClasses may be."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.network.ingress_classes import INGRESS_CLASSES
from kvstack.apiserver.kinds.network.ingresses import INGRESSES
from tests.apiserver.kinds.hooks import (
    cells_of,
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)

STATUS = INGRESSES.subresources["status"]
SERVICE = {"service": {"name": "web", "port": {"number": 80}}}
CLASS = "kubernetes.io/ingress.class"


def ingress(**spec: Any) -> dict[str, Any]:
    """Return an Ingress, with a default backend if nothing is said."""
    spec = spec or {"defaultBackend": SERVICE}
    return {"metadata": {"name": "i"}, "spec": spec, "status": {"loadBalancer": {}}}


def routed(kind: str | None = "Prefix", path: str = "/", /, **members: Any) -> dict[str, Any]:
    """Return an Ingress with one path."""
    item: dict[str, Any] = {"path": path, "backend": SERVICE, **members}
    if kind is not None:
        item["pathType"] = kind
    return ingress(rules=[{"http": {"paths": [item]}}])


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        (SERVICE, []),
        ({"service": {"name": "web", "port": {"name": "http"}}}, []),
        ({"resource": {"kind": "K", "name": "n"}}, []),
        ({"resource": {"apiGroup": "a.b", "kind": "K", "name": "n"}}, []),
        ({}, [': Invalid value: "": resource or service backend is required']),
        (
            SERVICE | {"resource": {"kind": "K", "name": "n"}},
            [': Invalid value: "": cannot set both resource and service backends'],
        ),
        (
            {"resource": {"apiGroup": "A", "kind": "a/b"}},
            [
                '.resource.apiGroup: Invalid value: "A": a lowercase RFC 1123 subdomain must'
                " consist of lower case alphanumeric characters, '-' or '.', and must start and"
                " end with an alphanumeric character (e.g. 'example.com', regex used for validation"
                " is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
                ".resource.kind: Invalid value: \"a/b\": may not contain '/'",
                ".resource.name: Required value",
            ],
        ),
        (
            {"service": {"port": {}}},
            [".service.name: Required value", ": Required value: port name or number is required"],
        ),
        (
            {"service": {"name": "web", "port": {"name": "a", "number": 1}}},
            [': Invalid value: "": cannot set both port name & port number'],
        ),
        (
            {"service": {"name": "web", "port": {"name": "-"}}},
            [
                '.service.port.name: Invalid value: "-": must contain at least one letter (a-z)',
                '.service.port.name: Invalid value: "-": must not begin or end with a hyphen',
            ],
        ),
        (
            {"service": {"name": "web", "port": {"number": 65536}}},
            [".service.port.number: Invalid value: 65536: must be between 1 and 65535, inclusive"],
        ),
    ],
)
def test_backends(backend: dict[str, Any], expected: list[str]) -> None:
    """A Service with one port, or an object of any kind."""
    paths = [f"spec.defaultBackend{each}" for each in expected]
    assert refusals(INGRESSES, ingress(defaultBackend=backend)) == paths


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        ("Exact", "/a", []),
        ("ImplementationSpecific", "", []),
        ("ImplementationSpecific", "/a//b", []),
        ("ImplementationSpecific", "a", ['path: Invalid value: "a": must be an absolute path']),
        ("Prefix", "", ['path: Invalid value: "": must be an absolute path']),
        ("Exact", "/a//b", ["path: Invalid value: \"/a//b\": must not contain '//'"]),
        ("Exact", "/a/..", ["path: Invalid value: \"/a/..\": cannot end with '/..'"]),
        (
            "Prefix",
            "/./%2F/.",
            [
                "path: Invalid value: \"/./%2F/.\": must not contain '/./'",
                "path: Invalid value: \"/./%2F/.\": must not contain '%2F'",
                "path: Invalid value: \"/./%2F/.\": cannot end with '/.'",
            ],
        ),
        (None, "/", ["pathType: Required value: pathType must be specified"]),
        (
            "Regex",
            "x",
            [
                'pathType: Unsupported value: "Regex":'
                ' supported values: "Exact", "ImplementationSpecific", "Prefix"'
            ],
        ),
    ],
)
def test_paths(kind: str | None, path: str, expected: list[str]) -> None:
    """Absolute and without detours, unless the controller decides."""
    paths = [f"spec.rules[0].http.paths[0].{each}" for each in expected]
    assert refusals(INGRESSES, routed(kind, path)) == paths


@pytest.mark.parametrize(
    ("host", "start"),
    [
        ("a.b", None),
        ("*.a", None),
        ("192.0.2.1", 'Invalid value: "192.0.2.1": must be a DNS name, not an IP address'),
        ("a.*", 'Invalid value: "a.*": a wildcard DNS-1123 subdomain must start with'),
        ("A", 'Invalid value: "A": a lowercase RFC 1123 subdomain'),
    ],
)
def test_hosts(host: str, start: str | None) -> None:
    """Names, the first label of which may be a wildcard."""
    found = refusals(INGRESSES, ingress(rules=[{"host": host}]))
    if start is None:
        assert found == []
    else:
        assert found[0].startswith(f"spec.rules[0].host: {start}")
        assert len(found) == 1


def test_spec() -> None:
    """Something must be said; classes and Secrets are names."""
    assert refusals(INGRESSES, ingress(tls=[])) == [
        "spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"
    ]
    given = ingress(
        rules=[{"http": {"paths": []}}],
        tls=[{"hosts": ["*.a", "A"], "secretName": "B"}],
        ingressClassName="C",
    )
    found = [each.partition(": ")[0] for each in refusals(INGRESSES, given)]
    assert found == [
        "spec.rules[0].http.paths",
        "spec.tls[0].hosts[1]",
        "spec.tls[0].secretName",
        "spec.ingressClassName",
    ]


def test_class_in_two_fields() -> None:
    """They must agree when the Ingress is new; the old one is deprecated."""
    old_way = patched(ingress(), {"metadata": {"annotations": {CLASS: "a"}}})
    both = patched(old_way, {"spec": {"ingressClassName": "b"}})
    assert refusals(INGRESSES, both) == [
        f'annotations.{CLASS}: Invalid value: "a": must match `ingressClassName` when both are'
        " specified"
    ]
    assert change_refusals(INGRESSES, both, old_way) == []
    assert warnings_of(INGRESSES, old_way) == [
        f"annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
    ]
    assert warnings_of(INGRESSES, both) == []


def test_what_is_wrong_may_stay() -> None:
    """Names of Secrets and paths of wildcard hosts, where some were wrong before."""
    bad_secret = ingress(defaultBackend=SERVICE, tls=[{"secretName": "A"}])
    other = ingress(defaultBackend=SERVICE, tls=[{"secretName": "B"}])
    assert change_refusals(INGRESSES, other, bad_secret) == []
    assert len(change_refusals(INGRESSES, other, ingress())) == 1
    bad_path = [{"host": "*.a", "http": {"paths": []}}]
    assert change_refusals(INGRESSES, ingress(rules=bad_path), ingress(rules=bad_path)) == []
    assert change_refusals(INGRESSES, ingress(rules=bad_path), ingress()) == [
        "spec.rules[0].http.paths: Required value"
    ]


def test_generation_and_status() -> None:
    """A change of the spec raises the one; the other has its endpoint."""
    old = prepared_object(INGRESSES, ingress())
    assert old["metadata"]["generation"] == 1
    new = patched(old, {"spec": {"ingressClassName": "c"}, "status": {"loadBalancer": {"x": 1}}})
    found = changed(INGRESSES, new, old)
    assert (found["metadata"]["generation"], found["status"]) == (2, {"loadBalancer": {}})
    assert changed(INGRESSES, old, old)["metadata"]["generation"] == 1
    assert changed(STATUS, new, old)["spec"] == old["spec"]


def test_addresses_in_the_status() -> None:
    """They have no modes, and may stay as they were."""
    bad = patched(ingress(), {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.01"}]}}})
    path = "status.loadBalancer.ingress[0]"
    assert change_refusals(STATUS, bad, bad) == []
    assert warnings_of_change(STATUS, bad, ingress()) == [
        f'{path}: non-standard IP address "192.0.2.01" is invalid: use "192.0.2.1"'
    ]
    worse = patched(ingress(), {"status": {"loadBalancer": {"ingress": [{"ip": "x"}]}}})
    assert change_refusals(STATUS, worse, ingress()) == [
        f'{path}.ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or'
        " 2001:db8::ffff)"
    ]


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([""], "*"),
        (["a", "b"], "a,b"),
        (["a", "b", "c"], "a,b,c"),
        (["a", "b", "c", "d", ""], "a,b,c + 2 more..."),
        (["a", "", "b", "c"], "a,b,c"),
    ],
)
def test_hosts_in_rows(hosts: list[str], expected: str) -> None:
    """Three at most."""
    given = ingress(rules=[{"host": each} if each else {} for each in hosts])
    assert cells_of(INGRESSES, given)[2] == expected


def test_rows() -> None:
    """Addresses are sorted; TLS opens a second port."""
    assert cells_of(INGRESSES, ingress()) == ["i", "<none>", "*", "", "80", "3m"]
    given = patched(
        ingress(defaultBackend=SERVICE, tls=[{}], ingressClassName="c"),
        {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "10.h"}]}}},
    )
    assert cells_of(INGRESSES, given) == ["i", "c", "*", "10.h,192.0.2.1", "80, 443", "3m"]


def ingress_class(controller: str = "a.b/c", **parameters: Any) -> dict[str, Any]:
    """Return an IngressClass."""
    spec: dict[str, Any] = {"controller": controller}
    if parameters:
        spec["parameters"] = {"kind": "K", "name": "n", **parameters}
    return {"metadata": {"name": "c"}, "spec": spec}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (ingress_class(), []),
        (ingress_class(scope="Cluster"), []),
        (ingress_class(scope="Namespace", namespace="ns"), []),
        (
            ingress_class(scope="Namespace"),
            ["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
        ),
        (
            ingress_class(namespace="ns"),
            ["spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"],
        ),
        (
            ingress_class(scope="All", kind="", name=""),
            [
                'spec.parameters.scope: Unsupported value: "All":'
                ' supported values: "Cluster", "Namespace"',
                "spec.parameters.kind: Required value",
                "spec.parameters.name: Required value",
            ],
        ),
        (ingress_class(""), ["spec.controller: Required value"]),
        (
            ingress_class("a.b"),
            [
                'spec.controller: Invalid value: "a.b":'
                ' must be a domain-prefixed path (such as "acme.io/foo")'
            ],
        ),
        (
            ingress_class(f"a.b/{'c' * 247}"),
            ["spec.controller: Too long: may not be more than 250 bytes"],
        ),
    ],
)
def test_ingress_classes(given: dict[str, Any], expected: list[str]) -> None:
    """A controller, and parameters somewhere."""
    assert refusals(INGRESS_CLASSES, given) == expected


def test_change_of_an_ingress_class() -> None:
    """The controller stays; parameters raise the generation."""
    old = prepared_object(INGRESS_CLASSES, ingress_class())
    assert change_refusals(INGRESS_CLASSES, ingress_class("x.y/z"), old) == [
        'spec.controller: Invalid value: "x.y/z": field is immutable'
    ]
    new = patched(old, {"spec": {"parameters": {"kind": "K", "name": "n"}}})
    found = changed(INGRESS_CLASSES, new, old)
    assert found["metadata"]["generation"] == 2
    assert found["spec"]["parameters"]["scope"] == "Cluster"


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [({}, "<none>"), ({"kind": "P"}, "P/n"), ({"apiGroup": "g.io"}, "K.g.io/n")],
)
def test_rows_of_ingress_classes(parameters: dict[str, str], expected: str) -> None:
    """The default class says so."""
    given = ingress_class(**parameters)
    assert cells_of(INGRESS_CLASSES, given) == ["c", "a.b/c", expected, "3m"]
    default = patched(
        given,
        {"metadata": {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}},
    )
    assert cells_of(INGRESS_CLASSES, default)[0] == "c (default)"
