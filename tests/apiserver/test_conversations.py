"""Recorded conversations with kube-apiserver 1.37.1, played against this project's API server.

The server's clock is a second later at each request, so that nothing compared hangs on how many
requests fall into one second. `pytest -m long` plays them by the machine's clock, too.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.apiserver.player.families import family_of, play_family
from tests.apiserver.player.kept import CONVERSATIONS, files_in
from tests.apiserver.player.scenarios import Difference, Scenario, read_scenarios
from tests.apiserver.player.target import Options, Target
from tests.apiserver.support.api_servers import cluster
from tests.apiserver.support.shifted_clock import Shift

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.xdist_group("apiserver-conversations"),
]

SECOND_MS = 1000
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
    told: list[str] = []

    def tell(scenario: Scenario, differences: list[Difference]) -> None:
        told.extend(f"{scenario['name']}: {each}" for each in differences[:SHOWN])

    counts = play_family(family_of(path), read_scenarios(path), target, tell)
    assert counts.not_played == 0
    assert not told, "\n".join([str(counts), *told])
