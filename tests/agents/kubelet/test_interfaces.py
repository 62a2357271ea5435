"""What went through interfaces."""

from kvstack.agents.kubelet.runtime.process.network.pod_network import pair_name
from kvstack.agents.kubelet.server.interfaces import Traffic, of_node, of_pod, read

DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0
  eth0: 100 2 3 4 0 0 0 0 400 5 6 7 0 0 0 0
 {pair}: 7 1 8 11 0 0 0 0 9 1 10 12 0 0 0 0
kv-0a1b2c3d: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0
"""


def test_a_pod_sees_its_side() -> None:
    found = read(DEV.replace("{pair}", pair_name("u")))
    assert [each.name for each in of_node(found)] == ["eth0", "kv-0a1b2c3d"]
    assert found[0] == Traffic("eth0", 100, 3, 400, 6, 2, 4, 5, 7)
    assert of_pod(found, "u") == Traffic("eth0", 9, 10, 7, 8, 1, 12, 1, 11)
    assert of_pod(found, "other") is None
