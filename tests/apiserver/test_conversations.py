"""Recorded conversations with kube-apiserver 1.37.1, played against this project's API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.player.families import family_of, play_family
from tests.apiserver.player.kept import CONVERSATIONS, files_in
from tests.apiserver.player.scenarios import Difference, Scenario, read_scenarios
from tests.apiserver.player.target import Options, Target
from tests.apiserver.support.api_servers import cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.xdist_group("apiserver-conversations"),
]

SHOWN = 5  # differences told of one scenario


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """An API server that no other test touches: conversations count and list everything."""
    with cluster(tmp_path_factory.mktemp("conversations")) as stack:
        options = Options(
            url=stack.server.url, client_ca=stack.files.client_ca, store=stack.store.client_url
        )
        connected = Target(options)
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
