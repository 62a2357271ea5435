"""What NetworkPolicies do elsewhere or may be taken to do, and do not here: docs/differences.md."""

from typing import Final

from kvstack.agents.network_policy.policies import RULES_MAX, SELECTORS_MAX
from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "connections that a new policy forbids",
        "they go on until they end; upstream leaves it open. New ones are judged",
    ),
    Absent(
        "ICMP and other protocols without ports, of isolated pods",
        "rules without `ports` let them pass, others do not; upstream leaves it open",
    ),
    Absent(
        f"more than {RULES_MAX:,} rules, or {SELECTORS_MAX:,} different selectors of peers, of one"
        " policy in one direction",
        "the direction allows nothing, and the log of the node says so",
    ),
    Absent(
        "the DNS of `kvstack up` as a peer by selector",
        "it is no pod: allow port 53 without `to`, or its address by `ipBlock`",
    ),
    Absent("pods with a container engine", "its plugins (CNI) enforce policies, or nobody does"),
)
