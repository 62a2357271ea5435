"""Fixtures for tests of programs that use Kubernetes: a control plane for each test.

    def test_of_mine(kvstack_cluster):
        config.load_kube_config(str(kvstack_cluster.kubeconfig))

    @pytest.fixture(scope="session")
    def kvstack_prepared(kvstack_prepare):
        with kvstack_prepare() as cluster:
            …                                     create what every test needs
            yield cluster.rows()

    def test_of_mine(kvstack_fork): …             a copy of what was prepared

`kvstack_cluster` is an empty cluster with one hollow node: pods are scheduled and seem to run.
`@pytest.mark.kvstack(nodes=3, without=["controllers"])` asks for another one.

pytest would read the source of everything that comes with a plugin, to rewrite its assertions:
seconds before the first cluster. There are none, so `_AsInstalled` has it imported as it is.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest
from typing_extensions import override

if TYPE_CHECKING:
    from kvstack.agents.standalone.background import BackgroundCluster, Rows

_MARK = "kvstack"
_OWN: Final = frozenset(("kvstack", "kvstore"))


class _AsInstalled(MetaPathFinder):
    """Finds the packages of this distribution before pytest's own finder does."""

    @override
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in _OWN:
            return None
        return PathFinder.find_spec(name, path, target)


sys.meta_path.insert(0, _AsInstalled())


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", f"{_MARK}(nodes=1, without=()): what runs in the test's cluster"
    )


@pytest.fixture(scope="session")
def _kvstack_authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the keys that all clusters of a session share."""
    from kvstack.agents.standalone.background import make_authorities

    directory = tmp_path_factory.mktemp("kvstack-authorities")
    make_authorities(directory)
    return directory


@pytest.fixture
def kvstack_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, _kvstack_authorities: Path
) -> Iterator["BackgroundCluster"]:
    """A control plane of the test's own."""
    with _cluster(tmp_path, _kvstack_authorities, **_asked(request)) as cluster:
        yield cluster


@pytest.fixture
def kvstack_fork(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    _kvstack_authorities: Path,
    kvstack_prepared: "Rows",
) -> Iterator["BackgroundCluster"]:
    """A control plane of the test's own with the objects of `kvstack_prepared`."""
    asked = {**_asked(request), "rows": kvstack_prepared}
    with _cluster(tmp_path, _kvstack_authorities, **asked) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kvstack_prepare(
    tmp_path_factory: pytest.TempPathFactory, _kvstack_authorities: Path
) -> Callable[..., "BackgroundCluster"]:
    """Return what makes a cluster to be prepared: `with kvstack_prepare(nodes=3) as cluster`."""

    def make(*, nodes: int = 1, without: Iterable[str] = ()) -> "BackgroundCluster":
        directory = tmp_path_factory.mktemp("kvstack-prepared")
        return _cluster(directory, _kvstack_authorities, nodes=nodes, without=without)

    return make


@pytest.fixture(scope="session")
def kvstack_prepared() -> "Rows":
    """To be overridden: the objects that `kvstack_fork` begins with."""
    raise pytest.UsageError("kvstack_fork needs a fixture kvstack_prepared; see kvstack's docs")


def _asked(request: pytest.FixtureRequest) -> dict[str, Any]:
    mark = request.node.get_closest_marker(_MARK)
    return {} if mark is None else dict(mark.kwargs)


def _cluster(
    directory: Path,
    authorities: Path,
    *,
    nodes: int = 1,
    without: Iterable[str] = (),
    rows: "Rows | None" = None,
) -> "BackgroundCluster":
    from kvstack.agents.standalone.background import BackgroundCluster, Settings

    return BackgroundCluster(
        directory / "cluster",
        Settings(nodes, frozenset(without), rows),
        authorities=authorities,
    )
