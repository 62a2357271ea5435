"""Dockerfile, compose file, unit and certificates, as far as they can be held to account without
Docker and systemd: every flag and variable in them is one the server takes."""

import ast
import base64
import configparser
import re
import shlex
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.agents.kubelet.command import split_flags
from kvstack.agents.kubelet.hollow.flags import TABLE as HOLLOW_TABLE
from kvstack.agents.manager.flags import TABLE as MANAGER_TABLE
from kvstack.agents.scheduler.live.command_line import read_flags
from kvstack.agents.scheduler.live.flags import TABLE as SCHEDULER_TABLE
from kvstack.agents.standalone import bindings_command
from kvstack.agents.standalone.joining.join_command import read_arguments
from kvstack.apiserver.server.certs import certs_command
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.apiserver.server.settings.options import options_of
from kvstack.component.certs.certificates import hosts_of
from kvstack.component.flags.command_line import read_command_line as read_apiserver
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.process.systemd import VARIABLE, notify_ready
from kvstore.config.flags import BY_NAME, FLAGS
from kvstore.config.initial_cluster import initial_members
from kvstore.config.model import Config, TlsConfig
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from tests.support.list_log import ListLog

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose.yaml"
DOCKERFILE = ROOT / "Dockerfile"
UNIT = ROOT / "packaging" / "kvstore.service"
FASTEST_PYTHON = ROOT / "packaging" / "fastest-python.sh"
MEMBERS = ("kvstore1", "kvstore2", "kvstore3")
NODES = ("node1", "node2")

_DEFAULT = re.compile(r"\$\{(\w+):-([^}]*)\}")


def _compose() -> dict[str, Any]:
    """Return the compose file as it is without any variable set."""
    found: dict[str, Any] = yaml.safe_load(_DEFAULT.sub(r"\2", COMPOSE.read_text()))
    return found


def _instructions() -> list[tuple[str, str]]:
    """Return (instruction, the rest) of the Dockerfile, continued lines joined."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def _config(name: str) -> Config:
    service = _compose()["services"][name]
    return configure(read_command_line(service["command"]), service["environment"])


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_of_the_compose_file_is_one_the_server_takes(name: str) -> None:
    config = _config(name)
    assert config.warnings == []
    members = initial_members(config, socket.gethostbyname)
    assert sorted(members) == sorted(MEMBERS)
    assert members[name] == config.initial_advertise_peer_urls
    assert config.name == name
    urls = (*config.listen_client_urls, *config.listen_peer_urls, *config.advertise_client_urls)
    assert all(url.startswith("https://") for url in urls)
    assert config.client_tls.client_cert_auth
    assert config.peer_tls.client_cert_auth


@pytest.mark.parametrize("name", MEMBERS)
def test_volumes_health_and_certificates_fit_together(name: str) -> None:
    compose = _compose()
    service = compose["services"][name]
    volumes = dict(each.split(":")[:2][::-1] for each in service["volumes"])
    assert set(volumes.values()) <= compose["volumes"].keys()
    config = _config(name)
    assert config.data_dir in volumes
    made = {f"/certs/{each}.{kind}" for each in (*MEMBERS, "client") for kind in ("crt", "key")}
    files = [
        getattr(tls, field)
        for tls in (config.client_tls, config.peer_tls)
        for field in TlsConfig.__slots__
        if field.endswith("_file") and getattr(tls, field)
    ]
    assert set(files) <= {*made, "/certs/ca.crt"}
    assert len(files) == 6
    test = service["healthcheck"]["test"]
    (metrics,) = config.listen_metrics_urls
    assert f'"{metrics}/health"' in test[-1]
    compile(test[-1], "healthcheck", "exec")
    assert service["depends_on"]["certs"]["condition"] == "service_completed_successfully"


def _mounts(service: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return source, target and mode of the volumes of a service."""
    parts = [volume.split(":") for volume in service.get("volumes", ())]
    return [(each[0], each[1], "".join(each[2:])) for each in parts]


