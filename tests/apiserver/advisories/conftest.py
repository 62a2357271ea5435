"""The server that all tests of a module attack."""

from collections.abc import Iterator

import pytest

from tests.apiserver.advisories.target import Target


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server; bob has no rights beyond everybody's."""
    made = Target(tmp_path_factory.mktemp("attacked"))
    yield made
    made.close()
