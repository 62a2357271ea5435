"""kubectl and helm, unmodified, as a user types: what they print is what was recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.player.kept import STORIES, files_in
from tests.apiserver.stories.clients import ClientsMissingError, clients, release_of
from tests.apiserver.stories.story import Stage, Story, read_stories
from tests.apiserver.support.api_servers import ApiServer, cluster

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("apiserver-stories")]

# A few of each client are told at every run; `pytest -m long` tells all.
EACH_TIME = {
    "kubectl 1.37.1": {"apply-serverside", "delete-finalizers", "get-watch-deploy", "kind-job-2"},
    "kubectl 1.36.3": {"get-forms-k136", "wait-k136"},
    "kubectl 1.32.5": {"patch-types-k132"},
    "kubectl 1.28.3": {"apply-deployment-k128", "describe-various-k128"},
    "helm 4.3.1": {"h-install-outputs"},
    "helm 3.16.4": {"h316-upgrade-install-history-max"},
}


def _parameters() -> Iterator[object]:
    for path in files_in(STORIES):
        program = path.name.partition("-")[0]
        for story in read_stories(path):
            name = f"{program} {story['client']}"
            marks = [] if story["name"] in EACH_TIME.get(name, ()) else [pytest.mark.long]
            yield pytest.param(story, id=f"{name} {story['name']}", marks=marks)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server for all stories: they have no names in common."""
    with cluster(tmp_path_factory.mktemp("stories")) as stack:
        yield stack.server


@pytest.mark.parametrize("story", list(_parameters()))
def test_a_story_goes_as_recorded(story: Story, server: ApiServer, tmp_path: Path) -> None:
    try:
        programs = clients(release_of(story["client"]))
    except ClientsMissingError as missing:
        pytest.skip(str(missing))
    differences = Stage(server.url, programs).tell(story, tmp_path / "story")
    assert not differences, "\n".join(map(str, differences))
