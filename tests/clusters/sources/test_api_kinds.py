"""Which resources of an API server are read: what others serve is left out, and named."""

from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.discovery import Discovery, ServedResource
from kvstack.agents.client.resource_type import ResourceType
from kvstack.clusters.contents import LeftOut
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.sources.api_kinds import AGGREGATED, aggregated_versions, chosen

VERBS = frozenset(("get", "list", "watch"))
SHIPS = ResourceType("sea.example", "v1", "ships", "Ship", is_namespaced=True)


def api_service(group: str, version: str, service: str = "") -> dict[str, object]:
    spec: dict[str, object] = {"group": group, "version": version}
    if service:
        spec["service"] = {"name": service, "namespace": "default"}
    return {"spec": spec}


def test_what_an_aggregated_server_serves_is_left_out_and_named() -> None:
    served = [ServedResource(each, VERBS, is_preferred=True) for each in (PODS, SHIPS)]
    failures = {"air.example/v1": "stale GroupVersion discovery", "land.example/v1": "no answer"}
    aggregated = aggregated_versions(
        [
            api_service("sea.example", "v1", "harbour"),
            api_service("air.example", "v1", "tower"),
            api_service("apps", "v1"),
        ]
    )
    assert aggregated == {("sea.example", "v1"), ("air.example", "v1")}
    found, left_out = chosen(Discovery(served, failures), Kinds(), aggregated)
    assert [(each.resource, each.prefix) for each in found] == [(PODS, "pods")]
    assert left_out == [
        LeftOut("air.example/v1", AGGREGATED),
        LeftOut("land.example/v1", "discovery failed: no answer"),
        LeftOut("ships.sea.example", AGGREGATED),
    ]
    # Served by the server itself, in another version, it is read there.
    own = ServedResource(SHIPS._replace(version="v2"), VERBS, is_preferred=False)
    found, left_out = chosen(Discovery([*served, own]), Kinds(), aggregated)
    assert [each.resource.version for each in found if each.resource.name == "ships"] == ["v2"]
    assert left_out == []
