"""Each test of NetworkPolicies that a release of Kubernetes has is held by tests of ours.

    KVSTACK_TEST_E2E=…/e2e.test pytest tests/agents/network_policy/test_upstream.py

compares the names with those that the program of a release has.
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.agents.network_policy import test_cases, test_packets
from tests.agents.network_policy.upstream import FEATURE, ours
from tests.agents.standalone import test_network_policies
from tests.apiserver.kinds.network import test_network_policies as test_kind
from tests.conformance.kubernetes.suite import Program, Suite

E2E: Final = os.environ.get("KVSTACK_TEST_E2E", "")
CASES: Final = {each.name for each in test_cases.CASES}
MODULES: Final = (test_cases, test_packets, test_network_policies, test_kind)


@pytest.mark.parametrize("name", ours())
def test_it_is_held_by_tests(name: str) -> None:
    for test in ours()[name]:
        assert test in CASES or any(callable(getattr(each, test, None)) for each in MODULES), test
    assert ours()[name]


def test_all_of_the_feature_are_there() -> None:
    assert sum(each.endswith(FEATURE) for each in ours()) == 49
    assert len(ours()) == 51
    assert len(CASES) == len(test_cases.CASES)  # a name is of one case


@pytest.mark.skipif(not E2E, reason="no e2e.test: KVSTACK_TEST_E2E names none")
def test_the_names_are_those_of_the_release(tmp_path: Path) -> None:
    program = Program(Path(E2E), Path(), Path())
    tests = Suite(program, tmp_path).tests(focus="sig-network. Netpol")
    assert {each.name for each in tests} == set(ours())
