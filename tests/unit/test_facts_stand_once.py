"""What every module needs has one home, and no module states it again."""

import ast
from collections.abc import Iterator
from typing import Final

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
    )
)
"""Modules and names of JSON objects that are neither of the API nor a part of such an object, or
that say which part."""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the path and the tree of each module, without those of tests."""
    for path in files():
        short = str(path.relative_to(ROOT))
        if not short.startswith("tests/"):
            yield short, ast.parse(path.read_bytes())


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names and values of a module's own assignments."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value


def object_aliases(tree: ast.Module) -> list[str]:
    """Return the names that a module gives to `dict[str, Any]`."""
    return [
        name
        for name, value in _assigned(tree)
        if ast.unparse(value).strip("'\"") == "dict[str, Any]"
    ]


def test_no_module_has_an_alias_of_its_own_for_objects() -> None:
    aliases = {f"{path} {name}" for path, tree in _modules() for name in object_aliases(tree)}
    assert f"{_OBJECT} Object" in aliases
    more = aliases - _OTHER_ALIASES - {f"{_OBJECT} Object"}
    assert not more, "import Object from kvstack.apimachinery.objects.json_object"
    assert not _OTHER_ALIASES - aliases, "these are gone: take them out of the list"


def test_aliases_are_found_however_they_are_written() -> None:
    text = "A = dict[str, Any]\nB: TypeAlias = 'dict[str, Any]'\nC = dict[str, int]\nD: int\n"
    assert object_aliases(ast.parse(text)) == ["A", "B"]
