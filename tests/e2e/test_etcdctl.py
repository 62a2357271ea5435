"""Every etcdctl command of the services at hand, played on etcd and on this server alike.

Both servers are started once and get every play in the same order, so that their revisions, log
indexes and terms agree. A play sees only its own keys.
"""

import difflib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.ctl import Ctl, Play
from tests.support.servers import Server, etcd, ours, running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("etcdctl")]

PEER_URL = "http://127.0.0.1:2380"  # what members' ids are made of; nobody listens there
SAME_IDS = [f"--initial-advertise-peer-urls={PEER_URL}", f"--initial-cluster=default={PEER_URL}"]

# Not here: comparing leases in txn, where etcdctl's parser panics before it sends anything.
SCRIPTS = {
    "get": """
        put get/a 1
        put get/b 2
        put get/c 3
        put get/b 22
        put get/bb "two words"
        put get/d ""
        get get/a
        get get/none
        get get/d
        get get/ --prefix
        get get/b get/d
        get get/bb --from-key --limit=2
        get "" --prefix --limit=1
        get "" --from-key --limit=1 --keys-only
        get get/ --prefix --rev={r+3}
        get get/b --rev={r+2}
        get get/b --rev={r+3} -w json
        get get/b --rev={r+100}
        get get/b --rev=-1
        get get/ --prefix --limit=2
        get get/ --prefix --limit=2 -w json
        get get/ --prefix --order=ASCEND --sort-by=KEY
        get get/ --prefix --order=DESCEND --sort-by=KEY
        get get/ --prefix --order=DESCEND
        get get/ --prefix --sort-by=CREATE
        get get/ --prefix --order=DESCEND --sort-by=CREATE
        get get/ --prefix --order=ASCEND --sort-by=MODIFY
        get get/ --prefix --order=DESCEND --sort-by=MODIFY --limit=1
        get get/ --prefix --order=DESCEND --sort-by=VALUE
        get get/ --prefix --order=ASCEND --sort-by=VERSION
        get get/ --prefix --order=DESCEND --sort-by=VERSION --keys-only
        get get/ --prefix --order=SIDEWAYS
        get get/ --prefix --sort-by=COLOUR
        get get/ --prefix --keys-only
        get get/ --prefix --keys-only -w json
        get get/ --prefix --count-only
        get get/ --prefix --count-only -w fields
        get get/ --prefix --count-only --rev={r+2} -w json
        get get/ --prefix --print-value-only
        get get/ --prefix --consistency=s
        get get/ --prefix --consistency=l
        get get/ --prefix --consistency=x
        get get/ --prefix --from-key
        get get/ --prefix --hex
        get get/ --prefix -w fields
        get get/ --prefix -w json
        get get/ --prefix -w json --hex
        get get/ --prefix -w protobuf
        get get/ --prefix -w table
        get
    """,
    "put": r"""
        put put/a 1
        put put/a 2 --prev-kv
        put put/a 3 --prev-kv -w json
        put put/a 4 --prev-kv -w fields
        put put/a 5 --prev-kv -w protobuf
        put put/new x --prev-kv
        put put/a 6 -w table
        put put/stdin <<< from standard input\nin two lines\n
        get put/stdin -w json
        put put/a -- -5
        get put/a
        put "" 1
        put put/a --ignore-value
        get put/a -w fields
        put put/none --ignore-value
        put put/none x --ignore-lease
        put put/a 1 --lease=7b
        put put/a 1 --lease=zz
        lease grant 600
        put put/a leased --lease={lease}
        get put/a -w fields
        put put/a kept --ignore-lease
        get put/a -w json
        put put/a --ignore-value --ignore-lease
        get put/a -w fields
        put put/a x --ignore-value
        put put/a x --lease={lease} --ignore-lease
        put put/a unleased
        get put/a -w fields
        lease revoke {lease}
        get put/a
        put "put/ü€ \t" "välue \x00"
        get put/ --prefix -w json
        put onlykey
    """,
    "del": """
        put del/a 1
        put del/b 2
        put del/c 3
        put del/d 4
        put del/e/1 5
        put del/e/2 6
        del del/none
        del del/a
        del del/a
        del del/b --prev-kv
        put del/a 1
        put del/b 2
        del del/b --prev-kv -w json
        del del/a --prev-kv -w fields
        del del/c del/d
        del del/e/ --prefix --prev-kv
        del del/e/ --prefix -w json
        get del/ --prefix
        get del/ --prefix --rev={r+6}
        get del/ --prefix --rev={r+7} -w json
        put zzz/del/a 1
        put zzz/del/b 2
        del zzz/del/ --from-key -w fields
        del zzz/del/ --from-key -w protobuf
        del a b --prefix
        del a --prefix --from-key
        del ""
        del
    """,
    "txn": r"""
        put txn/a 1
        txn <<< value("txn/a") = "1"\n\nput txn/b yes\nget txn/a\n\nput txn/b no\n\n
        get txn/b -w fields
        txn <<< value("txn/a") > "1"\n\nput txn/b yes\n\nput txn/b no\nget txn/ --prefix\n\n
        txn <<< value("txn/a") < "2"\nvalue("txn/a") != "3"\n\nget txn/a\n\n\n
        txn <<< version("txn/a") = "1"\n\nget txn/a\n\n\n
        txn <<< ver("txn/a") > "0"\n\nget txn/a\n\n\n
        txn <<< create("txn/a") = "0"\n\nput txn/a fresh\n\nget txn/a --keys-only\n\n
        txn <<< c("txn/a") < "100000"\n\nget txn/ --prefix --count-only\n\n\n
        txn <<< mod("txn/a") > "0"\n\nget txn/ --prefix --sort-by=KEY --order=DESCEND\n\n\n
        txn <<< mod("txn/a") = "{r+1}"\n\nget txn/a\n\n\n
        txn <<< m("txn/none") = "0"\n\nget txn/none\n\n\n
        txn <<< value("txn/none") = ""\n\nget txn/a\n\nget txn/b\n\n
        txn <<< \nput txn/x 1\nput txn/y 2\ndel txn/a --prev-kv\nget txn/ --prefix\n\n\n
        get txn/ --prefix -w fields
        txn -w json <<< version("txn/x") = "1"\n\ndel txn/ --prefix --prev-kv\n\n\n
        txn -w fields <<< \nput txn/p 1\nput txn/q 2 --prev-kv\n\n\n
        txn -w protobuf <<< \nput txn/p 2 --prev-kv\n\n\n
        txn -w json <<< \nget txn/p\nget txn/ --prefix --keys-only --limit=1\n\n\n
        txn <<< \nput txn/p 1\nput txn/p 2\n\n\n
        txn <<< \nput txn/p 1\ndel txn/ --prefix\n\n\n
        txn <<< \nput txn/none 1 --ignore-value\n\n\n
        txn <<< \nput txn/p 1 --lease=1234\n\n\n
        txn <<< \nget txn/p --rev={r+1000}\n\n\n
        lease grant 600
        put txn/l 1 --lease={lease}
        txn <<< version("txn/l") = "1"\n\nput txn/m 1 --lease={lease}\nget txn/l\n\nget txn/p\n\n
        get txn/m -w json
        lease revoke {lease}
        txn -i <<< value("txn/p") = "2"\n\nput txn/i 1\n\nput txn/i 2\n\n
        txn <<< colour("txn/p") = "2"\n\n\n\n
        get txn/ --prefix -w json
    """,
    "compaction": """
        put compaction/a 1
        put compaction/a 2
        put compaction/a 3
        put compaction/b 1
        compaction {r+2}
        get compaction/a --rev={r+1}
        get compaction/a --rev={r+2}
        compaction {r+2}
        compaction {r+1}
        compaction {r+100}
        compaction {r+3} --physical
        get compaction/ --prefix --rev={r+3} -w json
        get compaction/a --rev={r+2}
        compaction {r+4} -w json
        compaction zero
        compaction 0
        compaction
        watch compaction/a --rev={r+1}
        endpoint hashkv
    """,
    "member list": """
        member list
        member list -w json
        member list -w json --hex
        member list -w fields
        member list -w table
        member list -w protobuf
    """,
    # Leases' ids stand in the keys that have one: they must be gone before hashes are compared.
    "endpoint": """
        put endpoint/a 1
        compaction {r+1} --physical
        put endpoint/b 2
        endpoint health
        endpoint health --cluster
        endpoint health -w json
        endpoint health -w fields
        endpoint health -w table
        endpoint status
        endpoint status --cluster
        endpoint status -w json
        endpoint status -w fields
        endpoint status -w table
        endpoint hashkv
        endpoint hashkv --cluster
        endpoint hashkv -w json
        endpoint hashkv -w fields
        endpoint hashkv -w table
        endpoint health --endpoints=127.0.0.1:1 --command-timeout=300ms
    """,
    "maintenance": """
        alarm list
        alarm list -w json
        alarm disarm
        alarm disarm -w json
        defrag
        defrag --cluster
        move-leader 1234
        move-leader x
        endpoint status -w json
        version
    """,
}

