"""What a request is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.request_info import (
    RequestInfo,
    RequestInfoError,
    parse_query,
    request_info,
)


def _fields(info: RequestInfo) -> tuple[str, ...]:
    return (info.verb, info.group, info.version, info.namespace, info.resource, info.name)


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/api/v1/pods", ("list", "", "v1", "", "pods", "")),
        ("GET", "/api/v1/namespaces/a/pods/b", ("get", "", "v1", "a", "pods", "b")),
        ("HEAD", "/api/v1/namespaces/a/pods/b", ("get", "", "v1", "a", "pods", "b")),
        ("GET", "/api/v1/namespaces/a", ("get", "", "v1", "a", "namespaces", "a")),
        ("PUT", "/api/v1/namespaces/a/finalize", ("update", "", "v1", "a", "namespaces", "a")),
        ("GET", "/api/v1/namespaces", ("list", "", "v1", "", "namespaces", "")),
        (
            "POST",
            "/apis/apps/v1/namespaces/a/deployments/",
            ("create", "apps", "v1", "a", "deployments", ""),
        ),
        (
            "DELETE",
            "/apis/apps/v1/deployments",
            ("deletecollection", "apps", "v1", "", "deployments", ""),
        ),
        ("GET", "/api/v1/watch/namespaces/a/pods/b", ("watch", "", "v1", "a", "pods", "b")),
        ("OPTIONS", "/api/v1/pods", ("", "", "v1", "", "pods", "")),
        ("GET", "/api/v1/pods?watch", ("watch", "", "v1", "", "pods", "")),
        ("GET", "/api/v1/pods?watch=False", ("list", "", "v1", "", "pods", "")),
        ("GET", "/api/v1/pods?watch=1&limit=x", ("watch", "", "v1", "", "pods", "")),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Db",
            ("list", "", "v1", "", "pods", "b"),
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3Db&limit=x",
            ("list", "", "v1", "", "pods", ""),
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=metadata.name%3D..",
            ("list", "", "v1", "", "pods", ""),
        ),
        ("GET", "/api/v1/namespaces/a/pods/b?watch=1", ("get", "", "v1", "a", "pods", "b")),
        ("GET", "/api/v1/proxy/nodes/n/x", ("proxy", "", "v1", "", "nodes", "n")),
    ],
)
def test_resources(method: str, target: str, expected: tuple[str, ...]) -> None:
    path, _, query = target.partition("?")
    info = request_info(method, path, parse_query(query))
    assert info.is_resource
    assert _fields(info) == expected


@pytest.mark.parametrize("path", ["/", "", "/api", "/api/v1", "/apis/apps/v1", "/healthz/a/b"])
def test_other_paths(path: str) -> None:
    info = request_info("GET", path)
    assert not info.is_resource
    assert info.verb == "get"
    assert info.path == path


def test_subresources() -> None:
    assert request_info("GET", "/api/v1/namespaces/a/pods/b/log").subresource == "log"
    assert request_info("PUT", "/api/v1/namespaces/a/status").subresource == "status"
    proxied = request_info("GET", "/api/v1/namespaces/a/pods/b/proxy/c/d")
    assert (proxied.subresource, proxied.parts) == ("proxy", ("pods", "b", "proxy", "c", "d"))
    assert request_info("GET", "/api/v1/proxy/nodes/n/x").subresource == ""


def test_a_verb_alone_in_the_path() -> None:
    with pytest.raises(RequestInfoError, match="unable to determine kind and namespace from url"):
        request_info("GET", "/api/v1/watch")


def test_selectors_are_kept_where_they_select() -> None:
    query = parse_query("labelSelector=a%3Db&fieldSelector=x")
    for method in ("GET", "DELETE"):
        info = request_info(method, "/api/v1/pods", query)
        assert (info.label_selector, info.field_selector) == ("a=b", "x")
    assert request_info("POST", "/api/v1/pods", query).label_selector == ""
    assert request_info("GET", "/api/v1/watch/pods", query).label_selector == ""


def test_what_is_remembered_is_not_changed_by_a_query() -> None:
    watching = request_info("GET", "/api/v1/pods", parse_query("watch=1"))
    assert watching.verb == "watch"
    assert request_info("GET", "/api/v1/pods").verb == "list"


@given(st.text(), st.text())
def test_any_path_and_query(path: str, query: str) -> None:
    for prefix in ("", "/api/v1/", "/apis/a/v1/namespaces/"):
        try:
            info = request_info("GET", prefix + path, parse_query(query))
        except RequestInfoError:
            continue
        assert info.path == prefix + path
