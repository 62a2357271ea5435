"""`make surface`: write docs/surface.md from what became of the tests when they ran last."""

import json
import sys
from pathlib import Path

from tests.surface.outcomes import KEY
from tests.surface.table import DOCS, table, unproven

CACHE = Path(".pytest_cache/v") / KEY


def main() -> int:
    outcomes = json.loads(CACHE.read_text()) if CACHE.exists() else {}
    problems = unproven(outcomes)
    if problems:
        sys.stderr.write("\n".join(problems) + "\nnot written: run these tests first\n")
        return 1
    DOCS.write_text(table(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