LEASES = """
    lease grant 600
    lease grant 1200 -w json
    lease grant 900
    lease grant -5
    lease grant 10000000000
    lease grant many
    lease revoke {lease2}
    lease grant 0
"""
LEASES_THAT_LAST = """
    lease list
    lease list -w json
    put lease/a 1 --lease={lease0}
    put lease/b 2
    put lease/c 3 --lease={lease1}
    lease timetolive {lease0}
    lease timetolive {lease0} --keys
    lease timetolive {lease1} --keys -w json
    lease timetolive {lease1} --keys -w fields
    lease timetolive 1234
    lease timetolive 1234 --keys -w json
    lease keep-alive {lease0} --once
    lease keep-alive {lease0} --once -w json
    lease keep-alive {lease0} --once -w fields
    lease keep-alive 1234 --once
    lease revoke 1234
    lease revoke {lease0}
    lease revoke {lease0}
    get lease/ --prefix -w json
    lease revoke {lease1} -w json
    get lease/ --prefix
    lease list
    lease timetolive {lease0} --keys
"""


def _watch(ctl: Ctl) -> None:
    """Past and future events, of a key, a prefix and a range; the previous value; commands."""
    ctl.play("""
        put watch/a 1
        put watch/b 1
        put watch/a 2
        del watch/a
    """)
    with ctl.talk("watch watch/a --rev={r+1}") as watch:
        watch.hears("DELETE\nwatch/a\n\n")
        ctl("put watch/a 3")
        watch.hears("\n3\n")
        watch.interrupt()
    with ctl.talk("watch watch/ --prefix --rev={r+1} --prev-kv -w json") as watch:
        watch.hears("mod_revision", times=5)
        ctl("del watch/ --prefix")
        watch.hears('"type":1', times=3)
        watch.interrupt()
    with ctl.talk("watch watch/b watch/c --rev={r+1} -w fields") as watch:
        watch.hears('"Lease" : 0', times=2)
        watch.interrupt()
    with ctl.talk("watch watch/a --rev={r+1} --hex") as watch:
        watch.hears("DELETE\n\\x77\\x61\\x74\\x63\\x68\\x2f\\x61\n\n", times=2)
        watch.interrupt()
    with ctl.talk("watch watch/a --rev={r+1} -w protobuf") as watch:
        watch.hears("watch/a", times=5)
        watch.interrupt()