def _is_of_nodes(name: str, source: str, target: str, mode: str) -> bool:
    """Tell whether a mount is the token of nodes, written by one container, or a node's own."""
    if source == "join":
        return (name, target, mode) == ("joining", "/join", "") or (
            name in NODES and (target, mode) == ("/join", "ro")
        )
    return name in NODES and (source, target, mode) in {
        (name, "/var/lib/kubelet", ""),
        ("./images", "/images", "ro"),
        ("/sys/fs/cgroup", "/sys/fs/cgroup", "rw"),
    }


@pytest.mark.parametrize("name", sorted(_compose()["services"].keys() - {"certs"}))
def test_a_container_sees_the_files_that_it_uses_and_no_others(name: str, tmp_path: Path) -> None:
    services = _compose()["services"]
    words = [each for each in services["certs"]["command"] if not each.startswith("--owner")]
    assert certs_command.main([*words, f"--directory={tmp_path}"]) == 0
    machines = {source: target for source, target, _ in _mounts(services["certs"])}
    seen: set[str] = set()
    for source, target, mode in _mounts(services[name]):
        if source not in machines:
            assert source.startswith("data") or _is_of_nodes(name, source, target, mode), source
            continue
        assert (target, mode) == ("/certs", "ro")
        assert machines[source] != "/certs", f"{name} sees the keys of all"
        directory = tmp_path / Path(machines[source]).relative_to("/certs")
        files = [each for each in directory.rglob("*") if each.is_file()]
        seen |= {f"/certs/{each.relative_to(directory)}" for each in files}
        for each in files:
            is_secret = each.suffix in (".key", ".conf")
            assert stat.S_IMODE(each.stat().st_mode) == (0o600 if is_secret else 0o644), each
    service = services[name]
    texts = [*service.get("entrypoint", ()), *service.get("command", ())]
    texts += (service.get("environment") or {}).values()
    assert seen == {found for text in texts for found in re.findall(r"/certs/[\w./-]+", text)}
    signing = {each for each in seen if each.endswith("/ca.key")}
    assert signing == (
        {"/certs/kubernetes/pki/ca.key"} if name.startswith("controller-manager") else set()
    )
    assert not {each for each in seen if each.endswith("/admin.conf")}
    assert name in ("authorization", "joining") or not {
        each for each in seen if "super-admin" in each
    }


def test_members_share_nothing_they_should_not() -> None:
    services = [_compose()["services"][name] for name in MEMBERS]
    for what in ("ports", "command"):
        assert len({str(each[what]) for each in services}) == 3
    assert len({each["volumes"][1] for each in services}) == 3
    assert all(each["ports"][0].startswith("127.0.0.1:") for each in services)


def test_nodes_of_processes_have_what_they_need_and_start_only_if_requested() -> None:
    services = _compose()["services"]
    strong = {name for name, each in services.items() if "cap_add" in each or "privileged" in each}
    assert strong == set(NODES)
    assert not any("privileged" in each for each in services.values())
    arguments = {}
    for name in NODES:
        node = services[name]
        assert node["profiles"] == ["pods"]
        assert (node["user"], node["cgroup"]) == ("0:0", "host")
        assert {"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE"} <= set(node["cap_add"])
        assert not {"SYS_MODULE", "SYS_BOOT", "SYS_RAWIO", "ALL"} & set(node["cap_add"])
        needs = node["depends_on"]
        assert needs["joining"]["condition"] == "service_completed_successfully"
        arguments[name] = read_arguments(_join_words([*node["entrypoint"][2:], *node["command"]]))
    # Two nodes of one machine share none of its control groups.
    groups = [each.rpartition("=")[2] for node in NODES for each in services[node]["command"]]
    assert len(set(groups)) == len(groups)
    assert {each.node for each in arguments.values()} == set(NODES)
    # Without them nobody gets a token.
    assert services["joining"]["profiles"] == ["pods"]
    assert not any("join" in word for word in services["authorization"]["command"])
    binding = read_apiserver(services["joining"]["command"], "x", bindings_command.TABLE)
    told = FlagReader(binding, [])
    for agent in ("apiserver1", "controller-manager1"):
        words = services[agent]["entrypoint"] + services[agent]["command"]
        for flag in ("--cluster-cidr", "--service-cluster-ip-range"):
            for word in words:
                if word.startswith(f"{flag}="):
                    assert word == f"{flag}={told.text(flag.removeprefix('--'))}"
    assert "--enable-bootstrap-token-auth" in services["apiserver1"]["command"]


