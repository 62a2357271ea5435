"""What it costs to check a custom resource by ten rules in CEL.

pytest bench/micro/test_rules.py --benchmark-only
"""

from pytest_benchmark.fixture import BenchmarkFixture

from bench.ruled import OBJECT, SPEC
from kvstack.apiserver.apiextensions.customresources.rules import RuleChecks


def test_ten_rules(benchmark: BenchmarkFixture) -> None:
    checks = RuleChecks({"type": "object", "properties": {"spec": SPEC}})
    assert benchmark(checks.errors, OBJECT, None, []) == []


def test_ten_rules_are_compiled(benchmark: BenchmarkFixture) -> None:
    def check() -> None:
        checks = RuleChecks({"type": "object", "properties": {"spec": SPEC}})
        assert not checks.errors(OBJECT, None, [])

    benchmark(check)
