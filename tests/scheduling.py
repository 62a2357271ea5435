"""Which worker of pytest-xdist runs which tests, and in which order.

    make test                  pytest -n 5 --dist loadgroup: this decides
    pytest -n 2 tests/unit     without loadgroup: one of xdist's own ways

A worker is given tests by units:

    a group     all files whose `pytestmark` has the same `xdist_group`
    a test      of a file of slow tests that share no fixture of their module
    a file      otherwise, so that its fixtures are made once

Units of slow tests are spread among the others, and come to their end earlier: what waits for other
processes leaves the processors to what computes, and no long test is left for the end.

xdist's own `loadgroup` names a group in the test's id, which pytest 9.2 does not let it do: each
test was a unit, and fixtures of modules were made by every worker. Marks of single tests are not
looked at, nor groups that span parts of a file. A part of tests/conftest.py.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from typing_extensions import override
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SLOW_SHARE: Final = 0.8
"""Of all units: in so many of the first, all slow ones are."""
_MARKS: Final = re.compile(r"^pytestmark = .*?(?=\n\S|\Z)", re.MULTILINE | re.DOTALL)
_GROUP: Final = re.compile(r'xdist_group\(\s*"([^"]+)"\s*\)')
_SLOW: Final = re.compile(r"pytest\.mark\.(?:slow|e2e)\b")
_SHARED: Final = re.compile(r'scope="(?:module|package|session)"')


class File(NamedTuple):
    """What a file of tests says of them."""

    group: str
    is_slow: bool
    is_shared: bool
    """Whether tests share fixtures."""


def read_file(text: str) -> File:
    """Return what the text of a file of tests says."""
    marks = _MARKS.search(text)
    group = _GROUP.search(marks[0]) if marks else None
    return File(group[1] if group else "", bool(_SLOW.search(text)), bool(_SHARED.search(text)))


class Units:
    """The units of a tree of tests."""

    def __init__(self, root: Path) -> None:
        """root: the directory that names of tests begin in."""
        self._root = root
        self.file = lru_cache(maxsize=None)(self._file)

    def _file(self, path: str) -> File:
        return read_file((self._root / path).read_text("utf-8"))

    def of(self, test: str) -> str:
        """Return the unit of a test."""
        path = test.partition("::")[0]
        file = self.file(path)
        if file.group:
            return file.group
        return test if file.is_slow and not file.is_shared else path

    def ordered(self, tests: Sequence[str]) -> list[str]:
        """Return the units of tests in the order in which they are given out."""
        sizes = Counter(map(self.of, tests))
        slow = set()
        for test in tests:
            file = self.file(test.partition("::")[0])
            if file.is_slow or file.group:
                slow.add(self.of(test))
        largest_first = [unit for unit, _ in sizes.most_common()]
        slow_units = [unit for unit in largest_first if unit in slow]
        slow_units.sort(key=lambda unit: "/" in unit)  # groups first: each is one worker's alone
        others = [unit for unit in largest_first if unit not in slow]
        keyed = [(at / len(slow_units) * SLOW_SHARE, unit) for at, unit in enumerate(slow_units, 1)]
        keyed += [(at / len(others), unit) for at, unit in enumerate(others, 1)]
        return [unit for _, unit in sorted(keyed, key=lambda each: each[0])]


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives units to workers that have little left to do."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        """Look at the files below the root of the tests."""
        super().__init__(config, log)
        self._units = Units(config.rootpath)
        self._index: dict[str, int] = {}

    @override
    def _split_scope(self, nodeid: str) -> str:
        return self._units.of(nodeid)

    @override
    def schedule(self) -> None:
        """Put the units in order before the first are given out."""
        is_first = self.collection is None
        if is_first:
            tests = list(next(iter(self.registered_collections.values())))
            self._index = {test: at for at, test in enumerate(tests)}
            # The base class keeps the order in which it meets units, with an empty queue before.
            for unit in self._units.ordered(tests):
                self.workqueue[unit] = {}
        super().schedule()

    @override
    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        """Forget a unit that is done: the base class counts what is left in all it ever gave."""
        test = self.registered_collections[node][item_index]
        unit, given = self._units.of(test), self.assigned_work[node]
        given[unit][test] = True
        if all(given[unit].values()):
            del given[unit]
        self._reschedule(node)

    @override
    def _assign_work_unit(self, node: WorkerController) -> None:
        unit, tests = self.workqueue.popitem(last=False)
        self.assigned_work[node][unit] = tests
        node.send_runtest_some([self._index[test] for test, done in tests.items() if not done])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Take the place of xdist's own `loadgroup`."""
    return UnitScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None
