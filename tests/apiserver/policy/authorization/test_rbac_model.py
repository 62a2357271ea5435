"""RBAC as a whole against a model that looks at every rule of every binding."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.authorization.rbac.authorizer import RbacAuthorizer
from kvstack.apiserver.policy.authorization.rbac.coverage import missing
from kvstack.apiserver.policy.authorization.rbac.grants import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    Grants,
)
from tests.apiserver.policy.authorization.roles import account, binding, group, role, user
from tests.apiserver.policy.views import FakeView

VERBS = ("get", "list", "*")
GROUPS = ("", "apps", "*")
RESOURCES = ("pods", "pods/log", "deployments", "*/log", "*")
URLS = ("/a", "/a/b", "/a/*", "/b*", "*")
NAMESPACES = ("n", "m")
NAMES = ("x", "y")


def some(*values: str, least: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=2, unique=True)


rules = st.one_of(
    st.fixed_dictionaries(
        {"verbs": some(*VERBS), "apiGroups": some(*GROUPS), "resources": some(*RESOURCES)},
        optional={"resourceNames": some(*NAMES)},
    ),
    st.fixed_dictionaries({"verbs": some(*VERBS), "nonResourceURLs": some(*URLS)}),
)
subjects = st.one_of(
    st.sampled_from(("al", "bo", "system:serviceaccount:n:sa")).map(user),
    st.sampled_from(("g", "h", "al")).map(group),
    st.sampled_from((account("sa"), account("sa", "n"), account("sa", "m"))),
)
namespaces = st.sampled_from(("", *NAMESPACES))
roles_made = st.builds(
    lambda name, given, namespace: role(name, *given, namespace=namespace),
    st.sampled_from(NAMES),
    st.lists(rules, max_size=3),
    namespaces,
)
bindings_made = st.builds(
    lambda name, kind, of, given, namespace: binding(name, kind, of, *given, namespace=namespace),
    st.sampled_from(NAMES),
    st.sampled_from(("Role", "ClusterRole")),
    st.sampled_from(NAMES),
    st.lists(subjects, max_size=2),
    namespaces,
)
users = st.builds(
    User,
    st.sampled_from(("al", "bo", "cy", "system:serviceaccount:n:sa", "system:serviceaccount:m:sa")),
    groups=st.sampled_from(((), ("g",), ("g", "h"))),
)
requests = st.one_of(
    st.builds(
        Attributes,
        users,
        st.sampled_from(("get", "list", "watch")),
        group=st.sampled_from(("", "apps")),
        resource=st.sampled_from(("pods", "deployments")),
        subresource=st.sampled_from(("", "log", "scale")),
        namespace=namespaces,
        name=st.sampled_from(("", *NAMES)),
    ),
    st.builds(
        Attributes.of_path,
        users,
        st.sampled_from(("get", "post")),
        st.sampled_from(("/a", "/a/b", "/a/b/c", "/b", "/bc", "/c")),
    ),
)


def resource_of(obj: Object) -> GroupResource:
    is_local = "namespace" in obj["metadata"]
    if "roleRef" in obj:
        return ROLE_BINDINGS if is_local else CLUSTER_ROLE_BINDINGS
    return ROLES if is_local else CLUSTER_ROLES


def allows(rule: Object, asked: Attributes) -> bool:
    def has(member: str, value: str) -> bool:
        return "*" in rule.get(member, ()) or value in rule.get(member, ())

    if not has("verbs", asked.verb):
        return False
    if not asked.is_resource:
        return any(
            url == asked.path or (url.endswith("*") and asked.path.startswith(url.rstrip("*")))
            for url in rule.get("nonResourceURLs", ())
        )
    full = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    is_of_any = asked.subresource and f"*/{asked.subresource}" in rule.get("resources", ())
    names = rule.get("resourceNames", ())
    return (
        has("apiGroups", asked.group)
        and (has("resources", full) or bool(is_of_any))
        and (not names or asked.name in names)
    )


def is_subject(subject: Object, asked: User, namespace: str) -> bool:
    if subject["kind"] == "Group":
        return subject["name"] in asked.groups
    if subject["kind"] == "User":
        return bool(subject["name"] == asked.name)
    place = subject.get("namespace") or namespace
    return bool(place) and asked.name == f"system:serviceaccount:{place}:{subject['name']}"


def rules_of(objects: Iterable[Object], asked: User, namespace: str) -> Iterable[Object]:
    """Return all rules that a user has in a namespace, by looking at everything."""
    for bound in objects:
        if "roleRef" not in bound:
            continue
        place = bound["metadata"].get("namespace", "")
        if place not in {"", namespace}:
            continue
        if not any(is_subject(each, asked, place) for each in bound["subjects"]):
            continue
        of = place if bound["roleRef"]["kind"] == "Role" else ""
        if bound["roleRef"]["kind"] == "Role" and not of:
            continue
        for each in objects:
            name = each["metadata"]["name"]
            if (
                "rules" in each
                and name == bound["roleRef"]["name"]
                and each["metadata"].get("namespace", "") == of
            ):
                yield from each["rules"]


@given(st.lists(st.one_of(roles_made, bindings_made), max_size=14), st.lists(requests, max_size=8))
def test_decisions_are_those_of_the_model(writes: list[Object], asked: list[Attributes]) -> None:
    view = FakeView()
    grants = Grants()
    grants.follow(view)
    rbac = RbacAuthorizer(grants)

    def check() -> None:
        objects = [each for rows in view.objects.values() for each in rows.values()]
        for request in asked:
            held = rules_of(objects, request.user, request.namespace)
            expected = any(allows(each, request) for each in held)
            assert rbac.authorize(request).allowed is expected

    for write in writes:
        view.put(resource_of(write), write)
        check()
    for resource, rows in view.objects.items():
        for namespace, name in list(rows):
            view.remove(resource, namespace, name)
            check()


@given(st.lists(rules, max_size=3), st.lists(rules, max_size=2), st.lists(requests, max_size=10))
def test_what_is_covered_allows_nothing_new(
    held: list[Object], requested: list[Object], asked: list[Attributes]
) -> None:
    lacking = missing(held, requested)
    for request in asked:
        if any(allows(each, request) for each in requested):
            granted = any(allows(each, request) for each in [*held, *lacking])
            assert granted, (request, held, requested)
    assert missing(requested, requested) == []
    assert missing([*held, *lacking], requested) == []
