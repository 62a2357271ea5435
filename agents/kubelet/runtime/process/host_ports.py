"""hostPort without nft or iptables: listeners that forward to pods.

    ports = HostPorts()
    await ports.serve(uid, ("10.244.0.5",), [Port(80, 8080)])     StartError
    ports.drop(uid)

Pods see the node as their client. One address and port is one pod's: a second one that asks for it
is refused, as the listener would be. SCTP is not passed on.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from kvstack.agents.kubelet.runtime.process.network.translation import ANYWHERE
from kvstack.agents.kubelet.runtime.runtime import Port, StartError
from kvstack.component.net.hosts import join_host_port
from kvstack.component.net.relay import Destination, Relay, Room, Single, TcpRelay, UdpRelay

_FAILED: Final = "FailedCreatePodSandBox"


class HostPorts:
    """The listeners of one node; all of it belongs to one loop."""

    def __init__(self) -> None:
        """Listen nowhere."""
        self._relays: dict[str, list[Relay]] = {}
        self._room = Room()

    async def serve(self, uid: str, addresses: Sequence[str], ports: Sequence[Port]) -> None:
        """Listen for a pod, unless that is done; raises StartError."""
        if uid in self._relays:
            return
        relays = self._relays[uid] = []
        try:
            for port in ports:
                for address in addresses:
                    await self._listen(port, address, relays)
        except StartError:
            self.drop(uid)
            raise

    def drop(self, uid: str) -> None:
        """Stop listening for a pod; its connections go on."""
        for relay in self._relays.pop(uid, ()):
            relay.close()

    def close(self) -> None:
        """Stop listening."""
        for uid in list(self._relays):
            self.drop(uid)

    async def _listen(self, port: Port, address: str, relays: list[Relay]) -> None:
        """Listen on a port for an address of its pod, unless it is for the other family."""
        family = ip_address(address).version
        if port.host_ip and ip_address(port.host_ip).version != family:
            return
        if port.protocol == "SCTP":
            text = f"hostPort {port.host_port}/SCTP needs the program nft or iptables"
            raise StartError(_FAILED, text)
        target = Single(Destination(address, port.number))
        relay: Relay = TcpRelay(target, self._room) if port.protocol == "TCP" else UdpRelay(target)
        host = port.host_ip or ANYWHERE[family]
        try:
            await relay.listen(host, port.host_port)
        except OSError as error:
            where = join_host_port(host, port.host_port)
            text = f"hostPort {where}/{port.protocol}: {error.strerror or error}"
            raise StartError(_FAILED, text) from error
        relays.append(relay)
