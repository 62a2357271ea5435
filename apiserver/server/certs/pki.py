"""The certificates of a whole cluster in one directory, as kubeadm lays them out.

ca            signs apiserver (shown to clients), apiserver-kubelet-client (shown to kubelets),
              admin (of kubeadm:cluster-admins) and super-admin (of system:masters)
front-proxy-ca  signs front-proxy-client
sa.key, sa.pub  sign and verify tokens of service accounts

The administrator has the rights of a ClusterRoleBinding, which can be revoked. The super-admin,
whose kubeconfig `super-admin.conf` is in the parent directory, is not restricted by RBAC and serves
to repair it. The user of the kubelet client certificate is in no group: an address that a node
reports may lead to the API server itself, where that user may read a kubelet's pages and nothing
else.
"""

from pathlib import Path
from typing import Final

from kvstack.apimachinery.attributes import CLUSTER_ADMINS, PRIVILEGED
from kvstack.apiserver.server.addresses import advertised_address
from kvstack.apiserver.server.certs.serving_certificate import serving_hosts
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile, new_key
from kvstack.component.certs.kubeconfig import kubeconfig, write_kubeconfig
from kvstack.component.clock import Clock, SystemClock
from kvstack.component.logger import Logger

ADMIN: Final = "kubernetes-admin"
SUPER_ADMIN: Final = "kubernetes-super-admin"
_TOKENS: Final = "sa"
KUBELET_CLIENT: Final = Profile("kube-apiserver-kubelet-client")
ADMINISTRATORS: Final = (
    ("admin", Profile(ADMIN, groups=(CLUSTER_ADMINS,))),
    ("super-admin", Profile(SUPER_ADMIN, groups=(PRIVILEGED,))),
)
"""Their files, and the subjects of their certificates."""


class Pki:
    """The certificates of a cluster, and the administrators' kubeconfigs."""

    def __init__(
        self,
        directory: Path,
        kubeconfig_file: Path,
        options: Options,
        server_url: str,
        logger: Logger,
        clock: Clock | None = None,
    ) -> None:
        """Hold paths and settings; no file is read or written."""
        serving = options.serving
        hosts = [serving.external_host, advertised_address(serving), serving.bind_address]
        self._files: Final = CertFiles(directory)
        self._token_key: tuple[bytes, bytes] | None = None
        self._kubeconfigs: Final = {
            "admin": kubeconfig_file,
            "super-admin": directory.parent / "super-admin.conf",
        }
        self._url: Final = server_url
        self._logger: Final = logger
        self._clock: Final = clock or SystemClock()
        self._profiles: Final = (
            (
                "apiserver",
                "ca",
                Profile(
                    "kube-apiserver",
                    hosts=serving_hosts(hosts, options.service_ranges),
                    serves=True,
                ),
            ),
            ("apiserver-kubelet-client", "ca", KUBELET_CLIENT),
            *((name, "ca", profile) for name, profile in ADMINISTRATORS),
            ("front-proxy-client", "front-proxy-ca", Profile("front-proxy-client")),
        )

    def prepare(self) -> None:
        """Generate missing keys in memory, which takes long; nothing is written."""
        if not self._files.key_file(_TOKENS).exists():
            self._token_key = new_key()

    def ensure(self) -> None:
        """Make what is missing, expires soon or is for other names; raises ConfigError."""
        now_s = self._clock.unix_ms() / 1000
        authority = self._files.authority("ca", "kubernetes", now_s)
        self._files.authority("front-proxy-ca", "front-proxy-ca", now_s)
        self._files.key(_TOKENS, self._token_key)
        for name, signer, profile in self._profiles:
            why = self._files.pair(name, signer, profile, now_s)
            if why:
                self._logger.info("made a certificate", name=name, why=why)
        for name, profile in ADMINISTRATORS:
            pair = self._files.read(name)
            assert pair is not None, "it was just made"
            content = kubeconfig(self._url, authority.cert, profile.name, pair)
            if write_kubeconfig(self._kubeconfigs[name], content):
                self._logger.info("wrote a kubeconfig", file=str(self._kubeconfigs[name]))
