from typing import Any

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.request_info import request_info
from kvstack.apiserver.policy.flow_control.control import LEVELS, SCHEMAS, FlowControl
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.policy.views import FakeView

ADMIN = User("admin", groups=("system:masters", "system:authenticated"))
ALICE = User("alice", groups=("devs", "system:authenticated"))
ROBOT = User("system:serviceaccount:ns:robot", groups=("system:authenticated",))
PODS = request_info("GET", "/api/v1/namespaces/a/pods")
NODES = request_info("GET", "/api/v1/nodes")
STATUS = request_info("PUT", "/api/v1/namespaces/a/pods/p/status")
HEALTH = request_info("GET", "/healthz")


def level(name: str, shares: int = 30, **limited: Any) -> dict[str, Any]:
    queuing = {"queues": 8, "handSize": 2, "queueLengthLimit": 3}
    response = {"type": "Queue", "queuing": queuing}
    spec = {"nominalConcurrencyShares": shares, "limitResponse": response, **limited}
    metadata = {"name": name, "uid": f"{name}-uid"}
    return {"metadata": metadata, "spec": {"type": "Limited", "limited": spec}}


def schema(
    name: str, precedence: int, subject: dict[str, Any], to: str = "l", **more: Any
) -> dict[str, Any]:
    rule = {"verbs": ["*"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}
    rules = [{"subjects": [subject], "resourceRules": [{**rule, **more.pop("rule", {})}], **more}]
    return {
        "metadata": {"name": name, "uid": f"{name}-uid"},
        "spec": {
            "priorityLevelConfiguration": {"name": to},
            "matchingPrecedence": precedence,
            "distinguisherMethod": {"type": "ByNamespace"},
            "rules": rules,
        },
    }


def user(name: str) -> dict[str, Any]:
    return {"kind": "User", "user": {"name": name}}


def control_of(*objects: dict[str, Any]) -> tuple[FlowControl, FakeView]:
    view = FakeView()
    for each in objects:
        view.put(SCHEMAS if "rules" in each["spec"] else LEVELS, each)
    control = FlowControl(100, FakeClock())
    control.follow(view)
    return control, view


def test_something_mandatory_is_always_there() -> None:
    control = FlowControl(100, FakeClock())
    assert control.flow_of(ADMIN, PODS).level.is_exempt
    flow = control.flow_of(ALICE, HEALTH)
    assert (flow.schema, flow.level.name, flow.distinguisher) == ("catch-all", "catch-all", "alice")
    assert control.flow_of(User("nobody"), PODS).schema == "catch-all"


def test_the_lowest_precedence_counts_then_the_name() -> None:
    control, view = control_of(
        level("l"), schema("b", 500, user("alice")), schema("a", 500, user("*"))
    )
    assert control.flow_of(ALICE, PODS).schema == "a"
    view.put(SCHEMAS, schema("z", 400, user("alice")))
    flow = control.flow_of(ALICE, PODS)
    assert (flow.schema, flow.distinguisher) == ("z", "a")
    assert flow.headers == [
        ("X-Kubernetes-Pf-Flowschema-Uid", "z-uid"),
        ("X-Kubernetes-Pf-Prioritylevel-Uid", "l-uid"),
    ]


def test_rules_say_what_belongs_to_a_schema() -> None:
    account = {"namespace": "ns", "name": "*"}
    control, _ = control_of(
        level("l"),
        schema("group", 100, {"kind": "Group", "group": {"name": "devs"}}),
        schema("robots", 200, {"kind": "ServiceAccount", "serviceAccount": account}),
        schema("nodes", 300, user("*"), rule={"resources": ["nodes"], "clusterScope": True}),
        schema(
            "paths",
            400,
            user("*"),
            nonResourceRules=[{"verbs": ["get"], "nonResourceURLs": ["/h*"]}],
        ),
        schema("parts", 500, user("*"), rule={"resources": ["pods/status"], "verbs": ["update"]}),
    )
    found = {
        "alice": control.flow_of(ALICE, PODS).schema,
        "robot": control.flow_of(ROBOT, PODS).schema,
        "nodes": control.flow_of(ROBOT, NODES).schema,
        "health": control.flow_of(ROBOT, HEALTH).schema,
        "status": control.flow_of(ALICE, STATUS).schema,
        "alice's nodes": control.flow_of(ALICE, NODES).schema,
    }
    assert found == {
        "alice": "group",
        "robot": "robots",
        "nodes": "nodes",
        "health": "paths",
        "status": "parts",
        "alice's nodes": "nodes",
    }


def test_a_schema_without_its_level_is_not_used() -> None:
    control, view = control_of(schema("a", 1, user("*")))
    assert control.flow_of(ALICE, PODS).schema == "catch-all"
    before = control.generation
    view.put(LEVELS, level("l"))
    assert control.generation != before
    flow = control.flow_of(ALICE, PODS)
    assert flow.schema == "a"
    ticket = flow.level.enter(flow, 1, 0)
    assert ticket is not None
    view.remove(LEVELS, "", "l")
    assert control.flow_of(ALICE, PODS).schema == "catch-all"
    flow.level.leave(ticket, 1)
    assert flow.level.is_idle


def test_a_condition_of_a_schema_changes_nothing() -> None:
    control, view = control_of(level("l"), schema("a", 1, user("*")))
    control.refresh()
    before = control.generation
    view.put(SCHEMAS, {**schema("a", 1, user("*")), "status": {"conditions": []}})
    assert control.generation == before


def test_periods_at_rest_may_be_left_out() -> None:
    """What is lent is the same whether there are rounds at rest or none."""

    def smoothed(*, skips: bool) -> list[float]:
        clock, view = FakeClock(), FakeView()
        view.put(LEVELS, level("busy", 40))
        view.put(SCHEMAS, schema("a", 1, user("*"), to="busy"))
        control = FlowControl(85, clock)
        control.follow(view)
        stirred: list[bool] = []
        control.on_demand = lambda: stirred.append(True)
        flow = control.flow_of(ALICE, PODS)
        found = []
        is_due = True
        for period in range(1, 40):
            # Requests come in the periods 10 and 30, and take three and five seconds.
            took_s = {10: 3, 30: 5}.get(period, 0)
            if took_s:
                ticket = flow.level.enter(flow, 7, clock.monotonic_ns())
                assert ticket is not None
                clock.seconds += took_s
                flow.level.leave(ticket, clock.monotonic_ns())
            clock.seconds += 10 - took_s
            if is_due or stirred or not skips:
                stirred.clear()
                is_due = control.rebalance()
            # As after hours: what is left of it is negligible.
            if period == 25:
                flow.level.demand.smoothed = 0.0
            found.append(control.levels["busy"].demand.smoothed)
        return found

    assert smoothed(skips=True) == smoothed(skips=False)
    assert smoothed(skips=True)[29] > 0


def test_a_level_tells_of_its_first_request_of_a_period() -> None:
    clock, view = FakeClock(), FakeView()
    view.put(LEVELS, level("busy", 40))
    view.put(SCHEMAS, schema("a", 1, user("*"), to="busy"))
    control = FlowControl(85, clock)
    control.follow(view)
    stirred: list[float] = []
    control.on_demand = lambda: stirred.append(clock.seconds)
    flow = control.flow_of(ALICE, PODS)
    clock.seconds += 10
    assert not control.rebalance()
    for _ in range(2):
        ticket = flow.level.enter(flow, 1, clock.monotonic_ns())
        assert ticket is not None
        flow.level.leave(ticket, clock.monotonic_ns())
    assert stirred == [clock.seconds]
    clock.seconds += 10
    assert control.rebalance()


def test_seats_are_lent_to_who_needs_them() -> None:
    clock = FakeClock()
    view = FakeView()
    view.put(LEVELS, level("busy", 40, lendablePercent=50))
    view.put(LEVELS, level("idle", 40, lendablePercent=50))
    view.put(SCHEMAS, schema("a", 1, user("*"), to="busy"))
    control = FlowControl(85, clock)
    control.follow(view)
    flow = control.flow_of(ALICE, PODS)
    busy, idle = control.levels["busy"], control.levels["idle"]
    assert busy.limits.nominal == idle.limits.nominal == 40
    asked = [flow.level.enter(flow, 1, clock.monotonic_ns()) for _ in range(46)]
    tickets = [each for each in asked if each is not None]
    assert busy.waiting > 0
    for _ in range(200):
        clock.seconds += 10
        control.rebalance()
    assert busy.limit > busy.limits.nominal
    assert idle.limits.low == 20 <= idle.limit <= 25
    assert all(each.is_started for each in tickets)
    for each in tickets:
        busy.leave(each, clock.monotonic_ns())
    for _ in range(1000):
        clock.seconds += 10
        control.rebalance()
    assert busy.limit == idle.limit
