"""API servers on stores of their own: ours on ours and, where given, a kube-apiserver on etcd.

    python -m bench api-server --program kube-apiserver=/path/to/it --program etcd=/path/to/etcd

Both speak TLS with certificates of one authority and know the user by a bearer token. The store is
another process; the CPU that counts is that of the API server alone.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.loads import kvload
from bench.reporting.figures import OURS, PEER
from bench.run import Run
from tests.apiserver.support.api_servers import ADMIN_TOKEN, ApiServer, SharedFiles, serving
from tests.apiserver.support.api_servers import OURS as OUR_COMMAND
from tests.support.certificates import Authority
from tests.support.servers import Server, ours, running

PROGRAMS: Final = ("kube-apiserver", "etcd")
SCHEDULER: Final = "kube-scheduler"
MANAGER: Final = "kube-controller-manager"
COLUMNS: Final = ("kvstack", "kube-apiserver")
JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
_STORE_FLAGS: Final = ("--quota-backend-bytes=8589934592", "--log-level=warn")


@dataclass(slots=True)
class Contender:
    """An API server and its store."""

    api: ApiServer
    store: Server
    authority: str  # file of who signed the certificate of the API server
    scratch: Path

    def load(self, command: str, **options: object) -> kvload.Loaded:
        """Load it; what kvload takes besides goes by name."""
        return kvload.run(
            self.store,
            command,
            endpoint=self.api.endpoint,
            pids=(self.api.pid, self.store.pid),
            ca=self.authority,
            bearer=ADMIN_TOKEN,
            **options,  # type: ignore[arg-type]  # none of run's own names
        )

    def body(self, name: str, text: str) -> Path:
        """Write a body for kvload; {n} and {i} are filled in by it."""
        path = self.scratch / f"{name}.txt"
        path.write_text(text)
        return path


@contextmanager
def contenders(run: Run) -> Iterator[dict[str, Contender]]:
    """Run ours, and the others where their programs are given; end all whatever happens."""
    made = {}
    with ExitStack() as stack:
        for name in (OURS, PEER) if set(PROGRAMS) <= run.programs.keys() else (OURS,):
            directory = run.directory / name
            directory.mkdir(parents=True)
            store = store_of(run, name, directory)
            stack.enter_context(running(store))
            made[name] = contender = contender_of(run, name, directory, store)
            stack.enter_context(serving(contender.api))
        if PEER not in made:
            run.note("No kube-apiserver and etcd were given (--program): there is nothing beside.")
        yield made


def store_of(run: Run, name: str, directory: Path) -> Server:
    """Return the store of a contender, not started."""
    if name == OURS:
        return ours(directory / "store", extra=_STORE_FLAGS)
    return Server([run.programs["etcd"]], directory / "store", extra=_STORE_FLAGS)


def contender_of(run: Run, name: str, directory: Path, store: Server) -> Contender:
    """Return a contender on a store, not started; its files are made."""
    files = SharedFiles.make(directory / "files")
    authority = Authority(directory, "serving-ca")
    certificate, key = authority.issue("serving")
    command = OUR_COMMAND if name == OURS else (run.programs["kube-apiserver"],)
    flags = (f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}")
    api = ApiServer(directory / "api", files, [store.client_url], command=command, extra=flags)
    return Contender(api, store, authority.file, directory)
