"""How a node gets its certificates: from a bootstrap token, and anew before they expire."""

import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import CERTIFICATE_SIGNING_REQUESTS, NODES, SECRETS
from kvstack.agents.client.kubeconfig import connect, load
from kvstack.agents.kubelet.command import used_by
from kvstack.agents.kubelet.identity import bootstrap, certificates
from kvstack.agents.kubelet.identity.rotation import CLIENT_KIND, SERVING_KIND, Rotation
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.component.clock import SystemClock
from tests.agents.support.cluster import eventually
from tests.support.clocks import HandClock
from tests.support.list_log import ListLog
from tests.support.waiting import answered

pytestmark = pytest.mark.slow

NAME = "node-a"
ROLES = {
    # As kubeadm binds them.
    "system:node-bootstrapper": "system:bootstrappers",
    "system:certificates.k8s.io:certificatesigningrequests:nodeclient": "system:bootstrappers",
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": "system:nodes",
}


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[BackgroundCluster]:
    without = frozenset(("scheduler", "nodes"))
    flags = {"enable-bootstrap-token-auth": True}
    settings = Settings(nodes=0, without=without, flags=flags)
    with BackgroundCluster(directory, settings) as running:
        yield running


async def allow_bootstrap(admin: Api, running: BackgroundCluster, file: Path) -> None:
    """Make what a new node needs, as whoever sets up a cluster does."""
    data = {"token-id": "abcdef", "token-secret": "0123456789abcdef"}
    data["usage-bootstrap-authentication"] = "true"
    token = {
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    }
    await admin.create(SECRETS, "kube-system", token)
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    group = "rbac.authorization.k8s.io"
    for role, subject in ROLES.items():
        binding = {
            "metadata": {"name": f"test:{role}"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": subject}],
        }
        await admin.call("POST", path, None, orjson.dumps(binding))
    server = {"server": running.url, "certificate-authority": str(running.ca_file)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"token": "abcdef.0123456789abcdef"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    await asyncio.to_thread(file.write_text, yaml.safe_dump(content))


def serial(file: Path) -> int:
    return x509.load_pem_x509_certificate(file.read_bytes()).serial_number


async def approve(admin: Api, signer: str) -> None:
    """Approve the request for a signer, once it is there."""

    async def requests() -> list[dict[str, Any]]:
        listed = await admin.call("GET", CERTIFICATE_SIGNING_REQUESTS.path("", ""), None)
        return [each for each in listed["items"] if each["spec"]["signerName"] == signer]

    (request,) = await answered(requests)
    condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "by hand"}
    request.setdefault("status", {})["conditions"] = [condition]
    name = request["metadata"]["name"]
    path = CERTIFICATE_SIGNING_REQUESTS.path("", name, "approval")
    await admin.call("PUT", path, None, orjson.dumps(request))


async def user_of(api: Api) -> tuple[str, bool]:
    """Return by which name the server knows who asks, and whether it is a node."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    found = await api.call("POST", path, None, orjson.dumps(review))
    user = found["status"]["userInfo"]
    return user["username"], "system:nodes" in user["groups"]


def test_a_node_comes_with_a_token_and_renews_its_certificate(tmp_path: Path) -> None:
    async def story(running: BackgroundCluster) -> None:
        admin = Api(connect(load(running.kubeconfig)), Options())
        first, own, pki = tmp_path / "bootstrap.conf", tmp_path / "kubelet.conf", tmp_path / "pki"
        await allow_bootstrap(admin, running, first)
        await bootstrap.ensure(str(first), own, pki, NAME, SystemClock())
        assert own.stat().st_mode & 0o777 == 0o600
        assert not (pki / "kubelet-client.key.tmp").exists()

        transport = connect(load(own))
        api = Api(transport, Options())
        await api.create(NODES, "", {"metadata": {"name": NAME}})
        assert await user_of(api) == (f"system:node:{NAME}", True)
        before = serial(certificates.current(pki, certificates.CLIENT))
        await bootstrap.ensure(str(first), own, pki, NAME, SystemClock())
        rotation = Rotation(
            api,
            CLIENT_KIND,
            pki,
            NAME,
            (),
            used_by(transport),
            SystemClock(),
            lambda: 0.5,
            ListLog(),
        )
        assert serial(rotation.file) == before
        await rotation.renew()
        assert serial(rotation.file) != before
        assert await user_of(api) == (f"system:node:{NAME}", True)
        # The kubeconfig leads to the new one, too.
        assert load(own).credentials.certificate == rotation.file.read_bytes()
        await api.close()
        await admin.close()

    with cluster(tmp_path / "cluster") as running:
        asyncio.run(story(running))


def test_a_serving_certificate_waits_for_its_approval(tmp_path: Path) -> None:
    async def story(running: BackgroundCluster) -> None:
        admin = Api(connect(load(running.kubeconfig)), Options())
        first, own, pki = tmp_path / "bootstrap.conf", tmp_path / "kubelet.conf", tmp_path / "pki"
        await allow_bootstrap(admin, running, first)
        await bootstrap.ensure(str(first), own, pki, NAME, SystemClock())
        api, log = Api(connect(load(own)), Options()), ListLog()
        files: list[Path] = []

        async def use(file: Path) -> None:
            files.append(file)

        rotation = Rotation(
            api,
            SERVING_KIND,
            pki,
            NAME,
            ("10.0.0.1", NAME),
            use,
            SystemClock(),
            lambda: 0.5,
            log,
        )
        renewing = asyncio.create_task(rotation.run())
        await approve(admin, SERVING_KIND.signer)
        await eventually(lambda: files, within_s=20)
        renewing.cancel()
        found = x509.load_pem_x509_certificate(files[0].read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [NAME]
        assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files[0])
        assert not log.of("warning")
        await api.close()
        await admin.close()

    with cluster(tmp_path / "cluster") as running:
        asyncio.run(story(running))


def test_when_a_certificate_is_renewed(tmp_path: Path) -> None:
    async def use(_file: Path) -> None:
        return

    api, clock = cast("Api", None), HandClock(1e9)
    rotation = Rotation(api, CLIENT_KIND, tmp_path, NAME, (), use, clock, lambda: 0.5, ListLog())
    assert rotation.due_s() == 0.0
    assert not certificates.is_good(rotation.file, clock.now_s())
    key, now_s = certificates.new_key(), clock.now_s()
    pem = signed_by_itself(key, now_s, 1000)
    certificates.keep(tmp_path, certificates.CLIENT, pem, key, now_s)
    assert rotation.file.stat().st_mode & 0o777 == 0o600
    assert rotation.due_s() == now_s + 800
    clock.now += 999
    assert certificates.is_good(rotation.file, clock.now_s())
    clock.now += 1
    assert not certificates.is_good(rotation.file, clock.now_s())


def signed_by_itself(key: certificates.Key, now_s: float, lifetime_s: float) -> bytes:
    begin = dt.datetime.fromtimestamp(now_s, dt.UTC)
    name = x509.Name([])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(seconds=lifetime_s))
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)