def _watch_runs_a_command(ctl: Ctl) -> None:
    command = "sh -c 'echo $ETCD_WATCH_REVISION $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY'"
    ctl("put exec/a 1")
    with ctl.talk(f"watch exec/ --prefix --rev={{r+1}} -- {command}") as watch:
        watch.hears('"PUT" "exec/a"')
        ctl("put exec/b 2")
        watch.hears('"PUT" "exec/b"')
        ctl("del exec/ --prefix")
        watch.hears('"DELETE" "exec/b"')
        watch.interrupt()


def _watch_from_the_future(ctl: Ctl) -> None:
    ctl("put future/a 1")
    with ctl.talk("watch future/a --rev={r+3} --progress-notify") as watch:
        ctl("put future/a 2")
        ctl("put future/a 3")
        ctl("put future/a 4")
        watch.hears("\n4\n")
        watch.interrupt()


def _watch_interactively(ctl: Ctl) -> None:
    """Several watches share one stream."""
    ctl.play("put i/a 1\nput i/b/1 2\nput i/b/2 3")
    with ctl.talk("watch -i") as watch:
        watch.says("watch i/a --rev={r+1}")
        watch.hears("i/a\n1\n")
        watch.says("watch i/b/ --prefix --rev={r+2}")
        watch.hears("i/b/2\n3\n")
        watch.says("watch i/c --prev-kv --rev={r+4}")
        ctl("put i/c 1")
        watch.hears("i/c\n1\n")
        ctl("put i/c 2")
        watch.hears("i/c\n2\n")
        watch.says("progress")
        watch.hears("progress notify: {r+5}", times=3)  # the client tells each watch
        watch.interrupt()