def _join_words(words: list[str]) -> list[str]:
    """Return arguments of `kvstack join`, with an address for the file that is not there."""
    file = "--discovery-file=/join/join.conf"
    assert file in words
    own = [each for each in words if each != file]
    split_flags([*(each for each in own if not each.startswith("--node-name")), "--kubeconfig=x"])
    return ["api:6443", *own]


def test_the_image_of_nodes_has_nft() -> None:
    assert _compose()["services"]["node1"]["build"]["args"]["PACKAGES"] == "nftables"


def test_arguments_of_the_build_are_declared() -> None:
    declared = {text.split("=")[0] for word, text in _instructions() if word == "ARG"}
    assert _compose()["services"]["kvstore1"]["build"]["args"].keys() <= declared


def test_the_dockerfile_copies_what_is_there_and_not_ignored() -> None:
    kept = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    stages = {match[1] for match in re.finditer(r" AS (\S+)", DOCKERFILE.read_text())}
    for word, text in _instructions():
        if word != "COPY":
            continue
        if text.startswith("--from="):
            assert text.split()[0].removeprefix("--from=") in stages
            continue
        for source in shlex.split(text)[:-1]:
            assert (ROOT / source).exists(), source
            assert source.split("/")[0] in kept, source
    assert {"crate-with", "crate-without"} <= stages


def test_the_image_starts_with_flags_the_server_takes() -> None:
    (command,) = (text for word, text in _instructions() if word == "CMD")
    config = configure(read_command_line(yaml.safe_load(command)), {})
    assert config.listen_client_urls == ("http://0.0.0.0:2379",)
    (volume,) = (text for word, text in _instructions() if word == "VOLUME")
    assert config.data_dir == volume
    (user,) = (text for word, text in _instructions() if word == "USER")
    assert user == "kvstore"


