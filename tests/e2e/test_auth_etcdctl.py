"""etcdctl's auth, user and role commands, and everything else under them, on etcd and here alike.

One play of two servers from nothing to users, permissions, refusals and back. What etcd 3.7 answers
otherwise than the 3.5 played against is not in the script, but in `test_what_37_asks_for`.
"""

import difflib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.ctl import Ctl
from tests.support.servers import Server, etcd, ours, running

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("auth-etcdctl")]

PEER_URL = "http://127.0.0.1:2380"  # what members' ids are made of; nobody listens there
FLAGS = [
    f"--initial-advertise-peer-urls={PEER_URL}",
    f"--initial-cluster=default={PEER_URL}",
    "--bcrypt-cost=4",
]

USERS = """
    auth enable
    auth disable
    user add root:rootpw
    user add root:other
    user add nopw --no-password
    user add alice:alicepw
    user add bob:bobpw
    user list
    user list -w json
    role add r1
    role add r1
    role add r2
    role add ""
    role get none
    role grant-permission r1 readwrite a c
    role grant-permission r1 read c e
    role grant-permission r1 write w --prefix=true
    role grant-permission r1 read z --from-key=true
    role grant-permission r1 read z --from-key=true
    role grant-permission r2 readwrite "" --prefix=true
    role grant-permission none read z
    role grant-permission r1 sideways z
    role get r1
    role get r1 -w json
    role get r2
    role revoke-permission r1 nothere
    role revoke-permission none a
    role revoke-permission r1 a
    role list
    user grant-role alice r1
    user grant-role alice r1
    user grant-role alice none
    user grant-role none r1
    user grant-role bob r2
    user get alice
    user get alice -w json
    user get alice --detail
    user get none
    user revoke-role alice none
    user revoke-role none r1
    user delete none
    user passwd none --interactive=false <<< pw
    user grant-role root root
    user get root
    put c from-before-auth
    auth enable
    auth enable
"""

DENIED = """
    put a 1
    get a
    del a
    get a --user=alice:wrong
    get a --user=nopw:x
    get a --user=none:x
    user list
    role list
    auth disable
    put a 1 --user=alice:alicepw
    put b 1 --user=alice:alicepw --prev-kv
    put c 1 --user=alice:alicepw
    get c --user=alice:alicepw
    get c --user=alice --password=alicepw
    get a c --user=alice:alicepw
    get a e --user=alice:alicepw
    get a f --user=alice:alicepw
    get a --from-key --user=alice:alicepw
    get z --from-key --user=alice:alicepw
    get a --prefix --user=alice:alicepw
    get "" --prefix --user=bob:bobpw --count-only -w fields
    get "" --from-key --keys-only --user=bob:bobpw
    put wx 1 --user=alice:alicepw
    put wx 1 --prev-kv --user=alice:alicepw
    del wx --user=alice:alicepw
    del wx --prev-kv --user=alice:alicepw
    get wx --user=alice:alicepw
    del a --from-key --user=alice:alicepw
    txn --user=alice:alicepw <<< mod("a") > "0"\\n\\nput b then\\nget a\\n\\nput b else\\n\\n
    txn --user=alice:alicepw <<< mod("y") > "0"\\n\\nput b then\\n\\nput b else\\n\\n
    txn --user=alice:alicepw <<< mod("a") > "0"\\n\\nget a\\n\\nget y\\n\\n
    txn --user=alice:alicepw <<< mod("a") > "0"\\n\\nput c no\\n\\nget a\\n\\n
    user list --user=alice:alicepw
    user get alice --user=alice:alicepw
    user get root --user=alice:alicepw
    user add carol:pw --user=alice:alicepw
    user grant-role alice root --user=alice:alicepw
    user passwd alice --user=alice:alicepw --interactive=false <<< newpw
    role get r1 --user=alice:alicepw
    role get r2 --user=alice:alicepw
    role list --user=alice:alicepw
    role grant-permission r1 read y --user=alice:alicepw
    auth disable --user=alice:alicepw
    member add new --peer-urls=http://127.0.0.1:2 --user=alice:alicepw
    member remove 1 --user=alice:alicepw
    compaction {r+1} --user=root:rootpw
    lease grant 1000 --user=alice:alicepw
    put c leased --lease={lease} --user=root:rootpw
    put b leased --lease={lease} --user=alice:alicepw
    lease timetolive {lease} --keys --user=alice:alicepw
    lease revoke {lease} --user=alice:alicepw
    put w leased --lease={lease} --user=root:rootpw
    lease timetolive {lease} --keys --user=root:rootpw
    lease revoke {lease} --user=root:rootpw
    get c --user=root:rootpw
    user passwd alice --user=root:rootpw --interactive=false <<< newpw
    get a --user=alice:alicepw
    get a --user=alice:newpw
    user delete root --user=root:rootpw
    user revoke-role root root --user=root:rootpw
    role add root --user=root:rootpw
    role delete root --user=root:rootpw
    role delete r1 --user=root:rootpw
    user get alice --user=root:rootpw
    get a --user=alice:newpw
    user delete alice --user=root:rootpw
    get a --user=alice:newpw
    role list --user=root:rootpw
    user list --user=root:rootpw
    auth status --user=root:rootpw
    auth status --user=root:rootpw -w json
    auth disable --user=root:rootpw
    auth disable
    auth status
    get a
    get a --user=root:rootpw
"""


