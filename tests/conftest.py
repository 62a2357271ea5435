"""Options and fixtures every tier shares."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.surface.outcomes import pytest_runtest_logreport as pytest_runtest_logreport
from tests.surface.outcomes import pytest_sessionfinish as pytest_sessionfinish


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what golden scripts print today into their files; then read the diff",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--rewrite"))


# The same examples at every run; HYPOTHESIS_PROFILE=default searches anew each time.
# No limit of time: how fast examples are made says only how busy the machine is.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# A shell starts what it runs in the background with SIGINT ignored, and every process started from
# here would inherit that: etcdctl's watches, say, are ended with SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
