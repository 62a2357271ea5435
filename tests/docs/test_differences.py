"""docs/differences.md: what differs from Kubernetes 1.37.1; `--rewrite` writes it.

Its rows are the tables that the tests and the programs themselves go by.
"""

import re
from pathlib import Path

from kvstack.agents.controllers.table import ABSENT, PARTS_ABSENT
from kvstack.agents.dns.absent import ABSENT as OF_DNS
from kvstack.agents.kubelet.absent import ABSENT as OF_NODES
from kvstack.agents.kubelet.configuration import WITHOUT_EFFECT
from kvstack.agents.manager.flags import TABLE as MANAGER_FLAGS
from kvstack.agents.network_policy.absent import ABSENT as OF_POLICIES
from kvstack.agents.process.absent import Absent
from kvstack.agents.proxy.absent import ABSENT as OF_THE_PROXY
from kvstack.agents.proxy.flags import TABLE as PROXY_FLAGS
from kvstack.agents.scheduler.live.absent import ABSENT as OF_THE_SCHEDULER
from kvstack.agents.scheduler.live.flags import TABLE as SCHEDULER_FLAGS
from kvstack.agents.standalone.joining.absent import ABSENT as OF_JOINING
from kvstack.apimachinery.objects.text.value_limit import VALUES_MAX
from kvstack.apiserver.http.limits.unsent import CROWDED_SHARE, UNSENT_BYTES_ALL, USER_SHARE
from kvstack.apiserver.server.settings.flags import FLAGS as API_SERVER_FLAGS
from kvstack.clusters.absent import ABSENT as OF_FORKS
from kvstack.component.flags.flag_table import Effect, Flag
from kvstack.component.http.serving.listeners import ListenerLimits
from tests.agents.stories.differences import DIFFERENCES as STORIES
from tests.apiserver.player.tolerated import TOLERATED

USER_BYTES_MAX = UNSENT_BYTES_ALL // USER_SHARE
STALL_S = ListenerLimits().write_stall_timeout_s
DOCS = Path(__file__).parents[2] / "docs"
HEAD = """\
# What differs from Kubernetes 1.37.1

Written by `tests/docs/test_differences.py` from the tables that tests and programs go by. How much
of the recorded conversations is the same: [API server](../tests/apiserver/README.md),
[agents](../tests/agents/README.md). Why things are as they are: [DECISIONS.md](../DECISIONS.md).
The store's table is [surface.md](surface.md).
"""
STORE: tuple[tuple[str, str, str], ...] = (
    (
        "`--cors` not given",
        "every origin is served, `Access-Control-Allow-Origin: *`",
        "requests with an `Origin` that is not the server's own are 403, also preflights and"
        " WebSockets, and no such header is sent; so are requests that change something and that a"
        " browser marks as another site's (`Sec-Fetch-Site`)",
    ),
    (
        "`--cors` given with names",
        "other origins are served, without the header",
        "other origins are 403",
    ),
    ("`--cors=*`", "every origin is served", "the same"),
    (
        "`--host-whitelist` not given, no address but loopback's",
        "every `Host` is served",
        "only loopback's names and addresses and the hosts of `--listen-client-urls` and"
        " `--advertise-client-urls`; others are 421 with etcd's text. HTTPS and unix sockets are"
        " not restricted",
    ),
    ("`--host-whitelist=*`", "every `Host` is served", "the same"),
)
"""What it is about, etcd's answer, ours. Proved by tests/unit/server/test_http_site.py."""
PROGRAMS: tuple[tuple[str, tuple[Flag, ...]], ...] = (
    ("kvstack apiserver", tuple(API_SERVER_FLAGS)),
    ("kvstack controller-manager", MANAGER_FLAGS.flags),
    ("kvstack scheduler", SCHEDULER_FLAGS.flags),
    ("kvstack proxy", PROXY_FLAGS.flags),
)


def document() -> str:
    return "\n".join(
        (
            HEAD,
            _answers(),
            _limits(),
            _controllers(),
            _absent(),
            _scheduler(),
            _nodes(),
            _joining(),
            _proxy(),
            _policies(),
            _dns(),
            _forks(),
            _flags(),
            _store(),
        )
    )


def _answers() -> str:
    rows = "".join(
        f"| {each.why} | `{each.scenarios}` |\n".replace("\\|", "|") for each in TOLERATED
    )
    return (
        "## Answers of the API server\n\n"
        "| what differs | conversations in which it shows |\n|---|---|\n" + _escaped(rows)
    )


