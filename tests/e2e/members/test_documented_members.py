"""Three members, started as docs/running-a-cluster.md starts the first one."""

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from typing_extensions import override

from tests.support.documented import words
from tests.support.network.ports import free_ports
from tests.support.servers import Server, etcdctl, running

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FIRST = words(
    "kvstore --name m1 --data-dir m1 --listen-client-urls http://10.0.0.1:2379"
    " --advertise-client-urls http://10.0.0.1:2379 --listen-peer-urls http://10.0.0.1:2380"
    " --initial-advertise-peer-urls http://10.0.0.1:2380"
    " --initial-cluster m1=http://10.0.0.1:2380,m2=http://10.0.0.2:2380,m3=http://10.0.0.3:2380"
)
COUNT = 3


class Member(Server):
    """A member that has exactly the flags of the page."""

    def __init__(self, number: int, directory: Path, addresses: dict[str, str]) -> None:
        own = f"10.0.0.{number}:2379"
        super().__init__(
            [sys.executable, "-m", "kvstore"],
            directory / f"m{number}",
            name=f"m{number}",
            ports=(int(addresses[own].rpartition(":")[2]), 0),
        )
        self._flags = [self._flag(number, word, addresses) for word in FIRST]
        self._flags[FIRST.index("--data-dir") + 1] = str(self.data_dir)

    def _flag(self, number: int, word: str, addresses: dict[str, str]) -> str:
        """Return a word of this member: the first one's, but for the list of all members."""
        if "," not in word:
            word = word.replace("m1", self.name).replace("10.0.0.1:", f"10.0.0.{number}:")
        for documented, given in addresses.items():
            word = word.replace(documented, given)
        return word

    @override
    def arguments(self) -> list[str]:
        return [*self.command, *self._flags]


def test_members_that_are_started_as_documented(tmp_path: Path) -> None:
    documented = [
        f"10.0.0.{number}:{port}" for number in range(1, COUNT + 1) for port in (2379, 2380)
    ]
    ports = free_ports(len(documented))
    addresses = {each: f"127.0.0.1:{own}" for each, own in zip(documented, ports, strict=True)}
    members = [Member(number, tmp_path, addresses) for number in range(1, COUNT + 1)]
    with ExitStack() as stack:
        for each in members:
            each.start(wait=False)
            stack.enter_context(running(each))
        for each in members:
            each.wait_ready()
        etcdctl(members[0], "put", "k", "v")
        assert etcdctl(members[2], "get", "k", "--print-value-only").stdout == "v\n"
        listed = etcdctl(members[1], "member", "list").stdout.splitlines()
        assert sorted(line.split(", ")[1:3] for line in listed) == [
            ["started", each.name] for each in members
        ]
