"""What every module needs has one home, and no module states it again."""

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from tests.unit.test_folders import ROOT, files

_OBJECT: Final = "kvstack/apimachinery/objects/json_object.py"
_OTHER_ALIASES: Final = frozenset(
    (
        "agents/kubelet/runtime/process/shim/clients.py Request",
        "agents/scheduler/live/refusals.py Row",
        "apiserver/aggregation/openapi_v2.py Document",
        "apiserver/apiextensions/customresourcedefinitions/schemas.py Schema",
        "apiserver/apply/managed_fields.py Entry",
        "apiserver/kinds/network/services/traits.py Spec",
        "apiserver/kinds/pods/disabled_fields.py _Tree",
        "apiserver/policy/authentication/jwt/verifying.py Claims",
        "apiserver/policy/authorization/rbac/coverage.py Atom",
        "apiserver/server/certificates_page.py Row",
        "kvstack/apimachinery/objects/metadata.py Meta",
        "kvstack/apimachinery/schema/discovery.py Document",
        "kvstack/apimachinery/schema/generate/text_tables.py Row",
        "kvstack/apimachinery/schema/openapi/operations.py Operation",
        "kvstack/apimachinery/schema/openapi/operations.py PathItem",
        "kvstack/apimachinery/schema/openapi/parameters.py Parameter",
        "kvstack/apimachinery/schema/openapi/schemas.py Schema",
        "kvstack/apimachinery/schema/openapi/v2.py Document",
        "kvstack/apimachinery/schema/openapi/v3.py Document",
        "kvstack/cel/schemas/declared.py Schema",
        "kvstack/clusters/farm/messages.py Message",
        "kvstore/server/ui/view.py Json",
        "tests/apiserver/player/scenarios.py Scenario",
        "tests/apiserver/player/scenarios.py Step",
        "tests/apiserver/stories/story.py Step",
        "tests/apiserver/stories/story.py Story",
        "tests/support/compose.py Service",
    )
)
"""Modules and names of JSON objects that are neither of the API nor a part of such an object, or
that say which part."""


class Stated(NamedTuple):
    """What a module states itself."""

    aliases: list[str]
    codes: list[int]
    names: set[str]


@pytest.fixture(scope="module")
def modules() -> dict[str, Stated]:
    """Return what each module states, by its path; of tests their aliases alone."""
    stated = {}
    for path in files():
        short = str(path.relative_to(ROOT))
        tree = ast.parse(path.read_bytes())
        aliases = object_aliases(tree)
        is_test = short.startswith("tests/")
        stated[short] = (
            Stated(aliases, [], set())
            if is_test
            else Stated(aliases, codes(tree), well_known_names(tree))
        )
    return stated


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names and values of a module's own assignments."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield ast.unparse(target), node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield ast.unparse(node.target), node.value


def object_aliases(tree: ast.Module) -> list[str]:
    """Return the names that a module gives to `dict[str, Any]`."""
    return [
        name
        for name, value in _assigned(tree)
        if ast.unparse(value).strip("'\"") == "dict[str, Any]"
    ]


def test_no_module_has_an_alias_of_its_own_for_objects(modules: dict[str, Stated]) -> None:
    aliases = {f"{path} {name}" for path, stated in modules.items() for name in stated.aliases}
    assert f"{_OBJECT} Object" in aliases
    more = aliases - _OTHER_ALIASES - {f"{_OBJECT} Object"}
    assert not more, "import Object from kvstack.apimachinery.objects.json_object"
    assert not _OTHER_ALIASES - aliases, "these are gone: take them out of the list"


def test_aliases_are_found_however_they_are_written() -> None:
    text = "A = dict[str, Any]\nB: TypeAlias = 'dict[str, Any]'\nC = dict[str, int]\nD: int\n"
    assert object_aliases(ast.parse(text)) == ["A", "B"]


_CODES: Final = frozenset((404, 409, 410))


def codes(tree: ast.Module) -> list[int]:
    """Return the lines on which a module has a constant for, or compares with, one of the codes."""
    lines = [value.lineno for _, value in _assigned(tree) if _has_code(value)]
    lines += [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Attribute)
        and node.left.attr == "code"
        and any(_has_code(each) for each in node.comparators)
    ]
    return sorted(lines)


def _has_code(value: ast.expr) -> bool:
    """Return whether a value is one of the codes, or a collection of values with one."""
    match value:
        case ast.Constant(int(code)):
            return code in _CODES
        case ast.Tuple(items) | ast.List(items) | ast.Set(items):
            return any(_has_code(each) for each in items)
        case ast.Call(ast.Name("frozenset" | "set" | "tuple"), items):
            return any(_has_code(each) for each in items)
        case _:
            return False


def test_no_module_defines_status_codes(
    modules: dict[str, Stated],
) -> None:
    lines = [f"{path}:{line}" for path, stated in modules.items() for line in stated.codes]
    assert not lines, (
        "ask an ApiError (is_not_found, is_conflict, is_gone), or name http.HTTPStatus"
    )


@pytest.mark.parametrize(
    "text",
    [
        "_GONE: Final = 410",
        "_RACES = frozenset((404, 409))",
        "_NOT_FOUND, _EXISTS = 404, 409",
        "def is_gone(error):\n    return error.code in {404, 410}",
    ],
)
def test_codes_are_found_however_they_are_written(text: str) -> None:
    assert codes(ast.parse(text))
    assert not codes(ast.parse("_LIMIT = 500\n_TEXTS = {404: 'not found'}\nx = send(404)"))


_WELL_KNOWN: Final = "kvstack/apimachinery/well_known.py"
_NAME: Final = re.compile(r"(?:[a-z0-9-]+\.)*(?:kubernetes|k8s)\.io/[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION: Final = re.compile(r"/(?:v[0-9]+(?:(?:alpha|beta)[0-9]+)?|__internal)$")


def well_known_names(tree: ast.Module) -> set[str]:
    """Return the labels, annotations and the like that a module's code states, not versions."""
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in texts
        and (node.value == "foregroundDeletion" or _NAME.fullmatch(node.value))
        and not _VERSION.search(node.value)
    }


def test_well_known_names_of_several_modules_stand_once(modules: dict[str, Stated]) -> None:
    assert len(modules[_WELL_KNOWN].names) > 50
    homes: dict[str, list[str]] = {}
    for path, stated in modules.items():
        if not path.startswith("bench/"):  # a client of any cluster
            for name in stated.names:
                homes.setdefault(name, []).append(path)
    again = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert not again, f"state them in {_WELL_KNOWN}, and import them from there"


def test_well_known_names_are_detected_only_in_code() -> None:
    text = """
'''kubernetes.io/in-text'''
A = "kubernetes.io/os"
B = ("topology.kubernetes.io/zone", "audit.k8s.io/v1", "kubernetes.io/", "has kubernetes.io/os")
C = {"a": "k8s.io/initial-events-end", "finalizers": ["foregroundDeletion"]}
'''batch.kubernetes.io/of-b'''
"""
    assert well_known_names(ast.parse(text)) == {
        "kubernetes.io/os",
        "topology.kubernetes.io/zone",
        "k8s.io/initial-events-end",
        "foregroundDeletion",
    }
