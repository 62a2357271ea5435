"""One API server for the suites of the client libraries, and a namespace for each test."""

import gc
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.support.api_servers import ApiServer, cluster
from tests.apiserver.support.kube_files import make_namespace, write_kubeconfig


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server that all suites share."""
    with cluster(tmp_path_factory.mktemp("libraries")) as stack:
        yield stack.server


@pytest.fixture
def namespace(server: ApiServer, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    module = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    name = re.sub("[^a-z0-9]+", "-", f"{module}-{request.node.name}".lower())
    return make_namespace(server, name[:63].strip("-"))


@pytest.fixture
def kubeconfig(server: ApiServer, namespace: str, tmp_path: Path) -> Path:
    """A kubeconfig whose namespace is the test's own."""
    return write_kubeconfig(tmp_path / "kubeconfig", server, namespace=namespace)


@pytest.fixture(autouse=True)
def unclosed() -> Iterator[None]:
    """Collect what a library has left open here, where its warnings count for nothing."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
