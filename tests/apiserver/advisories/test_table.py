"""The published advisories about kube-apiserver since 2018, and the test of each.

A row says what was wrong in our own words and names the test that would have caught it, or why
there is nothing here to be caught. Advisories about kubelets, kubectl, controllers and add-ons are
left out, unless the API server has a part in them.
"""

import importlib
from typing import NamedTuple

import pytest

HERE = "tests.apiserver.advisories"


class Advisory(NamedTuple):
    """One advisory, or several of one kind."""

    names: str
    what: str
    test: str = ""
    """Module and function."""
    absent: str = ""
    """What is not there, so that nothing can be wrong with it."""


TABLE = (
    Advisory(
        "CVE-2018-1002102",
        "redirects of kubelets were followed with the API server's credentials",
        f"{HERE}.test_streams:test_cve_2018_1002102_and_2020_8559_a_kubelet_that_sends_elsewhere",
    ),
    Advisory(
        "CVE-2018-1002105",
        "a refused upgrade left the connection to the backend open for the client",
        f"{HERE}.test_streams:test_cve_2018_1002105_a_stream_that_did_not_begin",
    ),
    Advisory(
        "CVE-2019-1002100",
        "a JSON patch took all memory",
        f"{HERE}.test_requests:test_cve_2019_1002100_a_patch_that_copies",
    ),
    Advisory(
        "CVE-2019-9512 CVE-2019-9514 CVE-2019-9515",
        "floods of pings, resets and settings of HTTP/2",
        f"{HERE}.test_streams:test_cve_2019_9512_9514_9515_and_2023_44487_floods",
    ),
    Advisory(
        "CVE-2019-11247",
        "objects of the cluster were served below a namespace",
        f"{HERE}.test_requests:test_cve_2019_11247_objects_of_the_cluster_in_a_namespace",
    ),
    Advisory(
        "CVE-2019-11250 CVE-2020-8565",
        "bearer tokens in the log",
        f"{HERE}.test_streams:test_cve_2019_11250_and_2020_8565_secrets_in_the_log",
    ),
    Advisory(
        "CVE-2019-11253 CVE-2019-11254 CVE-2022-28948",
        "small documents in YAML that take much time or memory, or end the server",
        f"{HERE}.test_requests:test_cve_2019_11253_11254_and_2022_28948_yaml_that_grows",
    ),
    Advisory(
        "CVE-2019-16276",
        "a header with a blank before its colon was another one behind a proxy",
        f"{HERE}.test_credentials:test_headers_that_look_like_others",
    ),
    Advisory(
        "CVE-2020-8552",
        "clients made series of metrics as they liked",
        f"{HERE}.test_requests:test_cve_2020_8552_labels_of_metrics_are_not_the_clients",
    ),
    Advisory(
        "CVE-2020-8554",
        "a Service takes traffic of addresses that are not its own",
        "tests.apiserver.advisories.test_admission:test_cve_2020_8554_addresses_of_others",
    ),
    Advisory(
        "CVE-2020-8559",
        "a kubelet that was taken over sent the API server's requests to other nodes",
        f"{HERE}.test_streams:test_cve_2018_1002102_and_2020_8559_a_kubelet_that_sends_elsewhere",
    ),
    Advisory(
        "CVE-2020-8561",
        "a webhook sent the API server elsewhere, and the answer was in the log",
        "tests.apiserver.policy.test_remote:test_connections",
    ),
    Advisory(
        "CVE-2020-8562 CVE-2022-3294",
        "proxies to nodes led to addresses of the API server's own network",
        f"{HERE}.test_streams:test_cve_2020_8562_and_2022_3294_addresses_of_the_servers_own",
    ),
    Advisory(
        "CVE-2021-3121",
        "a malformed message of protobuf ended the server",
        "tests.apimachinery.schema.test_protobuf:test_any_bytes_are_read_or_refused",
    ),
    Advisory(
        "CVE-2021-25735",
        "validation saw fields of the new node in place of the old one's",
        f"{HERE}.test_admission:test_cve_2021_25735_what_validation_saw_of_a_node",
    ),
    Advisory(
        "CVE-2021-25737",
        "slices of endpoints led to loopback and to addresses of one link",
        "tests.apiserver.kinds.network.test_endpoint_slices:test_addresses",
    ),
    Advisory(
        "CVE-2021-25740",
        "who may edit a namespace could write endpoints",
        f"{HERE}.test_admission:test_cve_2021_25740_endpoints_are_not_everybodys",
    ),
    Advisory(
        "CVE-2022-1996",
        "other sites were allowed by a pattern that was not anchored",
        f"{HERE}.test_streams:test_cve_2022_1996_other_sites",
    ),
    Advisory(
        "CVE-2022-21698 CVE-2023-45142",
        "methods that clients made up were labels of metrics",
        f"{HERE}.test_requests:test_cve_2020_8552_labels_of_metrics_are_not_the_clients",
    ),
    Advisory(
        "CVE-2022-3162",
        "who may list one custom resource read others of its group",
        f"{HERE}.test_requests:test_cve_2022_3162_objects_of_another_resource",
    ),
    Advisory(
        "CVE-2022-3172",
        "an aggregated API server sent clients elsewhere",
        "tests.apiserver.aggregation.test_aggregation:test_what_another_server_serves",
    ),
    Advisory(
        "CVE-2023-1260",
        "ephemeral containers passed by the checks of pods",
        f"{HERE}.test_admission:test_cve_2023_1260_privileges_by_ephemeral_containers",
    ),
    Advisory(
        "CVE-2023-2727",
        "ephemeral containers passed by the plugin ImagePolicyWebhook",
        "tests.apiserver.policy.admission.test_image_policy_webhook:"
        "test_pods_and_their_ephemeral_containers",
    ),
    Advisory(
        "CVE-2023-2728 CVE-2024-3177",
        "Secrets by ephemeral containers and envFrom that the service account does not list",
        f"{HERE}.test_admission:test_cve_2023_2728_and_2024_3177_secrets_by_other_containers",
    ),
    Advisory(
        "CVE-2023-39325 CVE-2023-44487",
        "streams of HTTP/2 that are opened and reset at once",
        f"{HERE}.test_streams:test_cve_2019_9512_9514_9515_and_2023_44487_floods",
    ),
    Advisory(
        "CVE-2023-45288",
        "headers of HTTP/2 that never end",
        f"{HERE}.test_streams:test_cve_2019_9512_9514_9515_and_2023_44487_floods",
    ),
    Advisory(
        "CVE-2024-7598",
        "policies of the network were gone before the pods of a namespace that ends",
        "tests.agents.controllers.cluster.test_cluster_controllers:test_pods_go_first",
    ),
    Advisory(
        "CVE-2024-28180",
        "an encrypted token that grows when it is unpacked",
        f"{HERE}.test_credentials:test_cve_2024_28180_a_token_that_grows",
    ),
    Advisory(
        "CVE-2025-4563",
        "a node got devices of others by a mirror pod",
        f"{HERE}.test_admission:test_cve_2025_4563_a_mirror_pod_with_devices",
    ),
    Advisory(
        "CVE-2025-5187",
        "a node had itself removed by an owner that it gave itself",
        f"{HERE}.test_admission:test_cve_2025_5187_a_node_that_removes_itself",
    ),
    Advisory(
        "CVE-2025-30204 CVE-2025-27144",
        "a token of very many parts",
        f"{HERE}.test_credentials:test_cve_2025_30204_a_token_of_many_parts",
    ),
)


@pytest.mark.parametrize("row", TABLE, ids=[each.names for each in TABLE])
def test_each_advisory_has_a_test_or_nothing_to_test(row: Advisory) -> None:
    assert bool(row.test) != bool(row.absent)
    if row.test:
        module, _, function = row.test.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_no_advisory_stands_twice() -> None:
    names = [name for row in TABLE for name in row.names.split()]
    assert len(set(names)) == len(names)