def _leases(ctl: Ctl) -> None:
    ctl.play(LEASES)
    # The shortest is of two seconds. It ends by itself, before anything is listed.
    show = ["lease", "timetolive", ctl.leases[-1]]
    wait_for(lambda: b"expired" in ctl._run(show, b"").stdout, "the short lease ends")
    ctl.play(LEASES_THAT_LAST)


def _lease_ends(ctl: Ctl) -> None:
    """A lease nobody renews ends, and its keys with it: a watcher sees them go."""
    ctl("lease grant 5")
    ctl("put ends/a 1 --lease={lease}")
    with ctl.talk("watch ends/a --rev={r+1}") as watch:
        watch.hears("DELETE\nends/a\n\n")
        watch.interrupt()
    ctl("lease timetolive {lease} --keys")
    ctl("lease keep-alive {lease}")
    ctl("get ends/a -w json")


def _lease_is_kept(ctl: Ctl) -> None:
    ctl("lease grant 5")
    ctl("put kept/a 1 --lease={lease}")
    with ctl.talk("lease keep-alive {lease}") as keeper:
        keeper.hears("keepalived with TTL(5)", times=3)
        ctl("get kept/a")
        keeper.hears("keepalived with TTL(5)")
    ctl("lease revoke {lease}")
    ctl("get kept/a -w json")


def _lock(ctl: Ctl) -> None:
    """The second to ask waits for the first to let go."""
    with ctl.talk("lock room") as first:
        first.hears("room/")
        with ctl.talk("lock room --ttl=20") as second:
            _wait_for_keys(ctl, "room/", 2)
            assert second._output == b""
            first.interrupt()
            second.hears("room/")
            second.interrupt()
    ctl("get room/ --prefix --count-only -w fields")
    ctl("lock room echo held")
    ctl("lock room -- sh -c 'exit 3'")
    ctl("get room/ --prefix --count-only -w fields")


def _elect(ctl: Ctl) -> None:
    """A listener sees the first leader, then the second, who waited."""
    with ctl.talk("elect -l office") as listener, ctl.talk("elect office ann") as first:
        first.hears("ann")
        listener.hears("ann")
        with ctl.talk("elect office bob") as second:
            _wait_for_keys(ctl, "office/", 2)
            assert second._output == b""
            first.interrupt()
            second.hears("bob")
            listener.hears("bob")
            listener.interrupt()
            second.interrupt()
    ctl("get office/ --prefix --count-only -w fields")


def _wait_for_keys(ctl: Ctl, prefix: str, count: int) -> None:
    """Wait until so many contenders have left their key."""
    quiet = Ctl(ctl.server)
    for _ in range(200):
        if f'"Count" : {count}' in quiet(f"get {prefix} --prefix --count-only -w fields"):
            return
    raise AssertionError(f"there are never {count} keys below {prefix}")


def _large_values(ctl: Ctl) -> None:
    """Up to the largest request; one byte more is refused by the server, much more by gRPC."""
    for size in (1_000_000, 1_572_000, 1_573_000, 2_200_000):
        ctl("put large/a", stdin="x" * size)
        ctl.note(str(len(ctl._run(["get", "large/a", "--print-value-only"], b"").stdout)))
    ctl("del large/a")


def _large_transactions(ctl: Ctl) -> None:
    for count in (128, 129):
        puts = "\n".join(f"put many/{number:03} {number}" for number in range(count))
        ctl("txn", stdin=f"\n{puts}\n\n\n")
    ctl("get many/ --prefix --keys-only")


def _snapshot(ctl: Ctl) -> None:
    ctl("put snapshot/a 1")
    ctl("snapshot save {dir}.snapshot")
    ctl("snapshot save /nowhere/to/be/found")