# What 3.7.1 says, seen there; 3.5 let most of it pass.
OF_37 = {
    "member list": "etcdserver: user name is empty",
    "endpoint status": "etcdserver: user name is empty",
    "alarm list": "etcdserver: user name is empty",
    "lease list": "etcdserver: user name is empty",
    "lease grant 100": "etcdserver: user name is empty",
    "compaction 1": "etcdserver: user name is empty",
    "compaction 1 --user=alice:alicepw": "etcdserver: permission denied",
    "defrag --user=alice:alicepw": "etcdserver: permission denied",
    "endpoint hashkv --user=alice:alicepw": "etcdserver: permission denied",
    "move-leader 1 --user=alice:alicepw": "etcdserver: permission denied",
    "snapshot save {dir}.alice --user=alice:alicepw": "etcdserver: permission denied",
    "lease timetolive {lease} --keys --user=alice:alicepw": "etcdserver: permission denied",
    "auth status": "Authentication Status: true",
    "member list --user=alice:alicepw": "started, default",
    "endpoint status --user=alice:alicepw": "true, false",
    "alarm list --user=alice:alicepw": "",
    "lease list --user=root:rootpw": "found 1 leases",
    "endpoint hashkv --user=root:rootpw": "",
    "defrag --user=root:rootpw": "Finished defragmenting",
    "snapshot save {dir}.root --user=root:rootpw": "Snapshot saved",
    "compaction 2 --user=root:rootpw": "compacted revision 2",
}


def play(server: Server) -> list[str]:
    ctl = Ctl(server)
    ctl.play(USERS)
    ctl.play(DENIED)
    return ctl.transcript


def test_users_and_permissions_are_etcds(tmp_path: Path) -> None:
    with (
        running(etcd(tmp_path / "etcd", extra=FLAGS)) as theirs,
        running(ours(tmp_path / "ours", extra=FLAGS)) as own,
        ThreadPoolExecutor(2) as pool,
    ):
        wanted, found = pool.map(play, (theirs, own))
    assert len(wanted) > 300
    difference = list(difflib.unified_diff(wanted, found, "etcd", "ours", lineterm=""))
    assert not difference, "\n".join(difference)


def test_what_37_asks_for(tmp_path: Path) -> None:
    with running(ours(tmp_path / "ours", extra=FLAGS)) as server:
        ctl = Ctl(server)
        ctl.play("""
            user add root:rootpw
            user grant-role root root
            user add alice:alicepw
            lease grant 1000
            put foreign 1 --lease={lease}
            auth enable
        """)
        for command, wanted in OF_37.items():
            ctl.transcript.clear()
            ctl(command)
            assert wanted in "\n".join(ctl.transcript), (command, ctl.transcript)


def test_a_watch_under_etcdctl_ends_with_its_permission(tmp_path: Path) -> None:
    with running(ours(tmp_path / "ours", extra=FLAGS)) as server:
        ctl = Ctl(server)
        ctl.play("""
            user add root:rootpw
            user grant-role root root
            user add alice:alicepw
            role add r
            role grant-permission r read k
            user grant-role alice r
            auth enable
        """)
        with ctl.talk("watch k --user=alice:alicepw --rev=1") as watch:
            with ctl.talk("watch k --user=root:rootpw --rev=1") as other:
                ctl("put k 1 --user=root:rootpw")
                other.hears("PUT\nk\n1\n")
                watch.hears("PUT\nk\n1\n")
                ctl("role revoke-permission r k --user=root:rootpw")
                ctl("put k 2 --user=root:rootpw")
                other.hears("PUT\nk\n2\n")
                other.interrupt()
            watch.hears("watch is canceled by the server")
            watch.wait()
        assert "k\n2" not in watch._output.decode()
