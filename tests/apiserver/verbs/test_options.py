"""The options of requests: what is read, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.request_info import Query, parse_query
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.options import DeleteOptions, WriteOptions


def read(query: Query, kind: str, *, is_apply: bool) -> None:
    """Read the options of a kind of request."""
    if kind in (options.CREATE, options.UPDATE, options.PATCH):
        options.write_options(kind, query, is_apply=is_apply)
    elif kind == "delete":
        options.delete_options(query, None)
    else:
        options.list_options(query, is_watch=kind == "watch")


def refusal(query: str, kind: str, *, is_apply: bool = False) -> str:
    """Return the message of a refusal."""
    with pytest.raises(ApiError) as caught:
        read(parse_query(query), kind, is_apply=is_apply)
    return f"{caught.value.code} {caught.value.status['message']}"


def test_writes() -> None:
    """The first value counts."""
    query = parse_query("dryRun=All&fieldManager=m&fieldValidation=Strict&fieldManager=n")
    assert options.write_options(options.CREATE, query) == WriteOptions(
        dry_run=True, manager="m", validation="Strict", given_validation="Strict"
    )
    assert options.write_options(options.CREATE, {}) == WriteOptions(validation="Warn")
    query = parse_query("fieldManager=m&force")
    assert options.write_options(options.PATCH, query, is_apply=True).force


@pytest.mark.parametrize(
    ("query", "kind", "expected"),
    [
        ("dryRun=x", options.CREATE,
         '422 CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]:'
         ' supported values: "All"'),
        ("fieldValidation=x", options.UPDATE,
         '422 UpdateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "x":'
         ' supported values: "", "Ignore", "Strict", "Warn"'),
        ("force=1", options.PATCH,
         '422 PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for'
         " non-apply patch"),
        ("limit=x", "list", '400 strconv.ParseInt: parsing "x": invalid syntax'),
        ("resourceVersionMatch=Exact", "list",
         '422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden:'
         " resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ("resourceVersionMatch=Exact&resourceVersion=0", "list",
         '422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden:'
         ' resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),
        ("sendInitialEvents=true", "list",
         '422 ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden:'
         " sendInitialEvents is forbidden for list"),
        ("sendInitialEvents=true", "watch",
         '422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden:'
         " sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ("propagationPolicy=x", "delete",
         '422 DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "x":'
         ' supported values: "Foreground", "Background", "Orphan", "nil"'),
    ],
)  # fmt: skip
def test_refusals(query: str, kind: str, expected: str) -> None:
    """In upstream's words."""
    assert refusal(query, kind) == expected


def test_an_apply_needs_a_manager() -> None:
    """Other patches have the User-Agent."""
    assert "fieldManager: Required value: is required for apply patch" in refusal(
        "", options.PATCH, is_apply=True
    )


def test_deletes() -> None:
    """Of the body if there is one, else of the query."""
    query = parse_query("gracePeriodSeconds=5&propagationPolicy=Orphan&dryRun=All&uid=u")
    wanted = DeleteOptions(grace_seconds=5, uid="u", policy="Orphan", dry_run=True)
    assert options.delete_options(query, None) == wanted
    assert options.delete_options(query, {}) == DeleteOptions()
    body = {"preconditions": {"resourceVersion": "7"}, "orphanDependents": False}
    assert options.delete_options({}, body) == DeleteOptions(
        resource_version="7", orphan_dependents=False
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1&a=2&b", {"a": ["1", "2"], "b": [""]}),
        ("a=1;b=2&c=3", {"c": ["3"]}),
        ("a=%zz&b=1", {"a": ["%zz"], "b": ["1"]}),
    ],
)
def test_queries(text: str, expected: dict[str, list[str]]) -> None:
    """A part with a semicolon is none, as in Go."""
    assert parse_query(text) == expected


KINDS = (options.CREATE, options.UPDATE, options.PATCH)
WORDS = ("1", "true", "All", "Strict", "a=b", "-1", "NotOlderThan")
VALUES = st.lists(st.text(max_size=12) | st.sampled_from(WORDS), max_size=3)
NAMES = st.sampled_from(
    (
        *("labelSelector", "fieldSelector", "watch", "allowWatchBookmarks", "resourceVersion"),
        *("resourceVersionMatch", "timeoutSeconds", "limit", "continue", "sendInitialEvents"),
        *("fieldManager", "fieldValidation", "dryRun", "force"),
        *("propagationPolicy", "gracePeriodSeconds", "orphanDependents"),
    )
)


@given(
    query=st.dictionaries(NAMES, VALUES.filter(bool), max_size=5),
    kind=st.sampled_from([*KINDS, "delete", "list", "watch"]),
    is_apply=st.booleans(),
)
def test_any_query_is_read_or_refused(query: Query, kind: str, *, is_apply: bool) -> None:
    code = 200
    try:
        read(query, kind, is_apply=is_apply and kind == options.PATCH)
    except ApiError as refused:
        code = refused.code
    assert code in (200, 400, 422)