def _mirror(ctl: Ctl) -> None:
    """Everything under a prefix, then what changes, goes to the other server."""
    assert ctl.other is not None
    name = "theirs" if ctl.server.command[0].endswith("etcd") else "ours"
    ctl(f"put {name}/a 1")
    ctl(f"put {name}/b 2")
    there = Ctl(ctl.other)
    with ctl.talk(f"make-mirror --prefix={name}/ --dest-prefix=mirror/ {{other}}"):
        _wait_for_keys(there, "mirror/", 2)
        ctl(f"put {name}/c 3")
        _wait_for_keys(there, "mirror/", 3)
        ctl(f"del {name}/a {name}/c")
        _wait_for_keys(there, "mirror/", 1)
    ctl.transcript.clear()
    there("get mirror/ --prefix")
    ctl.transcript += there.transcript


def _no_space(ctl: Ctl, end_alarm: Play) -> None:
    """Full, the store takes deletions only, until there is room and the alarm is over."""
    for number in range(100):
        if ctl._run(["put", f"full/{number}"], b"x" * (1 << 20)).returncode:
            break
    else:
        raise AssertionError("100 MB fit in a store of 16 MB")
    ctl.play("""
        alarm list
        put full/a 1
        lease grant 60
        get full/0 --keys-only
        txn <<< \\nput full/a 1\\n\\n\\n
        endpoint health
    """)
    ctl._run(["del", "full/", "--prefix"], b"")
    revision = Ctl(ctl.server).revision
    ctl._run(["compaction", str(revision), "--physical"], b"")
    ctl.play("defrag")
    end_alarm(ctl)
    ctl.play("""
        alarm list
        put full/a 1
        endpoint health
    """)


def _disarm(ctl: Ctl) -> None:
    """What etcd needs an operator for."""
    assert b"NOSPACE" in ctl._run(["alarm", "disarm"], b"").stdout


def _see_it_end(ctl: Ctl) -> None:
    """What ours does by itself."""
    deadline_s = time.monotonic() + 30
    while ctl._run(["alarm", "list"], b"").stdout:
        assert time.monotonic() < deadline_s, "the alarm does not end"


PLAYS: dict[str, Play] = {
    name: lambda ctl, script=script: ctl.play(script) for name, script in SCRIPTS.items()
} | {
    "large transactions": _large_transactions,
    "large values": _large_values,
    "watch": _watch,
    "watch runs a command": _watch_runs_a_command,
    "watch from the future": _watch_from_the_future,
    "watch interactively": _watch_interactively,
    "lease": _leases,
    "lease ends": _lease_ends,
    "lease is kept": _lease_is_kept,
    "lock": _lock,
    "elect": _elect,
    "snapshot": _snapshot,
    "mirror": _mirror,
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    tmp = tmp_path_factory.mktemp("etcdctl")
    with ExitStack() as stack:
        yield (
            stack.enter_context(running(etcd(tmp / "etcd", extra=SAME_IDS))),
            stack.enter_context(running(ours(tmp / "ours", extra=SAME_IDS))),
        )


def _compare(play: Play, theirs: Ctl, own: Ctl) -> None:
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(play, ctl) for ctl in (theirs, own)]:
            done.result()
    difference = difflib.unified_diff(
        theirs.transcript, own.transcript, "etcd", "ours", lineterm=""
    )
    assert own.transcript == theirs.transcript, "\n".join(difference)


@pytest.mark.parametrize("name", list(PLAYS))
def test_etcdctl_prints_the_same(name: str, pair: tuple[Server, Server]) -> None:
    theirs, own = pair
    _compare(PLAYS[name], Ctl(theirs, other=own), Ctl(own, other=theirs))


def test_a_full_store_is_emptied_and_disarmed(tmp_path: Path) -> None:
    extra = [*SAME_IDS, "--quota-backend-bytes=16777216"]
    with (
        running(etcd(tmp_path / "etcd", extra=extra)) as theirs,
        running(ours(tmp_path / "ours", extra=extra)) as own,
    ):
        ends = {theirs.client_port: _disarm, own.client_port: _see_it_end}
        _compare(lambda ctl: _no_space(ctl, ends[ctl.server.client_port]), Ctl(theirs), Ctl(own))
