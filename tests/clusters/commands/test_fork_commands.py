"""The commands as users run them: forks come and go, and nothing of them stays."""

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from kvstack.agents.client.built_in import CONFIG_MAPS, NODES
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.cli import main
from kvstack.clusters.forks.registry import ForkError, ForkRegistry, plain_name
from tests.clusters.support.snapshots import real_snapshot
from tests.clusters.support.sources import add_config_map, call, config_map
from tests.clusters.support.users import BARE, KVSTACK, TIMEOUT_S, User, is_alive
from tests.support.servers import free_ports
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    directory = tmp_path_factory.mktemp("source")
    settings = Settings(nodes=1, without=frozenset(("metrics",)))
    with BackgroundCluster(directory / "cluster", settings) as cluster:
        add_config_map(cluster.kubeconfig, "a", n="1")
        yield cluster


@pytest.fixture
def user(tmp_path: Path, source: BackgroundCluster) -> Iterator[User]:
    user = User(tmp_path, source)
    yield user
    if "XDG_RUNTIME_DIR" in user.environment:
        user.call("delete", "fork", "--all")


def test_a_fork_from_its_beginning_to_its_end(user: User, source: BackgroundCluster) -> None:
    said = user.run("fork", "--name", "before")
    assert 'fork "before" of "kubernetes-admin@kvstack" at revision ' in said.stdout
    assert f'context "before" added to {user.config}' in said.stdout
    assert "reading" not in said.stderr  # progress is for terminals
    assert user.contexts() == ["before", "kubernetes-admin@kvstack"]
    assert user.config.stat().st_mode & 0o777 == 0o600
    config = user.kubeconfig("before")
    call(config, lambda api: api.create(CONFIG_MAPS, "default", config_map("new", n="2")))
    found = call(source.kubeconfig, lambda api: api.list_page(CONFIG_MAPS, "default"))
    assert "new" not in {each["metadata"]["name"] for each in found.items}
    [fork] = user.forks()
    assert (fork["name"], fork["state"], fork["notCalled"]) == ("before", "live", [])
    assert fork["currentRevision"] > fork["revision"] > 0
    assert fork["memoryBytes"] > 0
    assert is_alive(fork["pid"])
    table = user.run("get", "forks").stdout.splitlines()
    assert table[0].split()[:3] == ["NAME", "SOURCE", "REVISION"]
    assert table[1].split()[:2] == ["before", "kubernetes-admin@kvstack"]
    different = user.run("diff", "kubernetes-admin@kvstack", "before", code=1).stdout
    assert "+ configmap default/new\n" in different
    assert different.endswith("1 added\n")
    assert "no difference" in user.run("diff", "before", "fork:before").stdout
    assert user.run("delete", "fork", "before").stdout == 'fork "before" deleted\n'
    user.assert_nothing_is_left(fork["pid"])


def test_names_are_numbered_and_several_live_at_once(user: User) -> None:
    for number in (1, 2):
        said = user.run("fork", "--add-context=false", BARE)
        assert f'fork "kubernetes-admin-kvstack-{number}"' in said.stdout
        path = Path(said.stdout.splitlines()[1].removeprefix("export KUBECONFIG="))
        assert call(path, lambda api: api.list_page(NODES)).items
    assert user.config.read_text() == user.before
    assert [each["name"][-1] for each in user.forks()] == ["1", "2"]
    taken = user.run("fork", "--name", "kubernetes-admin-kvstack-1", code=1)
    assert "there is a fork 'kubernetes-admin-kvstack-1' already" in taken.stderr
    user.call("delete", "forks", "--all")
    user.assert_nothing_is_left()


def test_a_fork_ends_by_itself(user: User) -> None:
    user.run("fork", "--name", "short", "--ttl", "1s", BARE)
    wait_for(lambda: user.contexts() == ["kubernetes-admin@kvstack"], "the context is gone")
    wait_for(lambda: not user.forks())
    user.assert_nothing_is_left()


def test_what_was_killed_is_cleaned_up_by_the_next_command(user: User) -> None:
    user.run("fork", "--name", "killed", BARE)
    [fork] = user.forks()
    os.kill(fork["pid"], signal.SIGKILL)
    # Its threads end after it, and with the last of them its lock.
    registry = ForkRegistry(user.runtime / "kvstack" / "forks")
    wait_for(lambda: not registry.is_alive("killed"))
    assert "killed" in user.contexts()
    assert user.forks() == []
    user.assert_nothing_is_left(fork["pid"])