def _name(requirement: str) -> str:
    """Return the bare, normal name of a requirement such as PyJWT[crypto]>=2."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def test_what_is_imported_is_declared_and_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {_name(each) for each in project["dependencies"]}
    locked = {
        _name(line)
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if re.match(r"\w", line)
    }
    assert declared <= locked
    distributions = packages_distributions()
    imported: set[str] = set()
    folders = (ROOT / name for name in ("kvstore", "kvstack", "apiserver", "agents"))
    for path in chain.from_iterable(folder.rglob("*.py") for folder in folders):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    missing = {
        name: found
        for name in imported
        - set(sys.stdlib_module_names)
        - {"kvstore", "kvstack", "google", "pytest"}  # the plugin is loaded by pytest
        if not (found := {_name(each) for each in distributions.get(name, [name])}) & locked
    }
    assert missing == {}


def test_every_file_the_server_reads_is_in_the_package() -> None:
    """Pages, for one: what is no Python has to be named to be installed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    named = {
        file
        for package, patterns in settings["package-data"].items()
        for pattern in patterns
        for file in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    native = ROOT / "kvstore" / "native"
    ignored = {".py", ".pyc", ".pyi", ".so"}
    files = {
        path
        for path in (ROOT / "kvstore").rglob("*")
        if path.is_file() and path.suffix not in ignored and native not in path.parents
    }
    assert files - named == set()


def _unit() -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(UNIT.read_text())
    return unit


def test_the_unit_asks_for_what_the_server_does() -> None:
    service = _unit()["Service"]
    assert service["Type"] == "notify"  # see test_the_server_tells_when_it_is_ready
    name, _, value = service["Environment"].partition("=")
    assert configure(read_command_line([]), {name: value}).data_dir == value
    assert value == f"/var/lib/{service['StateDirectory']}"
    assert shlex.split(service["ExecStart"]) == ["/opt/kvstore/bin/kvstore"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("/opt/kvstore/bin/kvstore\n", f"{shutil.which('true')}\n")
    (tmp_path / UNIT.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_is_notified_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    logger = ListLog()
    notify_ready(logger)  # nobody asks: nothing is done
    address = str(tmp_path / "notify")
    shown = address if kind == "path" else f"@{address}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address if kind == "path" else f"\0{address}")
        listener.settimeout(10)
        monkeypatch.setenv(VARIABLE, shown)
        notify_ready(logger)
        assert listener.recv(100) == b"READY=1"
    assert logger.lines == []


def test_a_socket_that_is_not_there_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = ListLog()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))
    notify_ready(logger)
    ((msg, _fields),) = logger.of("warning")
    assert msg == "failed to notify systemd for readiness"


def test_certificates_are_good_for_both_sides_and_made_once(tmp_path: Path) -> None:
    arguments = [f"--directory={tmp_path}", "--members=one,two", "--server=https://api:1"]
    assert certs_command.main(arguments) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert sorted(path.name for path in tmp_path.glob("*.*")) == sorted(
        f"{name}.{kind}" for name in ("ca", "client", "one", "two") for kind in ("crt", "key")
    )
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.rglob("*.key"))
    assert certs_command.main(arguments) == 0
    assert {path: path.read_bytes() for path in before} == before
    for client in ("client", "two"):
        _shake_hands(tmp_path, "one", client)
    with pytest.raises(ssl.SSLError):
        _shake_hands(tmp_path, "client", "two")  # a client's certificate is no server's


