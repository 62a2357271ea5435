"""Which rules cover which, and how what is missing is told."""

from typing import Any

import pytest

from kvstack.apiserver.policy.authorization.rbac.coverage import merged, missing, rule_text
from tests.apiserver.policy.authorization.roles import rule, urls


@pytest.mark.parametrize(
    ("held", "expected", "is_covered"),
    [
        (rule("get list", "core", "pods"), rule("get", "core", "pods"), True),
        (rule("get", "core", "pods"), rule("get list", "core", "pods"), False),
        (rule("*", "*", "*"), rule("get", "apps", "deployments/scale"), True),
        (rule("get", "core", "pods"), rule("*", "core", "pods"), False),
        (rule("get", "core", "pods"), rule("get", "*", "pods"), False),
        (rule("get", "core", "pods"), rule("get", "core", "*"), False),
        (rule("get", "core", "pods"), rule("get", "core", "pods/log"), False),
        (rule("get", "core", "*/log"), rule("get", "core", "pods/log"), True),
        (rule("get", "core", "*/log"), rule("get", "core", "pods"), False),
        (rule("get", "core", "pods"), rule("get", "core", "pods", "a"), True),
        (rule("get", "core", "pods", "a b"), rule("get", "core", "pods", "b"), True),
        (rule("get", "core", "pods", "a"), rule("get", "core", "pods"), False),
        (rule("get", "core", "pods", "a"), rule("get", "core", "pods", "a b"), False),
        (urls("get", "/a*"), urls("get", "/a/b /ab"), True),
        (urls("get", "/a/*"), urls("get", "/a"), False),
        (urls("get", "*"), urls("get", "/a*"), True),
        (urls("get", "/a"), urls("get post", "/a"), False),
        (rule("*", "*", "*"), urls("get", "/a"), False),
        (urls("*", "*"), rule("get", "core", "pods"), False),
    ],
)
def test_one_rule(held: dict[str, Any], expected: dict[str, Any], *, is_covered: bool) -> None:
    assert (missing([held], [expected]) == []) is is_covered


def test_several_rules_cover_together_what_none_does_alone() -> None:
    held = [rule("get", "core", "pods"), rule("list", "core", "pods secrets")]
    assert missing(held, [rule("get list", "core", "pods")]) == []


def test_what_is_missing_is_merged_by_resource_and_name() -> None:
    wanted = [
        rule("get list", "core apps", "pods"),
        urls("get", "/x /y"),
        rule("watch", "core", "pods"),
        rule("get", "core", "secrets", "a b"),
    ]
    lacking = merged(missing([rule("get", "apps", "pods")], wanted))
    assert sorted(map(rule_text, lacking)) == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list" "watch"]}',
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}',
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}',
        '{APIGroups:["apps"], Resources:["pods"], Verbs:["list"]}',
        '{NonResourceURLs:["/x"], Verbs:["get"]}',
        '{NonResourceURLs:["/y"], Verbs:["get"]}',
    ]
