"""Facts of Kubernetes that have a function of their own are not written by hand elsewhere.

They stand in kvstack/apimachinery/objects/core. What is recognized:

    for each in conditions: if each["type"] == …     conditions.find, is_true, replaced, without
    is_true(…, "Ready"), type == "Ready"             pod_status and node_status: READY, is_ready
    {"Succeeded", "Failed"}                          pod_status.ENDED_PHASES, is_ended
    restartPolicy == "Always" of a container         pod_resources.is_sidecar
    "NoSchedule", "PreferNoSchedule", "NoExecute"    tolerations.NO_SCHEDULE and so on
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
HOME: Final = "kvstack/apimachinery/objects/core"
_FOLDERS: Final = ("agents", "apiserver", "kvstack/apimachinery", "kvstack/cel", "kvstack/clusters")
_ENDED: Final = frozenset(("Succeeded", "Failed"))
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_EXCEPTIONS: Final = {
    # One pass over many pods; a property test holds it equal to is_available.
    "agents/controllers/workloads/pod_rules.py:count_ready": "condition",
    # A request may have several conditions of one type.
    "apiserver/kinds/certificates/signing_requests.py:_of_type": "condition",
    "apiserver/kinds/certificates/signing_requests.py:_prepare_status": "condition",
    # The contents of clusters may be anything: their conditions are checked one by one.
    "kvstack/clusters/plan/stuck.py:_failures": "condition",
    # A ServiceCIDR's condition, which has the name of a pod's and a node's by chance alone.
    "agents/controllers/network/service_ranges.py:_set_ready": "Ready",
    "apiserver/allocators/cluster_ips.py:_is_ready": "Ready",
}
"""What is written by hand, `path:function`, for the reason above it."""

Loop: TypeAlias = tuple[ast.expr, ast.expr, list[ast.AST]]


def test_facts_stand_once() -> None:
    by_hand = {
        f"{path.relative_to(ROOT)}:{function}": fact
        for folder in _FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "gen" not in path.parts and not path.is_relative_to(ROOT / HOME)
        for function, fact in facts_by_hand(ast.parse(path.read_bytes()))
    }
    assert by_hand == _EXCEPTIONS, f"use the functions of {HOME}"


def test_there_is_one_clock() -> None:
    protocols = {
        str(path.relative_to(ROOT))
        for folder in ("agents", "apiserver", "kvstack", "kvstore")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ClassDef)
        and node.name.endswith("Clock")
        and "Protocol" in map(ast.unparse, node.bases)
    }
    assert protocols == {"kvstack/component/clock.py"}


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('any(c["type"] == "Ready" for c in pod["status"]["conditions"])', "condition"),
        ('[c for c in status.get("conditions") or () if TYPE == c.get("type")]', "condition"),
        ('[new if c["type"] != KIND else c for c in conditions]', "condition"),
        ('for c in conditions:\n  if c["status"] and c["type"] == A:\n    pass', "condition"),
        ('is_true(status.get("conditions"), "Ready")', "Ready"),
        ('conditions.find(found, "Ready")', "Ready"),
        ('each["type"] == "Ready"', "Ready"),
        ('status["phase"] in ("Succeeded", "Failed")', "ended"),
        ('ENDED = frozenset({"Failed", "Succeeded", "Unknown"})', "ended"),
        ('phase == "Failed" or phase == "Succeeded"', "ended"),
        ('phase != "Failed" and phase != "Succeeded"', "ended"),
        ('[c for c in init if c.get("restartPolicy") == "Always"]', "sidecar"),
        ('container["restartPolicy"] != "Always"', "sidecar"),
        ('EFFECT = "NoExecute"', "effect of taints"),
        ('{"key": key, "effect": "NoSchedule"}', "effect of taints"),
    ],
)
def test_fact_by_hand_is_found(text: str, fact: str) -> None:
    assert ("", fact) in set(facts_by_hand(ast.parse(text)))
    body = text.replace("\n", "\n  ")
    assert ("name", fact) in set(facts_by_hand(ast.parse(f"def name():\n  {body}")))


@pytest.mark.parametrize(
    "text",
    [
        'conditions.find(status.get("conditions"), "PodScheduled")',
        '{"type": "Ready", "status": "True"}',
        'values = {c["type"]: c["status"] for c in conditions}',
        'any(a["type"] == "InternalIP" for a in status["addresses"])',
        'any(values.get(c["type"]) == c["status"] for c in conditions)',
        'next(c for c in conditions if c["type"] in ANSWERS)',
        'phase == "Failed"',
        '("Bound", "Failed")',
        'spec["restartPolicy"] == "Never"',
        'policy_of(pod, container) == "Always"',
    ],
)
def test_other_code_is_not_taken_for_one(text: str) -> None:
    assert not list(facts_by_hand(ast.parse(text)))


def facts_by_hand(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """Yield functions and the facts that they have by hand; "": the module."""
    for node in ast.iter_child_nodes(tree):
        inside = function
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = node.name
        if fact := _fact(node):
            yield inside, fact
        yield from facts_by_hand(node, inside)


def _fact(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return "effect of taints" if node.value in _EFFECTS else ""
    if any(map(_looks_for_type, _loops(node))):
        return "condition"
    if isinstance(node, ast.Call) and _called(node) in ("find", "is_true", "condition_of"):
        return "Ready" if any(_is(each, "Ready") for each in node.args) else ""
    if isinstance(node, ast.Set | ast.Tuple | ast.List):
        return "ended" if _texts(node.elts) >= _ENDED else ""
    if isinstance(node, ast.BoolOp):
        sides = [side for each in node.values for side in _sides(each)]
        return "ended" if _texts(sides) >= _ENDED else ""
    sides = _sides(node)
    if any(_is(each, "Ready") for each in sides):
        return "Ready"
    is_policy = any(_is_field(each, "restartPolicy") for each in sides)
    return "sidecar" if is_policy and any(_is(each, "Always") for each in sides) else ""


def _loops(node: ast.AST) -> Iterator[Loop]:
    """Yield what a node runs through, as which names, and what it does with each."""
    if isinstance(node, ast.For | ast.AsyncFor):
        yield node.iter, node.target, [*node.body]
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        for each in node.generators:
            yield each.iter, each.target, [node.elt, *each.ifs]


def _looks_for_type(loop: Loop) -> bool:
    """Whether it runs through conditions, and compares the type of each with one text."""
    source, target, body = loop
    if "conditions" not in ast.unparse(source).lower() or not isinstance(target, ast.Name):
        return False
    for node in (inner for each in body for inner in ast.walk(each)):
        sides = _sides(node)
        types = [each for each in sides if _is_field(each, "type", of=target.id)]
        others = [each for each in sides if isinstance(each, ast.Constant | ast.Name)]
        if types and others:
            return True
    return False


def _sides(node: ast.AST) -> list[ast.expr]:
    """Return the sides of a comparison for equality."""
    if not isinstance(node, ast.Compare):
        return []
    is_equality = all(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops)
    return [node.left, *node.comparators] if is_equality else []


def _is(node: ast.AST, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _texts(nodes: list[ast.expr]) -> set[object]:
    return {each.value for each in nodes if isinstance(each, ast.Constant)}


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_field(node: ast.AST, name: str, of: str = "") -> bool:
    """Whether a node is `obj["name"]` or `obj.get("name")`; of: the name of the object."""
    if isinstance(node, ast.Subscript):
        obj, key = node.value, node.slice
    elif isinstance(node, ast.Call) and _called(node) == "get" and node.args:
        assert isinstance(node.func, ast.Attribute)
        obj, key = node.func.value, node.args[0]
    else:
        return False
    return _is(key, name) and (not of or (isinstance(obj, ast.Name) and obj.id == of))