def _limits() -> str:
    rows = (
        (
            f"values in the body of a request: {VALUES_MAX:,}",
            "413, whatever the bytes; a stored object of 1.5 MiB has room for 15 bytes a value",
        ),
        (
            f"bytes of answers that one user's clients have not taken: {_mib(USER_BYTES_MAX)}, over"
            " all connections; what several answers share counts once. Once all users together hold"
            f" {_mib(UNSENT_BYTES_ALL)}, {_mib(UNSENT_BYTES_ALL // CROWDED_SHARE)}",
            "429 with Retry-After, and of watches that run those that are furthest behind are"
            " ended. `system:masters` is not counted",
        ),
        (
            "seats of a priority level that one flow's requests keep while their answers are not"
            " read: half of them; without priority and fairness half of --max-requests-inflight for"
            " one user",
            "more of its requests wait or are refused (429), and other flows go on",
        ),
        (
            "writes and WebSockets that a page of another site makes a browser send without a token"
            " (`Sec-Fetch-Site`, `Origin`), as with a client certificate or through kubectl proxy",
            "403, unless `--cors-allowed-origins` names the site",
        ),
        (
            f"seconds in which a client takes nothing although bytes wait: {STALL_S:g}, also of"
            " watches, logs and exec",
            "the stream of HTTP/2, or the connection, is ended",
        ),
    )
    lines = "".join(f"| {what} | {instead} |\n" for what, instead in rows)
    return (
        "## Limits of the API server that upstream does not have\n\n"
        f"| limit | beyond it |\n|---|---|\n{lines}"
    )


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


def _escaped(rows: str) -> str:
    """A pattern in a cell may have bars of its own."""
    return re.sub(r"`([^`]*)`", lambda found: f"`{found[1].replace('|', chr(92) + '|')}`", rows)


def _controllers() -> str:
    rows = "".join(f"| {why} | `{story}`, stage {n} |\n" for (story, n), why in STORIES.items())
    return f"## Controllers\n\n| what differs | story |\n|---|---|\n{rows}"


def _absent() -> str:
    rows = "".join(f"| `{each.name}` | {each.why} |\n" for each in (*ABSENT, *PARTS_ABSENT))
    return (
        "## Controllers that are absent\n\n`--controllers` takes their names, and runs nothing."
        " The last lacks a part alone.\n\n"
        f"| controller | what is missing |\n|---|---|\n{rows}"
    )


def _lacking(title: str, text: str, absent: tuple[Absent, ...]) -> str:
    rows = "".join(f"| {each.what} | {each.instead} |\n" for each in absent)
    return f"## {title}\n\n{text}\n\n| what | instead |\n|---|---|\n{rows}"


def _scheduler() -> str:
    text = "What kube-scheduler does and `kvstack scheduler` does not."
    return _lacking("Scheduler", text, OF_THE_SCHEDULER)


def _nodes() -> str:
    return _lacking("Nodes", "What kubelet does and `kvstack kubelet` does not.", OF_NODES)


def _joining() -> str:
    text = "What kubeadm does and `kvstack token` and `kvstack join` do not."
    return _lacking("Joining", text, OF_JOINING)


def _policies() -> str:
    text = "What may be expected of NetworkPolicies, and what nodes of processes do."
    return _lacking("NetworkPolicies", text, OF_POLICIES)


def _proxy() -> str:
    return _lacking("Proxy", "What kube-proxy does and `kvstack proxy` does not.", OF_THE_PROXY)


def _forks() -> str:
    text = "What forks, packs and comparisons of clusters do not do."
    return _lacking("Forks", text, OF_FORKS)


def _dns() -> str:
    return _lacking("DNS", "What CoreDNS does and `kvstack dns` does not.", OF_DNS)


def _flags() -> str:
    parts = [
        "## Flags\n\nEach program takes all flags of its original. These are accepted and have no"
        " effect (the log\nsays so), or end the start, because to ignore them would be unsafe.\n"
    ]
    for program, flags in PROGRAMS:
        for effect, what in ((Effect.IGNORED, "no effect"), (Effect.REFUSED, "refused")):
            names = sorted(each.name for each in flags if each.effect is effect)
            if names:
                parts.append(
                    f"**{program}, {what}:** {', '.join(f'`{name}`' for name in names)}.\n"
                )
    fields = ", ".join(f"`{name}`" for name in sorted(WITHOUT_EFFECT))
    parts.append(f"**KubeletConfiguration, no effect:** {fields}.\n")
    return "\n".join(parts)


def _store() -> str:
    rows = "".join(f"| {about} | {theirs} | {ours} |\n" for about, theirs, ours in STORE)
    return (
        "## The store and etcd\n\nThe JSON gateway and the other pages of the client port are"
        " closed to web pages: a page of any site\ncan make a browser on the same machine ask a"
        " store on loopback. Clients that are no browsers send\nno `Origin`, and notice nothing."
        f"\n\n| | etcd | kvstore |\n|---|---|---|\n{rows}"
    )


def test_the_document_is_up_to_date(rewrite: bool) -> None:  # noqa: FBT001
    path, now = DOCS / "differences.md", document()
    if rewrite:
        path.write_text(now)
    assert path.read_text() == now, f"run: pytest --rewrite {__file__}"
