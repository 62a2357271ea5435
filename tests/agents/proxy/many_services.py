"""A table of as many Services as a test or a benchmark asks for."""

from collections.abc import Callable

from kvstack.agents.proxy.choice import Here
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.nftables.layout import Layout
from kvstack.agents.proxy.nftables.port_rules import rules_of
from kvstack.agents.proxy.nftables.ruleset import Ruleset
from kvstack.agents.proxy.nftables.transaction import Transaction
from kvstack.agents.proxy.rule_settings import RuleSettings
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.proxy.objects import endpoint, endpoint_slice, service


def many(count: int) -> tuple[Ruleset, Callable[..., Transaction]]:
    """Return a table of Services with two endpoints each, and what changes one of them.

    It gives one a third endpoint, or takes that away again.
    """
    layout = Layout(RuleSettings(4))
    view, ruleset = ClusterView(4, Here("here")), Ruleset(layout)

    def slice_of(at: int, *last: int) -> Object:
        ends = [endpoint(f"10.{10 + at // 250}.{at % 250}.{each}") for each in last]
        return endpoint_slice(*ends, name=f"web-{at:05}-x", of=f"web-{at:05}")

    def change() -> Transaction:
        return ruleset.change(
            {p: rules_of(s, layout) if s else None for p, s in view.take_changes().items()}
        )

    def change_one(at: int, *, back: bool = False) -> Transaction:
        before, after = slice_of(at, 1, 2), slice_of(at, 1, 2, 3)
        view.set_slice(*((after, before) if back else (before, after)))
        return change()

    for at in range(count):
        ip = f"10.96.{at // 250}.{at % 250 + 1}"
        view.set_service(None, service(f"web-{at:05}", clusterIP=ip))
        view.set_slice(None, slice_of(at, 1, 2))
    change()
    return ruleset, change_one
