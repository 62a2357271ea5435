"""Which rule ends the objects of a resource."""

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.verbs.deletion.deletion_rules import DEFAULT, rule_of

_WITH_FINALIZERS = {"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}}


def test_finalizers_of_the_spec_hold_namespaces() -> None:
    rule = rule_of(GroupResource("", "namespaces"))
    assert rule.is_held(_WITH_FINALIZERS)
    assert not rule.is_held({"metadata": {"name": "a"}, "spec": {"finalizers": []}})
    assert not rule.is_held({"metadata": {"name": "a"}})


def test_finalizers_of_the_spec_hold_no_custom_resource_of_that_name() -> None:
    rule = rule_of(GroupResource("stable.example.com", "namespaces"))
    assert rule is DEFAULT
    assert not rule.is_held(_WITH_FINALIZERS)
