"""--initial-cluster and what it is held to, in etcd's words."""

import pytest

from kvstack.component.errors import ConfigError
from kvstore.config.initial_cluster import difference, initial_members
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line

NAMES = {"one": "10.0.0.1", "uno": "10.0.0.1", "two": "10.0.0.2", "six": "fd00::6"}


def resolve(host: str) -> str:
    if host not in NAMES:
        raise OSError(f"no such host {host}")
    return NAMES[host]


def members(*flags: str) -> dict[str, tuple[str, ...]]:
    return initial_members(configure(read_command_line(["--name=a", *flags]), {}), resolve)


@pytest.mark.parametrize(
    ("cluster", "advertised", "text"),
    [
        ("b=http://one:1", "http://one:1", 'couldn\'t find local name "a" in the initial cluster'),
        ("", "http://one:1", 'couldn\'t find local name "a" in the initial cluster'),
        (
            "a=http://two:1",
            "http://one:1",
            "--initial-cluster has a=http://two:1 but missing from "
            '--initial-advertise-peer-urls=http://one:1 (resolved urls: "http://10.0.0.1:1" != '
            '"http://10.0.0.2:1")',
        ),
        (
            "a=http://one:1,a=http://two:1",
            "http://one:1",
            "--initial-cluster has a=http://two:1 but missing from "
            '--initial-advertise-peer-urls=http://one:1 (len(["http://one:1"]) != '
            'len(["http://one:1" "http://two:1"]))',
        ),
        (
            "a=http://one:1",
            "http://one:1,http://two:1",
            "--initial-advertise-peer-urls has http://two:1 but missing from "
            "--initial-cluster=a=http://one:1,a=http://two:1",
        ),
        (
            "a=http://nobody:1",
            "http://one:1",
            "--initial-cluster has a=http://nobody:1 but missing from "
            "--initial-advertise-peer-urls=http://one:1 "
            '(failed to resolve "http://nobody:1" (no such host nobody))',
        ),
        (
            "a=http://one:1,b=http://one:1",
            "http://one:1",
            "initial cluster a=http://one:1,b=http://one:1 has duplicate url",
        ),
        ("a", "http://one:1", "URL scheme must be http, https, unix, or unixs"),
        ("a=one:1", "http://one:1", "URL scheme must be http, https, unix, or unixs"),
    ],
)
def test_a_new_cluster_that_cannot_be(cluster: str, advertised: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        members(f"--initial-advertise-peer-urls={advertised}", f"--initial-cluster={cluster}")
    assert text in str(caught.value)


def test_three_members() -> None:
    assert members(
        "--initial-advertise-peer-urls=http://one:1",
        "--initial-cluster=c=http://h:4,a=http://one:1,b=http://h:3,b=http://h:2",
    ) == {"c": ("http://h:4",), "a": ("http://one:1",), "b": ("http://h:2", "http://h:3")}


def test_a_member_may_advertise_another_name_of_its_address() -> None:
    found = members(
        "--initial-advertise-peer-urls=http://uno:1", "--initial-cluster=a=http://one:1"
    )
    assert found == {"a": ("http://one:1",)}


def test_who_joins_has_registered_its_address() -> None:
    found = members(
        "--initial-advertise-peer-urls=http://two:1",
        "--initial-cluster=a=http://one:1",
        "--initial-cluster-state=existing",
    )
    assert found == {"a": ("http://one:1",)}


@pytest.mark.parametrize(
    ("urls", "others", "same"),
    [
        (["http://one:1"], ["http://10.0.0.1:1"], True),
        (["http://one:1"], ["http://10.0.0.1:2"], False),
        (["http://one:1"], ["https://10.0.0.1:1"], False),
        (["http://[fd00:0::6]:1"], ["http://[fd00::6]:1"], True),
        (["http://six:1"], ["http://[FD00::6]:1"], True),
        (["unix://a:1"], ["unix://a:1"], True),
        (["unix://a:1"], ["unix://b:1"], False),
        (["http://localhost:1"], ["http://127.0.0.1:1"], False),
        (["http://two:1", "http://one:1"], ["http://10.0.0.1:1", "http://10.0.0.2:1"], True),
    ],
)
def test_urls_that_mean_the_same(urls: list[str], others: list[str], *, same: bool) -> None:
    assert (difference(urls, others, resolve) == "") is same


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--discovery-srv=example.com"], "--discovery-srv: DNS lookups are not available here"),
        (
            [
                "--discovery-endpoints=http://one:2379",
                "--discovery-token=t",
                "--initial-cluster-state=existing",
            ],
            "discovery URL should not be set when joining existing initial cluster",
        ),
    ],
)
def test_nobody_founds_a_cluster_of_its_own_who_asked_for_discovery(
    flags: list[str], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        members(*flags)


def test_a_domain_names_the_members() -> None:
    config = configure(read_command_line(["--name=a", "--discovery-srv=example.com"]), {})
    found = initial_members(config, resolve, lambda: "a=http://localhost:2380,0=http://10.0.0.2:1")
    assert found == {"a": ("http://localhost:2380",), "0": ("http://10.0.0.2:1",)}


def test_who_is_to_meet_the_others_in_a_registry_is_alone_at_first() -> None:
    flags = ["--discovery-endpoints=http://one:2379", "--discovery-token=t"]
    assert members(*flags) == {"a": ("http://localhost:2380",)}