def test_a_fork_of_a_session_ends_with_it(user: User) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        process = user.start("fork", "--detach=false", "--name", "mine", BARE)
        assert process.stdout is not None
        assert 'fork "mine"' in process.stdout.readline()
        assert [each["pid"] for each in user.forks()] == [process.pid]
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, errors) == (0, "")
        user.assert_nothing_is_left(process.pid)


def test_the_end_of_the_runtime_directory_ends_a_fork(user: User) -> None:
    """As at the end of a login session."""
    user.run("fork", "--name", "x", "--add-context=false", BARE)
    [fork] = user.forks()
    subprocess.run(["rm", "-r", str(user.runtime / "kvstack")], check=True)
    wait_for(lambda: not is_alive(fork["pid"]), "the fork has ended")


def test_interrupted_while_it_begins(user: User) -> None:
    """At whatever moment, nothing stays."""
    for delay_s in (0.3, 1.0, 2.0):
        process = user.start("fork", "--name", "x", start_new_session=True)
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=TIMEOUT_S)
        if process.returncode == 0:  # it was quicker
            user.call("delete", "fork", "x")
        user.forks()
        user.assert_nothing_is_left(process.pid)


def test_a_command_that_is_killed_takes_its_fork_along(user: User) -> None:
    process = user.start("fork", "--name", "x", start_new_session=True)
    wait_for(lambda: (user.runtime / "kvstack" / "forks" / "x").exists())
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    wait_for(lambda: not user.forks(), "no fork is left")
    user.assert_nothing_is_left()


