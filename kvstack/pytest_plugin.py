"""Fixtures for tests of programs that use Kubernetes: a control plane for each test.

    def test_of_mine(kvstack_cluster):
        config.load_kube_config(str(kvstack_cluster.kubeconfig))

    @pytest.fixture(scope="session")
    def kvstack_prepared(kvstack_prepare):
        with kvstack_prepare() as cluster:
            …                                     create what every test needs
            yield cluster.rows()

    def test_of_mine(kvstack_fork): …             a copy of what was prepared

    @pytest.mark.kvstack(contents="shop.kvs")     or of a packed file, a snapshot, a context
    def test_of_mine(kvstack_fork): …

`kvstack_cluster` is an empty cluster with one hollow node: pods are scheduled and seem to run.
`@pytest.mark.kvstack(nodes=3, without=["controllers"])` asks for another one, and `clock="virtual"`
for one with a clock of its own. `kvstack_cluster.settle()` returns once controllers, scheduler and
nodes have done all they can; `kvstack_cluster.clock.advance(hours=24)` lets a day go by at once.

pytest would read the source of everything that comes with a plugin, to rewrite its assertions:
seconds before the first cluster. There are none, so `_AsInstalled` has it imported as it is.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest
from typing_extensions import override

if TYPE_CHECKING:
    from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Rows
    from kvstack.clusters.contents import Contents

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
        "markers",
        f"{_MARK}(nodes=1, without=(), clock='real', seed=0, contents=None): "
        "what runs in the test's cluster",
    )


@pytest.fixture(scope="session")
def _kvstack_authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the keys that all clusters of a session share."""
    from kvstack.agents.standalone.in_memory.background import make_authorities

    directory = tmp_path_factory.mktemp("kvstack-authorities")
    make_authorities(directory)
    return directory


@pytest.fixture
def kvstack_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, _kvstack_authorities: Path
) -> Iterator["BackgroundCluster"]:
    """A control plane of the test's own."""
    asked = _asked(request)
    if "contents" in asked:
        raise pytest.UsageError("contents: a cluster that begins with them is kvstack_fork")
    with _cluster(tmp_path, _kvstack_authorities, **asked) as cluster:
        yield cluster


@pytest.fixture
def kvstack_fork(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    _kvstack_authorities: Path,
    _kvstack_read: "Callable[[Rows | Contents | str | Path, Path], Rows | Contents]",
) -> Iterator["BackgroundCluster"]:
    """A control plane of the test's own with the objects of `kvstack_prepared`.

    `@pytest.mark.kvstack(contents=…)` names others.
    """
    asked = _asked(request)
    source = asked.pop("contents", None)
    if source is None:
        source = request.getfixturevalue("kvstack_prepared")
    found = _kvstack_read(source, request.path.parent)
    with _fork(tmp_path, _kvstack_authorities, found, asked) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kvstack_prepare(
    tmp_path_factory: pytest.TempPathFactory, _kvstack_authorities: Path
) -> Callable[..., "BackgroundCluster"]:
    """Return what makes a cluster to be prepared: `with kvstack_prepare(nodes=3) as cluster`."""

    def make(
        *, nodes: int = 1, without: Iterable[str] = (), clock: str = "real"
    ) -> "BackgroundCluster":
        directory = tmp_path_factory.mktemp("kvstack-prepared")
        return _cluster(directory, _kvstack_authorities, nodes=nodes, without=without, clock=clock)

    return make


@pytest.fixture(scope="session")
def kvstack_prepared() -> "Rows | Contents | str | Path":
    """Override this fixture: the objects that `kvstack_fork` starts with.

    `rows()` of a cluster, the `Contents` of one, or a source as `kvstack fork` takes it: a packed
    file, a snapshot, a directory of manifests, `context:NAME`.
    """
    raise pytest.UsageError("kvstack_fork needs a fixture kvstack_prepared; see kvstack's docs")


@pytest.fixture(scope="session")
def _kvstack_read() -> "Callable[[Rows | Contents | str | Path, Path], Rows | Contents]":
    """Return what reads sources, each once."""
    contents: dict[str, Contents] = {}

    def read(source: "Rows | Contents | str | Path", directory: Path) -> "Rows | Contents":
        if not isinstance(source, str | Path):
            return source
        at = directory / source  # as a file
        text = f"file:{at}" if isinstance(source, Path) or at.exists() else source
        if text not in contents:
            contents[text] = _contents_of(text)
        return contents[text]

    return read


def _contents_of(text: str) -> "Contents":
    """Return the contents of a source, as `kvstack fork` reads them."""
    from kvstack.clusters.commands.naming import EtcdAccess, Names, kubeconfig_paths
    from kvstack.clusters.forks.registry import ForkRegistry
    from kvstack.clusters.sources.source import ReadOptions, Silent

    paths = kubeconfig_paths("", os.environ)
    source = Names(ForkRegistry.of_user(os.environ), paths, EtcdAccess()).find(text)

    def read() -> "Contents":
        return asyncio.run(source.open().read(ReadOptions(has_events=False), Silent()))

    with ThreadPoolExecutor(1) as pool:  # a loop may run in this thread
        return pool.submit(read).result()


def _fork(
    directory: Path, authorities: Path, rows: "Rows | Contents", options: dict[str, Any]
) -> "BackgroundCluster":
    from kvstack.clusters.contents import Contents
    from kvstack.clusters.forks.background_fork import BackgroundFork
    from kvstack.clusters.forks.fork_settings import ForkSettings

    if not isinstance(rows, Contents):
        return _cluster(directory, authorities, rows=rows, **options)
    nodes, without = options.pop("nodes", None), options.pop("without", ())
    settings = ForkSettings("" if nodes is None else str(nodes), frozenset(without))
    return BackgroundFork(directory / "cluster", rows, settings, authorities=authorities, **options)


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
    clock: str = "real",
    seed: int = 0,
) -> "BackgroundCluster":
    from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings

    return BackgroundCluster(
        directory / "cluster",
        Settings(nodes, frozenset(without), rows, clock=clock, seed=seed),
        authorities=authorities,
    )
