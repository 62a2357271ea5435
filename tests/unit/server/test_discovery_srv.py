"""The initial cluster that a domain's SRV records name."""

import pytest

from kvstack.component.errors import ConfigError
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.config.model import Config
from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.server.boot.founding import peer_tls_of
from kvstore.server.discovery.dns import DnsError, Service
from kvstore.server.discovery.srv import cluster_by_srv

ADDRESSES = {"one.test": "10.0.0.1", "two.test": "10.0.0.2", "three.test": "10.0.0.3"}


def config(*flags: str, advertised: str = "http://10.0.0.1:2380") -> Config:
    urls = f"--initial-advertise-peer-urls={advertised}"
    return configure(read_command_line(["--name=me", "--discovery-srv=test", urls, *flags]), {})


def resolve(host: str, port: int) -> tuple[str, int]:
    if host.startswith("10."):
        return host, port
    if host not in ADDRESSES:
        raise OSError(f"lookup {host}: no such host")
    return ADDRESSES[host], port


def cluster(records: dict[str, list[str]], asked: Config) -> str:
    """Return the cluster that records (service → targets) make."""

    def find(service: str, domain: str) -> list[Service]:
        if service not in records:
            raise DnsError(f"lookup _{service}._tcp.{domain} on dns: no such host")
        return [Service(f"{target}.", 2380, 0, 0) for target in records[service]]

    return cluster_by_srv(asked, LineLogger([], "info"), find, resolve)


def test_the_own_record_has_the_own_name_and_the_others_have_numbers() -> None:
    records = {"etcd-server": ["two.test", "one.test", "three.test"]}
    assert cluster(records, config()) == (
        "0=http://two.test:2380,me=http://one.test:2380,1=http://three.test:2380"
    )


def test_both_services_count_together() -> None:
    records = {"etcd-server-ssl": ["one.test"], "etcd-server": ["two.test"]}
    assert cluster(records, config(advertised="https://10.0.0.1:2380")) == (
        "me=https://one.test:2380,0=http://two.test:2380"
    )


def test_a_suffix_makes_services_of_other_names() -> None:
    records = {"etcd-server-blue": ["one.test"]}
    assert cluster(records, config("--discovery-srv-name=blue")) == "me=http://one.test:2380"


@pytest.mark.parametrize(
    ("records", "texts"),
    [
        (
            {},
            [
                "error setting up initial cluster: error querying DNS SRV records for "
                "_etcd-server-ssl lookup _etcd-server-ssl._tcp.test on dns: no such host",
                "error querying DNS SRV records for _etcd-server lookup "
                "_etcd-server._tcp.test on dns: no such host",
            ],
        ),
        (
            {"etcd-server": ["two.test"]},
            ['error setting up initial cluster: cannot find local etcd member "me" in SRV records'],
        ),
        (
            {"etcd-server-ssl": ["one.test"]},
            [
                "error setting up initial cluster: error querying DNS SRV records for "
                "_etcd-server-ssl bootstrap at https://one.test:2380 from DNS for etcd-server-ssl "
                "has scheme mismatch with expected peer http://10.0.0.1:2380",
                "error querying DNS SRV records for _etcd-server lookup "
                "_etcd-server._tcp.test on dns: no such host",
            ],
        ),
        (
            {"etcd-server": ["gone.test"], "etcd-server-ssl": ["gone.test"]},
            [
                "error setting up initial cluster: error querying DNS SRV records for "
                "_etcd-server-ssl lookup gone.test: no such host",
                "error querying DNS SRV records for _etcd-server lookup gone.test: no such host",
            ],
        ),
    ],
)
def test_records_that_make_no_cluster(records: dict[str, list[str]], texts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        cluster(records, config())
    assert str(caught.value) == "\n".join(texts)


def test_members_that_dns_names_may_have_the_domains_certificate() -> None:
    assert peer_tls_of(config()).server_name == "test"
    assert peer_tls_of(config("--peer-trusted-ca-file=ca.pem")).server_name == ""