def test_progress_on_a_terminal(user: User) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*KVSTACK, "fork", "--name", "x", BARE],
        env=user.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=child,
    )
    os.close(child)
    shown = b""
    try:
        while piece := os.read(parent, 1 << 16):
            shown += piece
    except OSError:
        pass  # the terminal is closed
    finally:
        os.close(parent)
    assert process.wait(TIMEOUT_S) == 0
    for text in (b"connecting to https://127.0.0.1:", b"reading: ", b"starting: "):
        assert text in shown
    assert shown.endswith(b"\r\x1b[K")  # nothing of it stays
    [fork] = user.forks()
    assert os.getsid(fork["pid"]) == fork["pid"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("fork", "nothing"),
            "'nothing' is not a fork, context, file, directory or etcd:// address",
        ),
        (
            ("fork", "--context", "none"),
            "context 'none' does not exist; there are kubernetes-admin",
        ),
        (("fork", "a", "b"), "kvstack fork does not take 'b'"),
        (("fork", "x", "--context", "y"), "--context y and the source x: give one of them"),
        (("fork", "--name", "../x"), "'../x' is not a valid name of a fork"),
        (("fork", "--without", "all"), "--without all: one of controllers"),
        (("fork", "--nodes", "many"), "--nodes many: a number from 0 to 10000, or none"),
        (("fork", "--ttl", "-1s"), "--ttl is negative"),
        (("fork", "--at", "yesterday"), "--at yesterday: a revision (48211), a time"),
        (("fork", "--max-objects", "0"), "--max-objects 0: 1 to"),
        (("fork", "-n", "A"), "--namespace A: "),
        (("fork", "--kubeconfig", "none"), "--kubeconfig none: file does not exist"),
        (("fork", "--colour"), "unknown flag: --colour"),
        (("open",), "kvstack open: SOURCE is required"),
        (("open", "empty"), "empty: the file is empty"),
        (("open", "odd"), "odd: not a packed file, an etcd database, YAML or JSON"),
        (("get", "pods"), "kvstack get pods: only forks can be listed"),
        (("get", "forks", "none"), "fork 'none' does not exist"),
        (("get", "forks", "-o", "xml"), "--output xml: table or json"),
        (("delete", "fork"), "kvstack delete fork: either names or --all is required"),
        (("delete", "fork", "none"), "fork 'none' does not exist"),
        (("pack",), "-o FILE is required"),
        (("pack", "-o", "no/such/x.kvs"), "no/such/x.kvs: No such file or directory"),
    ],
)
def test_errors_name_what_is_wrong(
    user: User,
    arguments: Sequence[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (user.directory / "empty").touch()
    (user.directory / "odd").write_bytes(b"\0\1\2" * 20)
    monkeypatch.chdir(user.directory)
    for name in ("XDG_RUNTIME_DIR", "KUBECONFIG"):
        monkeypatch.setenv(name, user.environment[name])
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert said.err.startswith("Error: ")
    assert message in said.err
    assert said.out == ""
    user.assert_nothing_is_left()


def test_errors_of_the_process_that_reads(user: User) -> None:
    (user.directory / "folder").mkdir()
    for arguments, told in (
        (("fork", "--max-objects", "5"), "there are more than 5 objects"),
        (("open", "folder"), "folder: no file ends in .yaml"),
    ):
        failed = user.run(*arguments, code=1)
        assert failed.stderr.startswith("Error: ")
        assert told in failed.stderr
        assert failed.stdout == ""
        user.assert_nothing_is_left()


def test_a_server_that_is_not_there(user: User) -> None:
    (port,) = free_ports(1)
    content = yaml.safe_load(user.before)
    content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    other = user.directory / "other"
    other.write_text(yaml.safe_dump(content))
    failed = user.run("fork", "--kubeconfig", str(other), code=1)
    assert f"Error: https://127.0.0.1:{port}: " in failed.stderr
    user.assert_nothing_is_left()
    assert user.call("diff", "kubernetes-admin@kvstack", "none", code=2)[0] == ""


def test_a_snapshot_is_opened_packed_and_compared(user: User) -> None:
    path = real_snapshot(user.directory)
    said = user.run("open", path.name, "--name", "old")
    begin = f'fork "old" of "{path.name}" at revision 390: read-only, 278 objects, '
    assert said.stdout.startswith(begin)
    [fork] = user.forks()
    assert (fork["state"], fork["currentRevision"]) == ("read-only", 390)
    told, warned = user.call("pack", path.name, "-o", "old.kvs", "--since", "5s")
    assert "old.kvs: 278 objects and " in told
    assert "secrets left out: 1 annotations, 11 environment variables" in warned
    user.call("pack", path.name, "-o", "same.kvs", "--since", "5s")
    one, other = ((user.directory / name).read_bytes() for name in ("old.kvs", "same.kvs"))
    assert one == other
    different, _ = user.call("diff", "old", "old.kvs", code=1)
    assert "~ secret shop/db" in different
    assert "hunter2" not in different
    _, warned = user.call("pack", "fork:old", "-o", "whole.kvs", "--keep-secrets")
    assert "the file contains the secrets of the cluster" in warned
    assert "no difference" in user.call("diff", "whole.kvs", path.name)[0]
    live = user.run("open", "old.kvs", "--live", "--name", "live")
    assert "read-only" not in live.stdout
    config = user.kubeconfig("live")
    call(config, lambda api: api.create(CONFIG_MAPS, "shop", config_map("new")))
    document = json.loads(user.call("diff", "old.kvs", "live", "-o", "json", code=1)[0])
    names = {(each["kind"], each["name"], each["change"]) for each in document["differences"]}
    assert ("ConfigMap", "new", "added") in names


def test_two_things_of_one_name(user: User) -> None:
    (user.directory / "x").mkdir()
    (user.directory / "x" / "a.yaml").write_text(
        "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\n"
    )
    user.run("open", "x", "--name", "x")
    _, told = user.call("diff", "x", "x", code=2)
    assert "'x' is ambiguous: use fork:x or file:x" in told
    assert "no difference" in user.call("diff", "fork:x", "file:x")[0]


def test_without_a_runtime_directory(user: User) -> None:
    temporary = user.directory / "tmp"
    temporary.mkdir()
    del user.environment["XDG_RUNTIME_DIR"]
    user.environment["TMPDIR"] = str(temporary)
    user.run("fork", "--name", "x", BARE)
    base = temporary / f"kvstack-{os.geteuid()}"
    assert base.stat().st_mode & 0o777 == 0o700
    user.run("delete", "fork", "x")
    base.chmod(0o755)
    failed = user.run("fork", code=1)
    assert f"{base} has mode 0755: others could read the keys of forks" in failed.stderr
    base.chmod(0o700)
    base.rename(temporary / "real")
    base.symlink_to(temporary / "real")
    assert f"{base} is not a directory" in user.run("get", "forks", code=1).stderr
    base.unlink()


def test_names_of_forks(tmp_path: Path) -> None:
    assert plain_name("arn:aws:eks:eu-west-1:123:cluster/prod") == "prod"
    assert plain_name("gke_project_zone_name") == "gke_project_zone_name"
    assert plain_name("kubernetes-admin@kvstack") == "kubernetes-admin-kvstack"
    assert plain_name("///") == "fork"
    assert len(plain_name("x" * 200)) < 60
    registry = ForkRegistry(tmp_path)
    reservation = registry.reserve("", "prod")
    assert reservation.name == "prod-1"
    assert registry.is_alive("prod-1")
    with pytest.raises(ForkError, match="there is a fork 'prod-1' already"):
        registry.reserve("prod-1", "")
    (tmp_path / "prod-1").rename(tmp_path / "moved")
    assert not reservation.is_there()
    reservation.give_up()
    assert (tmp_path / "moved").exists()  # whoever it belongs to now
    assert registry.forks() == []
    assert not (tmp_path / "moved").exists()
