"""Recorded conversations with kube-apiserver 1.37.1, played against this project's API server.

The server's clock is a second later at each request, so that nothing compared hangs on how many
requests fall into one second. `pytest -m long` plays them by the machine's clock, too.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.apiserver.player.families import family_of, play_family
from tests.apiserver.player.kept import BESIDE, CONVERSATIONS, files_in
from tests.apiserver.player.scenarios import Difference, Scenario, read_scenarios
from tests.apiserver.player.target import Options, Target
from tests.apiserver.support.api_servers import Stack, cluster
from tests.apiserver.support.kube_files import write_kubeconfig
from tests.apiserver.support.shifted_clock import Shift

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.xdist_group("apiserver-conversations"),
]

SECOND_MS = 1000
STOP_S = 30.0
SHOWN = 5  # differences told of one scenario


@pytest.fixture(scope="module", params=[SECOND_MS, pytest.param(0, marks=pytest.mark.long)])
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """An API server that no other test touches: conversations count and list everything.

    The parameter is by how many milliseconds its clock jumps before each request.
    """
    folder = tmp_path_factory.mktemp("conversations")
    shift = Shift.make(folder / "shift")
    with cluster(folder, command=shift.command) as stack:
        options = Options(
            url=stack.server.url, client_ca=stack.files.client_ca, store=stack.store.client_url
        )
        connected = Target(options, before=partial(shift.forward, request.param))
        yield connected
        connected.close()


@pytest.mark.parametrize("path", files_in(CONVERSATIONS), ids=family_of)
def test_conversations_go_as_recorded(path: Path, target: Target) -> None:
    check(path, target)


@pytest.mark.parametrize("path", files_in(BESIDE), ids=family_of)
def test_conversations_with_a_controller_go_as_recorded(path: Path, tmp_path: Path) -> None:
    with cluster(tmp_path) as stack, controller_manager(stack, tmp_path):
        beside = frozenset(("kube-controller-manager",))
        target = Target(Options(url=stack.server.url, beside=beside))
        check(path, target)
        target.close()


@contextmanager
def controller_manager(stack: Stack, folder: Path) -> Iterator[None]:
    """Run the controller that checks the types of policies."""
    flags = (
        f"--kubeconfig={write_kubeconfig(folder / 'kubeconfig', stack.server)}",
        "--controllers=validatingadmissionpolicy-status-controller",
        f"--service-account-private-key-file={stack.files.directory / 'sa.key'}",
        "--leader-elect=false",
        "--secure-port=0",
    )
    command = (sys.executable, "-m", "kvstack", "controller-manager", *flags)
    with (folder / "controller-manager.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(STOP_S)


def check(path: Path, target: Target) -> None:
    """Play a file; fail with what differs."""
    told: list[str] = []

    def tell(scenario: Scenario, differences: list[Difference]) -> None:
        told.extend(f"{scenario['name']}: {each}" for each in differences[:SHOWN])

    counts = play_family(family_of(path), read_scenarios(path), target, tell)
    assert counts.not_played == 0
    assert not told, "\n".join([str(counts), *told])
