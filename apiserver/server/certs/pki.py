"""The certificates of a whole cluster in one directory, as kubeadm lays them out.

ca            signs apiserver (shown to clients), admin (system:masters),
              apiserver-kubelet-client (shown to kubelets, system:masters)
front-proxy-ca  signs front-proxy-client
sa.key, sa.pub  sign and verify tokens of service accounts
"""

from pathlib import Path
from typing import Final

from kvstack.apiserver.policy.attributes import PRIVILEGED
from kvstack.apiserver.registry.timing import Clock
from kvstack.apiserver.server.addresses import advertised_address
from kvstack.apiserver.server.certs.cert_files import CertFiles
from kvstack.apiserver.server.certs.certificates import Profile
from kvstack.apiserver.server.certs.kubeconfig import kubeconfig, write_kubeconfig
from kvstack.apiserver.server.certs.serving_certificate import serving_hosts
from kvstack.apiserver.server.settings.options import Options
from kvstore.logger import Logger
from kvstore.runtime.clock import SystemClock

ADMIN: Final = "kubernetes-admin"


class Pki:
    """The certificates of a cluster, and the administrator's kubeconfig."""

    def __init__(
        self,
        directory: Path,
        kubeconfig_file: Path,
        options: Options,
        server_url: str,
        logger: Logger,
        clock: Clock | None = None,
    ) -> None:
        """Touch nothing yet."""
        serving = options.serving
        hosts = [serving.external_host, advertised_address(serving), serving.bind_address]
        self._files: Final = CertFiles(directory)
        self._kubeconfig: Final = kubeconfig_file
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
            (
                "apiserver-kubelet-client",
                "ca",
                Profile("kube-apiserver-kubelet-client", groups=(PRIVILEGED,)),
            ),
            ("admin", "ca", Profile(ADMIN, groups=(PRIVILEGED,))),
            ("front-proxy-client", "front-proxy-ca", Profile("front-proxy-client")),
        )

    def ensure(self) -> None:
        """Make what is missing, ends soon or is for other names; raises ConfigError."""
        now_s = self._clock.unix_ms() / 1000
        authority = self._files.authority("ca", "kubernetes", now_s)
        self._files.authority("front-proxy-ca", "front-proxy-ca", now_s)
        self._files.key("sa")
        for name, signer, profile in self._profiles:
            why = self._files.pair(name, signer, profile, now_s)
            if why:
                self._logger.info("made a certificate", name=name, why=why)
        admin = self._files.read("admin")
        assert admin is not None, "it was just made"
        content = kubeconfig(self._url, authority.cert, ADMIN, admin)
        if write_kubeconfig(self._kubeconfig, content):
            self._logger.info("wrote a kubeconfig", file=str(self._kubeconfig))
