"""docs/surface.md from the items, their evidence and what became of the tests."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.surface.evidence import ABSENT, DIFFERS, EVIDENCE
from tests.surface.items import all_items

DOCS: Final = Path(__file__).parents[2] / "docs" / "surface.md"
TESTS: Final = "tests/"

HEAD: Final = """\
# etcd's surface, item by item

Every RPC, flag, feature gate, endpoint and subcommand of etcd 3.7.1. *works*: as in etcd, and the
tests named have passed. *differs*: proven the same way, and how it differs. *does not apply*: why
there is nothing to serve; a flag of that kind is accepted and checked, and the log says at start
that it has no effect. Metrics have a table of their own: [metrics.md](metrics.md).

`make surface` writes this file from the results of the last test run; it refuses while a test that
is named here has failed or did not run. `tests/surface/evidence.py` says which tests count.
"""


def unproven(outcomes: Mapping[str, str]) -> list[str]:
    """Return "item: test: what became of it" for each piece of evidence that is none."""
    found = []
    for item, tests in EVIDENCE.items():
        for test in tests:
            what = outcome_of(test, outcomes)
            if what != "passed":
                found.append(f"{item}: {test}: {what}")
    return found


def outcome_of(test: str, outcomes: Mapping[str, str]) -> str:
    """Tell what became of a test, or of all tests in a file; one that failed outweighs the rest."""
    name = TESTS + test
    if "::" in test:
        return outcomes.get(name, "did not run")
    of_file = {what for node, what in outcomes.items() if node.startswith(f"{name}::")}
    for what in ("failed", "passed", "skipped"):
        if what in of_file:
            return what
    return "did not run"


def table() -> str:
    """Return the document, as it is if all the evidence holds."""
    parts = [HEAD]
    for title, items in all_items().items():
        parts.append(f"\n## {title}\n\n| | | proven by |\n|---|---|---|\n")
        parts.extend(_row(item) for item in items)
    return "".join(parts)


def _row(item: str) -> str:
    name = item.partition(":")[2] or item
    if item.startswith("flag:"):
        name = f"--{name}"
    if item in ABSENT:
        return f"| `{name}` | does not apply: {ABSENT[item]} | |\n"
    verdict = f"differs: {DIFFERS[item]}" if item in DIFFERS else "works"
    return f"| `{name}` | {verdict} | {', '.join(_link_of(each) for each in EVIDENCE[item])} |\n"


def _link_of(test: str) -> str:
    return "`" + test.replace("test_", "", 1).replace(".py", "", 1).replace("::test_", ": ") + "`"
