"""Options and fixtures every tier shares."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Servers of tests look whether anybody changes what is stored or kept; see the module's head. It is
# set before that module is imported, and passed on to processes.
os.environ.setdefault("KVSTACK_CHECK_UNCHANGED", "1")

from tests import skip_budget
from tests.scheduling import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
from tests.surface.outcomes import pytest_runtest_logreport as pytest_runtest_logreport
from tests.surface.outcomes import pytest_sessionfinish as pytest_sessionfinish


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what golden scripts print today into their files; then read the diff",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(skip_budget, "skip-budget")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let no collection of garbage look at the 18,000 tests, neither now nor while they run.

    Each held the process for half a second, in the midst of whatever a test timed.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture(autouse=True)
def nothing_kept_is_changed() -> Iterator[None]:
    """Fail if anybody in this process changed a value that may not be, whoever caught the error."""
    yield
    unchanged = sys.modules.get("kvstack.apimachinery.objects.unchanged")
    if unchanged is not None and unchanged.found:
        found = list(unchanged.found)
        unchanged.found.clear()
        pytest.fail("\n".join(found))


# The same examples at every run; HYPOTHESIS_PROFILE=default searches anew each time.
# No limit of time: how fast examples are made says only how busy the machine is.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "steady")
settings.load_profile(PROFILE)
if PROFILE == "steady":
    # Constants of all modules that happen to be imported would be among the examples: a test would
    # have others with the rest of the suite than alone, and every worker read all sources for them.
    assert callable(providers._get_local_constants)
    providers._get_local_constants = lambda: providers._local_constants

# A shell starts what it runs in the background with SIGINT ignored, and every process started from
# here would inherit that: etcdctl's watches, say, are ended with SIGINT.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