def test_agents_are_named_in_their_kubeconfigs(tmp_path: Path) -> None:
    arguments = [f"--directory={tmp_path}", "--server=https://api:1", "--api-servers=api,10.1.2.3"]
    assert certs_command.main(arguments) == 0
    users = {}
    for path in (tmp_path / "kubernetes").glob("*.conf"):
        config = yaml.safe_load(path.read_text())
        server = config["clusters"][0]["cluster"]["server"]
        shown = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
        subject = x509.load_pem_x509_certificate(shown).subject
        (name,) = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        assert config["users"][0]["name"] == name.value
        users[path.stem] = (name.value, *(each.value for each in groups), server)
    local = "https://localhost:6443"
    assert users == {
        "admin": ("kubernetes-admin", "kubeadm:cluster-admins", local),
        "super-admin": ("kubernetes-super-admin", "system:masters", "https://api:1"),
        "controller-manager": ("system:kube-controller-manager", "https://api:1"),
        "scheduler": ("system:kube-scheduler", "https://api:1"),
        "nodes": ("kvstack:hollow-nodes", "kvstack:hollow-nodes", "https://api:1"),
    }
    server_cert = x509.load_pem_x509_certificate(
        (tmp_path / "kubernetes" / "pki" / "apiserver.crt").read_bytes()
    )
    assert {"api", "10.1.2.3", "10.96.0.1", "kubernetes.default.svc"} <= set(hosts_of(server_cert))


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--owner=root", "--owner root: must be UID:GID in numbers"),
        ("--service-cluster-ip-range=x", "--service-cluster-ip-range: "),
        ("--colour=red", "unknown flag: --colour"),
    ],
)
def test_what_certs_cannot_do_is_reported(
    argument: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certs_command.main([f"--directory={tmp_path}", argument]) == 1
    assert text in capsys.readouterr().err


_READERS = {
    ("kvstack", "apiserver"): lambda words: options_of(read_apiserver(words, "x", TABLE)),
    ("kvstack", "certs"): lambda words: read_apiserver(words, "x", certs_command.TABLE),
    ("kvstack", "bindings"): lambda words: read_apiserver(words, "x", bindings_command.TABLE),
    ("kvstack", "controller-manager"): lambda words: read_apiserver(words, "x", MANAGER_TABLE),
    ("kvstack", "join"): lambda words: read_arguments(_join_words(words)),
    ("kvstack", "scheduler"): lambda words: read_flags(read_apiserver(words, "x", SCHEDULER_TABLE)),
    ("kvstack", "hollow-nodes"): lambda words: read_apiserver(words, "x", HOLLOW_TABLE),
    ("kvstore", "gateway"): lambda words: None,
}


@pytest.mark.parametrize("name", sorted(_compose()["services"].keys() - set(MEMBERS)))
def test_every_service_has_flags_that_its_command_takes(name: str) -> None:
    service = _compose()["services"][name]
    program, command, *words = service["entrypoint"] + service["command"]
    _READERS[program, command](words)
    for each in service.get("depends_on", {}):
        assert each in _compose()["services"]


def _shake_hands(certs: Path, server: str, client: str) -> None:
    """Do a TLS handshake in memory, both sides asking for a certificate."""
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certs / "ca.crt")
    theirs.verify_mode = ssl.CERT_REQUIRED
    theirs.load_cert_chain(certs / f"{server}.crt", certs / f"{server}.key")
    own = ssl.create_default_context(cafile=certs / "ca.crt")
    own.load_cert_chain(certs / f"{client}.crt", certs / f"{client}.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        own.wrap_bio(to_client, to_server, server_hostname=server),
        theirs.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends.copy():
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    assert not ends


def test_help_has_etcds_groups_in_etcds_order() -> None:
    groups = list(dict.fromkeys(flag.group for flag in FLAGS))
    assert groups == [
        "General",
        "Member",
        "Clustering",
        "Security",
        "Auth",
        "Profiling and Monitoring",
        "Logging",
        "Distributed tracing",
        "Features",
        "Unsafe feature",
        "Of this server, not of etcd",
    ]
    assert BY_NAME["name"].group == "Member"


def _fastest_python(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script where only directory has a Python."""
    tools = directory / "tools"
    tools.mkdir()
    for tool in ("sh", "sort", "head"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    return subprocess.run(
        [FASTEST_PYTHON, *arguments],
        env={"PATH": f"{directory}:{tools}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _python(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_fastest_python_is_found_whatever_else_is_called_so(tmp_path: Path) -> None:
    _python(tmp_path / "python3.13", "echo this version is not installed; exit 127")
    _python(tmp_path / "python3.12", "echo 0.900000 12 /opt/slow/python3.12")
    _python(tmp_path / "python3.11", "echo 0.100000 11 /opt/fast/python3.11")
    _python(tmp_path / "python3", "echo 0.200000 11 /opt/fast/python3.11")
    done = _fastest_python(tmp_path)
    assert (done.returncode, done.stdout) == (0, "/opt/fast/python3.11\n"), done.stderr


def test_the_newest_python_is_found_and_of_its_builds_the_fastest(tmp_path: Path) -> None:
    _python(tmp_path / "python3.13", "echo 0.900000 13 /opt/slow/python3.13")
    _python(tmp_path / "python3", "echo 0.800000 13 /opt/fast/python3.13")
    _python(tmp_path / "python3.11", "echo 0.100000 11 /opt/fast/python3.11")
    done = _fastest_python(tmp_path, "newest")
    assert (done.returncode, done.stdout) == (0, "/opt/fast/python3.13\n"), done.stderr


def test_a_python_that_can_run_the_server_is_measured(tmp_path: Path) -> None:
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    if not base.exists():
        pytest.skip(f"there is no {base}")
    (tmp_path / base.name).symlink_to(base)
    done = _fastest_python(tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{base.resolve()}\n"), done.stderr


def test_without_a_python_the_install_says_which_are_meant(tmp_path: Path) -> None:
    _python(tmp_path / "python3", "exit 1")  # an older one
    done = _fastest_python(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no Python 3.11, 3.12, 3.13 or 3.14 with venv and ensurepip is on PATH\n"
