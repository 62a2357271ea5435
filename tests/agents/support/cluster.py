"""A control plane in this process: store in memory, API server, and the controllers asked for.

async with TestCluster(log) as cluster:
    await cluster.run_controllers([ReplicaController(REPLICA_SET)])
    await cluster.admin.create(…)
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kvstack.agents.client.activity import Activity
from kvstack.agents.client.api import Api
from kvstack.agents.client.api import Options as ApiOptions
from kvstack.agents.client.in_process import InProcess
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.controllers.light_objects import LIGHT
from kvstack.agents.controllers.options import SIGNERS, SignerOptions
from kvstack.agents.controllers.options import Options as ControllerOptions
from kvstack.agents.reconcile.local_users import LocalUsers
from kvstack.agents.reconcile.manager import Manager
from kvstack.agents.reconcile.plan import Controller
from kvstack.agents.reconcile.runner import Environment
from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
from kvstack.agents.standalone.local_agents import add_positions
from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.allocators.cluster_ips import address_range
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.settings.options import (
    AuthenticationOptions,
    Options,
    ServiceAccountOptions,
    ServingOptions,
)
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.clock import SystemClock
from kvstore import embed
from tests.support.list_log import ListLog
from tests.support.waiting import eventually as eventually

if TYPE_CHECKING:
    from kvstack.component.virtual_time.clock import LoopClock

ISSUER = "https://kubernetes.default.svc.cluster.local"
_ACCOUNT_GROUPS = ("system:serviceaccounts", "system:serviceaccounts:kube-system")
_AUTHENTICATED = "system:authenticated"


def stored_object(store: ObjectStore, key: str) -> Object:
    """Return an object that is in a store."""
    obj = store.get(key)
    assert obj is not None, f"{key} is not there"
    return obj


class TestCluster:
    """One control plane; all of it belongs to the running loop."""

    __test__ = False  # not a class of tests

    def __init__(
        self, directory: Path, *, seed: int = 1, own_time: ClusterTime | None = None
    ) -> None:
        """directory: for keys and certificates; own_time: of the running loop, if it is virtual."""
        self.log = ListLog()
        self.clock: SystemClock | LoopClock = SystemClock() if own_time is None else own_time.clock
        self.time = own_time
        self._directory = directory
        self._random = random.Random(seed)
        self._member: embed.Member | None = None
        self._closing = AsyncExitStack()
        self._informers: Informers | None = None
        self._managers: list[Manager] = []

    async def __aenter__(self) -> Self:
        files = CertFiles(self._directory)
        files.key("sa")
        member = await self._start_member()
        store = self.store = await self._closing.enter_async_context(member.store())
        clock, rng = None, None
        if self.time is not None:
            clock, rng = self.time.clock, random.Random(self._random.getrandbits(64))
        self.server = ApiServer(store, self._options(), self.log, clock=clock, random=rng)
        await self.server.start()
        await self.server.ready()
        self.admin = self.api("admin", "system:masters")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for manager in self._managers:
            await manager.stop()
        if self._informers is not None:
            await self._informers.close()
        await self.server.stop(1.0)
        await self._closing.aclose()
        if self._member is not None:
            await asyncio.to_thread(self._member.stop)

    async def _start_member(self) -> embed.Member | embed.LoopMember:
        if self.time is not None:
            on_loop = embed.start_on_loop(self.time.clock)
            self._closing.callback(on_loop.stop)
            return on_loop
        self._member = await asyncio.to_thread(embed.start)
        return self._member

    @property
    def agents(self) -> "TestCluster":
        """Who acts: the controllers."""
        return self

    def activity(self) -> Activity:
        """Return what controllers do now, and which of their watches are behind."""
        found = Activity()
        for manager in self._managers:
            manager.add_activity(found)
        add_positions(found, self.informers, self.server.registry)
        return found

    def api(self, name: str, *groups: str, user_agent: str = "test") -> Api:
        """Return the API as a user."""
        user = User(name, groups=(*groups, _AUTHENTICATED))
        token = self.server.local.token_for(user)
        return Api(InProcess(self.server.local.transport, token), ApiOptions(user_agent=user_agent))

    @property
    def informers(self) -> Informers:
        """Shared by all controllers."""
        if self._informers is None:
            api = self.api("system:kube-controller-manager", user_agent="kvstack")
            self._informers = Informers(
                api, self.clock, self._random.random, self.log, lighten=LIGHT
            )
        return self._informers

    def controller_options(self) -> ControllerOptions:
        """What controllers are told: an authority of the cluster, and the key of tokens."""
        certificate, key = _authority()
        signer = SignerOptions(certificate, key)
        return ControllerOptions(
            root_ca=certificate.decode(),
            service_account_key=(self._directory / "sa.key").read_bytes(),
            signers=dict.fromkeys(SIGNERS, signer),
        )

    async def run_controllers(self, controllers: Sequence[Controller]) -> Manager:
        """Run controllers until the cluster ends."""
        local = self.server.local

        def token_of(account: str) -> str:
            if not account:
                return local.token_for(
                    User("system:kube-controller-manager", groups=(_AUTHENTICATED,))
                )
            name = f"system:serviceaccount:kube-system:{account}"
            return local.token_for(User(name, groups=(*_ACCOUNT_GROUPS, _AUTHENTICATED)))

        environment = Environment(self.informers, self.clock, self._random.random, self.log)
        users = LocalUsers(local.transport, token_of, "kvstack")
        manager = Manager(controllers, users, environment)
        self._managers.append(manager)
        await manager.start()
        return manager

    def _options(self) -> Options:
        directory = self._directory
        return Options(
            serving=ServingOptions(
                bind_address="127.0.0.1",
                port=0 if self.time is None else 6443,
                cert_dir=str(directory),
                is_plain=True,
                listens=self.time is None,
            ),
            authentication=AuthenticationOptions(
                accounts=ServiceAccountOptions(
                    issuers=(ISSUER,),
                    key_files=(str(directory / "sa.pub"),),
                    signing_key_file=str(directory / "sa.key"),
                )
            ),
            authorization_modes=("RBAC",),
            service_ranges=(address_range("10.0.0.0/16"),),
            allow_privileged=True,
        )


def _authority() -> tuple[bytes, bytes]:
    """Return the certificate and the key of a new authority, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
